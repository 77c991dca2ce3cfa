# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# short: Survive.test_a_rank_dies Survive.test_a_rank_is_killed_in_ddp Survive.test_ends Survive.test_interrupted_waits
# short: Survive.test_sent_before_the_end
"""What happens to the others when a rank dies, is interrupted, forks or just ends: they are told, in a sentence and
soon; they go on in a smaller group; and no process hangs or crashes on its way out."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import unittest
import warnings
from datetime import timedelta
from typing import Any, Callable, List

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch._dynamo  # what DDP and the functional collectives import when they are first used: once for all programs
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import programs
import tutti_torch  # noqa: F401

LONG = timedelta(minutes=30)
SOON = 5.0  # seconds in which the others learn of a death; a busy machine included
AT_ONCE = 2.0
CRASHES = ("terminate called", "Fatal Python error", "Segmentation fault", "Aborted", "std::", "Exception ignored")


# ---- what the programs below are made of ----


def join(rank: int, n: int, folder: str, name: str = "store", timeout: timedelta = LONG) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, name), n)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=timeout)


def mark(folder: str, name: str, what: Any = None) -> None:
    """Tells the test and the other programs."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        json.dump(what, file)
    os.rename(path + ".new", path)


def await_mark(folder: str, name: str, seconds: float = 30.0) -> Any:
    path, deadline = os.path.join(folder, name), time.monotonic() + seconds
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"{name} did not come"
        time.sleep(0.005)
    with open(path) as file:
        return json.load(file)


def error_of(function: Callable[[], Any]) -> str:
    """The sentence of the DistBackendError that the call has to raise."""
    try:
        function()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error")


def destroy_at_once() -> None:
    start = time.monotonic()
    dist.destroy_process_group()
    took = time.monotonic() - start
    assert took < AT_ONCE, f"destroy_process_group took {took:.2f} s"


def sum_of_ones(n: int) -> None:
    one = torch.ones(3)
    dist.all_reduce(one)
    assert one.tolist() == [n] * 3, one


def model_for(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64),
                               torch.nn.Linear(64, 1))


