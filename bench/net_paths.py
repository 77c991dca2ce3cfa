#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts (network namespaces) that are joined by several links, each shaped by tbf: how near large messages come to
what the links carry together. Needs root.

    bench/net_paths.py --rates 1000,200 --sizes 1M,4M,16M,64M
"""

import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "hosts"))
import hosts  # noqa: E402

PAYLOAD = 1448 / 1514  # the part of a packet that is payload


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def measure(net, tutti, o, interfaces, sockets, env):
    """{size: seconds} of the operation, as rank 0 tells it."""
    words = [tutti, "bench", o.op, "-b", o.sizes[0], "-e", o.sizes[-1], "-f", str(o.factor), "--place", "out", "--json",
             "--rounds", str(o.rounds), "--calls", str(o.calls), "--warmup", "3"]
    env = {"TUTTI_INTERFACE": ",".join(interfaces), "TUTTI_SOCKETS": str(sockets), **env}
    ranks = net.ranks(1, words, env=env)
    if net.wait(ranks, 300) != [0, 0]:
        sys.exit("".join(f"rank {r.number}:\n{r.text()}" for r in ranks))
    rows = json.loads(ranks[0].text())["points"]
    return {row["bytes"]: row["out_of_place"]["time_us"] * 1e-6
            for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default=os.path.join(HERE, "..", "build", "bin", "tutti"))
    parser.add_argument("--rates", default="1000,200", help="Mbit/s of each link (0: as the kernel's)")
    parser.add_argument("--sizes", default="1M,4M,16M,64M", help="from the first to the last, by --factor")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--op", default="all_reduce")
    parser.add_argument("--sockets", type=int, default=0, help="option sockets")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--encrypt", action="store_true")
    parser.add_argument("--alone", action="store_true", help="the first link alone, too")
    o = parser.parse_args()
    o.sizes = o.sizes.split(",")
    rates = [int(r) for r in o.rates.split(",")]
    names = [f"eth{i}" for i in range(len(rates))]
    env = {"TUTTI_ENCRYPT": "1"} if o.encrypt else {}
    with hosts.Hosts(2, plain=True) as net:
        for host in (0, 1):
            if rates[0]:
                net.shape(host, names[0], rates[0])
        for i in range(1, len(rates)):
            net.join(0, 1, names[i], i, (rates[i], rates[i]))
        print("| links, Mbit/s | bytes | links alone, ms | tutti, ms | of the links | bytes by each |")
        print("|---|--:|--:|--:|--:|---|")
        for n in ([1] if o.alone else []) + [len(rates)]:
            before = [net.carried(0, name) for name in names]
            times = measure(net, o.tutti, o, names[:n], o.sockets, env)
            sent = [net.carried(0, name) - b for name, b in zip(names, before)]
            share = ", ".join(f"{100 * s / max(1, sum(sent)):.0f} %" for s in sent)
            for bytes_, seconds in times.items():
                link = bytes_ * 8 / (sum(rates[:n]) * 1e6 * PAYLOAD) if all(rates) else 0
                print(f"| {' + '.join(map(str, rates[:n]))} | {bytes_} | {link * 1e3:.2f} | {seconds * 1e3:.2f} | "
                      f"{100 * link / seconds:.1f} % | {share} |", flush=True)


if __name__ == "__main__":
    hosts.or_skip(main)
