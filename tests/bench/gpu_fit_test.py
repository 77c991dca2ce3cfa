# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_scale.sh's tuning: that constants are found again in times that were computed from them, and what the file
says that is made of them. Needs no GPU."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import gpu_peers  # noqa: E402
from gpu_lines import HEAD, KIB, MIB, cell  # noqa: E402
from peers.gpu import fit as gpu_fit, tune as gpu_tune  # noqa: E402


class Fit(unittest.TestCase):
    """Times as the costs of backend/gpu/plan have them (gpu_slots.c, gpu_direct.c, gpu_engines.c)."""

    SPEED = {
        "lines_ns": 2300.0, "sentinel_ns": 2100.0, "exceptions_ns": 150.0, "sentinel2_ns": 3500.0, "tiles_ns": 5000.0,
        "store_gbs": 340.0, "tile_gbs": 320.0, "engine_ns": 6500.0, "engine_gbs": 380.0,
        "direct_ns": 4700.0, "direct_gbs": 345.0,
    }  # fmt: skip
    MEET_NS = 2700.0

    def us(self, op: str, size: int, n: int) -> dict[str, float]:
        s, block = self.SPEED, size if op == "all_reduce" else size // n
        push = block * (n - 1)
        us = {"tiles": s["tiles_ns"] + push / s["tile_gbs"]}
        if size <= MIB:
            us["lines"] = s["lines_ns"] + 2 * push / s["store_gbs"]
        if size <= 4 * MIB:
            extra = s["exceptions_ns"] if op == "all_gather" else 0
            us["sentinel"] = s["sentinel_ns"] + extra + push / s["store_gbs"]
        if op == "all_reduce":
            us["sentinel2"] = s["sentinel2_ns"] + 2 * push / n / s["store_gbs"]
        else:
            us["direct"] = s["direct_ns"] + push / s["direct_gbs"]
            us["engines"] = (n - 1) * (s["engine_ns"] + block / s["engine_gbs"]) + 2 * self.MEET_NS
        return {name: ns / 1e3 for name, ns in us.items()}

    def test_constants_are_found_again(self) -> None:
        for n in (2, 3, 4, 8):
            sizes = [size // n * n for size in (KIB, 16 * KIB, 128 * KIB, MIB, 4 * MIB, 64 * MIB)]
            lines = [cell(op, size, self.us(op, size, n)) for op in ("all_reduce", "all_gather") for size in sizes]
            found = gpu_fit.fit([HEAD, *lines], n, self.MEET_NS)
            self.assertEqual(set(found), set(self.SPEED))
            for name, value in self.SPEED.items():
                self.assertAlmostEqual(found[name] / value, 1.0, places=3, msg=f"{name} of {n}")

    def test_what_was_not_measured_is_not_made_up(self) -> None:
        self.assertEqual(gpu_fit.fit([HEAD], 2, 1.0), {})
        only = [cell("all_gather", size, {"tiles": 5.0 + size / 1e5}) for size in (KIB, MIB)]
        self.assertEqual(set(gpu_fit.fit(only, 2, 1.0)), {"tiles_ns", "tile_gbs"})

    def test_fewest_blocks_that_suffice(self) -> None:
        def both(first: dict, second: dict) -> list[dict]:
            return [cell("all_gather", 16 * MIB, first), cell("all_reduce", 16 * MIB, second)]

        fast = {"tiles": 1.0, "tiles@32": 40.0, "tiles@64": 30.1, "tiles@128": 30.0}
        self.assertEqual(gpu_fit.fewest_blocks(both(fast, {"tiles@32": 9, "tiles@64": 9, "tiles@128": 9})), 64)
        self.assertEqual(gpu_fit.fewest_blocks(both(fast, {"tiles@64": 12, "tiles@128": 9})), 128)
        self.assertIsNone(gpu_fit.fewest_blocks([cell("all_gather", KIB, {"tiles": 1.0})]))

    def test_the_library_takes_what_is_found(self) -> None:
        header = next((ROOT / "src" / "backend").rglob("gpu_speed.h")).read_text()
        rows = re.findall(r"X\((\w+), ([0-9.e]+), ([0-9.e]+), \"", header)
        ranges = {name: (float(low), float(high)) for name, low, high in rows}
        self.assertLessEqual({*self.SPEED, "blocks"}, set(ranges))
        for name in {*self.SPEED, "blocks"}:
            low, high = ranges[name]
            values = (low, high, -1e9, low - 0.01, high * 1.01, 1e12, float("nan"))
            kept = [value for value in values if gpu_fit.sorted_out({name: value})[0]]
            self.assertEqual(kept, [low, high], name)

    def test_a_meeting_is_as_long_as_the_library_has_it(self) -> None:
        source = next((ROOT / "src" / "backend").rglob("gpu_speed.c")).read_text()
        self.assertEqual(len(gpu_fit.ROW.findall(source)), source.count(".meet_ns ="))
        row = {n: float(re.search(rf'"NVIDIA H200",\s*{n},.*?meet_ns = ([0-9]+)', source, re.S)[1]) for n in (2, 4)}
        self.assertNotEqual(row[2], row[4])
        self.assertEqual([gpu_fit.meet_ns("NVIDIA H200", n) for n in (2, 3, 4, 8)], [row[2], row[2], row[4], row[4]])
        self.assertEqual(gpu_fit.meet_ns("another", 4), row[2])

    def test_what_can_not_be_is_told(self) -> None:
        us = {KIB: 50.0, MIB: 9.0}  # more bytes in less time
        lines = [HEAD, *(cell("all_gather", size, {"tiles": 5.0 + size / 4e4, "direct": us[size]}) for size in us)]
        lines += [cell("all_gather", size, {"engines": 1.0 + size / 1e5}) for size in us]
        with tempfile.TemporaryDirectory() as out, mock.patch.object(gpu_peers, "measure", lambda *_: lines):
            found = f"{out}/found.json"
            arguments = ["gpu_tune", "-n", "2", "--library", "libtutti.so", "--out", out, "--json", found]
            with mock.patch.object(sys, "argv", arguments), mock.patch("sys.stderr"):
                self.assertEqual(gpu_tune.main(), 0)
            told, text = json.loads(Path(found).read_text()), (Path(out) / "nvidia-h200-2.tune").read_text()
        self.assertEqual(set(told["left_out"]), {"engine_ns"})
        self.assertIn("left out, since no such value can be: engine_ns -", told["told"])
        for name in ("engine_ns", "direct", "meet_ns"):
            self.assertNotIn(name, text)
        self.assertIn("engine_gbs", text)

    def test_tuner(self) -> None:
        cases = [(op, size) for op in gpu_fit.FOLDS + gpu_fit.MOVES for size in (KIB, MIB)]
        lines = [HEAD, *(cell(op, size, self.us(op, size, 2)) for op, size in cases)]
        seen = []

        def measure(chosen, module: str) -> list[dict]:
            seen.append((module, len(gpu_peers.plan_of(chosen)["cells"])))
            return lines

        with tempfile.TemporaryDirectory() as out, mock.patch.object(gpu_peers, "measure", measure):
            found = f"{out}/found.json"
            arguments = ["gpu_tune", "-n", "2", "--library", "libtutti.so", "--out", out, "--json", found]
            with mock.patch.object(sys, "argv", arguments):
                self.assertEqual(gpu_tune.main(), 0)
            self.assertEqual(seen, [("peers.gpu.tune_rank", 2 * len(gpu_tune.SIZES))])
            self.assertEqual(json.loads(Path(found).read_text())["file"], "nvidia-h200-2.tune")
            text = (Path(out) / "nvidia-h200-2.tune").read_text()
            self.assertIn("tiles_ns        5000.000\n", text)
            self.assertNotIn("meet_ns", text)
            lines.append({"failed": "rank 1 failed at the end"})
            with mock.patch.object(sys, "argv", arguments):
                self.assertEqual(gpu_tune.main(), 1)

    def test_file(self) -> None:
        self.assertEqual(gpu_fit.file_name("NVIDIA H200", 4), "nvidia-h200-4.tune")
        text = gpu_fit.file_text({"tiles_ns": 1234.5}, "4 x NVIDIA H200")
        self.assertEqual(text, "# 4 x NVIDIA H200\ntiles_ns        1234.500\n")


if __name__ == "__main__":
    unittest.main()
