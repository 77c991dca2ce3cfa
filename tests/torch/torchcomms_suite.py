# SPDX-License-Identifier: BSD-3-Clause
"""Runs torchcomms' own integration tests (tests/integration/py) with 4 ranks on tutti and on the gloo that torchcomms
brings, and prints what came of them: a table of passed, failed and skipped, and all that differs. The tests are not in
torchcomms' wheel: TUTTI_TORCHCOMMS_TESTS names the folder `tests` of its sources. Where torchcomms is not installed,
they run on tutti alone, with tutti_torch.comms under torchcomms' name."""

import argparse
import collections
import glob
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import types
import unittest
from typing import Callable, Dict, List, NamedTuple

import ranks
import torchcomms_edits

PATH = "TUTTI_TORCHCOMMS_TESTS"
HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.normpath(os.path.join(HERE, "../../docs/compatibility.md"))
MARK = "<!-- Written by tests/torch/torchcomms_suite.py. -->"
NEXT = "<!-- Of tests/torch/xccl_suite.py. -->"  # what follows on the page is not ours
SIZE = 4
# Files of tests, from the folder above `tests`, and on how many ranks they run.
SETS = (
    ("tests/integration/py/*Test.py", SIZE),
    ("hooks/*/tests/py/*Test.py", SIZE),
    *((f"tests/unit/py/test_{name}.py", 1) for name in ("backend_wrapper", "copy", "hooks")),
    ("hooks/nan_check/tests/py/test_nan_check.py", 1),
)
# Why tests are skipped on tutti, where the tests' own words do not say it: the first that a name fits.
WHY_SKIPPED = (
    (r": test_(cuda_)?graph_|^CudaGraphs", "a CUDA graph; there is no CUDA here"),
    (r"^SymmMemRendezvousTest", "PyTorch's symmetric memory on GPUs; there is no CUDA here"),
    (r"^TimeoutTest: ", "a process that ends when its GPU hangs; there is no CUDA here"),
    (r": test_fullgraph_compile_window_put_get", "switched off for all backends, since it is broken"),
    (r"^MemPoolTest", "a pool of a GPU's memory; there is no CUDA here"),
    (r": test_sync_barrier_blocks_host_on_stream", "a barrier that waits for a stream; there is no CUDA here"),
    (r": test_mixed_backend_destroy_idempotent", "one group of gloo on CPUs and nccl on GPUs; there is no CUDA here"),
    (r": test_n_d_parallel", "needs 8 ranks"),
    (r"^TPCommTest", "needs GPUs: it compares sums bit by bit, which differ on CPUs, on gloo as well"),
    (r"_unsupported_backend$", "expects that a backend can not do what tutti does"),
    (r"^test_backend_wrapper: ", "this PyTorch does not have the windows of c10d, which come with 2.14"),
)
OUTCOMES = ("failed", "passed", "skipped")  # what one rank says counts in this order
LIMIT, LONG_LIMIT = 240.0, 1200.0  # seconds for a file; for one that compiles


# ---- what there is to run ----
def tests_folder() -> str:
    """The folder `tests` of torchcomms' sources, "" when nobody said where it is."""
    named = os.environ.get(PATH, "")
    for folder in (named, os.path.join(named, "tests"), os.path.join(named, "comms/torchcomms/tests")):
        if named and os.path.isdir(os.path.join(folder, "integration/py")):
            return os.path.abspath(folder)
    return ""


def missing() -> str:
    """Why nothing can be run, as a sentence; "" when all is there."""
    if not tests_folder():
        return (f"torchcomms' tests are not here: set {PATH} to the folder comms/torchcomms/tests of its sources "
                "(github.com/meta-pytorch/torchcomms, 0.3.0)")
    if not is_real() and importlib.util.find_spec("tutti_torch") is None:
        return "neither torchcomms nor tutti_torch is installed here"
    return ""


def is_real() -> bool:
    """Whether the package torchcomms itself is installed; PyPI has another one, without content, under its name."""
    spec = importlib.util.find_spec("torchcomms")
    return bool(spec and spec.submodule_search_locations and any(
        name.startswith("_comms.") for folder in spec.submodule_search_locations for name in os.listdir(folder)))


