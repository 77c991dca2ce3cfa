# SPDX-License-Identifier: BSD-3-Clause
"""bench/cpu_peers.py and bench/net_peers.py with tutti alone in a few cells, and the pages that they make of what was
measured; bench/levels.py; where bench/ft_peers.py says that time goes, and the shares of a step on a GPU. Nothing here
says how fast anything is. Ends with 77 where nothing could be tried."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))

from peers import ft_plot, ft_where  # noqa: E402
from peers.profiling import Event, Shares, shares_of  # noqa: E402



class Losses(unittest.TestCase):
    """Where the time of a loss goes, of groups that wrote down what is written here."""

    # Steps of 100 ms: 10 quorum, 60 computing, 20 reduction, 10 commit; "void" is one that nobody commits.
    USUAL = (10, 60, 20, 10)

    def group(self, folder: Path, number: int, pid: int, started: int, steps: "list[tuple]") -> int:
        """steps: (committed, contributes, *milliseconds); the time at which the last one ends."""
        lines, now = [f"started {started * 10**6} {(started + 500) * 10**6}"], started + 1000
        for i, (committed, contributes, *spent) in enumerate(steps):
            marks = [now + sum(spent[:k]) for k in range(5)]
            now = marks[-1]
            lines.append(f"step {i} {committed} {contributes} " + " ".join(str(m * 10**6) for m in marks))
        lines.append("step 99 1")  # torn
        (folder / f"{number}.{pid}").write_text("\n".join(lines), encoding="utf-8")
        return now

    def test_of_survivors_and_of_those_who_come_back(self) -> None:
        ten = [(1, 1, *self.USUAL)] * 10
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # A kill at 3000 ms, when ten steps are done: one void step of 10+60+420+10, then one of 310+60+20+10.
            self.group(folder, 0, 7, 1000, [*ten, (0, 1, 10, 60, 420, 10), (1, 1, 310, 60, 20, 10), *ten])
            self.group(folder, 1, 8, 1000, ten)
            self.group(folder, 1, 9, 4100, [(1, 0, *self.USUAL), (1, 1, 10, 60, 30, 10)])
            rows = [{"seconds": "2.0", "what": "kill", "members": "1", "samples": ""},
                    {"seconds": "3.0", "what": "again", "members": "1", "samples": ""}]
            found = ft_where.where(folder, {"calm_ns": 1000 * 10**6, "rows": rows})
        for phase, ms in zip(("quorum", "computing", "reduction", "commit"), self.USUAL):
            self.assertAlmostEqual(found["usual"][phase], ms / 1e3)
        self.assertEqual(found["loss"]["void"], 1)
        for phase, ms in (("quorum", 300), ("computing", 60), ("reduction", 400), ("commit", 0)):
            self.assertAlmostEqual(found["loss"][phase], ms / 1e3, msg=phase)
        for part, ms in (("launch", 100), ("imports", 500), ("model and manager", 500), ("joining", 210)):
            self.assertAlmostEqual(found["start"][part], ms / 1e3, msg=part)

    def test_work_of_those_that_live(self) -> None:
        rows = [{"seconds": at, "what": what, "members": members, "samples": "1"} for at, what, members in (
            ("1.0", "step", "0 1"), ("2.0", "kill", "1"), ("3.0", "again", "1"), ("4.0", "step", "0"),
            ("6.0", "step", "0 1"), ("8.0", "kill", "0"))]
        points = ft_plot.due({"rows": rows}, 2, 10)
        self.assertEqual(points, [(0.0, 0.0), (2.0, 2.0), (6.0, 4.0), (8.0, 6.0), (10, 7.0), (10, 7.0)])


class Step(unittest.TestCase):
    def test_shares_of_a_step(self) -> None:
        gpu = [("gemm", 10, 30), ("gemm", 25, 40), ("mapped_bfloat16_sum_2", 35, 60)]
        gpu += [("ncclDevKernel_AllReduce", 70, 80), ("Memcpy DtoD", 78, 90)]
        host = [("c10d::allreduce_", 0, 5), ("aten::mm", 6, 8), ("c10d::allreduce_", 92, 100)]
        events = [Event(*e, True) for e in gpu] + [Event(*e, False) for e in host]
        random.Random(1).shuffle(events)
        # Computing 10 to 40 and 78 to 90, communicating 35 to 60 and 70 to 80; exposed 40 to 60 and 70 to 78.
        self.assertEqual(shares_of(events, 1), Shares(100, 42, 35, 28, 30, 13, 5))
        self.assertEqual(shares_of(events, 2), Shares(50, 21, 17.5, 14, 15, 6.5, 2))


class Run(unittest.TestCase):
    """The result of each call is compared with a reference inside."""

    def run_script(self, name: str, *more: str) -> tuple[list[dict], str]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.jsonl"
            command = [sys.executable, BENCH / name, "--peers", "tutti", "--build", folder, "--out", out]
            command += ["--block", "1", "--tutti", os.environ["TUTTI_BUILD"], "--turns", "1", *more]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            command = [sys.executable, BENCH / name, "--report", out]
            page = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout
        rows = [row for row in rows if "run" not in row]
        self.assertEqual({row.get("wrong") for row in rows}, {0}, rows)
        return rows, page

    def test_cells_of_one_host(self) -> None:
        size = 4 * random.Random(1).randrange(1, 1 << 18)
        operations, kinds = ("all_reduce", "reduce_scatter"), ("pages", "mapped", "apart")
        rows, page = self.run_script("cpu_peers.py", "-n", "2", "--ops", ",".join(operations), "--sizes", f"8,{size}")
        expected = {(op, s, m) for op in operations for s in (8, size) for m in kinds}
        self.assertLessEqual(expected, {(r["operation"], r["size"], r["kind"]) for r in rows})
        for row in rows:
            self.assertGreaterEqual(row["us"], row["min_us"], row)
        self.assertIn("all_reduce", page)

    def test_every_operation_with_ranks_that_share_a_cpu(self) -> None:
        cpu = str(min(os.sched_getaffinity(0)))
        rows, _ = self.run_script("cpu_peers.py", "-n", "3", "--sizes", "4096", "--kinds", "pages", "--cpus", cpu)
        expected = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather"}
        self.assertLessEqual(expected | {"scatter", "scan", "barrier"}, {row["operation"] for row in rows})

    def test_cells_of_the_network(self) -> None:
        rows, page = self.run_script("net_peers.py", "-n", "2,3", "--where", "lo", "--sizes", "8,4K,1M")
        self.assertEqual(len({(r["world"], r["operation"], r["size"]) for r in rows}), 2 * 6 * 3)
        self.assertIn("2 ranks, lo", page)  # points may be left out, where the machine changed under them

    def test_levels_beside_their_parts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, BENCH / "levels.py", "--build", folder, "--tutti", os.environ["TUTTI_BUILD"]]
            command += ["--where", "lo", "--ops", "all_reduce,all_gather", "--sizes", "8,64K", "--seconds", "0.05"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("lo ")]
        self.assertEqual([row[1:4] for row in rows], [[op, *size] for op in ("all_reduce", "all_gather")
                                                      for size in (["8", "B"], ["64", "KiB"])])
        for row in rows:
            within, between, whole, larger, total = map(float, row[4:])
            self.assertAlmostEqual(larger * max(within, between) / whole, 1, delta=0.1)
            self.assertAlmostEqual(total * (within + between) / whole, 1, delta=0.1)

    def test_nonsense_is_refused(self) -> None:
        for name in ("cpu_peers.py", "net_peers.py"):
            for words in ("-n 0", "--sizes -8", "--ops x", "--peers x"):
                done = subprocess.run([sys.executable, BENCH / name, *words.split()], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertNotIn("Traceback", done.stderr)


def main() -> int:
    build = Path(os.environ.get("TUTTI_BUILD", ""))
    if not shutil.which("cc") or not all((build / path).exists() for path in ("lib/libtutti.so", "bin/tutti")):
        print("there is no cc, or TUTTI_BUILD names no build of tutti and its command: nothing was tried")
        return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