def train(model: torch.nn.Module, rank: int, steps: int,
          before_backward: Callable[[int], Any] = lambda step: None) -> float:
    """Some steps of regression on data that differ by rank; the last loss."""
    data = torch.Generator().manual_seed(100 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loss = torch.zeros(())
    for step in range(steps):
        x = torch.randn(32, 16, generator=data)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        before_backward(step)
        loss.backward()
        optimizer.step()
    return loss.item()


def digest(model: torch.nn.Module) -> List[float]:
    return [parameter.double().sum().item() for parameter in model.parameters()]


def await_call(thread: threading.Thread, name: str, seconds: float = 30.0) -> None:
    """That the thread is in this function, and has been for a while."""
    seen, deadline = 0, time.monotonic() + seconds
    while seen < 20:
        assert time.monotonic() < deadline, f"the thread is not in {name}"
        time.sleep(0.01)
        frame = sys._current_frames().get(thread.ident or 0)
        while frame and frame.f_code.co_name != name:
            frame = frame.f_back
        seen = seen + 1 if frame else 0


def interrupt_in(seconds: float) -> float:
    """When this process gets a SIGINT."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    return time.monotonic() + seconds


def interrupted(function: Callable[[], Any]) -> None:
    """That a SIGINT ends the call, within a second."""
    at = interrupt_in(0.3)
    try:
        function()
        time.sleep(2)
    except KeyboardInterrupt:
        late = time.monotonic() - at
        assert -0.1 < late < AT_ONCE, f"KeyboardInterrupt came {late:.2f} s after the signal"
        return
    raise AssertionError("no KeyboardInterrupt")


# ---- programs ----


def killed_in_backward(rank: int, n: int, folder: str) -> None:
    """The last rank dies between the gradients of one backward; the others train on without it."""
    join(rank, n, folder)
    model = DistributedDataParallel(model_for(1), bucket_cap_mb=0.001)
    parameters = list(model.module.parameters())

    def die(gradient: torch.Tensor) -> None:
        mark(folder, "died", time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)

    def at_step(step: int) -> None:
        if step == 5 and rank == n - 1:
            parameters[2].register_hook(die)

    said = error_of(lambda: train(model, rank, 50, at_step))
    late = time.monotonic() - await_mark(folder, "died")
    assert f"rank {n - 1} " in said and "died" in said, said
    assert late < SOON, f"the error came {late:.1f} s after the death"
    destroy_at_once()
    del model
    survivor = model_for(2)
    join(rank, n - 1, folder, "smaller")
    model = DistributedDataParallel(survivor)
    first, last = train(model, rank, 1), train(model, rank, 60)
    assert last < first, (first, last)
    digests: List[Any] = [None] * (n - 1)
    dist.all_gather_object(digests, digest(survivor))
    assert digests == [digests[0]] * (n - 1), digests
    dist.destroy_process_group()


def dies_while_others_wait(rank: int, n: int, folder: str, child: bool) -> None:
    """child: one that the dead rank had forked lives on, with all its descriptors."""
    join(rank, n, folder)
    if rank == 1:
        forked = os.fork() if child else -1
        if forked == 0:  # and stands still: of a process with threads a child had better do nothing else
            time.sleep(30)
            os._exit(0)
        if child:
            mark(folder, "child", forked)
        mark(folder, "died", time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)
    pending = dist.all_reduce(torch.ones(4), async_op=True)
    said = error_of(lambda: dist.barrier())
    late = time.monotonic() - await_mark(folder, "died")
    assert "rank 1 " in said and late < SOON, (said, late)
    assert "rank 1 " in error_of(pending.wait)
    assert "rank 1 " in error_of(lambda: sum_of_ones(n))  # and every call from then on
    destroy_at_once()
    if child and rank == 0:
        os.kill(await_mark(folder, "child"), signal.SIGKILL)


def interrupted_waits(rank: int, n: int, folder: str) -> None:
    """Rank 0 is interrupted in every kind of wait, for rank 1 never comes; each time with a call pending besides."""
    waits = {
        "work": lambda: dist.all_reduce(torch.ones(2), async_op=True).wait(),
        "all_reduce": lambda: dist.all_reduce(torch.ones(1 << 20)),
        "barrier": lambda: dist.barrier(),
        "recv": lambda: dist.recv(torch.ones(2), src=1),
        "any": lambda: dist.recv(torch.ones(2)),
        "broadcast": lambda: dist.broadcast_object_list([None], src=1),
        "batch": lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.ones(2), 1)])[0].wait(),
        "functional": lambda: functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD) + 1,
        "monitored": lambda: dist.monitored_barrier(timeout=LONG),
        "group": lambda: dist.new_group([0, 1], timeout=LONG),
        "destroy": lambda: dist.destroy_process_group(),
    }
    for name, wait in waits.items():
        join(rank, n, folder, name)
        functional.wait_tensor(functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD))
        if rank == 0:
            pending = dist.all_reduce(torch.ones(2), async_op=True)
            interrupted(wait)
            if dist.is_initialized():
                destroy_at_once()
            assert "interrupted" in error_of(pending.wait), name
            mark(folder, "after " + name)
        else:
            await_mark(folder, "after " + name)
            said = error_of(lambda: sum_of_ones(n))
            assert "interrupted" in said and "rank 0 " in said, (name, said)
            destroy_at_once()
    join(rank, n, folder, "last")
    sum_of_ones(n)
    dist.destroy_process_group()


def interrupted_meeting(rank: int, n: int, folder: str) -> None:
    """The other ranks come only after this one was interrupted while it waited for them."""
    if rank == 0:
        interrupted(lambda: join(rank, n, folder))
        assert not dist.is_initialized()
        mark(folder, "interrupted")
    await_mark(folder, "interrupted")
    join(rank, n, folder)
    sum_of_ones(n)
    dist.destroy_process_group()


def ends(rank: int, n: int, folder: str, how: str) -> None:
    """Rank 1 ends in some way without destroying its group; the others wait for it."""
    join(rank, n, folder)
    sum_of_ones(n)
    sub_group = dist.new_group([1], timeout=LONG)
    if rank != 1:
        said = error_of(lambda: dist.recv(torch.ones(3), src=1))
        mark(folder, f"rank {rank} heard", said)
        destroy_at_once()
        return
    dist.all_reduce(torch.ones(2), group=sub_group)
    if how in ("pending", "pending and raising"):
        futures.append(dist.all_reduce(torch.ones(1 << 16), async_op=True))
        futures.append(futures[-1].get_future().then(lambda future: mark(folder, "callback ran")))
        futures.append(dist.irecv(torch.ones(3), src=0))
    if how == "waiting thread":
        thread = threading.Thread(target=dist.recv, args=(torch.ones(3), 0), daemon=True)
        thread.start()
        await_call(thread, "recv")
    if how == "destroying at exit":
        import atexit

        atexit.register(lambda: (dist.destroy_process_group(), mark(folder, "hook ran")))
    if how in ("raising", "pending and raising"):
        raise ValueError("the program's own error")
    if how == "exit code":
        sys.exit(7)


futures: List[Any] = []  # alive until the interpreter ends


def sends_and_ends(rank: int, n: int, folder: str) -> None:
    """What was sent and never waited for arrives, when the receiver is not much later than the sender's end."""
    join(rank, n, folder)
    if rank == 1:
        futures.append(dist.isend(torch.arange(1 << 20), dst=0))
    else:
        time.sleep(0.2)
        got = torch.zeros(1 << 20, dtype=torch.int64)
        dist.recv(got, src=1)
        assert torch.equal(got, torch.arange(1 << 20))


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index * index)])