class File(NamedTuple):
    """A file of tests in a copy of them."""

    folder: str
    path: str
    n: int  # ranks

    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    def variables(self) -> Dict[str, str]:
        """What it puts into the environment before it imports torchcomms, which then has to be imported for it."""
        with open(self.path) as file:
            return dict(re.findall(r'^os\.environ\["(TORCHCOMMS_\w+)"\] = "(.*)"$', file.read(), re.M))


def copy_tests(folder: str) -> List[File]:
    """Makes a copy of the tests in this folder, with the edits of torchcomms_edits.py."""
    root = os.path.dirname(tests_folder())
    for name in ("tests", "hooks"):
        if os.path.isdir(os.path.join(root, name)):
            shutil.copytree(os.path.join(root, name), os.path.join(folder, name))
    files = [File(folder, path, n) for pattern, n in SETS for path in sorted(glob.glob(os.path.join(folder, pattern)))]
    for file in files:
        torchcomms_edits.apply(file.path)
    return files


def stand_in() -> None:
    """tutti_torch.comms, and its submodules, under the name of torchcomms; torch.distributed knows it, too."""
    comms = importlib.import_module("tutti_torch.comms")
    sys.modules["torchcomms"] = sys.modules["torchcomms._comms"] = comms
    for found in pkgutil.walk_packages(comms.__path__, "tutti_torch.comms."):
        sys.modules["torchcomms" + found.name[len("tutti_torch.comms"):]] = importlib.import_module(found.name)
    from torch.distributed import distributed_c10d as c10d

    c10d._TORCHCOMM_AVAILABLE = True
    c10d._BackendWrapper, c10d.new_comm = getattr(comms, "_BackendWrapper", None), comms.new_comm
    c10d.FlightRecorderHook = getattr(comms, "hooks", None) and comms.hooks.FlightRecorderHook


def prepare(folder: str) -> None:
    """torchcomms can be imported, and torchcomms.tests is the copy in this folder."""
    if not is_real():
        stand_in()
    package = importlib.import_module("torchcomms")
    tests = types.ModuleType("torchcomms.tests")
    tests.__path__ = [os.path.join(folder, "tests")]
    sys.modules["torchcomms.tests"] = package.tests = tests


# ---- in a rank ----
class Record(unittest.TestResult):
    """Outcome and reason of each test, written to the file as they come: a rank that dies leaves the others."""

    def __init__(self, file) -> None:
        super().__init__()
        self.file, self.outcomes = file, {}

    def name(self, test) -> str:
        return test.id().split(" ")[0].rsplit(".", 1)[-1]

    def startTest(self, test) -> None:
        super().startTest(test)
        self.write(test, "failed", "it did not end")

    def note(self, test, outcome: str, reason: str = "") -> None:
        if self.outcomes.get(self.name(test)) == "failed":  # a subtest of it
            return
        self.outcomes[self.name(test)] = outcome
        self.write(test, outcome, reason)

    def write(self, test, outcome: str, reason: str) -> None:
        print(json.dumps([self.name(test), outcome, reason]), file=self.file, flush=True)

    def stopTest(self, test) -> None:
        super().stopTest(test)
        if self.name(test) not in self.outcomes:  # only subtests said something
            self.note(test, "passed")

    def addSuccess(self, test) -> None:
        self.note(test, "passed")

    def addSkip(self, test, reason) -> None:
        self.note(test, "skipped", reason)

    def addFailure(self, test, err) -> None:
        super().addFailure(test, err)
        self.note(test, "failed", self.failures[-1][1])

    def addError(self, test, err) -> None:
        super().addError(test, err)
        self.note(test, "failed", self.errors[-1][1])

    def addSubTest(self, test, subtest, err) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", "".join(traceback.format_exception(*err)))


