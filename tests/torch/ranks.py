# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for tests: processes forked from one that has imported torch once, each with its process group. A rank that
raises, dies or does not end in time is reported by number, with its traceback or where it stood, and all are ended: by
process id, with nothing left behind."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

try:
    import tutti_torch  # noqa: F401  before any fork: that it may be so is part of what is tested
except ImportError:  # other backends can be tested without
    pass

GRACE = 20.0  # seconds in which the others may fail too, after one did, or end well
PR_SET_PDEATHSIG = 1
PF_EXITING = 4  # among the flags in /proc/PID/stat


class RankError(AssertionError):
    """What one rank raised, or how it ended, and what became of the others."""


class Rank:
    """One process as its parent sees it."""

    def __init__(self, pid: int, pipe: Connection, folder: str, rank: int) -> None:
        self.pid, self.pipe, self.rank = pid, pipe, rank
        self.stack_file = os.path.join(folder, f"stack.{rank}")
        self.status: Optional[int] = None  # from waitpid

    def reap(self, seconds: float) -> bool:
        """Whether it has ended, waiting for at most that long."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(0.002)
        return True

    def ending(self) -> str:
        code = os.waitstatus_to_exitcode(self.status or 0)
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stacks(self) -> str:
        """Where its threads are; asked of the process itself."""
        os.kill(self.pid, signal.SIGUSR1)
        deadline, text = time.monotonic() + 2, ""
        while time.monotonic() < deadline and "most recent call first" not in text:
            time.sleep(0.05)
            with open(self.stack_file) as file:
                text = file.read()
        return text

    def kill(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.reap(10)
        self.pipe.close()


class Ranks:
    """n processes that run one function after another. `backend` None leaves it to the functions to make their groups:
    they get the store as third argument. After a failure the next call has new processes."""

    def __init__(
        self, n: int, backend: Optional[str] = "tutti", timeout: float = 60.0, env: Optional[Dict[str, str]] = None
    ) -> None:
        self.n, self.backend, self.timeout, self.env = n, backend, timeout, env or {}
        self.ranks: List[Rank] = []
        self.folder = ""

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.end()
        else:
            self.kill()

    def start(self, function: Optional[Callable] = None) -> None:
        """Forks the processes. A function given here need not be importable."""
        self.folder = tempfile.mkdtemp(prefix="ranks.")
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(self.n):
            mine, theirs = Pipe()
            pid = os.fork()
            if pid == 0:
                for other in self.ranks:
                    other.pipe.close()
                mine.close()
                run_child(self, rank, theirs, function)
            theirs.close()
            self.ranks.append(Rank(pid, mine, self.folder, rank))

    def run(self, function: Callable, *args: Any, timeout: Optional[float] = None) -> List[Any]:
        """function(rank, n, *args) on every rank; what each returned. function and args are pickled."""
        if not self.ranks:
            self.start()
        request = pickle.dumps((function, args))
        for rank in self.ranks:
            try:
                rank.pipe.send_bytes(request)
            except OSError:
                pass  # it died meanwhile, which gather() reports
        return self.gather(timeout or self.timeout)

    def gather(self, timeout: float) -> List[Any]:
        results: Dict[int, Any] = {}
        failures: List[Tuple[int, str]] = []
        waiting = {rank.pipe: rank for rank in self.ranks}
        deadline = time.monotonic() + timeout
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = waiting.pop(pipe)
                ok, value = receive(rank)
                if ok:
                    results[rank.rank] = value
                    continue
                failures.append((rank.rank, value))
                deadline = min(deadline, time.monotonic() + GRACE)
        if waiting:
            late = [(rank.rank, f"is not done in time. It stood at\n{rank.stacks()}") for rank in waiting.values()]
            failures += late
        if failures:
            self.kill()
            raise RankError(report(failures, self.n))
        return [results[rank] for rank in range(self.n)]

    def end(self, timeout: float = 30.0) -> None:
        """Tells all to finish, and sees that they do: with exit code 0."""
        ranks, failures = self.ranks, []
        for rank in ranks:
            try:
                rank.pipe.send_bytes(pickle.dumps(None))
            except OSError:
                pass
        deadline = time.monotonic() + timeout
        for rank in ranks:
            if not rank.reap(deadline - time.monotonic()):
                failures.append((rank.rank, f"does not end. It stood at\n{rank.stacks()}"))
            elif rank.status != 0:
                failures.append((rank.rank, rank.ending()))
        self.kill()
        if failures:
            raise RankError(report(failures, self.n))

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
        self.ranks = []
        shutil.rmtree(self.folder, ignore_errors=True)


def run(function: Callable, n: int, *args: Any, **options: Any) -> List[Any]:
    """function(rank, n, *args) on n new processes; options are those of Ranks. The function may be a closure."""
    group = Ranks(n, **options)
    with group:
        group.start(lambda *given: function(*given, *args))
        results = group.gather(group.timeout)
    return results


def receive(rank: Rank) -> Tuple[bool, Any]:
    try:
        return pickle.loads(rank.pipe.recv_bytes())
    except (EOFError, OSError):
        return False, rank.ending() if rank.reap(5) else "closed its pipe"


def report(failures: List[Tuple[int, str]], n: int) -> str:
    """The first failure in full; of the others, what their last lines say."""
    text = io.StringIO()
    first, said = failures[0]
    text.write(f"rank {first} of {n}: {said}")
    for rank, said in failures[1:]:
        lines = said.strip().splitlines()
        brief = said if "It stood at" in said else lines[-1] if lines else "?"
        text.write(f"\nand rank {rank}: {brief}")
    return text.getvalue()


# ---- in the child ----


def run_child(group: Ranks, rank: int, pipe: Connection, function: Optional[Callable]) -> None:
    """Never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a test that is killed takes its ranks along
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stack_file = open(os.path.join(group.folder, f"stack.{rank}"), "w")
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, stack_file, all_threads=True)
        os.environ.update(group.env)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", FutureWarning)  # for names that newer versions have others for
        serve(group, rank, pipe, function)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(group: Ranks, rank: int, pipe: Connection, function: Optional[Callable]) -> None:
    store = dist.FileStore(os.path.join(group.folder, "store"), group.n)
    given = (rank, group.n) if group.backend else (rank, group.n, store)
    started = False
    while True:
        if function is None:
            try:
                request = pickle.loads(pipe.recv_bytes())
            except EOFError:
                break
            if request is None:
                break
        else:
            request, function = (function, ()), None
        try:
            if group.backend and not started:
                timeout = timedelta(seconds=group.timeout)
                dist.init_process_group(group.backend, store=store, rank=rank, world_size=group.n, timeout=timeout)
                started = True
            function_asked, args = request
            answer = (True, function_asked(*given, *args))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))
        request = None
    if dist.is_initialized():
        dist.destroy_process_group()


