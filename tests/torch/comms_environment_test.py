# SPDX-License-Identifier: BSD-3-Clause
"""Where the ranks of tutti_torch.comms meet when the launcher says it by variables: communicators with stores, without,
in all orders, while MASTER_PORT is free, served by the program or by a launcher; files; ranks that are threads."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import unittest
from datetime import timedelta
from typing import Any, Dict

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import CPU, hints_of

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "TORCHCOMM_RANK", "TORCHCOMM_SIZE", "TORCHCOMM_STORE_PATH",
             "TORCHELASTIC_RESTART_COUNT")  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def set_variables(rank: int, n: int, port: int, **more: Any) -> None:
    for name in VARIABLES:
        os.environ.pop(name, None)
    given: Dict[str, Any] = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHCOMM_RANK": rank,
                             "TORCHCOMM_SIZE": n, **more}  # fmt: skip
    os.environ.update({name: str(value) for name, value in given.items()})


def check(comm: tc.TorchComm) -> None:
    tensor = torch.full((3,), float(comm.get_rank() + 1))
    comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
    n = comm.get_size()
    assert tensor[0].item() == n * (n + 1) / 2


def plain(name: str, store: Any = None) -> tc.TorchComm:
    comm = tc.new_comm("tutti", CPU, name, store=store, timeout=timedelta(seconds=60))
    check(comm)
    return comm


def master(rank: int, port: int) -> dist.TCPStore:
    """As programs make one: rank 0 serves it, alone."""
    return dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False, timeout=timedelta(seconds=60))


def port_of(rank: int, store: dist.Store, step: str) -> int:
    if rank == 0:
        store.set(step, str(free_port()))
    return int(store.get(step))


@ranks.on(1, 2, 4)
def without_stores(rank: int, n: int, store: dist.Store) -> None:
    """Several at a time, and afterwards the port is the program's."""
    port = port_of(rank, store, "without")
    set_variables(rank, n, port)
    comms = [plain("same"), plain("same"), plain("other")]
    for comm in comms:
        check(comm)
    own = master(rank, port)
    own.add("came", 1)
    with_store = plain("with", dist.PrefixStore("x", own))
    for comm in (*comms, with_store):
        check(comm)
        comm.finalize()


@ranks.on(2, 4)
def beside_a_store_of_the_program(rank: int, n: int, store: dist.Store) -> None:
    """The program serves the port before, and goes on to."""
    port = port_of(rank, store, "beside")
    set_variables(rank, n, port)
    own = master(rank, port)
    first = plain("first", dist.PrefixStore("1", own))
    second = plain("second")
    third = plain("third", dist.PrefixStore("2", own))
    fourth = plain("fourth")
    for comm in (first, second, third, fourth):
        check(comm)
    own.add("still there", 1)
    check(first)  # the rank that serves the port stays until all have said it
    for comm in (first, second, third, fourth):
        comm.finalize()


@ranks.on(2)
def beside_a_launchers_store(rank: int, n: int, store: dist.Store) -> None:
    """Nobody of the ranks serves it, and it remembers what the attempt before said."""
    if rank == 0:
        served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        served.set("tutti/comms/0", "1")
        store.set("launcher", str(served.port))
    port = int(store.get("launcher"))
    set_variables(rank, n, port, TORCHELASTIC_RESTART_COUNT=1)
    plain("after a restart").finalize()
    store.set(f"through{rank}", "")
    store.wait([f"through{1 - rank}"])


@ranks.on(2)
def by_a_file(rank: int, n: int, store: dist.Store) -> None:
    if rank == 0:
        store.set("folder", tempfile.mkdtemp())
    path = os.path.join(store.get("folder").decode(), "file")
    set_variables(rank, n, 1, TORCHCOMM_STORE_PATH=path)
    for name in ("a", "b", "a"):
        plain(name).finalize()


@ranks.on(2)
def who_is_missing(rank: int, n: int, store: dist.Store) -> None:
    port = port_of(rank, store, "missing")
    set_variables(rank, n, port)
    if rank == 0:
        with ranks.raises(RuntimeError, "not all came", "MASTER_PORT"):
            tc.new_comm("tutti", CPU, "missing", timeout=timedelta(milliseconds=300))
    store.set(f"missed{rank}", "")
    store.wait([f"missed{1 - rank}"])
    plain("complete").finalize()


class Threads(unittest.TestCase):
    def test_without_a_store(self) -> None:
        set_variables(0, 1, free_port())
        errors = []

        def run(rank: int) -> None:
            try:
                for name in ("one", "two"):
                    comm = tc.new_comm("tutti", CPU, name, hints=hints_of(rank, 3), timeout=timedelta(seconds=60))
                    check(comm)
                    comm.finalize()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(errors, [])
        self.assertFalse(any(thread.is_alive() for thread in threads))


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
