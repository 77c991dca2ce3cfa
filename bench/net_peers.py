#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti against the other libraries for collectives over TCP: Open MPI and MPICH (of the system, and their next
versions from PyPI), Intel MPI and Gloo, whichever are there. Ranks are processes on the loopback interface, or hosts
that are network namespaces (tests/hosts). The ranks of all peers are alive at once and asleep but for those that are
measured, so every cell (operation and size) is measured peer after peer within seconds; before and after each point
the latency of a cache line tells in which state the machine was, and points that straddle two states are dropped.
Results are verified.

    bench/net_peers.py --seconds 600 --install         2, 4 and 8 ranks, loopback and hosts: ten minutes
    bench/net_peers.py -n 2 --where lo --ops all_reduce --up-to 1M     a part
    bench/net_peers.py --write                         also writes docs/performance.md
    bench/net_peers.py --report FILE [FILE ...]        only tells what earlier runs have left in --out
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from peers import net_report
from peers.arguments import count, counts, names, seconds, size, sizes
from peers.measuring import head_of, run
from peers.net_programs import MAKERS, Net, TITLES, make_programs, make_reach
from peers.net_worlds import NetPlan, NetWorld
from peers.programs import ROOT, Kit
from peers.worlds import Session

sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import hosts  # noqa: E402

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"]
SIZES = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
WHERE = ["lo", "hosts"]
SEED = 20260101


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=seconds, default=1800.0, help="about how long to measure (default 1800)")
    add("--turns", type=count, help="so many turns over all cells at most; the first one is made whole")
    add("-n", "--ranks", type=counts, default=[2, 4, 8], help="default 2,4,8")
    add("--where", type=names(WHERE), default=WHERE, help="lo, hosts: each rank on a network namespace of its own")
    add("--ops", type=names(OPERATIONS), default=OPERATIONS, help=",".join(OPERATIONS))
    add("--sizes", type=sizes, default=SIZES, help="8,64K,1M")
    add("--up-to", type=size, metavar="SIZE", help="leaves out the larger ones")
    add("--block", type=float, default=60.0, metavar="MS", help="how long a point's calls are timed (default 60)")
    add("--peers", type=names(MAKERS), default=list(MAKERS), help=",".join(MAKERS))
    add("--cpus", type=lambda t: [int(c) for c in t.split(",")], help="the CPUs to use (default: those allowed)")
    add("--build", type=Path, default=ROOT / "build-peers", metavar="DIR", help="where peers are built")
    add("--tutti", type=Path, metavar="DIR", help="a build of tutti (default: one is made)")
    add("--install", action="store_true", help="get what PyPI has into the build folder")
    add("--out", type=Path, metavar="FILE", help="lines of JSON as they come (default: net_peers.jsonl in --build)")
    add("--write", action="store_true", help="write the section of docs/performance.md")
    add("--report", type=Path, nargs="+", metavar="FILE", help="measure nothing, tell what these hold")
    add("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.cpus = chosen.cpus or sorted(os.sched_getaffinity(0))
    chosen.sizes = sorted(n for n in chosen.sizes if n <= (chosen.up_to or n))
    chosen.out = chosen.out or chosen.build / "net_peers.jsonl"
    return chosen


def measure_world(world: NetWorld, seconds_left: float, chosen: argparse.Namespace, write) -> None:
    kit = Kit(chosen.build, chosen.tutti, install=chosen.install)
    plan = NetPlan(chosen.ops, chosen.sizes, ["pages"], int(chosen.block * 1000), False, chosen.cpus)
    try:
        with hosts.Hosts(world.n, plain=True) if world.where == "hosts" else nullcontext() as made:
            net = Net(made.names if made else [], make_reach(chosen.build))
            programs, missing = make_programs(chosen.peers, kit, net)
            write({"run": head_of("bench/net_peers.py", chosen, programs, missing)})
            for name, why in missing.items():
                print(f"without {TITLES[name][0]}: {why}", file=sys.stderr)
            with Session(world, plan, programs, chosen.build / "log", write) as session:
                session.run(seconds_left, random.Random(SEED), chosen.turns)
    except hosts.Unavailable as why:
        print(f"{world.name}: not measured: {why}", file=sys.stderr)


def measure(chosen: argparse.Namespace) -> None:
    (chosen.build / "log").mkdir(parents=True, exist_ok=True)
    worlds = [NetWorld(n, n <= len(chosen.cpus), where) for n in chosen.ranks for where in chosen.where]
    until = time.monotonic() + chosen.seconds
    with open(chosen.out, "w", buffering=1) as out:
        for i, world in enumerate(worlds):
            left = (until - time.monotonic()) / (len(worlds) - i)
            measure_world(world, left, chosen, lambda row: out.write(json.dumps(row) + "\n"))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run(options(), measure, net_report.section, net_report.write_docs))
