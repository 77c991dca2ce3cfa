# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""Managers of tutti_torch.ft with a lighthouse: groups train alike, one that dies comes back and catches up, an error
of one rank holds nobody up, spares wait their turn, and time-outs that contradict are told."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import defaultdict
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, List
from unittest import mock

import torch
import torch.distributed as dist

import ranks
from comms_support import on_threads

try:
    import tutti_torch.ft.coordination  # noqa: F401
except ImportError:
    sys.exit(77)  # a build without it

from tutti_torch.ft import DistributedDataParallel, Manager, Optimizer, ProcessGroupTutti, WorldSizeMode
from tutti_torch.ft import coordination, futures
from tutti_torch.ft.checkpointing.pg_transport import PGTransport
from tutti_torch.ft.coordination import LighthouseClient, LighthouseServer
from tutti_torch.ft.local_sgd import DiLoCo, LocalSGD
from tutti_torch.ft.manager import number_at_end
from tutti_torch.ft.process_group import FakeProcessGroupWrapper, ManagedProcessGroup
from tutti_torch.ft.timeouts import Timeouts

TIMEOUT = timedelta(seconds=30)
TUTTI = os.path.join(os.environ.get("TUTTI_BUILD", "build"), "bin", "tutti")


@contextlib.contextmanager
def lighthouse(min_replicas: int = 1, **options: int) -> Iterator[str]:
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=min_replicas, **{"join_timeout_ms": 100, **options})
    try:
        yield server.address()
    finally:
        server.shutdown()