# ---- test cases ----


def on(*sizes: int) -> Callable:
    """Marks function(rank, n) as a test to be run on these numbers of ranks."""

    def mark(function: Callable) -> Callable:
        function.sizes = sizes
        return function

    return mark


def cases(module: Dict[str, Any], **options: Any) -> None:
    """A unittest.TestCase for every number of ranks that the module's marked functions ask for; one set of processes
    serves each. TUTTI_TEST_BACKEND names another backend to try them on."""
    options.setdefault("backend", os.environ.get("TUTTI_TEST_BACKEND", "tutti"))
    marked = {name: found for name, found in module.items() if hasattr(found, "sizes")}
    for n in sorted({n for function in marked.values() for n in function.sizes}):
        methods = {f"test_{name}": method(found) for name, found in marked.items() if n in found.sizes}
        name = f"On{n}Rank{'s' if n > 1 else ''}"
        module[name] = type(name, (OnRanks,), {"n": n, "options": options, "__module__": module["__name__"], **methods})


def method(function: Callable) -> Callable:
    def test(self: "OnRanks") -> None:
        self.ranks.run(function)

    test.__doc__ = function.__doc__
    return test


class OnRanks(unittest.TestCase):
    n = 0
    options: Dict[str, Any] = {}
    ranks: Ranks

    @classmethod
    def setUpClass(cls) -> None:
        cls.ranks = Ranks(cls.n, **cls.options)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.ranks.end()

    def shortDescription(self) -> None:
        return None


# ---- what most tests ask for ----


def finish(work: Any, asynchronous: bool) -> None:
    """That a call gave a Work to wait for when asked to, and else None."""
    if not asynchronous:
        assert work is None, f"a call that is complete gave {work}"
        return
    assert work is not None
    work.wait()
    assert work.is_completed() and work.exception() is None


@contextmanager
def raises(kind: type, *words: str) -> Iterator[None]:
    """That the block raises this, in a sentence with these words."""
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in {error!r}"
        return
    raise AssertionError(f"{kind.__name__} with {words} was not raised")


def threads() -> int:
    """How many this process has, exactly. /proc lists one that was joined for a moment more, as exiting."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/stat") as file:
                flags = int(file.read().rpartition(")")[2].split()[6])
        except (FileNotFoundError, ProcessLookupError):
            continue
        count += not flags & PF_EXITING
    return count


def settle(expected: Any, measure: Callable[[], Any], seconds: float = 10.0) -> None:
    """That what is measured is, or soon becomes, what is expected."""
    deadline = time.monotonic() + seconds
    while (found := measure()) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.01)


def backend_of(group: Optional[dist.ProcessGroup] = None) -> Any:
    """The backend that serves CPU tensors."""
    return (group or dist.distributed_c10d._get_default_group())._get_backend(torch.device("cpu"))


def fr_trace(folder: str, *arguments: str) -> str:
    """What PyTorch's analyzer prints of a flight recorder's files in the folder."""
    from torch.distributed.flight_recorder import fr_trace as tool

    records = io.StringIO()
    handler = logging.StreamHandler(records)
    names = [None, *list(logging.root.manager.loggerDict)]
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        with redirect_stdout(records):
            tool.main([folder, "-p", "trace_", *arguments])
    finally:
        for name in [*names, *logging.root.manager.loggerDict]:
            logging.getLogger(name).removeHandler(handler)
    return records.getvalue()
