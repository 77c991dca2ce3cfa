# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""How states of replicas travel: as a stream without pickle, by HTTP from several sources, over a process group."""

from __future__ import annotations

import contextlib
import hashlib
import http.client as http_client
import json
import os
import random
import socket
import struct
import threading
import time
import unittest
import urllib.parse
import zlib
from collections import OrderedDict
from datetime import timedelta
from typing import Any, Dict, Iterator, List
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard

import ranks
from comms_support import on_threads
from ft_process_group_test import LONG, Meeting, reconfigure
from tutti_torch import _C
from tutti_torch.ft import trust
from tutti_torch.ft.checkpointing import snapshot_server
from tutti_torch.ft.checkpointing._rwlock import RWLock
from tutti_torch.ft.checkpointing.http_transport import HTTPTransport
from tutti_torch.ft.checkpointing.pg_transport import PGTransport
from tutti_torch.ft.checkpointing.plain import NotPlain
from tutti_torch.ft.checkpointing.stream import MAGIC, PIECE, PREFIX, DamagedError, Incoming, Snapshot
from tutti_torch.ft.process_group import ProcessGroupTutti
from tutti_torch.ft.recovery import HalfWritten, Recovery
from tutti_torch.ft.trust import Token

SHORT = timedelta(milliseconds=100)


class Custom:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom)


def received(snapshot: Snapshot, **options: Any) -> Any:
    incoming = Incoming(snapshot.header, **options)
    order = list(range(incoming.n_pieces))
    random.Random(1).shuffle(order)
    for piece in order:
        first, end = incoming.range_of(piece)
        data = snapshot.payload[first:end].clone()
        incoming.check(piece, data)
        incoming.store(piece, data)
    return incoming.state()


def alike(a: Any, b: Any) -> None:
    assert type(a) is type(b), (a, b)
    if isinstance(a, DTensor):
        assert a._spec == b._spec
        alike(a.to_local(), b.to_local())
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()), (a, b)
        assert torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            alike(a[key], b[key])
    elif isinstance(a, (list, tuple)) and not isinstance(a, torch.Size):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            alike(one, other)
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b)
    else:
        assert a == b, (a, b)


def plain_state() -> dict:
    ordered: Any = OrderedDict([("b", torch.ones(2)), ("a", 1)])
    return {
        "none": None, "bool": True, "int": 1 << 80, "floats": [0.1, float("nan"), float("-inf"), -0.0, 5e-324],
        "text": "\u20ac\n", "bytes": b"\x00\xff", "tuple": (1, ("a",), []), ("key", 2): {3: 4, None: 5},
        "dtype": torch.bfloat16, "size": torch.Size([2, 3]), "device": torch.device("cuda:1"), "ordered": ordered,
    }


