# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_peers.py without a GPU: what it tells of lines that ranks would print, and that a rank that fails ends all,
with the cell where it did."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

import gpu_peers  # noqa: E402

# Rank 0 prints a cell and waits for ever; rank 1 fails, at once or never.
RANK = """
import json, os, sys, time
if os.environ["RANK"] == "1" and {fails}:
    time.sleep(0.2)
    sys.exit(3)
if os.environ["RANK"] == "0":
    print("words of a library")
    print(json.dumps({cell}), flush=True)
time.sleep({naps})
"""


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


class Ending(unittest.TestCase):
    def run_ranks(self, fails: bool, naps: float) -> tuple[int, str]:
        """Of two made-up ranks: the exit status, and what was told."""
        told = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            rank = RANK.format(fails=fails, naps=naps, cell=repr(cell()))
            (Path(folder) / "made_up_rank.py").write_text(rank)
            stack.callback(os.chdir, os.getcwd())
            os.chdir(folder)
            measure = gpu_peers.measure
            stack.enter_context(mock.patch.object(gpu_peers, "LAST_WORDS_S", 1))
            stack.enter_context(mock.patch.object(gpu_peers, "measure", lambda c: measure(c, "made_up_rank")))
            arguments = ["gpu_peers", "-n", "2", "--ops", "all_reduce", "--sizes", "1K,8K", "--places", "out"]
            arguments += ["--dtypes", "bfloat16", "--json", "lines"]
            stack.enter_context(mock.patch.object(sys, "argv", arguments))
            stack.enter_context(contextlib.redirect_stdout(told))
            stack.enter_context(contextlib.redirect_stderr(told))
            status = gpu_peers.main()
            lines = [json.loads(line) for line in Path("lines").read_text().splitlines()]
        self.assertEqual(lines[0], cell())
        return status, told.getvalue()

    def test_a_rank_that_fails_ends_all(self) -> None:
        status, told = self.run_ranks(fails=True, naps=1000)
        self.assertEqual(status, 1)
        self.assertIn("rank 1 failed at all_reduce of 8192 bytes, bfloat16", told)

    def test_without_a_failure_all_is_well(self) -> None:
        status, told = self.run_ranks(fails=False, naps=0)
        self.assertEqual(status, 0)
        self.assertIn("words of a library", told)
        self.assertNotIn("failed", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
