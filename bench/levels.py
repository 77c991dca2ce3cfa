#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A collective of several hosts with several ranks each, beside its parts: that of the ranks of one host alone, and
that of one rank of each host alone, in turns. Hosts are network namespaces (tests/hosts), or names on the loopback
interface. The larger part is the least that the whole can take where levels overlap, the sum where they do not. Where
ranks outnumber CPUs the parts of all hosts share those, and the whole can not be as fast as one part.

    bench/levels.py                                      two hosts of two ranks, all_reduce of 8 B to 16 MiB
    bench/levels.py --hosts 2 --ranks 4 --ops broadcast,all_gather --sizes 64K,1M --where lo --tutti build
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import uuid
from contextlib import nullcontext
from pathlib import Path

from peers.arguments import count, names, seconds, sizes
from peers.net_programs import Net, make_reach
from peers.programs import C_FLAGS, ROOT, SOURCES, Kit, Missing, build_tutti
from peers.report import size_text

sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import hosts  # noqa: E402

OPERATIONS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
SIZES = [8, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
WHERE = ["lo", "hosts"]
HEAD = f"{'':16}{'':>8}{'within':>10}{'between':>10}{'all':>10}{'all/larger':>12}{'all/sum':>9}   us, medians"
SPARE_S = 60


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--hosts", type=count, default=2, help="default 2")
    add("--ranks", type=count, default=2, help="of each host (default 2)")
    add("--ops", type=names(OPERATIONS), default=["all_reduce"], help=",".join(OPERATIONS))
    add("--sizes", type=sizes, default=SIZES, help="bytes of the larger side of a call: 8,64K,1M")
    add("--where", type=names(WHERE), default=["hosts"], help="hosts: namespaces (needs root); lo: the loopback")
    add("--rate", help="of each host's link, as tc's tbf wants it: 1gbit (with --where hosts)")
    add("--seconds", type=seconds, default=1.0, help="for each size (default 1)")
    add("--least", action="store_true", help="tell the least times, not the medians")
    add("--build", type=Path, default=ROOT / "build" / "peers", help="where programs are built")
    add("--tutti", type=Path, help="a build folder of tutti (default: one is made)")
    return parser.parse_args()


def make_program(kit: Kit) -> Path:
    lib = (kit.tutti or build_tutti(kit)).resolve() / "lib"
    source = SOURCES / "levels.c"
    command = ["cc", *C_FLAGS, f"-I{ROOT / 'include'}", str(source), f"-L{lib}", "-ltutti", f"-Wl,-rpath,{lib}"]
    return kit.build("bin/levels", [source], command, "a C compiler is needed").resolve()


def ranks_start(program: Path, net: Net, folder: str, operation: str, chosen: argparse.Namespace) -> list:
    job, n = uuid.uuid4().hex, chosen.hosts * chosen.ranks
    words = [str(program), operation, str(chosen.ranks), str(chosen.seconds), *map(str, chosen.sizes)]
    lib = {"LD_LIBRARY_PATH": str(chosen.tutti.resolve() / "lib")} if chosen.tutti else {}
    ranks = []
    for rank in range(n):
        host = rank // chosen.ranks
        env = {**os.environ, **lib, "TUTTI_RANK": str(rank), "TUTTI_WORLD_SIZE": str(n), "TUTTI_JOB": job}
        env |= {"TUTTI_HOST": f"h{host}", "TUTTI_STORE": f"file://{folder}/{job}", "TUTTI_TRUST_NETWORK": "1"}
        ranks.append(subprocess.Popen([*net.on(host), *words], env=env, stdout=subprocess.PIPE, text=True))
    return ranks


def links_shape(names_of_hosts: list[str], rate: str) -> None:
    """Both directions: what each host sends."""
    for name in names_of_hosts:
        tc = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "limit", "2mb"]
        done = subprocess.run(["ip", "netns", "exec", name, *tc], capture_output=True, text=True)
        if done.returncode != 0:
            raise hosts.Unavailable(f"--rate {rate}: {done.stderr.strip()}")


def table_print(title: str, operation: str, lines: list[str], least: bool) -> None:
    for line in lines:
        size, _, *times = line.split()
        within, between, whole = (float(t) for t in times[0 if least else 1 :: 2])
        larger, total = whole / max(within, between), whole / (within + between)
        print(f"{title + ' ' + operation:16.24}{size_text(int(size)):>8}{within:10.1f}{between:10.1f}{whole:10.1f}"
              f"{larger:12.2f}{total:9.2f}", flush=True)


def measure(where: str, program: Path, chosen: argparse.Namespace) -> int:
    """The number of operations that failed."""
    failed = 0
    with hosts.Hosts(chosen.hosts, plain=True) if where == "hosts" else nullcontext() as made:
        net = Net(made.names if made else [], make_reach(chosen.build))
        if made and chosen.rate:
            links_shape(made.names, chosen.rate)
        with tempfile.TemporaryDirectory() as folder:
            for operation in chosen.ops:
                ranks = ranks_start(program, net, folder, operation, chosen)
                try:
                    told = ranks[0].communicate(timeout=SPARE_S + 2 * chosen.seconds * len(chosen.sizes))[0]
                    failed += any(rank.wait(10) for rank in ranks)
                finally:
                    for rank in ranks:
                        rank.kill()
                table_print(where, operation, told.splitlines(), chosen.least)
    return failed


def main() -> int:
    chosen = options()
    chosen.build.mkdir(parents=True, exist_ok=True)
    try:
        program = make_program(Kit(chosen.build, chosen.tutti))
        print(f"{chosen.hosts} hosts of {chosen.ranks} ranks, {len(os.sched_getaffinity(0))} CPUs\n{HEAD}")
        return 1 if sum(measure(where, program, chosen) for where in chosen.where) else 0
    except (Missing, hosts.Unavailable) as why:
        print(f"bench/levels.py: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
