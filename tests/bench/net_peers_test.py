# SPDX-License-Identifier: BSD-3-Clause
"""bench/net_peers.py: what it tells of a recorded run, whose numbers are made up and small enough to count by hand; and
a run with tutti alone over the loopback interface. Ends with 77 where nothing could be tried."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = ROOT / "bench" / "net_peers.py"
sys.path.insert(0, str(ROOT / "bench"))

from peers import net_report, results  # noqa: E402

RECORD = HERE / "data" / "net_peers.jsonl"


class Report(unittest.TestCase):
    def setUp(self) -> None:
        self.text = net_report.section(results.load([RECORD]))

    def test_ratios_are_of_the_best_peer(self) -> None:
        self.assertIn("| all_reduce | 1.5M | 1.5O |", self.text)

    def test_what_is_slower_is_told(self) -> None:
        self.assertIn("| send_recv | **0.8O** | - |", self.text)  # the other peer's result was wrong
        self.assertIn("2 ranks, lo, slower than the best peer in 1 of 3 cells: send_recv 8 B (0.8).", self.text)
        self.assertIn("| 2 ranks, lo | no cell slower |  | 2 of 3 | no |", self.text)

    def test_a_tenth_slower_is_equal(self) -> None:
        self.assertIn("| all_reduce | 0.95O |", self.text)
        self.assertIn("4 ranks, hosts, slower than the best peer in 0 of 1 cells: none.", self.text)

    def test_means_and_goals(self) -> None:
        self.assertIn("| 2 ranks, lo | up to 64 KiB | 1.25 | 1.10 | no |", self.text)
        self.assertIn("| 2 ranks, lo | above | 1.4 | 1.50 | yes |", self.text)
        self.assertIn("| 4 ranks, hosts | above | 1.2 | - | - |", self.text)

    def test_what_was_not_measured_is_told(self) -> None:
        self.assertIn("not measured: --install unpacks PyPI's impi-rt", self.text)
        self.assertIn("4.0.2; 4 ranks, hosts: did not start: no word", self.text)
        self.assertIn("3 more dropped", self.text)
        self.assertIn("Wrong results, not counted: mpich send_recv 8 B 2 ranks, lo.", self.text)

    def test_page_keeps_what_is_not_its_own(self) -> None:
        page = "# Performance\n\nBefore.\n"
        once = net_report.with_section(page, "old\n") + "\n## After\n"
        again = net_report.with_section(once, "new\n")
        self.assertTrue(again.startswith(page) and again.endswith("\n## After\n"))
        self.assertIn("new", again)
        self.assertNotIn("old", again)

    def test_nonsense_is_refused(self) -> None:
        for words in ("-n 0", "--sizes -8", "--ops barrier", "--where moon", "--peers x", "--seconds x"):
            done = subprocess.run([sys.executable, SCRIPT, *words.split()], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertNotIn("Traceback", done.stderr)


class Run(unittest.TestCase):
    """tutti alone, in a few cells; the result of each call is compared with a reference inside."""

    def test_every_operation_is_measured_and_right(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.jsonl"
            command = [sys.executable, SCRIPT, "--peers", "tutti", "--build", folder, "--out", out, "--block", "1"]
            command += ["--tutti", os.environ["TUTTI_BUILD"], "--turns", "1", "-n", "2,3", "--where", "lo"]
            command += ["--sizes", "8,4K,1M"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
        rows = [row for row in rows if "run" not in row]
        self.assertEqual({row.get("wrong") for row in rows}, {0}, rows)
        self.assertEqual(len({(r["world"], r["operation"], r["size"]) for r in rows}), 2 * 6 * 3)


def main() -> int:
    if "Run" in sys.argv[1:]:
        build = Path(os.environ.get("TUTTI_BUILD", ""))
        if not shutil.which("cc") or not all((build / path).exists() for path in ("lib/libtutti.so", "bin/tutti")):
            print("there is no cc, or TUTTI_BUILD names no build of tutti and its command: nothing was tried")
            return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
