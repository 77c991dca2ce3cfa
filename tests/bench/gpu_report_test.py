# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_scale.sh: what is told of made-up lines, in tables, goals and pictures. Needs no GPU."""

from __future__ import annotations

import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

from gpu_lines import HEAD, KIB, MACHINE, MIB, some_lines  # noqa: E402
from peers import gpu_goals, gpu_plots, results, scale_report  # noqa: E402


class Report(unittest.TestCase):
    def verdict(self, start: str, lines: list[dict], c_us: float | None = None):
        found = [v for v in gpu_goals.verdicts(lines, c_us) if v.what.startswith(start)]
        self.assertEqual(len(found), 1, (start, found))
        return found[0]

    def test_tables_are_whole(self) -> None:
        self.assertEqual(len(gpu_goals.SIZES), 10)
        for table in gpu_goals.TABLES.values():
            self.assertEqual(len(table), 5)
            for times in table.values():
                self.assertEqual(len(times), len(gpu_goals.SIZES))
                self.assertEqual(list(times), sorted(times))
        self.assertEqual(gpu_goals.TABLES[4]["all_reduce"][-1], 4280)
        self.assertEqual(gpu_goals.TABLES[2]["all_to_all"][gpu_goals.SIZES.index(MIB)], 4.6)

    def test_goals_are_of_h200_and_of_so_many(self) -> None:
        def table(machine: str, n: int) -> int | None:
            return gpu_goals.table_of([{**HEAD, "machine": machine, "ranks": n}])

        self.assertEqual([table("NVIDIA H200", n) for n in (2, 3, 4, 8)], [2, None, 4, None])
        self.assertEqual([table(name, 2) for name in ("NVIDIA H100", "NVIDIA B200", "NVIDIA GH200 480GB")], [None] * 3)
        self.assertIsNone(gpu_goals.table_of([]))
        for head in ({**HEAD, "machine": "NVIDIA B200"}, {**HEAD, "ranks": 8}):
            lines = [head, *some_lines()[1:]]
            self.assertEqual(gpu_goals.missed(lines), [])
            told = [verdict.what for verdict in gpu_goals.verdicts(lines)]
            self.assertFalse([what for what in told if "times" in what or "mean" in what], told)
            text = "\n".join(scale_report.peers_lines({"lines": lines}))
            self.assertIn("goals of H200 alone", text)
            self.assertNotIn("miss their time", text)

    def test_times(self) -> None:
        lines = some_lines()
        out = self.verdict("times of the table for 2 GPUs, bfloat16, out", lines)
        self.assertEqual((out.reached, out.met), ("2 of 3 cells", False))  # 4 MiB: 18 > 16; 2.4 is met
        self.assertIs(self.verdict("times of the table for 2 GPUs, bfloat16, in", lines).met, True)
        missed = gpu_goals.missed(lines)
        self.assertEqual([(m.cell["bytes"], m.us, m.goal) for m in missed], [(4 * MIB, 18.0, 16)])
        four = [{**HEAD, "ranks": 4}, *lines[1:]]
        self.assertEqual(gpu_goals.missed(four), [])  # 24 us there, and 2840

    def test_slower_and_means(self) -> None:
        lines = some_lines()
        slower = gpu_goals.slower(lines)
        self.assertEqual([(c["bytes"], memory, peer) for c, memory, _, peer in slower],
                         [(4 * MIB, "ordinary memory, NCCL", "nccl")])  # fmt: skip
        self.assertAlmostEqual(slower[0][2], 0.75)
        window = self.verdict("not slower: registered", lines)
        self.assertEqual((window.reached, window.met), ("4 of 4 cells", True))
        small = self.verdict("geometric mean up to 256 KiB: registered", lines)
        self.assertEqual((small.reached, small.met), ("2.00 (2 cells)", False))  # 4 / 2 and 4.8 / 2.4
        middle = self.verdict("geometric mean 1 to 16 MiB: registered", lines)
        self.assertEqual((middle.reached, middle.met), ("1.50 (1 cells)", True))
        plain = self.verdict("geometric mean up to 256 KiB: ordinary", lines)
        self.assertEqual((plain.reached, plain.met), ("2.45 (2 cells)", True))  # sqrt(3 * 2)

    def test_eager(self) -> None:
        self.assertIs(self.verdict("call by call from C", some_lines(), 4.6).met, True)
        self.assertIsNone(self.verdict("call by call from C", some_lines()).met)
        self.assertIs(self.verdict("call by call from PyTorch", some_lines()).met, False)

    def test_nothing_is_told_of_one_gpu(self) -> None:
        self.assertEqual(gpu_goals.verdicts([{**HEAD, "ranks": 1}, *some_lines()[1:]]), [])
        self.assertEqual(gpu_goals.verdicts([]), [])

    def test_goals_of_many_cpus(self) -> None:
        head = {"machine": {"n_cpus": 64, "vendor": "AuthenticAMD"}, "peers": {"tutti": ""}}
        head["operations"] = ["all_reduce"]
        rows = [
            {"world": "64", "operation": "all_reduce", "size": size, "peer": "tutti", "memory": memory, "us": us}
            for size, memory, us in ((8, "pages", 1.4), (64 * KIB, "huge", 60.0), (64 * KIB, "mapped", 39.0))
        ]
        found = results.Results(head, [{**row, "min_us": row["us"], "probe_ns": [60.0, 60.0]} for row in rows])
        results.sort_out(found)
        told = {v.what: v.met for v in gpu_goals.many_cpus(found, "C")}
        self.assertEqual(list(told.values()), [True, False, True, None, None])
        head["machine"]["n_cpus"] = 32
        self.assertEqual(gpu_goals.many_cpus(found, "C"), [])

    def test_summary_tells_all_parts(self) -> None:
        found = {
            "machine": MACHINE, "date": "2026-01-01", "commit": "abc", "asked": ["build", "contract", "peers", "cpu"],
            "parts": {
                "build": {"status": "ok", "why": "", "seconds": 50.0, "limit_s": 130.0, "without_torch": ""},
                "contract": {
                    "status": "failed", "why": "2 GPUs: time was up (x)", "seconds": 9.0, "limit_s": 9.0,
                    "runs": {"1": {"outcome": "passed", "seconds": 3.0, "told": ""},
                             "2": {"outcome": "time was up", "seconds": 6.0, "told": "x"}},
                },
                "peers": {"status": "ok", "why": "", "seconds": 100.0, "limit_s": 120.0, "lines": some_lines()},
            },
        }  # fmt: skip
        text = "\n".join(scale_report.summary(found))
        self.assertIn("# 2 x NVIDIA H200; Test CPU, 64 CPUs", text)
        self.assertIn("| contract | failed | 9 of 9 | 2 GPUs: time was up (x) |", text)
        self.assertIn("| cpu | not begun |", text)
        self.assertIn("A peer is faster in 1 cells.", text)
        self.assertIn("| all_reduce 4 MiB, bfloat16, out of place | 18.0 | 16 | 1.12 |", text)
        self.assertIn("Not all cells were measured: time was up after 100 s.", text)

    def test_pictures_lie_within_their_frame(self) -> None:
        lines = some_lines()
        self.assertEqual(gpu_plots.drawn(lines), [("bfloat16", False, "all_reduce")])
        root = ElementTree.fromstring(gpu_plots.svg(lines, "bfloat16", False, "all_reduce"))
        drawn = root.findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(drawn), 2 * 5)  # time and bandwidth of five libraries
        width, height = float(root.get("width")), float(root.get("height"))
        for line in drawn:
            for x, y in (map(float, point.split(",")) for point in line.get("points").split()):
                self.assertTrue(0 <= x <= width and 0 <= y <= height)


if __name__ == "__main__":
    unittest.main()
