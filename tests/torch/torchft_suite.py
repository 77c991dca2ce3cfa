# SPDX-License-Identifier: BSD-3-Clause
"""Runs torchft's own tests, which its wheel brings, with its compiled parts or process groups replaced by tutti's, and
says what came of them. `python torchft_suite.py [PART ...]` prints a table: for each choice of parts how many tests
pass.

Tests that compare with recorded weights find no recording in the wheel: torchft's own parts write it first. A test
that fails is run once more, alone: replicas are threads that share one generator of random numbers, which one of them
may use between another's seed and its weights."""

import argparse
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from typing import Dict, List, NamedTuple, Sequence, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = {  # torchft's module, tutti's, and the names that change together
    "lighthouse": ("_torchft", "coordination", ("LighthouseServer", "LighthouseClient", "Quorum", "QuorumMember")),
    "server": ("_torchft", "coordination", ("ManagerServer",)),
    "client": ("_torchft", "coordination", ("ManagerClient", "QuorumResult")),
    "groups": ("process_group", "process_group", ("ProcessGroupGloo", "ProcessGroupBabyGloo")),
}
OF_GROUPS = ("process_group_test", "reconfigure_test")  # which the other parts change nothing in
FILES = ("lighthouse_test", "manager_test", "manager_integ_test", "diloco_regression_test", "local_sgd_integ_test",
         *OF_GROUPS)
RECORDED = "diloco_regression_test"
LIMIT = 900.0  # seconds for a file
VARIABLE = "TUTTI_TORCHFT_PARTS"


def missing() -> str:
    """Why nothing can be run, as a sentence; "" when all is there."""
    for package in ("torchft", "pytest", "parameterized"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed here (pip install torchft-nightly pytest parameterized)"
    return ""


# ---- in the process of the tests: pytest loads this file as a plug-in ----
def pytest_configure(config) -> None:
    replaced = {}
    for part in os.environ.get(VARIABLE, "").split():
        theirs, ours, names = PARTS[part]
        theirs, ours = importlib.import_module(f"torchft.{theirs}"), importlib.import_module(f"tutti_torch.ft.{ours}")
        replaced.update({getattr(theirs, name): getattr(ours, name) for name in names})
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "torchft"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in replaced:
                setattr(module, name, replaced[value])


# ---- here ----
class Outcome(NamedTuple):
    result: str  # passed, failed, skipped
    reason: str


def outcomes_of(path: str) -> Dict[str, Outcome]:
    outcomes = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name')}"
        found = [child for child in case if child.tag in ("failure", "error", "skipped")]
        result = "passed" if not found else "skipped" if found[0].tag == "skipped" else "failed"
        outcomes[name] = Outcome(result, (found[0].get("message") or "") if found else "")
    return outcomes


def run_file(folder: str, file: str, parts: Sequence[str], record: bool = False) -> Dict[str, Outcome]:
    """One file of tests, and once more those that failed."""
    outcomes = run_once(folder, file, parts, record)
    for name in [name for name, outcome in outcomes.items() if outcome.result == "failed"]:
        print(f"{', '.join(parts) or 'none'}: {name} once more: {outcomes[name].reason[:200]!r}", file=sys.stderr)
        outcomes.update(run_once(folder, file, parts, record, ["-k", name.rpartition(".")[2]]))
    return outcomes


def run_once(folder: str, file: str, parts: Sequence[str], record: bool,
             words: Sequence[str] = ()) -> Dict[str, Outcome]:
    """In a process of its own, from its copy in this folder."""
    package = os.path.dirname(importlib.util.find_spec("torchft").origin)
    tests, report = os.path.join(folder, "tests"), os.path.join(folder, "report.xml")
    os.makedirs(tests, exist_ok=True)
    os.makedirs(os.path.join(folder, "test_fixtures"), exist_ok=True)
    shutil.copy(os.path.join(package, f"{file}.py"), tests)
    if os.path.exists(report):
        os.unlink(report)
    path = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, VARIABLE: " ".join(parts), "OMP_NUM_THREADS": "1",
                   "TORCHFT_USE_OTEL": "false", **({"WRITE_FIXTURE": "true"} if record else {})}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "torchft_suite", "-p", "no:cacheprovider",
               f"--junitxml={report}", f"{file}.py", *words]
    with open(os.path.join(folder, "output"), "w+") as output:
        process = subprocess.Popen(command, cwd=tests, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not os.path.exists(report):
            output.seek(0)
            return {file: Outcome("failed", f"it did not end: {output.read()[-2000:]}")}
    return outcomes_of(report)


def run(choices: Sequence[Sequence[str]], files: Sequence[str]) -> List[Dict[str, Outcome]]:
    """For each choice of tutti's parts what came of all tests of these files."""
    results: List[Dict[str, Outcome]] = []
    known: Dict[Tuple[str, Sequence[str]], Dict[str, Outcome]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if RECORDED in files:
            run_file(folder, RECORDED, (), record=True)
        for parts in choices:
            results.append({})
            for file in files:
                key = (file, () if file in OF_GROUPS and "groups" not in parts else tuple(parts))
                if key not in known:
                    known[key] = run_file(folder, *key)
                results[-1].update(known[key])
    return results


def regressions(own: Dict[str, Outcome], ours: Dict[str, Outcome]) -> List[str]:
    """What passes with torchft's own parts and does not with ours."""
    return [f"{name}: {ours.get(name, Outcome('failed', 'it is not there')).reason}" for name, outcome in own.items()
            if outcome.result == "passed" and ours.get(name, Outcome("failed", "")).result != "passed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: each alone, and all")
    parser.add_argument("--files", nargs="+", default=FILES)
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    choices = [(), tuple(given.parts)] if given.parts else [(), *((part,) for part in PARTS), tuple(PARTS)]
    results = run(choices, given.files)
    print("| tutti's | passed | failed | skipped |\n|---|---|---|---|")
    for parts, result in zip(choices, results):
        found = [outcome.result for outcome in result.values()]
        counts = [str(found.count(kind)) for kind in ("passed", "failed", "skipped")]
        print(f"| {', '.join(parts) or 'none'} | {' | '.join(counts)} |")
    for parts, result in zip(choices, results):
        for name, outcome in result.items():
            if outcome.result == "failed":
                print(f"{', '.join(parts) or 'none'}: {name}: {outcome.reason[:500]}")
    sys.exit(any(regressions(results[0], result) for result in results))


if __name__ == "__main__":
    main()
