# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_peers.py without a GPU: what it tells of lines that ranks would print, and how it goes on when ranks fail,
by ranks that only pretend to measure."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

import gpu_peers  # noqa: E402
from peers.gpu import runs as gpu_runs  # noqa: E402

# As peers.gpu.rank, but it measures nothing: rank 0 says what it is at, and prints cells. A fault is a place ("opening"
# or an operation), a library, the rank that fails, and in how many runs. The other rank waits for ever.
RANK = """
import json, os, sys, time
from pathlib import Path
plan, rank, cell = json.loads(sys.argv[1]), int(os.environ["RANK"]), {cell}
folder, job = Path(os.environ["FOLDER"]), os.environ["TUTTI_JOB"]
if rank == 0:
    with open(folder / "runs", "a") as runs:
        runs.write(json.dumps({{**plan, "job": job}}) + "\\n")

def at(here, library):
    if rank == 0:
        print(json.dumps({{"at": here, "library": library}}), flush=True)
    for place, where, failing, runs in {faults}:
        if (place, where) == (here[0] if here else "opening", library) and int(job.split("-")[-1]) <= runs:
            (folder / f"{{job}}.{{rank}}").touch()
            while not (folder / f"{{job}}.0").exists():  # it has been told
                time.sleep(0.01)
            sys.exit(3) if rank == failing else time.sleep(1000)

if rank == 0:
    print("words of a library")
    print(5)
for library in ("nccl window", "torch"):
    if library not in plan["never"]:
        at(None, library)
if rank == 0:
    print(json.dumps({{"machine": "GPU", "ranks": 2}}))
if plan["eager"]:
    at(None, "tutti")
    if rank == 0:
        print(json.dumps({{"eager_us": {{"tutti": 1.0}}}}))
for i, (op, size, dtype, in_place) in enumerate(plan["cells"]):
    us = {{}}
    for library in ("tutti", "tutti window", "nccl", "nccl window"):
        if library not in plan["never"] and (i or library not in plan["without"]) \\
                and library not in plan["banned"].get(op, []):
            at([op, size, dtype, in_place], library)
            us[library] = 2.0
    if rank == 0:
        print(json.dumps({{**cell, "op": op, "bytes": size, "us": us}}), flush=True)
"""
ALWAYS = 99
AGAIN = "(rank 1 ended first), in fresh processes, too"
OPS = ["all_reduce", "all_gather", "broadcast"]
ALL = {"tutti", "tutti window", "nccl", "nccl window"}


def cell(us: float = 2.0, greatest: float = 2.5, launching: float = 9.0, **other) -> dict:
    names = ("tutti", "tutti window", "nccl")
    line = {"op": "all_reduce", "bytes": 1024, "dtype": "bfloat16", "in_place": False, "calls": 50, "wrong": 0}
    line["us"] = {name: us if name != "nccl" else 5.0 for name in names}
    line["least_us"] = {name: 1.0 for name in names}
    line["greatest_us"] = {name: greatest if name == "tutti" else 5.0 for name in names}
    line["launching_us"] = {name: launching for name in names}
    return {**line, **other}


class Telling(unittest.TestCase):
    def told(self, *lines: dict) -> str:
        return "\n".join(gpu_peers.report([{"machine": "GPU", "ranks": 2}, *lines]))

    def test_a_round_of_three_times_the_median_was_held_up(self) -> None:
        words = self.told(cell(us=2.0, greatest=402.0, launching=19_500.0))
        self.assertIn("tutti was held up 20.0 ms: all_reduce 1 KiB bfloat16 out of place", words)
        self.assertIn("402.0 us a call instead of 2.0; launching took 19.5 ms at most", words)
        self.assertNotIn("tutti window was held up", words)
        self.assertNotIn("held up", self.told(cell(us=2.0, greatest=5.9)))

    def test_older_records_have_no_greatest_round(self) -> None:
        line = cell()
        for key in ("least_us", "greatest_us", "launching_us", "calls"):
            del line[key]
        self.assertNotIn("held up", self.told(line))

    def test_what_was_not_measured_is_told(self) -> None:
        self.assertNotIn("Not all", self.told(cell()))
        self.assertIn("Not all cells were measured: time was up after 7 s.", self.told(cell(), {"stopped_after_s": 7}))
        self.assertIn("Not all cells were measured: rank 1 failed", self.told(cell(), {"failed": "rank 1 failed"}))