def tensors() -> dict:
    generator = torch.Generator().manual_seed(3)
    made = {str(dtype): torch.randint(0, 2, (3, 5), generator=generator).to(dtype) for dtype in (
        torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.complex64, torch.float8_e4m3fn)}
    image = torch.randn(2, 3, 4, 5, generator=generator)
    return {**made, "empty": torch.empty(0, 7), "scalar": torch.tensor(3.5), "transposed": image[0, 0].t(),
            "channels_last": image.contiguous(memory_format=torch.channels_last),
            "large": torch.randn(3 * PIECE // 4 + 17, generator=generator)}


class Stream(unittest.TestCase):
    def test_plain_data_and_tensors(self) -> None:
        state = {**plain_state(), "tensors": tensors()}
        alike(received(Snapshot(state)), state)
        weights = torch.nn.Linear(3, 4).state_dict()
        alike(received(Snapshot(weights)), weights)
        self.assertEqual(received(Snapshot(weights))._metadata, weights._metadata)

    def test_a_snapshot_is_a_copy(self) -> None:
        tensor = torch.zeros(100)
        snapshot = Snapshot({"x": tensor})
        tensor.fill_(1)
        self.assertEqual(received(snapshot)["x"].sum().item(), 0)

    def test_holes_are_left_out_and_shared_weights_travel_once(self) -> None:
        base = torch.arange(10.0)
        got = received(snapshot := Snapshot({"every_second": base[::2], "a": base, "b": base}))
        self.assertEqual(got["every_second"].tolist(), base[::2].tolist())
        self.assertEqual(len(snapshot.entries), 2)
        self.assertIs(got["a"], got["b"])

    def test_parameters_need_gradients(self) -> None:
        got = received(Snapshot({"x": torch.nn.Parameter(torch.ones(2))}))
        self.assertTrue(got["x"].requires_grad)

    def test_local_shards(self) -> None:
        dist.init_process_group("tutti", rank=0, world_size=1, store=dist.HashStore())
        try:
            mesh = DeviceMesh("cpu", [[0]], mesh_dim_names=("dp", "tp"))
            state = {"w": DTensor.from_local(torch.randn(4, 6), mesh, [Shard(1), Replicate()])}
            alike(received(Snapshot(state)), state)
            target = {"w": DTensor.from_local(torch.zeros(4, 6), mesh, [Shard(1), Replicate()])}
            received(Snapshot(state), into=target)
            alike(target, state)
        finally:
            dist.destroy_process_group()

    def test_in_place(self) -> None:
        state = {"t": tensors(), "list": [torch.ones(3), (torch.ones(2), 5)]}
        target = {"t": {name: torch.zeros_like(value) for name, value in state["t"].items()},
                  "list": [torch.zeros(3), (torch.zeros(2), 6)]}
        before = [tensor.data_ptr() for tensor in target["t"].values()]
        got = received(Snapshot(state), into=target)
        alike(got, state)
        self.assertEqual([tensor.data_ptr() for tensor in got["t"].values()], before)
        alike(target["t"], state["t"])

    def test_in_place_where_it_fits(self) -> None:
        state = {"a": torch.ones(4), "b": torch.ones(5), "new": torch.ones(6)}
        target = {"a": torch.zeros(4), "b": torch.zeros(7)}
        got = received(Snapshot(state), into=target)
        alike(got, state)
        self.assertEqual(got["a"].data_ptr(), target["a"].data_ptr())
        self.assertEqual(target["a"].sum().item(), 4)
        self.assertEqual(target["b"].sum().item(), 0)

    def test_what_is_refused(self) -> None:
        with ranks.raises(NotPlain, "state['inner'][1] is a ", "Custom", "allow_pickle=True"):
            Snapshot({"inner": [1, Custom()]})
        with ranks.raises(NotPlain, "builtins.set"):
            Snapshot({"x": {1, 2}})
        with ranks.raises(TypeError, "sparse"):
            Snapshot({"x": torch.eye(2).to_sparse()})
        pickled = Snapshot({"x": Custom()}, allow_pickle=True)
        alike(received(pickled, allow_pickle=True), {"x": Custom()})
        with ranks.raises(NotPlain, "sent a pickle"):
            received(pickled)

    def test_damage(self) -> None:
        snapshot = Snapshot({"x": torch.arange(3 * PIECE // 4, dtype=torch.float32), "y": 1})
        incoming = Incoming(snapshot.header)
        first, end = incoming.range_of(1)
        for place in (0, 1000, end - first - 1):
            data = snapshot.payload[first:end].clone()
            data[place] ^= 1
            with ranks.raises(DamagedError, "piece 1 of 3"):
                incoming.check(1, data)
        data = snapshot.payload[first:end].clone()
        data[:512], data[512:1024] = data[512:1024].clone(), data[:512].clone()
        with ranks.raises(DamagedError, "piece 1 of 3"):  # the same words in another order
            incoming.check(1, data)
        with ranks.raises(DamagedError, "piece 0 of 3"):  # another piece's bytes
            incoming.check(0, snapshot.payload[first:end])
        for place in range(len(PREFIX.pack(b"", 0, 0, 0)), len(snapshot.header)):
            header = bytearray(snapshot.header)
            header[place] ^= 4
            with ranks.raises(DamagedError, "damaged"):
                Incoming(bytes(header))
        with ranks.raises(DamagedError, "version 1"):  # with sums that were no CRCs
            Incoming(b"TUTTIFT\x01" + snapshot.header[8:])
        with ranks.raises(DamagedError, "no state of tutti_torch.ft"):
            Incoming(b"\x80\x04something" + bytes(100))

    def test_crc(self) -> None:
        data = random.Random(2).randbytes(1000)
        for tables in (False, True):
            self.assertEqual(_C.crc32c(b"123456789", tables=tables), 0xE3069283)
            for first, end in ((0, 0), (0, 1000), (3, 14), (1, 998)):
                whole = _C.crc32c(data[first:end], tables=tables)
                parts = _C.crc32c(data[first + 5 : end], _C.crc32c(data[first : min(first + 5, end)]), tables=tables)
                self.assertEqual(parts, whole)
                self.assertEqual(_C.crc32c(data[first:end], tables=not tables), whole)

    def test_headers_that_lie(self) -> None:
        """Whole, by their sum, but not what a snapshot has."""
        snapshot = Snapshot({"x": torch.ones(10)})
        words = json.loads(snapshot.header[PREFIX.size :])

        def forged(**changed: Any) -> bytes:
            text = json.dumps({**words, **changed}).encode()
            return PREFIX.pack(MAGIC, len(text), snapshot.payload.numel(), zlib.crc32(text)) + text

        self.assertEqual(Incoming(forged()).n_bytes, 64)
        for tensor in (["float32", [100], [1], 0], ["float32", [10], [1], -64], ["float32", [10], [1], 8],
                       ["float32", [10], [0], 0], ["float32", [-1], [1], 0], ["nothing", [1], [1], 0],
                       ["float32", [10], [1], 64]):
            with ranks.raises(ValueError if tensor[0] == "nothing" else DamagedError, "damaged"):
                Incoming(forged(tensors=[tensor]))
        with ranks.raises(DamagedError, "2 CRCs of 1 pieces"):
            Incoming(forged(crcs=[1, 2]))
        for tree in (["T", 5, False], ["?", 1], {}, ["l", [["T", -1, False]]]):
            with ranks.raises((DamagedError, ValueError), "damaged"):
                Incoming(forged(tree=tree)).state()


# ---- transports ----


@contextlib.contextmanager
def secret(text: str) -> Iterator[None]:
    """The job's secret, for what is made within."""
    with mock.patch.dict(os.environ, {"TUTTI_SECRET": text}):
        yield


@contextlib.contextmanager
def http(**options: Any) -> Iterator[HTTPTransport]:
    transport = HTTPTransport(LONG, **options)
    try:
        yield transport
    finally:
        transport.shutdown()


class Http(unittest.TestCase):
    state = {"x": torch.arange(5 * PIECE // 4, dtype=torch.float32), "step": 7}

    def offered(self, transport: HTTPTransport, step: int = 7) -> str:
        transport.send_checkpoint([1], step, self.state, LONG)
        return transport.metadata()

    def test_there_and_in_place(self) -> None:
        seen: List[int] = []
        target = {"x": torch.zeros_like(self.state["x"])}
        with http() as sender, http(progress=lambda done, of: seen.append(done)) as receiver, \
                http(state_dict=lambda: target) as in_place:
            where = self.offered(sender)
            alike(receiver.recv_checkpoint(0, where, 7, LONG), self.state)
            self.assertEqual((seen[-1], seen), (self.state["x"].numel() * 4, sorted(seen)))
            got = in_place.recv_checkpoint(0, where, 7, LONG)
            self.assertEqual(got["x"].data_ptr(), target["x"].data_ptr())
            alike(got, self.state)

    def test_another_step(self) -> None:
        with http() as sender, http() as receiver:
            where = self.offered(sender)
            with ranks.raises(OSError, "serving 7 but got step=6"):
                receiver.recv_checkpoint(0, where, 6, LONG)
            with ranks.raises(OSError, "time"):
                receiver.recv_checkpoint(0, where, 8, SHORT)
            threading.Timer(0.1, self.offered, (sender, 8)).start()
            alike(receiver.recv_checkpoint(0, where, 8, LONG), self.state)
            sender._server.offer(9, sender._server._snapshot)  # it says another step than it is
            with ranks.raises(RuntimeError, "it is the state of step 8, not 9"):
                receiver.recv_checkpoint(0, where, 9, LONG)

    def test_the_sender_waits_for_nobody(self) -> None:
        """A reader that has begun goes on after disallow_checkpoint, one that has not begun waits for the next one."""
        with http() as sender, http() as receiver:
            where = self.offered(sender)
            begun, withdrawn = threading.Event(), threading.Event()

            def pause(done: int, of: int) -> None:
                begun.set()
                withdrawn.wait(30)

            receiver._progress = pause
            got: List[Any] = []
            thread = threading.Thread(target=lambda: got.append(receiver.recv_checkpoint(0, where, 7, LONG)))
            thread.start()
            begun.wait(30)
            sender.disallow_checkpoint()
            withdrawn.set()
            thread.join(60)
            alike(got[0], self.state)
            with ranks.raises(OSError, "time"):
                receiver.recv_checkpoint(0, where, 7, SHORT)

    def test_several_sources(self) -> None:
        """One of them dead, one that stops in the middle, one that hangs: the state comes all the same."""
        over = threading.Event()
        with contextlib.ExitStack() as stack:
            one, two, hanging, stopping, dead, receiver = (stack.enter_context(http()) for _ in range(6))
            stack.callback(over.set)
            find = hanging._server.find
            hanging._server.find = lambda step, wait, begins: (
                find(step, wait, begins) if begins else (None, str(over.wait(60))))
            where = [self.offered(transport) for transport in (hanging, one, two, stopping)]
            where.append(dead.metadata())
            dead.shutdown()
            receiver._progress = lambda done, of: stopping._server.offer(8, Snapshot({}))
            alike(receiver.recv_checkpoint(0, ",".join(where), 7, LONG), self.state)

    def test_the_same_pieces_of_another_state(self) -> None:
        """Come from it; the others, and what is no tensor, from the first one that answers."""
        state = {"x": torch.arange(13 * PIECE // 4, dtype=torch.float32), "own": "first"}
        changed = {"x": state["x"].clone(), "own": "second"}
        changed["x"][5 * PIECE // 4] = -1
        with http() as one, http() as two, http() as receiver:
            one.send_checkpoint([1], 7, state, LONG)
            two.send_checkpoint([1], 7, changed, LONG)
            find, asked = two._server.find, threading.Event()
            two._server.find = lambda *given: (asked.wait(30), find(*given))[1]
            receiver._progress = lambda done, of: asked.set()
            alike(receiver.recv_checkpoint(0, f"{one.metadata()},{two.metadata()}", 7, LONG), state)

    def test_what_came_is_not_fetched_again(self) -> None:
        """A transfer of the same state, after all sources were lost."""
        state = {"x": torch.arange(13 * PIECE // 4, dtype=torch.float32)}
        seen: List[int] = []
        with http() as sender, http() as receiver:
            sender.send_checkpoint([1], 7, state, LONG)
            offered = sender._server._snapshot

            def lose(done: int, of: int) -> None:
                seen.append(done)
                sender._server.offer(8, Snapshot({}))

            receiver._progress = lose
            with ranks.raises(RuntimeError, "pieces of the state are missing"):
                receiver.recv_checkpoint(0, sender.metadata(), 7, LONG)
            there = seen[-1]
            receiver._progress = lambda done, of: seen.append(done)
            sender._server.offer(7, offered)
            alike(receiver.recv_checkpoint(0, sender.metadata(), 7, LONG), state)
            self.assertGreater(seen[seen.index(there) + 1], there)
            self.assertEqual(len(seen), 13)

    def test_a_piece_that_was_not_stored(self) -> None:
        """Is brought again."""
        failed: List[int] = []

        def store(incoming: Incoming, piece: int, data: torch.Tensor) -> None:
            if len(failed) < 2:
                failed.append(piece)
                raise RuntimeError("no room")
            stored(incoming, piece, data)

        stored = Incoming.store
        with http() as one, http() as two, http() as receiver, mock.patch.object(Incoming, "store", store):
            where = f"{self.offered(one)},{self.offered(two)}"
            alike(receiver.recv_checkpoint(0, where, 7, LONG), self.state)
        self.assertEqual(len(failed), 2)

    def test_trust(self) -> None:
        """A peer that does not know the job's secret gets nothing, and is not believed."""
        with secret("sesame"), http() as sender, http() as receiver:
            where = self.offered(sender)
            self.assertNotIn("127.0.0.1", where)
            alike(receiver.recv_checkpoint(0, where, 7, LONG), self.state)
            path = "/checkpoint/7/header?wait=1.000"
            good = Token().headers(path)
            with mock.patch("time.time", return_value=time.time() - 1000):
                old = Token().headers(path)
            for headers, word in (({}, "has to know the job's secret"), (old, "-1000 s away"), (good, "")):
                self.assertIn(word, self.get(where, path, headers))
            self.assertIn("the job's secret", self.get(where, "/checkpoint/7/payload", {**good, "Range": "bytes=0-9"}))
            for other in ("", "other"):
                with secret(other), http() as stranger:
                    with ranks.raises(OSError, "who asks has to know the job's secret"):
                        stranger.recv_checkpoint(0, where, 7, LONG)
                    with ranks.raises((OSError, RuntimeError), "the job's secret"):
                        receiver.recv_checkpoint(0, self.offered(stranger), 7, LONG)

    def test_a_request_counts_once(self) -> None:
        with secret("sesame"), http() as sender:
            where, path = self.offered(sender), "/checkpoint/7/header?wait=1.000"
            headers = Token().headers(path)
            self.assertEqual(self.get(where, path, headers), "")
            self.assertIn("this request was made before", self.get(where, path, headers))

    def test_a_changed_byte(self) -> None:
        """Is refused where the job has a secret, though its CRC was made to fit; and so is a forged digest."""
        send = snapshot_server._Handler._send

        def changed(handler: Any, status: int, body: memoryview, headers: Dict[str, str]) -> None:
            other = bytearray(body)
            if status == 206:
                other[100] ^= 1
                if forge:
                    words = headers[snapshot_server.DIGESTS].split(",")
                    words[0] = hashlib.sha256(bytes(other[:PIECE])).hexdigest()
                    headers[snapshot_server.DIGESTS] = ",".join(words)
            send(handler, status, memoryview(other), headers)

        for forge, words in ((False, "was changed on its way"), (True, "does not prove by the job's secret")):
            with secret("sesame"), http() as sender, http() as receiver:
                where = self.offered(sender)
                alike(receiver.recv_checkpoint(0, where, 7, LONG), self.state)
                with mock.patch.object(snapshot_server._Handler, "_send", changed), \
                        mock.patch.object(Incoming, "check", lambda *given: None):
                    with ranks.raises(RuntimeError, words):
                        receiver.recv_checkpoint(0, where, 7, LONG)

    def get(self, where: str, path: str, headers: Dict[str, str]) -> str:
        """Why it was refused; "": it was not."""
        connection = http_client.HTTPConnection(urllib.parse.urlsplit(where).netloc, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            response.read()
            return response.reason if response.status == 401 else ""

    def test_without_a_secret(self) -> None:
        """This host alone is served, and that is said once."""
        with secret(""), mock.patch.object(trust, "_told", False), self.assertLogs("tutti_torch.ft.trust") as logs:
            with http() as one, http():
                self.assertTrue(one.metadata().startswith("http://127.0.0.1:"))
            with mock.patch.dict(os.environ, {"TUTTI_TRUST_NETWORK": "1", "TUTTI_INTERFACE": "lo"}), http() as one:
                self.assertIn(one._server._server.server_address[0], ("::", "0.0.0.0"))
                self.assertTrue(one.metadata().startswith("http://127.0.0.1:"))  # the interface's address
        self.assertEqual(len(logs.output), 1)
        self.assertIn("unauthenticated", logs.output[0])

    def test_a_flood_of_strangers(self) -> None:
        """Many connections of one address are refused, and a silent one is not waited for."""
        with mock.patch.object(snapshot_server, "OF_ONE_ADDRESS_MAX", 4), \
                mock.patch.object(snapshot_server._Handler, "timeout", 0.2), http() as sender, http() as receiver:
            where = self.offered(sender)
            at = urllib.parse.urlsplit(where)
            strangers = [socket.create_connection((at.hostname, at.port), timeout=30) for _ in range(8)]
            for stranger in strangers:
                with stranger:
                    self.assertEqual(stranger.recv(100), b"")
            alike(receiver.recv_checkpoint(0, where, 7, LONG), self.state)

    def test_no_source_is_left(self) -> None:
        with http() as sender, http() as receiver:
            where = sender.metadata()
            sender.send_checkpoint([1], 7, {"x": torch.zeros(13 * PIECE // 4)}, LONG)
            receiver._progress = lambda done, of: sender._server.offer(8, Snapshot({}))
            with ranks.raises(RuntimeError, "pieces of the state are missing", "serving 8 but got step=7"):
                receiver.recv_checkpoint(0, where, 7, LONG)


class Group(unittest.TestCase):
    def test_over_a_process_group(self) -> None:
        """To two at once, in place, in the background beside reductions; nothing in time; the wrong step."""
        meeting, state = Meeting(3), Http.state

        def body(rank: int, n: int, store: dist.Store) -> None:
            pg = ProcessGroupTutti(timeout=LONG)
            reconfigure(pg, 1, meeting.of(pg, rank))
            target = {"x": torch.zeros_like(state["x"])}
            transport = PGTransport(pg, LONG, "cpu", state_dict=(lambda: target) if rank == 2 else None,
                                    background=rank == 0)
            if rank == 0:
                transport.send_checkpoint([1, 2], 7, state)
            else:
                alike(got := transport.recv_checkpoint(0, "", 7), state)
                assert rank != 2 or got["x"].data_ptr() == target["x"].data_ptr()
            pg.allreduce([torch.ones(10)], dist.ReduceOp.SUM).wait()
            transport.shutdown()
            if rank == 0:
                transport.background = False
                with ranks.raises(Exception, "imed out"):  # it is not taken
                    transport.send_checkpoint([1], 8, state, timedelta(seconds=1))
            elif rank == 1:
                with ranks.raises(RuntimeError, "the state of step 8, not 9"):
                    transport.recv_checkpoint(0, "", 9)
            reconfigure(pg, 2, meeting.of(pg, rank))
            if rank == 1:
                with ranks.raises(Exception, "imed out"):
                    transport.recv_checkpoint(0, "", 9, SHORT)
                with ranks.raises(RuntimeError, "out of step until it is reconfigured", "imed out"):
                    transport.recv_checkpoint(0, "", 9, SHORT)
            reconfigure(pg, 3, meeting.of(pg, rank))
            pg.shutdown()

        on_threads(3, body)


class HalfWay(unittest.TestCase):
    def test_a_state_that_is_half_written(self) -> None:
        """Counts as none until a transfer has come to its end, and when nobody has a whole one, training ends."""
        manager = mock.Mock(_checkpoint_transport=mock.Mock(several_sources=False, in_place=True))
        recovery = Recovery(manager, mock.Mock())
        heals = mock.Mock(heal=True, recover_dst_replica_ranks=[], recover_src_replica_rank=1, max_step=3)
        manager._checkpoint_transport.recv_checkpoint.side_effect = RuntimeError("the source died")
        recovery.run(heals)
        self.assertTrue(recovery.half_written)
        with ranks.raises(HalfWritten, "start it anew, from a checkpoint"):
            recovery.run(mock.Mock(heal=False, recover_dst_replica_ranks=[]))
        manager._checkpoint_transport.recv_checkpoint.side_effect = None
        manager._checkpoint_transport.recv_checkpoint.return_value = {"torchft": {}}
        recovery.run(heals)
        self.assertFalse(recovery.half_written)


class Lock(unittest.TestCase):
    def test_readers_and_a_writer(self) -> None:
        lock = RWLock(timeout=0.01)
        with lock.r_lock(), lock.r_lock():
            with ranks.raises(TimeoutError, "2 read"):
                lock.w_acquire()
        with lock.w_lock():
            self.assertTrue(lock.w_locked())
            with ranks.raises(TimeoutError, "1 writes"):
                lock.r_acquire()
        self.assertFalse(lock.w_locked())


if __name__ == "__main__":
    unittest.main()