def run_file(path: str, base: str) -> None:
    """One file of tests on this rank, which is in the environment: outcomes to BASE.RANK, output to BASE.log, and what
    it leaves in its folder to the copy."""
    os.chdir(os.path.dirname(path))
    with open(base + ".log", "ab") as sink:
        for stream in (1, 2):
            os.dup2(sink.fileno(), stream)
    spec = importlib.util.spec_from_file_location("torchcomms_" + os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with open(f"{base}.{os.environ['RANK']}", "w") as file:
        record = Record(file)
        try:
            spec.loader.exec_module(module)
            unittest.defaultTestLoader.loadTestsFromModule(module).run(record)
        except BaseException:
            print(json.dumps(["import", "failed", traceback.format_exc()]), file=file)
    for _, text in record.failures + record.errors:
        print(text, file=sys.stderr, flush=True)


def run_rank(rank: int, size: int, _store, backend: str, path: str, base: str, port: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
                      MASTER_ADDR="localhost", MASTER_PORT=str(port), TEST_BACKEND=backend)
    os.environ.setdefault("TORCHCOMM_GLOO_HOSTNAME", "localhost")
    run_file(path, base)


# ---- one file on all ranks ----
def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def start_forked(backend: str, file: File, base: str) -> str:
    """Ranks forked from this process, which has imported all; returns what was wrong with one as a whole."""
    if file.variables():
        return start_torchrun(backend, file, base)
    with ranks.Ranks(file.n, backend=None, timeout=LIMIT) as group:
        try:
            group.start()
            group.run(run_rank, backend, file.path, base, free_port())
        except ranks.RankError as error:
            return str(error)
    return ""


def start_torchrun(backend: str, file: File, base: str) -> str:
    """The same as torchcomms' own script does it, a Python for every rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(file.n),
               "--master-port", str(free_port()), os.path.abspath(__file__), "--rank", file.path, "--base", base,
               "--copy", file.folder]
    environment = {**os.environ, "TEST_BACKEND": backend, "TORCHCOMM_GLOO_HOSTNAME": "localhost", **file.variables()}
    started = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        code = started.wait(LONG_LIMIT if file.variables() else LIMIT)
    except subprocess.TimeoutExpired:
        started.terminate()  # it ends its ranks
        started.wait()
        return "torchrun did not end in time"
    return "" if code == 0 else f"torchrun ended with {code}"


def gather(base: str, n: int, wrong: str) -> dict:
    """What became of each test: failed when it failed on a rank, skipped when it was on all."""
    found = {}
    for rank in range(n):
        said = {}
        if os.path.exists(f"{base}.{rank}"):
            with open(f"{base}.{rank}") as file:
                said = {name: (outcome, reason) for name, outcome, reason in map(json.loads, file)}
        for name, (outcome, reason) in said.items():
            before = found.get(name, (outcome, reason))
            found[name] = min(before, (outcome, reason), key=lambda one: OUTCOMES.index(one[0]))
    if wrong and not any(outcome == "failed" for outcome, _ in found.values()):
        found["the file"] = ("failed", wrong)
    return found


def measure(backend: str, files: List[File], start: Callable, folder: str) -> Dict[str, tuple]:
    """The outcomes of all files: "file: test" -> (outcome, reason)."""
    results = {}
    for file in files:
        name, began = file.name(), time.monotonic()
        base = os.path.join(folder, f"{backend}.{name}")
        found = gather(base, file.n, start(backend, file, base))
        results.update({f"{name}: {test}": outcome for test, outcome in found.items()})
        counts = collections.Counter(outcome for outcome, _ in found.values())
        print(f"{backend:6}{name:36}" + "  ".join(f"{one} {counts[one]:2}" for one in OUTCOMES)
              + f"  {time.monotonic() - began:6.1f} s", flush=True)
        for test, (outcome, reason) in found.items():
            if outcome == "failed":
                print(f"      {test}: {last_line(reason)}", flush=True)
    return results


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return (said or lines or [""])[-1][:300]


# ---- the table ----
def regressions(results: dict) -> list:
    """What passes on gloo and not on tutti, but for tests that a backend can not do something."""
    return [f"{test}: {results['tutti'].get(test, ('missing', ''))[0]}"
            for test, (outcome, _) in results.get("gloo", {}).items()
            if outcome == "passed" != results["tutti"].get(test, ("missing", ""))[0]
            and not test.endswith("_unsupported_backend")]


def row(*cells) -> str:
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def summary(results: dict) -> list:
    lines = [row("backend", "passed", "failed", "skipped"), row("---", "---", "---", "---")]
    for backend, tests in results.items():
        counts = collections.Counter(outcome for outcome, _ in tests.values())
        lines.append(row(backend, counts["passed"], counts["failed"], counts["skipped"]))
    return lines


def by_file(results: dict) -> list:
    """passed / failed / skipped of each file, where the backends differ."""
    counts = {backend: collections.defaultdict(collections.Counter) for backend in results}
    for backend, tests in results.items():
        for test, (outcome, _) in tests.items():
            counts[backend][test.split(":")[0]][outcome] += 1
    heads = ["file", *(f"{backend}: passed, failed, skipped" for backend in results)]
    lines = [row(*heads), row(*("---" for _ in heads))]
    for name in sorted(set().union(*counts.values())):
        cells = ["{passed}, {failed}, {skipped}".format_map(counts[backend][name]) for backend in results]
        if len(set(cells)) > 1 or len(cells) == 1:
            lines.append(row(name, *cells))
    return lines


def why(test: str, outcome: str, reason: str) -> str:
    known = [sentence for pattern, sentence in WHY_SKIPPED if outcome == "skipped" and re.search(pattern, test)]
    return known[0] if known else re.sub(r"\s+", " ", last_line(reason))


def causes(results: dict) -> list:
    """Why tests are skipped or fail on tutti, with their number."""
    found = collections.Counter((outcome, why(test, outcome, reason))
                                for test, (outcome, reason) in results["tutti"].items() if outcome != "passed")
    return [row("tests", "outcome on tutti", "why"), row("---", "---", "---"),
            *(row(n, outcome, cause) for (outcome, cause), n in found.most_common())]


TEXT = """\
{mark}

## torchcomms' own tests on tutti

The integration tests of torchcomms 0.3.0 (`comms/torchcomms/tests/integration/py`), {size} ranks on CPUs{how}. To run
them again:

    TUTTI_TORCHCOMMS_TESTS=.../comms/torchcomms/tests .venv/bin/python tests/torch/torchcomms_suite.py --page

{summary}

{lifted}

Where the two differ:

{by_file}

What does not run on tutti, and why:

{causes}
"""

LIFTED = ("Some tests ask for a backend by its name. Where tutti has what the names stand for, they run on it: {} "
          "(`tests/torch/torchcomms_edits.py`; nothing that is compared is changed).")


def page(results: dict) -> str:
    how = "" if is_real() else ", with `tutti_torch.comms` under torchcomms' name"
    what = ", ".join(dict.fromkeys(what for what, _ in torchcomms_edits.EDITS.values()))
    lifted = textwrap.fill(LIFTED.format(what), 120)
    return TEXT.format(mark=MARK, size=SIZE, how=how, lifted=lifted, summary="\n".join(summary(results)),
                       by_file="\n".join(by_file(results)), causes="\n".join(causes(results)))


def write_page(text: str) -> None:
    """Puts it behind what compare.py wrote."""
    with open(PAGE) as file:
        before, _, old = file.read().partition(MARK)
    _, mark, after = old.partition(NEXT)
    with open(PAGE, "w") as file:
        file.write(before.rstrip("\n") + f"\n\n{text}" + (f"\n{mark}{after}" if mark else ""))


# ---- the command ----
def run(backends: List[str], names: List[str], start: Callable = start_forked, folder: str = "") -> dict:
    """The outcomes on each backend of these files, or of all."""
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.setdefault("TEST_DEVICE", "cpu")
        files = [file for file in copy_tests(temporary) if not names or file.name() in names]
        if start is start_forked:
            prepare(temporary)
        return {backend: measure(backend, files, start, folder or temporary) for backend in backends}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", help="tutti, gloo; both when none is given")
    parser.add_argument("--torchrun", action="store_true", help="start a Python for every rank, as torchcomms does")
    parser.add_argument("--folder", default="", help="keep what the ranks print here")
    parser.add_argument("--page", action="store_true", help="write the table to docs/compatibility.md")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    parser.add_argument("--copy", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="files (AllReduceTest), all when none is given")
    arguments = parser.parse_args()
    if arguments.rank:
        prepare(arguments.copy)
        run_file(arguments.rank, arguments.base)
        return 0
    why = missing()
    if why:
        print(why)
        return 77
    backends = arguments.backend or (["tutti", "gloo"] if is_real() else ["tutti"])
    start = start_torchrun if arguments.torchrun else start_forked
    folder = os.path.abspath(arguments.folder) if arguments.folder else ""
    if folder:
        os.makedirs(folder, exist_ok=True)
    results = run(backends, arguments.names, start, folder)
    print("\n".join(["", *summary(results)]))
    if arguments.page:
        write_page(page(results))
    failed = [test for tests in results.values() for test, (outcome, _) in tests.items() if outcome == "failed"]
    complaints = regressions(results) if len(results) > 1 else failed
    print("\n".join(["", "what passes on gloo and not on tutti:", *complaints] if complaints else [""]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
