#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti's transport ofi beside libfabric's own fi_pingpong, over the same provider on the loopback interface, in turns.

    bench/ofi_pingpong.py                               the providers that work without hardware, 5 rounds
    bench/ofi_pingpong.py --providers net --rounds 11

Latency is one way of 8 bytes, bandwidth that of one message there, and one that says that it came (tutti info
--cluster), or back (fi_pingpong, tagged). Of all rounds the best of each, and their ratio: the goal is at most 1.15.
"""

import argparse
import json
import os
import subprocess
import sys
import time

BUILD = os.environ.get("TUTTI_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build"))
CELLS = [("8 B, us", 8, 200), ("1 MiB, us", 1 << 20, 10), ("16 MiB, us", 16 << 20, 3)]
TRIES = 6  # fi_pingpong is tried so often: it tells the mean of its calls, tutti the best of its batches
FAR = 60  # seconds that any program may take


def tutti(provider):
    """Microseconds of each cell."""
    program = os.path.join(BUILD, "bin", "tutti")
    env = {**os.environ, "TUTTI_TRANSPORT": "ofi", "TUTTI_OFI_PROVIDER": provider, "TUTTI_TRUST_NETWORK": "1"}
    done = subprocess.run([program, "run", "-n", "2", program, "info", "--cluster", "--json"], env=env,
                          capture_output=True, text=True, timeout=FAR)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
    said = json.loads(done.stdout)
    rates = [said["gb_s_1MiB"][0][1], said["gb_s_16MiB"][0][1]]
    if None in rates:
        raise RuntimeError("a message of 1 MiB took more than 100 ms")
    return [said["latency_us"][0][1]] + [cell[1] / rate / 1e3 for cell, rate in zip(CELLS[1:], rates)]


def pingpong(provider):
    """The same, by libfabric's own program."""
    return [min(pingpong_cell(provider, size, calls) for _ in range(TRIES)) for _, size, calls in CELLS]


def pingpong_cell(provider, size, calls):
    words = ["fi_pingpong", "-p", provider, "-e", "rdm", "-m", "tagged", "-S", str(size), "-I", str(calls)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.05)  # until it listens
            done = subprocess.run([*words, "127.0.0.1"], capture_output=True, text=True, timeout=FAR)
            lines = done.stdout.splitlines()
            if done.returncode == 0 and lines:
                names, values = lines[0].split(), lines[-1].split()
                return float(values[names.index("usec/xfer")])
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
    finally:
        server.kill()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--providers", default="tcp;ofi_rxm,net", help="as TUTTI_OFI_PROVIDER names them")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("| provider | | fi_pingpong | tutti | ratio |\n|---|---|--:|--:|--:|")
    worst = 0.0
    for provider in args.providers.split(","):
        best = {}
        for turn in range(args.rounds):
            for who in (tutti, pingpong) if turn % 2 else (pingpong, tutti):
                best[who] = [min(pair) for pair in zip(who(provider), best.get(who, [float("inf")] * len(CELLS)))]
        for (name, _, _), theirs, ours in zip(CELLS, best[pingpong], best[tutti]):
            worst = max(worst, ours / theirs)
            print(f"| {provider} | {name} | {theirs:,.2f} | {ours:,.2f} | {ours / theirs:.2f} |", flush=True)
    print(f"\nthe greatest ratio is {worst:.2f}; the goal is 1.15")
    return 0


if __name__ == "__main__":
    sys.exit(main())