def forks(rank: int, n: int, folder: str) -> None:
    """Children that were forked amid pending calls end, use nothing of the parent's group, and leave it as it is."""
    join(rank, n, folder)
    work = dist.all_reduce(torch.ones(2), async_op=True) if rank == 0 else None
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        total = sum(batch.sum().item() for batch in loader)
        assert total == sum(i * i for i in range(24)), total
    pid = os.fork()
    if pid == 0:
        if work:
            assert "forked" in error_of(work.wait)
        assert "forked" in error_of(lambda: sum_of_ones(n))
        dist.destroy_process_group()
        if rank == 0:  # its own group, of one
            join(0, 1, folder, "child")
            sum_of_ones(1)
        sys.exit(5)  # with the interpreter's finalization, and so all destructors
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    work = work or dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    sum_of_ones(n)
    dist.destroy_process_group()


def in_a_process(rank: int, n: int, folder: str) -> None:
    """What torch.multiprocessing starts: its forked processes end without the interpreter's finalization."""
    join(rank, n, folder)
    if rank == 0:
        mark(folder, "heard", error_of(lambda: dist.barrier()))
        destroy_at_once()


def starts_processes(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fork = torch.multiprocessing.get_context("fork")
        children = [fork.Process(target=in_a_process, args=(rank, 2, folder)) for rank in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]


# ---- tests ----


class Survive(unittest.TestCase):
    def finish(self, ranks: List[programs.Program], *codes: int, seconds: float = 60.0) -> None:
        """That the programs end, with these codes (all others: 0), and say nothing of a crash."""
        ended = [rank.status(seconds) for rank in ranks]
        said = "\n".join(f"rank {i}: {rank.output()}" for i, rank in enumerate(ranks))
        self.assertEqual(ended, list(codes) or [0] * len(ranks), said)
        for crash in CRASHES:
            self.assertNotIn(crash, said)

    def folder_of(self, rank: programs.Program) -> str:
        return rank.args[2]

    def test_a_rank_is_killed_in_ddp(self) -> None:
        self.finish(programs.server.start_all(killed_in_backward, 3), 0, 0, -signal.SIGKILL)

    def test_a_rank_dies(self) -> None:
        self.finish(programs.server.start_all(dies_while_others_wait, 3, False), 0, -signal.SIGKILL, 0)

    def test_a_rank_dies_and_its_child_lives(self) -> None:
        self.finish(programs.server.start_all(dies_while_others_wait, 3, True), 0, -signal.SIGKILL, 0)

    def test_interrupted_waits(self) -> None:
        self.finish(programs.server.start_all(interrupted_waits, 2), seconds=120)

    def test_interrupted_while_the_ranks_meet(self) -> None:
        self.finish(programs.server.start_all(interrupted_meeting, 2))

    def ends(self, how: str, code: int, words: str) -> None:
        ranks = programs.server.start_all(ends, 2, how)
        self.finish(ranks, 0, code)
        heard = await_mark(self.folder_of(ranks[0]), "rank 0 heard")
        self.assertIn("rank 1 ", heard)
        self.assertIn(words, heard)
        self.assertEqual("the program's own error" in ranks[1].output(), "raising" in how)
        marks = os.listdir(self.folder_of(ranks[1]))
        self.assertEqual("callback ran" in marks, how.startswith("pending"))
        self.assertEqual("hook ran" in marks, how == "destroying at exit")

    def test_ends(self) -> None:
        self.ends("pending and raising", 1, "program ends")
        self.ends("destroying at exit", 0, "left")

    def test_more_ends(self) -> None:
        for how, code, words in (("normal", 0, "left"), ("pending", 0, "program ends"), ("raising", 1, "left"),
                                 ("exit code", 7, "left"), ("waiting thread", 0, "program ends")):  # fmt: skip
            with self.subTest(how):
                self.ends(how, code, words)

    def test_sent_before_the_end(self) -> None:
        self.finish(programs.server.start_all(sends_and_ends, 2))

    def test_forks(self) -> None:
        self.finish(programs.server.start_all(forks, 2))

    def test_forked_by_multiprocessing(self) -> None:
        folder = programs.server.new_folder()
        self.finish([programs.server.start(starts_processes, folder)])
        self.assertIn("rank 1 left", await_mark(folder, "heard"))


if __name__ == "__main__":
    programs.main(unittest.main)
