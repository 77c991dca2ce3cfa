#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fault-tolerant training with tutti's parts beside torchft's, on this machine, by the same seeds: groups of one rank
that learn digits by a small convolutional network, and that `tutti chaos` kills, stops or cuts off. Told are goodput,
stalls, lost samples, where the time of a stall and of a start goes, and what the control plane costs a step.

    bench/ft_peers.py                              ddp, three groups, a kill every 15 s, two minutes a part
    bench/ft_peers.py --every 60 --seconds 180     fewer kills
    bench/ft_peers.py --kinds cut --every 30       hosts that vanish: networks are cut
    bench/ft_peers.py --parts survive,torchft --way diloco --json FILE --svg FILE

A step lasts at least --pace seconds, as on a device that computes, and takes little of the CPU, so that several groups
on few CPUs are not slowed by one another. On a busy machine `nice -n -15` (root) keeps other programs out of it.

Parts: "survive", where a step with a loss goes on; "tutti", as torchft does it; "torchft" (torchft-nightly) with
its own lighthouse, managers and gloo, where it is installed."""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from peers import ft_plot, ft_where

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("survive", "tutti", "torchft")


def have() -> "list[str]":
    if not importlib.util.find_spec("torchft"):
        print("torchft is not installed here (pip install torchft-nightly)", file=sys.stderr)
        return ["survive", "tutti"]
    return list(PARTS)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", help="some of " + ",".join(PARTS))
    parser.add_argument("--way", choices=["ddp", "diloco"], default="ddp")
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--kinds", default="kill", help="of tutti chaos (kill)")
    parser.add_argument("--every", type=float, default=15, help="seconds between two blows (15)")
    parser.add_argument("--seconds", type=float, default=120, help="of each of the parts under blows (120)")
    parser.add_argument("--calm", type=float, default=15, help="seconds without, before (15)")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds that a step lasts at least (0.1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where groups compute, by turns (cpu)")
    parser.add_argument("--control", action="store_true", help="what the control plane costs, too")
    parser.add_argument("--tutti", default=str(HERE.parent / "build" / "bin" / "tutti"), help="the command")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--svg", metavar="FILE", help="draw the samples of all parts over time")
    chosen = parser.parse_args()
    chosen.parts = chosen.parts.split(",") if chosen.parts else have()
    if not set(chosen.parts) <= set(PARTS):
        parser.error(f"--parts: some of {','.join(PARTS)}")
    if chosen.device == "cuda" and not importlib.import_module("torch").cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU here")
    return chosen


def environment(trace: str = "", device: str = "cpu", pace: float = 0.1) -> "dict[str, str]":
    """The interpreter that runs this is the first in the path, for the lighthouse."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "OMP_NUM_THREADS": "1", "RUST_LOG": "error", "TUTTI_TRUST_NETWORK": "1", "FT_TRACE": trace,
           "FT_DEVICE": device, "FT_PACE": str(pace)}
    return {**os.environ, **own}


def disturbed(parts: str, chosen: argparse.Namespace) -> "dict":
    """Chaos's report, with each step and blow, and where the time went."""
    with tempfile.TemporaryDirectory() as folder:
        report, steps = f"{folder}/report.json", f"{folder}/steps.csv"
        command = [chosen.tutti, "chaos", "--groups", chosen.groups, "--calm", f"{chosen.calm}s", "--for",
                   f"{chosen.seconds}s", "--every", f"{chosen.every}s", "--kinds", chosen.kinds, "--seed", chosen.seed,
                   "--json", report, "--csv", steps]
        if parts == "torchft":
            command += ["--lighthouse-program", HERE / "peers" / "ft_lighthouse.py"]
        command += ["--", sys.executable, HERE / "peers" / "ft_train.py", parts, chosen.way]
        load = os.getloadavg()[0]
        done = subprocess.run(list(map(str, command)), env=environment(folder, chosen.device, chosen.pace),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=chosen.calm + chosen.seconds + 400)
        if done.returncode != 0:
            raise SystemExit(f"{parts}: {done.stdout[-4000:]}")
        result = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
        with open(steps, encoding="utf-8", newline="") as file:
            result["rows"] = list(csv.DictReader(file))
        result["where"] = ft_where.where(pathlib.Path(folder), result)
        result["weights"] = ft_where.weights(pathlib.Path(folder))
    return {**result, "load": [load, os.getloadavg()[0]]}


# ---- the control plane ----


@contextlib.contextmanager
def lighthouse(parts: str, tutti: str):
    """Its address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    program = [HERE / "peers" / "ft_lighthouse.py"] if parts == "torchft" else [tutti, "lighthouse"]
    words = [*program, "--bind", f"localhost:{port}", "--min-replicas", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                break
            time.sleep(0.1)
        yield f"http://localhost:{port}"
    finally:
        process.kill()
        process.wait()


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


# ---- what is told ----


def table(results: "dict[str, dict]", chosen: argparse.Namespace) -> None:
    print(f"{chosen.way}, {chosen.groups} groups, {chosen.kinds} every {chosen.every:g} s, {chosen.seconds:g} s, "
          f"seed {chosen.seed}\n")
    print("| parts | blows | steps/s | under blows | goodput, steps | samples | stall, median | 9 of 10 | most | "
          "joining | in all | back after | weights differ | all dead | loss | load |\n|---|" + "--:|" * 15)
    for parts, r in results.items():
        print(f"| {parts} | {r['blows']} | {r['undisturbed_per_s']:.2f} | {r['disturbed_per_s']:.2f} | "
              f"{r['goodput']:.3f} | {r['goodput_samples']:.3f} | {r['stall_median_s']:.2f} s | "
              f"{r['stall_p90_s']:.2f} s | {r['stall_worst_s']:.2f} s | {r['rejoin_median_s']:.2f} s | "
              f"{100 * r['still_s'] / r['seconds']:.1f} % | {r['away_median_s']:.1f} s | "
              f"{r['weights']['differ']} of {r['weights']['steps']} | {r['weights']['anew']} | "
              f"{r['weights']['first_loss']:.2f} to {r['weights']['last_loss']:.2f} | "
              f"{r['load'][0]:.0f} to {r['load'][1]:.0f} |")
    print()
    ft_where.table({parts: r["where"] for parts, r in results.items()})


def main() -> None:
    chosen = options()
    results = {parts: disturbed(parts, chosen) for parts in chosen.parts}
    table(results, chosen)
    control: "dict[str, list[float]]" = {}
    for _ in range(3 if chosen.control else 0):  # by turns
        for parts in chosen.parts:
            if parts != "survive":
                control.setdefault(parts, []).append(control_plane(parts, chosen))
    for parts, times in control.items():
        print(f"control plane of {parts}: {statistics.median(times):.3f} ms a step")
    if chosen.svg:
        pathlib.Path(chosen.svg).write_text(ft_plot.plot(results, chosen), encoding="utf-8")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(chosen), "training": results, "control_plane_ms": control}, file)


if __name__ == "__main__":
    main()
