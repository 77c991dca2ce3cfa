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

from peers.arguments import counts, names, seconds, sizes
from peers.measuring import add_options, head_of, run
from peers.net_programs import PEERS, Net, make_reach, peers_on
from peers.pages import Page
from peers.programs import ROOT, Kit, make_programs
from peers.worlds import Plan, Session, World

sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import hosts  # noqa: E402

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"]
SIZES = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
WHERE = ["lo", "hosts"]
SEED = 20260101
TITLES = {name: (peer.title, peer.letter) for name, peer in PEERS.items()}
ABOUT = "lo: processes on the loopback interface, hosts: one rank on each of so many network namespaces; "
PAGE = Page("net_peers", "Between hosts", TITLES, ("pages",), 64 << 10, 1 / 1.1, ABOUT)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=seconds, default=1800.0, help="about how long to measure (default 1800)")
    add("-n", "--ranks", type=counts, default=[2, 4, 8], help="default 2,4,8")
    add("--where", type=names(WHERE), default=WHERE, help="lo, hosts: each rank on a network namespace of its own")
    add("--ops", type=names(OPERATIONS), default=OPERATIONS, help=",".join(OPERATIONS))
    add("--sizes", type=sizes, default=SIZES, help="8,64K,1M")
    add_options(add, PEERS)
    chosen = parser.parse_args()
    chosen.cpus = chosen.cpus or sorted(os.sched_getaffinity(0))
    chosen.sizes = sorted(n for n in chosen.sizes if n <= (chosen.up_to or n))
    chosen.out = chosen.out or chosen.build / "net_peers.jsonl"
    return chosen


def measure_world(world: World, seconds_left: float, chosen: argparse.Namespace, write) -> None:
    kit = Kit(chosen.build, chosen.tutti, install=chosen.install)
    plan = Plan(chosen.ops, chosen.sizes, ["pages"], int(chosen.block * 1000), chosen.cpus, limits=False)
    try:
        with hosts.Hosts(world.n, plain=True) if world.where == "hosts" else nullcontext() as made:
            net = Net(made.names if made else [], make_reach(chosen.build))
            programs, missing = make_programs(chosen.peers, kit, peers_on(net))
            write({"run": head_of("bench/net_peers.py", chosen, programs, missing)})
            for name, why in missing.items():
                print(f"without {PEERS[name].title}: {why}", file=sys.stderr)
            with Session(world, plan, programs, chosen.build / "log", write) as session:
                session.run(seconds_left, random.Random(SEED), chosen.turns)
    except hosts.Unavailable as why:
        print(f"{world.name}: not measured: {why}", file=sys.stderr)


def measure(chosen: argparse.Namespace) -> None:
    (chosen.build / "log").mkdir(parents=True, exist_ok=True)
    worlds = [World(n, n <= len(chosen.cpus), where) for n in chosen.ranks for where in chosen.where]
    until = time.monotonic() + chosen.seconds
    with open(chosen.out, "w", buffering=1) as out:
        for i, world in enumerate(worlds):
            left = (until - time.monotonic()) / (len(worlds) - i)
            measure_world(world, left, chosen, lambda row: out.write(json.dumps(row) + "\n"))


if __name__ == "__main__":
    sys.exit(run(options(), measure, PAGE))