class Group:
    """A group of one rank, in a thread: a model, its optimizer, its manager."""

    def __init__(self, number: int, address: str, transport: Callable[..., Any] = lambda pg: None,
                 wrap: Callable[[Any], Any] = lambda pg: pg, **options: Any) -> None:
        self.number = number
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.pg = wrap(ProcessGroupTutti())
        torch.manual_seed(number)  # groups begin with different weights
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.plain = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        options = {"min_replica_size": 1, "timeout": TIMEOUT, **options}
        self.manager = Manager(
            pg=self.pg, load_state_dict=self.load, state_dict=self.save, rank=0, world_size=1,
            store_addr="127.0.0.1", store_port=self.store.port, lighthouse_addr=address, hostname="127.0.0.1",
            replica_id=f"group_{number}", checkpoint_transport=transport(self.pg), **options)
        self.data = torch.Generator().manual_seed(100 + number)

    def load(self, state: Dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.plain.load_state_dict(state["optim"])

    def save(self) -> Dict[str, Any]:
        return {"model": self.model.state_dict(), "optim": self.plain.state_dict()}

    def loss(self, model: Any) -> torch.Tensor:
        x = torch.randn(8, 4, generator=self.data)
        return (model(x) - x.sum(1, keepdim=True)).square().mean()

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def end(self) -> None:
        self.manager.shutdown()
        self.pg.shutdown()


def train(group: Group, steps: int, each: Callable[[int], Any] = lambda step: None) -> torch.Tensor:
    model, optimizer = DistributedDataParallel(group.manager, group.model), Optimizer(group.manager, group.plain)
    while group.manager.current_step() < steps:
        optimizer.zero_grad()
        loss = group.loss(model)
        each(group.manager.current_step())
        loss.backward()
        optimizer.step()
    return group.weights()


def alike(weights: List[torch.Tensor]) -> None:
    for one in weights[1:]:
        torch.testing.assert_close(one, weights[0])


class Enough(Exception):
    """Ends a group of a test."""


class Train(unittest.TestCase):
    def test_groups_become_alike(self) -> None:
        """Over HTTP and over the process group; quorums before the forward pass, and beside it."""
        for transport in (lambda pg: None, lambda pg: PGTransport(pg, TIMEOUT, "cpu")):
            for asynchronous in (True, False):
                with lighthouse(3) as address:

                    def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                        group = Group(rank, address, transport, use_async_quorum=asynchronous, min_replica_size=3)
                        weights = train(group, 4)
                        assert group.manager.num_participants() == 3
                        assert group.manager.batches_committed() >= 4
                        group.end()
                        return weights

                    alike(on_threads(3, body))

    def test_quantised(self) -> None:
        """The average in fewer bits: near it, but not it; integers travel whole."""
        values = torch.linspace(-1, 1, 1000)
        with lighthouse(2) as address:

            def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                group = Group(rank, address, min_replica_size=2, init_sync=False)
                group.manager.start_quorum()
                tensor, whole = values * (rank + 1), torch.arange(10)
                group.manager.allreduce(tensor, should_quantize=True).wait()
                group.manager.allreduce(whole, should_quantize=True, reduce_op=dist.ReduceOp.SUM).wait()
                assert group.manager.should_commit()
                assert torch.equal(whole, 2 * torch.arange(10)), whole
                group.end()
                return tensor

            first, second = on_threads(2, body)
        self.assertTrue(torch.equal(first, second))
        self.assertLess((first - 1.5 * values).abs().max().item(), 0.2)
        self.assertFalse(torch.equal(first, 1.5 * values))

    def test_one_leaves_and_comes_back(self) -> None:
        """What the others did meanwhile it takes over."""
        back, steps = threading.Event(), {}
        with lighthouse() as address:

            def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                if rank == 0:
                    group = Group(0, address)

                    def each(step: int) -> None:
                        steps[0] = step
                        if step >= 8:
                            back.wait(30)

                    weights = train(group, 14, each)
                    group.end()
                    return weights
                group = Group(1, address)
                train(group, 3)
                group.end()
                while steps.get(0, 0) < 6:
                    time.sleep(0.01)
                group = Group(1, address)
                threading.Timer(0.2, back.set).start()
                train(group, 14, lambda step: steps.setdefault(1, step))
                group.end()
                return group.weights()

            weights = on_threads(2, body)
        alike(weights)

    def test_a_lighthouse_begins_anew(self) -> None:
        """Its first quorum has the number of the one before, and other members."""
        servers, anew = [LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=100)], threading.Event()
        address = servers[0].address()

        def each(step: int) -> None:
            if step == 3 and not anew.is_set():
                servers[0].shutdown()
                servers.append(LighthouseServer(bind=address.split("//")[1], min_replicas=3, join_timeout_ms=100))
                anew.set()

        def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
            if rank == 2:
                self.assertTrue(anew.wait(30))
            group = Group(rank, address, min_replica_size=2)
            weights = train(group, 8, each if rank == 0 else lambda step: None)
            self.assertEqual(group.manager.num_participants(), 3)
            group.end()
            return weights

        try:
            alike(on_threads(3, body))
        finally:
            for server in servers:
                server.shutdown()

    def test_a_state_comes_from_several(self) -> None:
        """All groups that have it offer it to one that comes late, and it asks them all; of one step."""
        late, there, over = threading.Event(), threading.Event(), threading.Barrier(3)
        offered: Dict[int, List[int]] = {}
        with lighthouse(2, join_timeout_ms=10000) as address:

            def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                if rank == 2:
                    late.wait(60)
                group = Group(rank, address, use_async_quorum=False)
                transport = group.manager._checkpoint_transport
                send, receive = transport.send_checkpoint, transport.recv_checkpoint

                def sent(dst_ranks: List[int], step: int, **more: Any) -> None:
                    offered.setdefault(step, []).append(rank)
                    send(dst_ranks, step, **more)

                def received(src_rank: int, metadata: str, step: int, **more: Any) -> Any:
                    if rank == 2:
                        taken[step] = len(metadata.split(","))
                        there.set()
                    return receive(src_rank, metadata, step, **more)

                transport.send_checkpoint, transport.recv_checkpoint = sent, received

                def each(step: int) -> None:
                    if step >= 2:
                        late.set()
                        there.wait(0.1)  # not longer: who comes needs the others' next quorum

                weights = train(group, 60, each)
                over.wait(60)  # a group that leaves while others vote makes their step void
                group.end()
                return weights

            taken: Dict[int, int] = {}
            alike(on_threads(3, body))
        (step,) = taken
        self.assertEqual((taken[step], sorted(offered[step])), (2, [0, 1]))

    def test_one_that_hangs_within_a_step(self) -> None:
        """Is shown as such: its heartbeats go on, but the others wait for it."""
        hang, over, seen = threading.Event(), threading.Barrier(2), []

        def state_of(address: str, name: str) -> str:
            shown = subprocess.run([TUTTI, "ft", "status", address], capture_output=True, text=True, check=True).stdout
            found = re.search(rf"(?m)^{name}:\S+ +(\w+)", shown)
            return found.group(1) if found else shown

        def watch(address: str) -> None:
            until = time.monotonic() + 30
            try:
                while "hangs" not in seen and time.monotonic() < until:
                    seen[:] = [state_of(address, "group_0"), state_of(address, "group_1")]
            finally:
                hang.set()

        with lighthouse(2, heartbeat_timeout_ms=500) as address:

            def body(rank: int, n: int, store: dist.Store) -> None:
                group = Group(rank, address, use_async_quorum=False, min_replica_size=2)
                train(group, 2)
                group.manager.start_quorum()
                group.manager.allreduce(torch.ones(1)).wait()
                if rank == 1:
                    watcher = threading.Thread(target=watch, args=(address,))
                    watcher.start()
                    hang.wait(60)
                    watcher.join(60)
                group.manager.allreduce(torch.ones(1)).wait()
                assert group.manager.should_commit()
                over.wait(60)
                group.end()

            on_threads(2, body)
        self.assertEqual(seen, ["member", "hangs"])

    def test_an_error_of_one_holds_nobody_up(self) -> None:
        """A reduction fails on one rank alone, which skips the rest of its step: the others do not wait for it."""
        with lighthouse(2) as address:

            def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                group = Group(rank, address, wrap=FakeProcessGroupWrapper, use_async_quorum=False, min_replica_size=2)
                failed = []
                begun = time.monotonic()
                while group.manager.current_step() < 4:
                    group.manager.start_quorum()
                    if rank == 0 and group.manager.current_step() == 2 and not failed:
                        failed.append(group.pg.report_future_error(RuntimeError("injected")))
                    tensors = [torch.full((10,), float(rank)) for _ in range(3)]
                    for tensor in tensors:
                        group.manager.allreduce(tensor).wait()
                    if group.manager.should_commit():
                        assert all(tensor[0].item() == 0.5 for tensor in tensors)
                    else:
                        assert group.manager.errored() is not None
                assert time.monotonic() - begun < TIMEOUT.total_seconds() / 2
                group.end()
                return group.weights()

            on_threads(2, body)

    def test_a_future_that_fails(self) -> None:
        """Is its default, and the step is void."""
        with lighthouse() as address:
            group = Group(0, address)
            group.manager.start_quorum()
            future: torch.futures.Future = torch.futures.Future()
            wrapped = group.manager.wrap_future(future, 7)
            future.set_exception(RuntimeError("injected"))
            self.assertEqual(wrapped.wait(), 7)
            self.assertIn("injected", str(group.manager.errored()))
            self.assertFalse(group.manager.should_commit())
            group.end()

    def test_a_state_that_can_not_travel(self) -> None:
        """Is told at the first step, before anybody needs it."""
        for bad in ({1, 2}, timedelta(seconds=1), defaultdict(int), object()):
            with lighthouse() as address:
                group = Group(0, address)
                group.manager.register_state_dict_fn("loader", lambda state: None, lambda: {"state": bad})
                with ranks.raises(TypeError, "state['user']['loader']['state'] is a", "leave it out of the state dict"):
                    group.manager.start_quorum()
                group.end()

    def test_a_state_that_can_not_travel_later(self) -> None:
        """The group that wants it is told why, and those that are well go on."""
        for transport in (lambda pg: None, lambda pg: PGTransport(pg, TIMEOUT, "cpu")):
            self.refused_later(transport)

    def refused_later(self, transport: Callable[..., Any]) -> None:
        joined, over = threading.Event(), threading.Event()
        with lighthouse() as address:

            def body(rank: int, n: int, store: dist.Store) -> str:
                if rank == 1:
                    joined.wait(60)
                group = Group(rank, address, transport, init_sync=False)
                extra: Dict[str, Any] = {}
                group.manager.register_state_dict_fn("loader", lambda state: None, lambda: extra)

                def each(step: int) -> None:
                    if rank == 0 and step == 2:
                        extra["seen"] = {1, 2}
                        joined.set()
                    if rank == 0 and over.is_set():
                        raise Enough
                    time.sleep(0.02)

                try:
                    train(group, 5000, each)
                    return "came to its end"
                except Enough:
                    return ""
                except TypeError as error:
                    return str(error)
                finally:
                    over.set()
                    group.end()

            healthy, joiner = on_threads(2, body)
        self.assertEqual(healthy, "")
        self.assertIn("the state of the group that this one is to catch up with can not travel", joiner)
        self.assertIn("['loader']['seen'] is a builtins.set", joiner)

    def test_a_state_is_never_from_the_middle_of_a_step(self) -> None:
        """It is taken by the thread that trains, when no forward pass is under way."""
        joined = threading.Event()
        got: List[Dict[str, int]] = []
        with lighthouse() as address:

            def body(rank: int, n: int, store: dist.Store) -> torch.Tensor:
                if rank == 1:
                    joined.wait(60)
                group = Group(rank, address)
                own = threading.get_ident()
                forward = {"begun": 0, "ended": 0}

                def save() -> Dict[str, int]:
                    assert threading.get_ident() == own
                    return dict(forward)

                def each(step: int) -> None:  # a forward pass, in which the manager is asked
                    forward["begun"] += 1
                    if step == 2:
                        joined.set()
                    time.sleep(0.05)
                    group.manager.num_participants()
                    forward["ended"] += 1

                group.manager.register_state_dict_fn("forward", got.append, save)
                weights = train(group, 40 if rank == 0 else 4, each)
                group.end()
                return weights

            on_threads(2, body)
        self.assertTrue(got)
        for state in got:
            self.assertEqual(state["begun"], state["ended"])

    def test_spares(self) -> None:
        """Give zeros, and are not counted."""
        with lighthouse(3) as address:

            def body(rank: int, n: int, store: dist.Store) -> None:
                group = Group(rank, address, min_replica_size=2, use_async_quorum=False,
                              world_size_mode=WorldSizeMode.FIXED_WITH_SPARES)
                group.manager.start_quorum()
                place, tensor = group.manager.participating_rank(), torch.ones(2)
                managed = ManagedProcessGroup(group.manager)
                assert managed.size() == group.manager.num_participants() == 2
                managed.allreduce([tensor], dist.ReduceOp.SUM).wait()
                assert tensor[0].item() == 2
                assert group.manager.is_participating() == (place is not None)
                assert group.manager.should_commit()
                group.end()
                places.append(place)

            places: List[Any] = []
            on_threads(3, body)
        self.assertEqual(sorted(places, key=str), [0, 1, None])

    def test_local_sgd_and_diloco(self) -> None:
        """Fragments that share an outer optimizer stay apart, and the groups end with the same global parameters."""
        with lighthouse(2) as address:

            def body(rank: int, n: int, store: dist.Store) -> List[torch.Tensor]:
                group = Group(0, address, use_async_quorum=False, min_replica_size=2)
                group.data.manual_seed(rank)
                with LocalSGD(group.manager, group.model, group.plain, sync_every=2):
                    for _ in range(4):
                        group.plain.zero_grad()
                        group.loss(group.model).backward()
                        group.plain.step()
                averaged = group.weights()
                fragments = [group.model[0], group.model[2]]
                outer = torch.optim.SGD(group.model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
                with DiLoCo(group.manager, fragments, group.plain, outer, sync_every=4, fragment_sync_delay=1,
                            fragment_update_alpha=0.25, use_bucketization=True) as diloco:
                    for _ in range(8):
                        group.plain.zero_grad()
                        group.loss(group.model).backward()
                        group.plain.step()
                shared = [value for part in diloco._fragments for value in part.original_parameters.values()]
                group.end()
                return [averaged, torch.cat([value.reshape(-1) for value in shared])]

            one, other = on_threads(2, body)
        alike([one[0], other[0]])
        alike([one[1], other[1]])
        self.assertLess(one[1].abs().max().item(), 10)


class Told(unittest.TestCase):
    def test_what_a_lighthouse_tells(self) -> None:
        """Its settings, and which groups it hears no more."""
        with lighthouse(heartbeat_timeout_ms=300) as address:
            client = LighthouseClient(address, TIMEOUT)
            config = client.get_config()
            self.assertEqual((config["min_replicas"], config["heartbeat_timeout_ms"]), ("1", "300"))
            failures = client.subscribe_failures(TIMEOUT)
            with ranks.raises(TimeoutError, "no failure was told"):
                next(client.subscribe_failures(timedelta(milliseconds=50)))
            client.heartbeat("silent")
            self.assertEqual(next(failures).replica_id, "silent")
            threading.Timer(0.3, failures.close).start()
            self.assertEqual(list(failures), [])


class Words(unittest.TestCase):
    def test_timeouts(self) -> None:
        ten, minute = timedelta(seconds=10), timedelta(minutes=1)
        self.assertEqual(Timeouts.of(ten, None, None), Timeouts(ten, ten, ten))
        with mock.patch.dict(os.environ, {"TORCHFT_TIMEOUT_SEC": "60", "TORCHFT_CONNECT_TIMEOUT_SEC": "10"}):
            self.assertEqual(Timeouts.of(timedelta(1), None, None), Timeouts(minute, minute, ten))
        with mock.patch.dict(os.environ, {"TUTTI_FT_TIMEOUT": "1m"}):
            self.assertEqual(Timeouts.of(None, None, None), Timeouts(minute, minute, minute))
        with mock.patch.dict(os.environ, {"TUTTI_FT_TIMEOUT": "soon"}):
            with ranks.raises(ValueError, "TUTTI_FT_TIMEOUT", '"soon" is not a time'):
                Timeouts.of(None, None, None)
        with mock.patch.dict(os.environ, {"TORCHFT_TIMEOUT_SEC": "soon"}):
            with ranks.raises(ValueError, "TORCHFT_TIMEOUT_SEC=soon is no number"):
                Timeouts.of(ten, None, None)
        with ranks.raises(ValueError, "quorum_timeout is 0:00:00"):
            Timeouts.of(ten, timedelta(0), None)
        made = Timeouts.of(ten, None, None)
        self.assertEqual(made.heartbeat(None), timedelta(milliseconds=100))
        with ranks.raises(ValueError, "heartbeat_interval (0:00:20)", "quorum_timeout (0:00:10)"):
            made.heartbeat(2 * ten)
        with self.assertLogs("tutti_torch.ft.timeouts") as logs:
            Timeouts.of(minute, ten, None).check(2 * minute)
        self.assertIn("is below timeout (0:01:00)", logs.output[0])
        self.assertIn("(0:02:00) is above the manager's (0:01:00)", logs.output[1])

    def test_what_is_missing(self) -> None:
        """Is a sentence that names it."""
        pg, ten = ProcessGroupTutti(), timedelta(seconds=10)
        given: Dict[str, Any] = {"pg": pg, "load_state_dict": None, "state_dict": None, "min_replica_size": 1}
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHFT_LIGHTHOUSE")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        values = dict(zip(names, ("0", "1", "127.0.0.1", str(store.port), "http://127.0.0.1:1")))
        for name in names:
            with mock.patch.dict(os.environ, {**values, name: ""}):
                with ranks.raises(ValueError, f"{name} is not set"):
                    Manager(timeout=ten, **given)
        with mock.patch.dict(os.environ, {**values, "RANK": "first"}):
            with ranks.raises(ValueError, "RANK=first is no number"):
                Manager(timeout=ten, **given)
        for argument in ("timeout", "quorum_timeout", "connect_timeout"):
            with mock.patch.dict(os.environ, values):
                with ranks.raises(TypeError, f"{argument} is 30.0, but a datetime.timedelta is expected"):
                    Manager(**{**given, argument: 30.0})
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))  # and does not listen
        with silent, mock.patch.dict(os.environ, {**values, "MASTER_PORT": str(silent.getsockname()[1])}):
            with ranks.raises(TimeoutError, "no store answers at 127.0.0.1:", "within 1 s"):
                Manager(timeout=timedelta(seconds=1), **given)
        pg.shutdown()

    def test_variables_that_are_no_numbers(self) -> None:
        futures._TIMEOUT_MANAGER.shutdown()
        with mock.patch.dict(os.environ, {"TORCHFT_WATCHDOG_TIMEOUT_SEC": "30s"}):
            with ranks.raises(ValueError, "TORCHFT_WATCHDOG_TIMEOUT_SEC=30s is no number of seconds"):
                futures.future_timeout(torch.futures.Future(), TIMEOUT)
        late = futures.future_timeout(torch.futures.Future(), timedelta(milliseconds=10))
        with ranks.raises(Exception, "did not complete within"):
            late.wait()
        with mock.patch.dict(os.environ, {"TORCHFT_QUORUM_RETRIES": "some"}):
            with ranks.raises(ValueError, "TORCHFT_QUORUM_RETRIES=some is no number"):
                Manager(pg=ProcessGroupTutti(), load_state_dict=None, state_dict=None, min_replica_size=1)

    def test_traces_of_an_abort(self) -> None:
        """Are written where torchft's variable asks for them."""
        with tempfile.TemporaryDirectory() as folder:
            for wanted in ("false", "true"):
                variables = {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr_", "TORCHFT_TRIGGER_FR_ON_ABORT": wanted}
                with mock.patch.dict(os.environ, variables):
                    ProcessGroupTutti().abort()
                self.assertEqual(os.listdir(folder), ["fr_0"] if wanted == "true" else [])
            with open(f"{folder}/fr_0", "rb") as file:
                self.assertIn("version", pickle.load(file))

    def test_every_class_says_what_it_is(self) -> None:
        for name in coordination.__all__:
            self.assertGreater(len(getattr(coordination, name).__doc__ or ""), 20, name)

    def test_schedulers_and_hooks(self) -> None:
        """What PyTorch's own optimizers have, the wrapped one has."""
        manager = mock.Mock()
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.AdamW(model.parameters(), lr=0.1)
        optimizer = Optimizer(manager, inner)
        schedulers = [torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10),
                      torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)]
        seen: List[str] = []
        optimizer.register_step_pre_hook(lambda *given: seen.append("before"))
        optimizer.register_step_post_hook(lambda *given: seen.append("after"))
        for commits in (True, False):
            manager.should_commit.return_value = commits
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
        self.assertEqual(seen, ["before", "after"])  # those of the step that counted
        self.assertEqual(optimizer.defaults, inner.defaults)

    def test_numbers_of_groups(self) -> None:
        for name, number in (("train_ddp_3", 3), ("12", 12), (None, 0), ("", 0), ("train", 0),
                             ("0e1c9b1a-3c44-4f5e-9a53-1c6b2b6f1234", 0)):
            self.assertEqual(number_at_end(name), number)

    def test_a_group_that_can_not_change(self) -> None:
        with ranks.raises(ValueError, "can not get other members", "enable_reconfigure=True"):
            Manager(pg=object(), load_state_dict=None, state_dict=None, min_replica_size=1)


if __name__ == "__main__":
    unittest.main()
