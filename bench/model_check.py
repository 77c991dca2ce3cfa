#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How good the choice is, and the predictions that it follows from: `tutti bench --explain` over all collectives,
256 B to 64 MiB, 2 and 4 ranks that are bound to two CPUs, private memory in 4 KiB pages and in huge ones, and mapped
memory. Of each world it tells in how many cells the chosen way takes at most 1.1 times as long as the best one, in how
many the chosen way's predicted time is within 25 % of the measured one, and which cells miss.

    bench/model_check.py                          all: some ten minutes on a machine that does nothing else
    bench/model_check.py --quick                  every third size
    bench/model_check.py -n 2 --pages 4k          a part
    bench/model_check.py --out FILE               keeps what was measured, a line of JSON a world
    bench/model_check.py --report FILE [FILE ...] only tells what earlier runs have left in --out
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from peers.arguments import count, counts, names, size

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["4k", "huge", "mapped"]
NEAR, WITHIN = 1.1, 0.25  # near: times the best method's time; within: parts of the measured time
GOAL_NEAR, GOAL_WITHIN = 0.95, 0.90


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", "--ranks", type=counts, default=[2, 4], help="default 2,4")
    add("--pages", type=names(PAGES), default=PAGES, help=",".join(PAGES))
    add("--ops", default="all", help="all_reduce,broadcast (default: all)")
    add("--from", dest="least", type=size, default=256, metavar="SIZE", help="smallest size (default 256)")
    add("--up-to", type=size, default=64 << 20, metavar="SIZE", help="largest size (default 64M)")
    add("--quick", action="store_true", help="sizes grow by 8 instead of by 2")
    add("--rounds", type=count, default=1, help="of tutti bench: the best of four times as many counts (default 1)")
    add("--cpus", type=count, default=2, metavar="N", help="so many CPUs for all ranks together (default 2)")
    add("--tutti", type=Path, default=ROOT / "build", metavar="DIR", help="a build of tutti (default: build)")
    add("--out", type=Path, metavar="FILE", help="lines of JSON, one a world")
    add("--report", type=Path, nargs="+", metavar="FILE", help="measure nothing, tell what these hold")
    return parser.parse_args()


def measure(chosen: argparse.Namespace, n: int, pages: str) -> dict:
    sizes = ["-b", str(chosen.least), "-e", str(chosen.up_to), "-f", "8" if chosen.quick else "2"]
    tutti = str(chosen.tutti / "bin" / "tutti")
    command = [tutti, "run", "-n", str(n), "--cores", "spread", "--", tutti, "bench", chosen.ops, "--pages", pages]
    command += [*sizes, "--place", "out", "--explain", "--json", "--rounds", str(chosen.rounds)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    return {"ranks": n, "pages": pages, "cells": json.loads(ended.stdout)["explained"]}


def error_of(way: dict) -> float:
    return abs(way["predicted_us"] - way["measured_us"]) / way["measured_us"]


def share_of(part: int, of: int, goal: float) -> str:
    return f"{part} of {of} cells, {100 * part / of:.0f} %{'' if part >= goal * of else f' (goal: {100 * goal:.0f} %)'}"


def miss(cell: dict, chosen: dict, best: dict) -> str:
    text = f"  {cell['op']:<15} {cell['bytes']:>9}  {chosen['name']:<20} predicted {chosen['predicted_us']:10.1f} us, "
    text += f"measured {chosen['measured_us']:10.1f} ({chosen['predicted_us'] / chosen['measured_us']:.2f})"
    if cell["behind_best"] > NEAR:
        text += f"; best {best['name']}: predicted {best['predicted_us']:.1f}, measured {best['measured_us']:.1f}"
    return text


def tell(world: dict) -> tuple[int, int, int]:
    near = within = 0
    misses = []
    for cell in world["cells"]:
        chosen = next(way for way in cell["ways"] if way["chosen"])
        best = min(cell["ways"], key=lambda way: way["measured_us"])
        is_near, is_within = cell["behind_best"] <= NEAR, error_of(chosen) <= WITHIN
        near, within = near + is_near, within + is_within
        if not (is_near and is_within):
            misses.append(miss(cell, chosen, best))
    n = len(world["cells"])
    print(f"{world['ranks']} ranks, {world['pages']}:")
    print("\n".join(misses))
    print(f"  chosen within 10 % of the best: {share_of(near, n, GOAL_NEAR)}")
    print(f"  predicted within 25 %: {share_of(within, n, GOAL_WITHIN)}\n", flush=True)
    return near, within, n


def worlds_of(chosen: argparse.Namespace):
    if chosen.report:
        for path in chosen.report:
            yield from (json.loads(line) for line in path.read_text().splitlines())
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cpus])
    for n in chosen.ranks:
        for pages in chosen.pages:
            world = measure(chosen, n, pages)
            if chosen.out:
                with open(chosen.out, "a") as out:
                    out.write(json.dumps(world) + "\n")
            yield world


def main() -> int:
    near = within = n = 0
    for world in worlds_of(options()):
        counts_of = tell(world)
        near, within, n = near + counts_of[0], within + counts_of[1], n + counts_of[2]
    print(f"all: chosen within 10 % of the best: {share_of(near, n, GOAL_NEAR)}")
    print(f"all: predicted within 25 %: {share_of(within, n, GOAL_WITHIN)}")
    return 0 if near >= GOAL_NEAR * n and within >= GOAL_WITHIN * n else 1


if __name__ == "__main__":
    sys.exit(main())
