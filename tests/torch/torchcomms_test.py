# SPDX-License-Identifier: BSD-3-Clause
# timeout: 3000
# short: Refused Plugged Futures Ends Distributed
"""tutti as a backend of the package torchcomms: what is refused, the entry point, communicators, handles that end on
other threads, aborts and deaths; and torchcomms' own tests, all that pass on its gloo. Skipped where the package, its
plug-in or its tests are not there."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from pathlib import Path

import ranks
import torch
import torchcomms_suite as suite


def plugged() -> str:
    """Why torchcomms has no backend "tutti" here, as a sentence; "" when it has."""
    if not suite.is_real():
        return "torchcomms is not installed here"
    try:
        import tutti_torch.torchcomms  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


WHY = plugged()
if not WHY:
    import torchcomms


def new_comm(name: str, store, rank: int, n: int, **options):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n))
    options.setdefault("timeout", timedelta(seconds=30))
    return torchcomms.new_comm("tutti", torch.device("cpu"), name, store=store,
                               abort_process_on_timeout_or_error=False, **options)


class Refused(unittest.TestCase):
    """Needs no torchcomms: the package's description is enough to be refused."""

    def load(self, version: str, program: str = "import tutti_torch.torchcomms") -> str:
        with tempfile.TemporaryDirectory() as folder:
            about = os.path.join(folder, f"torchcomms-{version}.dist-info")
            os.mkdir(about)
            with open(os.path.join(about, "METADATA"), "w") as file:
                file.write(f"Metadata-Version: 2.1\nName: torchcomms\nVersion: {version}\n")
            path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH", "")]))
            ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertNotEqual(ended.returncode, 0)
        return ended.stdout.strip().splitlines()[-1]

    def test_another_version(self) -> None:
        self.assertRegex(self.load("0.4.0"), r"ImportError: tutti's plug-in is for torchcomms 0\.3, and this is "
                                             r"torchcomms 0\.4\.0: install torchcomms 0\.3, or use `import tutti_torch")

    def test_built_without(self) -> None:
        program = "import tutti_torch._build as b; b.TORCHCOMMS = ''; import tutti_torch.torchcomms"
        self.assertRegex(self.load("0.3.0", program), "ImportError: tutti_torch was built without torchcomms, .* build")

    def test_built_for_another(self) -> None:
        program = "import tutti_torch._build as b; b.TORCHCOMMS = '0.2.0'; import tutti_torch.torchcomms"
        self.assertRegex(self.load("0.3.1", program), "ImportError: tutti_torch was built for torchcomms 0.2.0, and")


# ---- on ranks ----
def two_communicators(rank, n, store) -> None:
    first, second = (new_comm(name, store, rank, n) for name in ("one", "two"))
    for i, comm in enumerate((first, second, first)):
        tensor = torch.full((1000,), float(rank + i))
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
        assert torch.equal(tensor, torch.full((1000,), float(sum(range(n)) + i * n))), tensor
    assert (first.get_rank(), first.get_size(), first.get_backend(), first.get_name()) == (rank, n, "tutti", "one")
    child = first.split(list(range(1, n)) if rank else [], "but the first")
    assert (child is None) == (rank == 0)
    if child:
        assert child.get_ranks() == list(range(1, n)) if hasattr(child, "get_ranks") else True
        child.finalize()
    first.finalize()
    second.finalize()


def forced_name(rank, n, store) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n))
    comm = torchcomms.new_comm("tutti:flat", torch.device("cpu"), "forced", store=store)
    tensor = torch.ones(5)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    assert tensor.sum() == 5 * n
    comm.finalize()


def status_without_waiting(rank, n, store) -> None:
    """A handle that is only asked, never waited for, completes."""
    comm = new_comm("asked", store, rank, n)
    for size in (1, 100_000):
        works = [comm.all_reduce(torch.ones(size), torchcomms.ReduceOp.SUM, True) for _ in range(20)]
        deadline = time.monotonic() + 20
        while not all(work.is_completed() for work in works):
            assert time.monotonic() < deadline
            time.sleep(0.001)
    comm.finalize()


def futures_of_wrapper(rank, n, store, rounds) -> None:
    """torch.distributed's handles over torchcomms' have futures that nothing completes but a function at the end, which
    is registered when the call may be over already."""
    from torchcomms._comms import _BackendWrapper

    comm = new_comm("futures", store, rank, n)
    wrapper = _BackendWrapper(comm)
    options = torch.distributed.AllreduceOptions()
    options.asyncOp = True
    for _ in range(rounds):
        tensor = torch.ones(4)
        work = wrapper.allreduce([tensor], options)
        work.get_future().wait()
        assert tensor[0] == n
    comm.finalize()


def recorded(rank, n, store, rounds) -> None:
    """A flight recorder has seen the end of every call."""
    import json

    from torchcomms.hooks import FlightRecorderHook

    recorder = FlightRecorderHook(max_entries=10 * rounds)
    comm = new_comm("recorded", store, rank, n)
    recorder.register_with_comm(comm)
    for i in range(rounds):
        work = comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, i % 2 == 0)
        work.wait()
    ended = [entry["retired"] for entry in json.loads(recorder.dump_json(include_completed=True))["entries"]]
    assert len(ended) == rounds and all(ended), f"{ended.count(False)} of {len(ended)} calls did not end"
    comm.finalize()