class Ranks(unittest.TestCase):
    """Two made-up ranks that are to measure three cells."""

    def run_ranks(self, *faults: list, seconds: float = 100, sizes: str = "4M") -> int:
        """The exit status; what was told, the lines, and the runs that rank 0 has seen are kept."""
        told = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            rank = RANK.format(faults=list(faults), cell=repr(cell()))
            (Path(folder) / "made_up_rank.py").write_text(rank)
            stack.callback(os.chdir, os.getcwd())
            os.chdir(folder)
            measure = gpu_peers.measure
            stack.enter_context(mock.patch.dict(os.environ, {"FOLDER": folder}))
            stack.enter_context(mock.patch.object(gpu_runs, "LAST_WORDS_S", 0.2))
            stack.enter_context(mock.patch.object(gpu_peers, "need_torch", lambda: None))
            stack.enter_context(mock.patch.object(gpu_peers, "measure", lambda c: measure(c, "made_up_rank")))
            arguments = ["gpu_peers", "-n", "2", "--ops", ",".join(OPS), "--sizes", sizes, "--places", "out"]
            arguments += ["--dtypes", "bfloat16", "--json", "lines", "--seconds", str(seconds)]
            stack.enter_context(mock.patch.object(sys, "argv", arguments))
            stack.enter_context(contextlib.redirect_stdout(told))
            stack.enter_context(contextlib.redirect_stderr(told))
            status = gpu_peers.main()
            self.lines = [json.loads(line) for line in Path("lines").read_text().splitlines()]
            self.runs = [json.loads(line) for line in Path("runs").read_text().splitlines()]
        self.told = told.getvalue()
        return status

    def libraries(self, op: str) -> list[set[str]]:
        return [set(line["us"]) for line in self.lines if line.get("op") == op]

    def measured(self) -> dict[str, set[str]]:
        cells = [line for line in self.lines if "op" in line]
        found = {line["op"]: set(line["us"]) for line in cells}
        self.assertEqual(len(found), len(cells), "a cell was measured twice")
        return found

    def words(self, key: str) -> list[str]:
        return [line[key] for line in self.lines if key in line]

    def begun(self) -> list[list[str]]:
        """The operations that each run was given."""
        return [[row[0] for row in run["cells"]] for run in self.runs]

    def test_without_a_failure_all_is_well(self) -> None:
        self.assertEqual(self.run_ranks(), 0)
        self.assertEqual(self.measured(), dict.fromkeys(OPS, ALL))
        self.assertIn("words of a library\n5\n", self.told)
        self.assertNotIn("failed", self.told)
        self.assertFalse(any("at" in line for line in self.lines))
        self.assertEqual([line for line in self.lines if "op" not in line], self.lines[:2])

    def test_a_cell_that_fails_once_is_measured_in_fresh_processes(self) -> None:
        for rank in (0, 1):
            self.assertEqual(self.run_ranks(["all_gather", "nccl window", rank, 1]), 0)
            self.assertEqual(self.measured(), dict.fromkeys(OPS, ALL))
            self.assertEqual(self.begun(), [OPS, OPS[1:]])
            self.assertEqual(len({run["job"] for run in self.runs}), 2)
            self.assertEqual([run["eager"] for run in self.runs], [True, False])
            why = "all_gather 4 MiB bfloat16 out of place: stopped in nccl window"
            rest = f" (rank {rank} ended first); begun again in fresh processes"
            self.assertEqual(self.words("restarted"), [why + rest])
            self.assertEqual(self.told.count(why), 2)  # as it came, and in the report
            self.assertEqual(sum("machine" in line for line in self.lines), 1)

    def test_a_peer_that_fails_again_is_left_out_of_the_cell(self) -> None:
        for peer in ("nccl", "nccl window"):
            self.assertEqual(self.run_ranks(["all_gather", peer, 1, ALWAYS]), 0)
            self.assertEqual(self.measured(), {**dict.fromkeys(OPS, ALL), "all_gather": ALL - {peer}})
            self.assertEqual(self.begun(), [OPS, OPS[1:], OPS[1:]])
            self.assertEqual(self.runs[2]["without"], [peer])
            self.assertIn(f"stopped in {peer} {AGAIN}; begun again without {peer}.", self.told)
            self.assertNotIn("Not all cells", self.told)

    def test_a_peer_that_fails_in_two_cells_is_left_out_of_the_operation(self) -> None:
        self.assertEqual(self.run_ranks(["all_gather", "nccl", 1, ALWAYS], sizes="1K,8K,64K,1M"), 0)
        self.assertEqual(self.libraries("all_gather"), [ALL - {"nccl"}] * 4)
        self.assertEqual(self.libraries("broadcast"), [ALL] * 4)
        self.assertEqual([run["banned"] for run in self.runs], [{}] * 4 + [{"all_gather": ["nccl"]}])
        self.assertIn("begun again without nccl, as are all further cells of all_gather.", self.told)

    def test_two_peers_may_fail(self) -> None:
        faults = ["all_reduce", "nccl window", 1, ALWAYS], ["all_reduce", "nccl", 0, ALWAYS]
        self.assertEqual(self.run_ranks(*faults), 0)
        self.assertEqual(self.measured()["all_reduce"], {"tutti", "tutti window"})
        self.assertEqual(self.begun(), [OPS] * 4)
        self.assertIn("Wrong results in 0 of 3 cells", self.told)

    def test_a_cell_that_fails_in_tutti_is_left_out(self) -> None:
        self.assertEqual(self.run_ranks(["all_gather", "tutti window", 1, ALWAYS]), 1)
        self.assertEqual(self.measured(), {op: ALL for op in OPS if op != "all_gather"})
        self.assertEqual(self.begun(), [OPS, OPS[1:], OPS[2:]])
        why = f"stopped in tutti window {AGAIN}; left out"
        self.assertEqual(self.words("failed"), [f"all_gather 4 MiB bfloat16 out of place: {why}"])
        self.assertIn("Not all cells were measured: all_gather 4 MiB", self.told)

    def test_the_last_cell_may_be_left_out(self) -> None:
        self.assertEqual(self.run_ranks(["broadcast", "tutti", 0, ALWAYS]), 1)
        self.assertEqual((list(self.measured()), self.begun()), (OPS[:2], [OPS, OPS[2:]]))

    def test_a_peer_that_does_not_open_is_left_out_of_all(self) -> None:
        self.assertEqual(self.run_ranks(["opening", "nccl window", 1, ALWAYS]), 0)
        self.assertEqual(self.measured(), dict.fromkeys(OPS, ALL - {"nccl window"}))
        self.assertIn(f"the opening: stopped in nccl window {AGAIN}", self.told)

    def test_calls_one_by_one_may_be_left_out(self) -> None:
        self.assertEqual(self.run_ranks(["opening", "tutti", 1, ALWAYS]), 1)
        self.assertEqual(self.measured(), dict.fromkeys(OPS, ALL))
        self.assertEqual([run["eager"] for run in self.runs], [True, True, False])
        self.assertIn(f"in tutti {AGAIN}; calls one by one were left out", self.words("failed")[0])

    def test_nothing_is_begun_again_in_too_little_time(self) -> None:
        self.assertEqual(self.run_ranks(["all_gather", "nccl", 1, ALWAYS], seconds=gpu_runs.LEAST_S - 1), 1)
        self.assertEqual((list(self.measured()), len(self.runs)), (OPS[:1], 1))
        why = "stopped in nccl (rank 1 ended first); too little time was left for 2 cells"
        self.assertIn(why, self.words("failed")[0])

    def test_an_interrupt_tells_where(self) -> None:
        hang = ["all_gather", "nccl", 2, ALWAYS]  # no rank fails
        with mock.patch.object(gpu_runs, "first_failed", lambda ranks: self.interrupted()):
            self.assertEqual(self.run_ranks(hang), 1)
        self.assertEqual(list(self.measured()), OPS[:1])
        self.assertIn("interrupted at all_gather 4 MiB bfloat16 out of place, in nccl", self.words("failed"))

    def interrupted(self) -> None:
        """As by a terminal, when rank 0 has said what it is at."""
        until = time.monotonic() + 60
        while not list(Path.cwd().glob("*.0")) and time.monotonic() < until:
            time.sleep(0.01)
        raise KeyboardInterrupt

    def test_a_failure_at_the_end_is_told(self) -> None:
        with mock.patch.dict(globals(), {"RANK": RANK + "sys.exit(3 if rank else 0)\n"}):
            self.assertEqual(self.run_ranks(), 1)
        self.assertEqual(list(self.measured()), OPS)
        self.assertEqual(self.words("failed"), ["the end: stopped (rank 1 ended first)"])

    def test_ranks_that_always_fail_at_once_are_given_up(self) -> None:
        with mock.patch.dict(globals(), {"RANK": "import sys, pathlib\npathlib.Path('runs').touch()\nsys.exit(3)"}):
            self.assertEqual(self.run_ranks(), 1)
        self.assertRegex(self.words("failed")[0], "^the opening: stopped .rank [01] ended first., in fresh processes")


