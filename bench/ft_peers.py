#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fault-tolerant training with tutti's parts beside torchft's, on this machine: two groups of one rank that
`tutti chaos` kills. Told are goodput (committed steps a second under blows, over those without), the stall of the
survivors after a blow, and what the control plane costs a step (quorum and commit of two groups, without training).

    bench/ft_peers.py                          ddp and diloco, some eight minutes
    bench/ft_peers.py --quick                  ddp alone, shorter, two minutes
    bench/ft_peers.py --json FILE

torchft is measured where it is installed (torchft-nightly), with its own lighthouse, managers and gloo."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Both with the defaults of torchft_lighthouse: 5 s without a heartbeat, 60 s for those that do not ask.
TORCHFT_LIGHTHOUSE = """
from torchft.coordination import LighthouseServer
import sys, time
server = LighthouseServer(bind=sys.argv[1], min_replicas=1, join_timeout_ms=60000, heartbeat_timeout_ms=5000)
time.sleep(3600)
"""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ddp alone, and shorter")
    parser.add_argument("--every", type=float, default=15, help="seconds between two kills (15)")
    parser.add_argument("--seconds", type=float, help="of each part under kills (default 90, quick: 40)")
    parser.add_argument("--tutti", default=str(HERE.parent / "build" / "bin" / "tutti"), help="the command")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    chosen = parser.parse_args()
    chosen.seconds = chosen.seconds or (40 if chosen.quick else 90)
    chosen.ways = ["ddp"] if chosen.quick else ["ddp", "diloco"]
    chosen.parts = ["tutti", *(["torchft"] if importlib.util.find_spec("torchft") else [])]
    return chosen


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def lighthouse(parts: str, tutti: str):
    """Its address."""
    port = free_port()
    if parts == "tutti":
        words = [tutti, "lighthouse", "--bind", f"localhost:{port}", "--min-replicas", "1"]
    else:
        words = [sys.executable, "-c", TORCHFT_LIGHTHOUSE, f"[::]:{port}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://localhost:{port}"
    finally:
        process.kill()
        process.wait()


def environment() -> "dict[str, str]":
    return {**os.environ, "OMP_NUM_THREADS": "1", "RUST_LOG": "warn"}


def disturbed(parts: str, way: str, chosen: argparse.Namespace) -> "dict[str, float]":
    calm = chosen.seconds / 3
    with lighthouse(parts, chosen.tutti) as address, tempfile.NamedTemporaryFile() as report:
        program = [sys.executable, str(HERE / "peers" / "ft_train.py"), parts, way]
        subprocess.run(
            [chosen.tutti, "chaos", "--lighthouse", address, "--groups", "2", "--calm", str(calm), "--for",
             str(chosen.seconds), "--every", str(chosen.every), "--json", report.name, "--", *program],
            env=environment(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=calm + chosen.seconds + 400,
        )
        return json.load(report)


def control_plane(parts: str, chosen: argparse.Namespace) -> float:
    """Milliseconds of a quorum and a commit, in the median, of two groups that do nothing else."""
    with lighthouse(parts, chosen.tutti) as address:
        words = [sys.executable, str(HERE / "peers" / "ft_control.py"), parts, address]
        groups = [
            subprocess.Popen([*words, str(i)], stdout=subprocess.PIPE, text=True, env=environment()) for i in (0, 1)
        ]
        said = [group.communicate(timeout=120)[0] for group in groups]
        if any(group.returncode for group in groups):
            raise RuntimeError(f"control plane of {parts}: {said}")
        return statistics.mean(float(text) for text in said)


def table(results: "dict[str, dict[str, dict[str, float]]]", control: "dict[str, float]") -> None:
    print("| | parts | steps/s | under kills | goodput | stall, median | worst |\n|---|---|---|---|---|---|---|")
    for way, by_parts in results.items():
        for parts, r in by_parts.items():
            rates = f"{r['undisturbed_per_s']:.2f} | {r['disturbed_per_s']:.2f} | {r['goodput']:.2f}"
            print(f"| {way} | {parts} | {rates} | {r['stall_median_s']:.2f} s | {r['stall_worst_s']:.2f} s |")
    for parts, ms in control.items():
        print(f"control plane of {parts}: {ms:.3f} ms a step")


def main() -> None:
    chosen = options()
    control: "dict[str, list[float]]" = {parts: [] for parts in chosen.parts}
    for _ in range(3):  # by turns
        for parts in chosen.parts:
            control[parts].append(control_plane(parts, chosen))
    medians = {parts: statistics.median(times) for parts, times in control.items()}
    results = {way: {parts: disturbed(parts, way, chosen) for parts in chosen.parts} for way in chosen.ways}
    table(results, medians)
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"training": results, "control_plane_ms": medians}, file, indent=1)


if __name__ == "__main__":
    main()
