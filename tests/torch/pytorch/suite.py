# SPDX-License-Identifier: BSD-3-Clause
"""Runs torch.testing._internal.distributed.distributed_test, which is inside every torch package, on one backend with
one number of ranks. The suite reads both from the environment when it is imported, so one process of this program is
one run. PyTorch's own driver starts a Python for every rank of every test; here the ranks are forked from this
process, which has imported torch already. The suite says "cuda" where it means the device: --device xpu reads it with
the other name."""

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import types
import unittest
from typing import Callable

import lifts


def stand_in_for_expecttest() -> None:
    """The suite's base class comes from a package that torch does not bring; nothing of it is used but the name."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        module = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        module.ACCEPT = False
        sys.modules["expecttest"] = module


SUITE = "torch.testing._internal.distributed.distributed_test"
NAMES_OF_CUDA = (r"(?<=\btorch\.)cuda\b(?!\.amp)", r"(?<=\.)cuda(?=\()", r"(?<=\.is_)cuda\b",
                 r"(?<=[\"'])cuda(?=[:\"'])")  # fmt: skip


def import_suite(device: str):
    """The module, with the device's name in the place of CUDA's."""
    spec = importlib.util.find_spec(SUITE)
    with open(spec.origin) as file:
        text = file.read()
    for name in NAMES_OF_CUDA:
        text = re.sub(name, device, text)
    module = sys.modules[SUITE] = importlib.util.module_from_spec(spec)
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


def load(backend: str, size: int, folder: str, device: str = "cuda") -> type:
    """The suite's test case for this backend and number of ranks."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(size), OMP_NUM_THREADS="1")
    os.environ["INIT_METHOD"] = "file://" + os.path.join(folder, "init")
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")
    stand_in_for_expecttest()
    lifts.lift_sizes()
    if backend != "gloo":
        __import__("tutti_torch")
        lifts.lift_names()
        lifts.enter_features(backend)
    suite = import_suite(device)
    if backend != "gloo":
        lifts.enter_names(suite, backend)
    return test_case(suite)


def test_case(suite) -> type:
    import torch.multiprocessing

    class TestDistBackendWithFork(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestDistBackendWithFork


class Record(unittest.TestResult):
    """Outcome and reason of each test, told on the console as they come."""

    def __init__(self, console) -> None:
        super().__init__()
        self.console, self.outcomes = console, {}

    def startTest(self, test) -> None:
        super().startTest(test)
        self.began = time.monotonic()

    def note(self, test, outcome: str, reason: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        self.outcomes[name] = (outcome, reason)
        seconds = time.monotonic() - self.began
        print(f"{outcome:8}{seconds:6.1f} s  {name}  {first_line(reason)}", file=self.console, flush=True)

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


def first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line[:1].strip() and "Error" in line.split(":")[0]]
    return (said or lines or [""])[-1][:200]


def run(case: Callable, names: list, log: str, Record: type = Record) -> dict:
    """Runs the tests; what they and their ranks print goes to the log, what became of them to standard output."""
    console = os.fdopen(os.dup(1), "w")
    with open(log, "ab") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    record = Record(console)
    unittest.TestSuite(case(name) for name in names).run(record)
    return record.outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=2, help="number of ranks")
    parser.add_argument("--json", help="file to write the outcomes to")
    parser.add_argument("--log", default=os.path.join(tempfile.gettempdir(), f"distributed_test.{os.getpid()}.log"))
    parser.add_argument("--without", action="append", default=[], metavar="PATTERN", help="what is left out")
    parser.add_argument("names", nargs="*", help="tests, all when none is given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = load(arguments.backend, arguments.size, folder, arguments.device)
        names = arguments.names or unittest.TestLoader().getTestCaseNames(case)
        names = [name for name in names if not any(re.search(each, name) for each in arguments.without)]
        outcomes = run(case, names, arguments.log)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"lifted": lifts.lifted, "tests": outcomes}, file, indent=1)
    return 1 if any(outcome == "failed" for outcome, _ in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