class Arguments(unittest.TestCase):
    def script(self, *words: str, name: str = "gpu_peers") -> tuple[int, str]:
        path = Path(gpu_peers.__file__).parent / f"{name}.py"
        done = subprocess.run([sys.executable, path, *words], capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout + done.stderr

    def test_nonsense_is_refused_with_what_there_is(self) -> None:
        for words, why in (
            (["--ops", "allreduce"], "allreduce is none of all_reduce, all_gather"),
            (["--places", "inn"], "inn is none of out, in"),
            (["--dtypes", "bf16"], "bf16 is none of bfloat16, float32"),
            (["--up-to", "16X"], "16X is no size"),
            (["--sizes", "1K,-8"], "-8 is no size"),
            (["-n", "0"], "0 is no number"),
            (["--up-to", "8"], "no size is left"),
            (["--option", "x"], "x is not NAME=VALUE"),
            (["--seconds", "nan"], "nan is no number of seconds"),
            (["--json", "/nowhere/at/all"], "there is no folder /nowhere/at"),
            (["--markdown", "/"], "it is a folder"),
        ):
            status, told = self.script(*words)
            self.assertEqual(status, 2, told)
            self.assertIn(why, told)

    def test_without_torch(self) -> None:
        self.assertEqual(self.script("--help", name="torch_peers")[0], 0)
        if importlib.util.find_spec("torch"):
            self.skipTest("it is here")
        for name in ("gpu_peers", "torch_peers"):
            status, told = self.script(name=name)
            self.assertEqual((status, told), (1, f"{name}: there is no PyTorch in {sys.executable}\n"))

    def test_a_record_may_be_broken(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "gpu.jsonl"
            self.assertEqual(self.script("--report", str(path)), (1, f"gpu_peers: {path}: No such file or directory\n"))
            path.write_text(json.dumps({"machine": "GPU", "ranks": 2}) + "\n" + json.dumps(cell()) + '\n{"op": "all')
            status, told = self.script("--report", str(path))
            self.assertEqual(status, 0, told)
            self.assertIn(f"line 3 of {path} is half written", told)
            self.assertIn("Wrong results in 0 of 1 cells.", told)


class Plan(unittest.TestCase):
    def test_what_matters_most_comes_first(self) -> None:
        with mock.patch.object(sys, "argv", ["gpu_peers"]):
            cells = gpu_peers.plan_of(gpu_peers.options())["cells"]
        kinds = list(dict.fromkeys((dtype, in_place) for _, _, dtype, in_place in cells))
        self.assertEqual(kinds, [("bfloat16", False), ("float32", False), ("bfloat16", True), ("float32", True)])
        self.assertEqual(len(cells), (5 + 3) * 2 * len(gpu_peers.SIZES))


if __name__ == "__main__":
    unittest.main(verbosity=2)