def aborted_by_a_thread(rank, n, store) -> str:
    comm = new_comm("aborted", store, rank, n)
    comm.barrier(False)
    assert comm.is_abort_supported() and not comm.is_aborted()
    hooked = []
    comm.register_abort_hook(lambda: hooked.append(rank))
    if rank == 0:
        threading.Timer(0.5, comm.abort).start()
    try:
        comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, False) if rank == 0 else comm.barrier(False)
        comm.barrier(False)
        return "no error"
    except RuntimeError as error:
        assert comm.is_aborted() and hooked == [rank], (comm.is_aborted(), hooked)
        return str(error)


def killed(rank, n, store) -> str:
    comm = new_comm("killed", store, rank, n)
    comm.barrier(False)
    if rank == n - 1:
        store.set("dead", "soon")
        os.kill(os.getpid(), signal.SIGKILL)
    work = comm.all_reduce(torch.ones(100_000), torchcomms.ReduceOp.SUM, True)
    try:
        work.wait()
        return "no error"
    except RuntimeError as error:
        store.set(f"said.{rank}", str(error))
        return str(error)


@unittest.skipIf(WHY, WHY)
class Plugged(unittest.TestCase):
    def test_entry_point(self) -> None:
        self.assertTrue(torchcomms.is_backend_built("tutti"))
        self.assertIn("tutti", torchcomms.built_backends())

    def test_two_communicators(self) -> None:
        for n in (2, 4):
            ranks.run(two_communicators, n, backend=None)

    def test_forced_name(self) -> None:
        ranks.run(forced_name, 2, backend=None)


    def test_another_abi(self) -> None:
        """What torchcomms says of a plug-in for another one comes as ours does, before its functions are called."""
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "other.so")
            with open(os.path.join(folder, "other.c"), "w") as file:
                file.write("struct loader { void *(*make)(void); void (*end)(void *); const char *(*of)(void); };\n"
                           "static void *make(void) { __builtin_trap(); }\n"
                           "static void end(void *comm) { (void)comm; }\n"
                           'static const char *version(void) { return "1.1"; }\n'
                           "struct loader create_dynamic_loader_tutti(void);\n"
                           "struct loader create_dynamic_loader_tutti(void)\n"
                           "{ return (struct loader){make, end, version}; }\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, file.name], check=True)
            program = "import torch, torchcomms; torchcomms.new_comm('tutti:flat', torch.device('cpu'), 'x')"
            ended = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT,
                                   env={**os.environ, "TORCHCOMMS_BACKEND_LIB_PATH_TUTTI": library})
        self.assertRegex(ended.stdout, r"ImportError: tutti's plug-in does not fit this torchcomms [\d.]+, it is for "
                                       r"the one whose ABI is 1\.3: .*ABI version mismatch: 1\.1 != 1\.3")


@unittest.skipIf(WHY, WHY)
class Futures(unittest.TestCase):
    def test_status_without_waiting(self) -> None:
        ranks.run(status_without_waiting, 2, backend=None)

    def test_futures_of_wrapper(self) -> None:
        ranks.run(futures_of_wrapper, 2, 2000, backend=None)

    def test_flight_recorder(self) -> None:
        ranks.run(recorded, 2, 500, backend=None)


@unittest.skipIf(WHY, WHY)
class Ends(unittest.TestCase):
    def test_abort_by_a_thread(self) -> None:
        for rank, said in enumerate(ranks.run(aborted_by_a_thread, 2, backend=None)):
            self.assertIn("rank 0", said, rank)

    def test_killed(self) -> None:
        """The one that was killed is reported as such, and the others have an error that names it."""
        heard = {}

        def told(rank, n, store) -> None:
            said = killed(rank, n, store)
            with open(os.path.join(folder, str(rank)), "w") as file:
                file.write(said)

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ranks.RankError, "rank 2 of 3: died of SIGKILL"):
                ranks.run(told, 3, backend=None)
            for rank in (0, 1):
                with open(os.path.join(folder, str(rank))) as file:
                    heard[rank] = file.read()
        for rank, said in heard.items():
            self.assertRegex(said, "rank 2 .*(died|dead|killed|gone|ended)", rank)


# ---- torch.distributed over torchcomms ----
EXAMPLES = ("ddp", "fsdp2", "dtensor", "pipeline")


def example_over_torchcomms(rank, n, store, name) -> int:
    """All cases of one of examples/torch, which compare with one process; what serves them is torchcomms'."""
    import importlib

    import torch.distributed as dist

    sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "examples" / "torch"))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n))
    dist.config.use_torchcomms = True
    dist.init_process_group("tutti", store=dist.PrefixStore(name, store), rank=rank, world_size=n)
    served_by = type(dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))).__name__
    assert served_by == "_BackendWrapper", served_by
    example = importlib.import_module("example")
    cases = importlib.import_module(name).CASES
    for case, function in cases.items():
        torch.manual_seed(1)
        try:
            function(example.Job(rank, n))
        except Exception as error:
            raise AssertionError(f"{name}, case {case!r}: {error}") from error
    dist.destroy_process_group()
    return len(cases)


@unittest.skipIf(WHY, WHY)
class Distributed(unittest.TestCase):
    def test_examples(self) -> None:
        for name in EXAMPLES:
            with self.subTest(name):
                self.assertTrue(all(ranks.run(example_over_torchcomms, 2, name, backend=None, timeout=300)))


@unittest.skipIf(suite.missing(), suite.missing())
class Suite(unittest.TestCase):
    def test_all_that_passes_on_gloo(self) -> None:
        real = suite.is_real()
        results = suite.run(["tutti", "gloo"] if real else ["tutti"], [])
        self.assertEqual(suite.regressions(results), [])
        self.assertEqual([test for test, (outcome, _) in results["tutti"].items() if outcome == "failed"], [])


if __name__ == "__main__":
    unittest.main()
