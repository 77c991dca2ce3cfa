# SPDX-License-Identifier: BSD-3-Clause
"""bench/cpu_peers.py: what it tells of a recorded run, whose numbers are made up and small enough to count by hand;
that the harness sees planted faults; and a run with tutti alone. Ends with 77 where nothing could be tried."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = ROOT / "bench" / "cpu_peers.py"
sys.path.insert(0, str(ROOT / "bench"))

from peers import goals, pages, plots, results  # noqa: E402
from peers.programs import Kit, Program  # noqa: E402
from peers.ranks import Lost, Ranks  # noqa: E402
from peers.worlds import IDLE_SHARE, Plan, World  # noqa: E402

RECORD = HERE / "data" / "cpu_peers.jsonl"
MIB = 1 << 20


def verdict(found: results.Results, start: str) -> goals.Verdict:
    matches = [v for v in goals.verdicts(found, "C") if v.what.startswith(start)]
    assert len(matches) == 1, (start, matches)
    return matches[0]


class Report(unittest.TestCase):
    def setUp(self) -> None:
        self.found = results.load([RECORD])

    def ratio(self, memory: str, operation: str, size: int, world: str = "2", state: str = "C"):
        every = results.ratios(self.found, state, world, memory)
        return next(((round(r.value, 3), r.peer) for r in every if (r.operation, r.size) == (operation, size)), None)

    def test_medians_are_of_calm_points_in_one_state(self) -> None:
        entry = self.found.entry("C", "2", "all_reduce", 8, "tutti", "pages")
        self.assertEqual((entry.us, entry.points), (0.11, 3))
        self.assertEqual(self.found.entry("X", "2", "all_reduce", 8, "tutti", "pages").us, 0.30)
        self.assertEqual(self.found.dropped["2"], 1)
        self.assertEqual(self.found.state_names, ["C", "X"])

    def test_crowded_points_are_never_calm_but_count(self) -> None:
        self.assertEqual(self.found.entry("C", "8", "all_reduce", 8, "tutti", "pages").us, 20.0)

    def test_ratio_is_of_the_best_peer_with_the_same_memory(self) -> None:
        self.assertEqual(self.ratio("pages", "all_reduce", 8), (2.0, "openmpi"))
        self.assertEqual(self.ratio("pages", "all_reduce", MIB), (2.0, "openmpi_sm"))
        self.assertEqual(self.ratio("huge", "all_reduce", MIB), (1.5, "openmpi"))
        self.assertEqual(self.ratio("mapped", "all_reduce", MIB), (3.0, "openmpi"))
        self.assertEqual(self.ratio("pages", "barrier", 0), (1.2, "openmpi_sm"))

    def test_states_are_not_mixed(self) -> None:
        self.assertEqual(self.ratio("pages", "all_reduce", 8, state="X"), (1.5, "openmpi"))
        self.assertIsNone(self.ratio("pages", "gather", 8))  # one peer was measured in the other state only

    def test_wrong_results_do_not_count_and_are_told(self) -> None:
        self.assertEqual(self.ratio("pages", "reduce_scatter", 8), (0.5, "openmpi"))
        self.assertEqual([row["peer"] for row in self.found.wrong], ["mpich"])
        self.assertIn("mpich reduce_scatter 8 B 2 ranks", pages.section(self.found, pictures=False))

    def test_machines_of_other_latencies_have_states_by_ratio(self) -> None:
        rows = [{"us": 1.0, "probe_ns": [ns, ns * 1.1]} for ns in (150.0, 160.0, 200.0, 300.0, 310.0)]
        find = results.state_finder(rows, "GenuineIntel")
        self.assertEqual([find(ns) for ns in (150.0, 200.0, 305.0)], ["150 ns", "150 ns", "300 ns"])
        self.assertIsNone(results.state_of({"probe_ns": [150.0, 310.0]}, find))
        self.assertEqual(results.state_of({"probe_ns": [0.0, 0.0]}, find), "150 ns")
        self.assertIsNone(results.state_of({"probe_ns": [150.0, 0.0]}, find))

    def test_goals(self) -> None:
        cells = verdict(self.found, "2 ranks, not slower")
        self.assertEqual((cells.reached, cells.met), ("9 of 10 cells", False))
        large = verdict(self.found, "2 ranks, private buffers above")
        self.assertEqual((large.reached, large.met), ("1.51 (2 cells)", True))
        copy = verdict(self.found, "2 ranks, mapped all_reduce of 16 MiB")
        self.assertEqual((copy.reached, copy.met), ("1.22", False))
        crowded = verdict(self.found, "8 ranks on 2 CPUs")
        self.assertEqual((crowded.reached, crowded.met), ("20 us against 30 us", True))
        self.assertIsNone(verdict(self.found, "8 ranks, mapped buffers above").met)
        self.assertEqual(goals.means_many_cpus(self.found, "C"), [])

    def test_goals_of_many_cpus_are_against_open_mpi(self) -> None:
        self.found.head["machine"]["n_cpus"] = 32
        found = {v.what: v for v in goals.means_many_cpus(self.found, "C")}
        # 8 B 0.22 / 0.11, 1 MiB 100 / 50 and 60 / 40, 16 MiB 1800 / 1250 and 1900 / 1200
        self.assertEqual(found["2 ranks, all_reduce, private, against Open MPI"].reached, "1.69 (5 cells)")
        self.assertIs(found["2 ranks, barrier, against Open MPI"].met, False)
        self.assertIsNone(found["2 ranks, all_to_all, mapped, against Open MPI"].met)
        self.assertAlmostEqual(goals.least_ratio(32), 1 / 1.2)

    def test_section_names_what_is_missing_and_lost(self) -> None:
        text = pages.section(self.found, pictures=True)
        self.assertIn("| oneCCL | I | not measured: no oneCCL: --install", text)
        self.assertIn("Open MPI, coll/sm | S | 4.1.4; 8 ranks: did not start: no word", text)
        self.assertIn("slower than the best peer in 1 of 10 cells: reduce_scatter 8 B (0.5).", text)
        self.assertIn("| reduce_scatter | **0.5O** | - | - |", text)
        self.assertIn("| best peer | 0.22 O | 60.0 O | 1.80 ms S |", text)
        self.assertIn("(cpu_peers_2_all_reduce.svg)", text)

    def test_page_keeps_what_is_not_its_own(self) -> None:
        page = "# Performance\n\nBefore.\n"
        once = pages.with_section(page, "A, 2 CPUs", "### A\n\nold\n")
        both = pages.with_section(once, "B, 32 CPUs", "### B\n\nother\n") + "\n## After\n"
        again = pages.with_section(both, "A, 2 CPUs", "### A\n\nnew\n")
        self.assertTrue(again.startswith(page))
        self.assertTrue(again.endswith("\n## After\n"))
        self.assertNotIn("old", again)
        self.assertLess(again.index("new"), again.index("other"))
        self.assertEqual(again, pages.with_section(again, "A, 2 CPUs", "### A\n\nnew\n"))

    def test_plots_are_drawn_where_they_can_be(self) -> None:
        name = "{http://www.w3.org/2000/svg}polyline"
        for operation in pages.drawn(self.found):
            root = ElementTree.fromstring(plots.svg(self.found, "C", operation))
            lines = root.findall(f".//{name}")
            self.assertTrue(lines)
            width, height = float(root.get("width")), float(root.get("height"))
            for line in lines:
                for x, y in (map(float, point.split(",")) for point in line.get("points").split()):
                    self.assertTrue(0 <= x <= width and 0 <= y <= height, (operation, x, y))
        # Three of tutti, three of peers and the limit, as time and as bandwidth.
        root = ElementTree.fromstring(plots.svg(self.found, "C", "all_reduce"))
        self.assertGreaterEqual(len(root.findall(f".//{name}")), 14)

    def test_files_are_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, SCRIPT, "--report", RECORD, "--write", "--docs", folder]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("### Test CPU, 2 CPUs", (Path(folder) / "performance.md").read_text())
            self.assertTrue((Path(folder) / "cpu_peers_2_all_reduce.svg").stat().st_size > 1000)

    def test_nonsense_is_refused(self) -> None:
        for words in ("-n 0", "-n -1", "--sizes -8", "--sizes 8,0", "--up-to 16X", "--ops x"):
            done = subprocess.run([sys.executable, SCRIPT, *words.split()], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertNotIn("Traceback", done.stderr)

    def test_plan_covers_the_grid(self) -> None:
        plan = Plan(["all_reduce", "barrier"], [8, MIB], ["pages", "huge", "mapped"], 1000, False, [0, 1])
        self.assertEqual(
            plan.cells(), [("all_reduce", 8), ("all_reduce", MIB), ("barrier", 0), ("copy", MIB), ("stream", MIB)]
        )
        peers = ["tutti", "mpich"]
        self.assertEqual(plan.points(("all_reduce", 8), peers), [(p, "pages") for p in peers] + [("tutti", "mapped")])
        self.assertEqual(len(plan.points(("all_reduce", MIB), peers)), 5)
        self.assertEqual(plan.points(("stream", MIB), ["mpich"]), [("mpich", "huge")])
        for memories in (["huge", "mapped"], ["pages", "mapped"]):  # a barrier has none
            plan = Plan(["barrier"], [8], memories, 1000, False, [0, 1])
            self.assertEqual(plan.points(("barrier", 0), peers), [(p, "pages") for p in peers])
        self.assertEqual([World(8).name, World(8, False).name], ["8", "8 unpinned"])


class Run(unittest.TestCase):
    """tutti alone, in a few cells; the result of each call is compared with a reference inside."""

    def run_script(self, folder: str, *more: str) -> list[dict]:
        out = Path(folder) / "out.jsonl"
        command = [sys.executable, SCRIPT, "--peers", "tutti", "--build", folder, "--tutti", os.environ["TUTTI_BUILD"]]
        command += ["--out", out, "--block", "1", "--turns", "1", *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual(list(rows[0]["run"]["peers"]), ["tutti"])
        return rows[1:]

    def test_cells_are_measured_and_right(self) -> None:
        size = 4 * random.Random(1).randrange(1, 1 << 18)
        with tempfile.TemporaryDirectory() as folder:
            rows = self.run_script(folder, "-n", "2", "--ops", "all_reduce,reduce_scatter", "--sizes", f"8,{size}")
        self.assertNotIn("reason", {key for row in rows for key in row})
        seen = {(r["operation"], r["size"], r["memory"]) for r in rows}
        operations, memories = ("all_reduce", "reduce_scatter"), ("pages", "mapped")
        expected = {(op, s, m) for op in operations for s in (8, size) for m in memories}
        self.assertLessEqual(expected, seen)
        for row in rows:
            self.assertEqual(row["wrong"], 0, row)
            self.assertGreater(row["us"], 0, row)
            self.assertGreaterEqual(row["us"], row["min_us"], row)

    def test_every_operation_with_ranks_that_share_a_cpu(self) -> None:
        cpu = str(min(os.sched_getaffinity(0)))
        with tempfile.TemporaryDirectory() as folder:
            rows = self.run_script(folder, "-n", "3", "--sizes", "4096", "--memory", "pages", "--cpus", cpu)
        expected = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather"}
        self.assertLessEqual(expected | {"scatter", "scan", "barrier"}, {row["operation"] for row in rows})
        self.assertEqual({row.get("wrong") for row in rows}, {0})


class Planted(unittest.TestCase):
    """A peer that is wrong, refuses, fails or does not sleep is seen."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        source = str(HERE / "planted_peer.c")
        program = Kit(Path(self.folder.name)).link("planted", source, ["cc"], ["-lpthread"], "nothing can be tried")
        self.program = Program([str(program)], "")
        self.cpus = sorted(os.sched_getaffinity(0))

    def ranks(self, n: int) -> Ranks:
        ranks = Ranks(self.program, n, self.cpus, True, Path(self.folder.name) / "log")
        self.addCleanup(ranks.stop, 0)
        return ranks

    def test_wrong_result(self) -> None:
        answer = self.ranks(2).point("point all_reduce 4096 pages 0 1 1000 60", 60)
        self.assertEqual(answer["wrong"], 1024)
        answer = self.ranks(2).point("point scan 4096 pages 0 1 1000 60", 60)
        self.assertEqual(answer["wrong"], 1024)
        answer = self.ranks(1).point("point scan 4096 pages 0 1 1000 60", 60)  # nobody is before it
        self.assertEqual(answer["wrong"], 0)
        # One element of the last block alone, also where not all blocks are looked at.
        answer = self.ranks(2).point("point broadcast 1048576 huge 1 0 1000 60", 60)
        self.assertEqual(answer["wrong"], 1)

    def test_not_offered(self) -> None:
        ranks = self.ranks(2)
        self.assertEqual(ranks.point("point gather 4096 pages 0 1 1000 60", 60), {"reason": "not offered"})
        self.assertEqual(ranks.point("point scatter 4096 pages 0 1 1000 60", 60), {"reason": "not offered"})
        self.assertEqual(ranks.point("point all_reduce 4096 mapped 0 1 1000 60", 60), {"reason": "not offered"})
        self.assertGreater(ranks.point("point copy 4096 pages 0 1 1000 60", 60)["us"], 0)

    def test_failure_and_hanging_end_the_ranks(self) -> None:
        with self.assertRaisesRegex(Lost, "planted failure"):
            self.ranks(2).point("point barrier 0 pages 0 1 1000 60", 60)
        with self.assertRaises(Lost):
            self.ranks(2).point("point reduce 8 pages 0 1 1000 1", 60)

    def test_who_does_not_sleep_is_seen(self) -> None:
        self.program.env = {"PLANTED_SPIN": "1"}
        ranks = self.ranks(1)
        time.sleep(0.3)
        spun = ranks.point("point copy 8 pages 0 1 1000 60", 60)["idle"]
        self.program.env = {}
        ranks = self.ranks(1)
        time.sleep(0.3)
        slept = ranks.point("point copy 8 pages 0 1 1000 60", 60)["idle"]
        self.assertLess(slept, IDLE_SHARE)
        self.assertGreater(spun, 10 * slept)


def main() -> int:
    if "Report" not in sys.argv[1:] and not shutil.which("cc"):
        print("cc is missing: the harness can not be built, nothing was tried")
        return 77
    if "Run" in sys.argv[1:]:
        build = Path(os.environ.get("TUTTI_BUILD", ""))
        if not all((build / path).exists() for path in ("lib/libtutti.so", "bin/tutti")):
            print("TUTTI_BUILD names no build of tutti and its command, nothing was tried")
            return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
