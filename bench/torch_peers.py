#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti against the other backends that PyTorch has for CPUs: gloo, and MPI where mpi4py is installed. All run in the
same processes and in turn, so that their ratios hold on a machine that has other things to do. Every result is checked
before it is timed. Measured are the collectives from 8 bytes to 256 MiB, what the binding adds to a call, how much of a
long call is hidden behind computing, and the step time of a model under DDP and FSDP2.

    bench/torch_peers.py --quick                       a minute
    bench/torch_peers.py --json FILE                   a few minutes, 2 and 4 ranks
    bench/torch_peers.py --ops all_reduce --ranks 2    a part
    bench/torch_peers.py --device cuda --ranks 2       training alone, one GPU a rank, against nccl
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from datetime import timedelta

for variable in ("TUTTI_TORCH_REPLACE", "TUTTI_TORCH_DEFAULT"):  # here every name means itself
    os.environ.pop(variable, None)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

from peers import backends, calls, cells, launch, report, training

SIZES = [8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20]
SIZES += [256 << 20]
QUICK = [8, 512, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
PARTS = ("cells", "overhead", "overlap", "training")


def names(known):
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return chosen

    return parse


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, about a minute")
    parser.add_argument("--seconds", type=float, help="about how long to measure (default 300, quick: 60)")
    parser.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4])
    parser.add_argument("--ops", type=names(backends.OPERATIONS), default=list(backends.OPERATIONS))
    parser.add_argument("--sizes", type=lambda t: [report.parse_size(s) for s in t.split(",")], help="8,64K,1M")
    parser.add_argument("--parts", type=names(PARTS), default=list(PARTS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: training alone (default cpu)")
    parser.add_argument("--peers", type=lambda t: t.split(","), help="the first is compared with the others")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.seconds = chosen.seconds or (60.0 if chosen.quick else 300.0)
    chosen.sizes = chosen.sizes or (QUICK if chosen.quick else SIZES)
    if chosen.device == "cuda":
        chosen.parts = ["training"]
    if not chosen.peers:
        chosen.peers = ["tutti", "gloo" if chosen.device == "cpu" else "nccl"]
        if chosen.device == "cpu" and backends.mpi_is_installed() and shutil.which("mpiexec"):
            chosen.peers.append("mpi")
    return chosen


def cases_of(chosen: argparse.Namespace) -> list[tuple[str, int]]:
    sizes = {op: [0] if op == "barrier" else chosen.sizes for op in chosen.ops}
    return [(op, size) for op in chosen.ops for size in sizes[op]]


def measure_cells(clock, peers, rank: int, n: int, chosen: argparse.Namespace, seconds: float) -> list[dict]:
    cases = cases_of(chosen)
    memory = tuple(torch.full((max(chosen.sizes) // backends.ELEMENT + n,), 1.0) for _ in range(2))
    weights = [1 + size / (8 << 20) for _, size in cases]
    until, rows = time.monotonic() + seconds, []
    for i, (operation, size) in enumerate(cases):
        share = max(0.0, until - time.monotonic()) * weights[i] / sum(weights[i:])
        late, share = clock.most([time.monotonic() - until, share])
        if late > seconds:  # the machine has no time for this
            rows.append({"operation": operation, "size": size, "peers": {}})
            continue
        case = backends.Case.make(operation, size, rank, n, memory)
        row = cells.measure_cell(clock, peers, case, share, 5e-3 if chosen.quick else 10e-3)
        rows.append({"operation": operation, "size": size, "peers": row})
        if rank == 0 and sys.stderr.isatty():
            print(f"\r\033[K{n} ranks: {operation} {report.size_text(size)}", end="", file=sys.stderr, flush=True)
    return rows


def device_of(kind: str, rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def measure_world(chosen: argparse.Namespace, rank: int, n: int, store: str) -> dict:
    torch.set_num_threads(1)
    device = device_of(chosen.device, rank)
    shared = dist.FileStore(store, n)
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=n, timeout=timedelta(minutes=5))
    clock = cells.Clock()
    peers = [backends.MpiPeer() if name == "mpi" else backends.TorchPeer(name) for name in chosen.peers]
    seconds = chosen.seconds / len(chosen.ranks)
    result: dict = {"cells": []}
    if "overhead" in chosen.parts and chosen.peers[0] == "tutti":
        import tutti_torch

        path, name = tutti_torch.build_info()["library"], os.path.basename(os.path.dirname(store))
        result["overhead"] = calls.measure_overhead(clock, peers[0], path, name, seconds * 0.05)
    if "overlap" in chosen.parts:
        memory = torch.zeros(calls.OVERLAP_BYTES // backends.ELEMENT)
        result["overlap"] = calls.measure_overlap(clock, peers, memory, seconds * 0.1)
    if "training" in chosen.parts:
        share = 0.15 if device.type == "cpu" else 1.0
        result["training"] = training.measure_training(clock, peers, rank, n, seconds * share, device)
    if "cells" in chosen.parts:
        result["cells"] = measure_cells(clock, peers, rank, n, chosen, seconds * 0.7)
    clock.meet()
    dist.destroy_process_group()
    return result


def main() -> None:
    chosen = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended, too
    for name in chosen.peers:
        backends.load_backend(name)

    def body(rank: int, n: int, store: str) -> dict:
        return measure_world(chosen, rank, n, store)

    if chosen.inside:
        launch.run_rank(body, *launch.rank_of_mpi(), chosen.inside)
        return
    result = {
        "torch": torch.__version__,
        "cpu": report.cpu_name(),
        "n_cpus": len(os.sched_getaffinity(0)),
        "peers": chosen.peers,
        "worlds": {},
    }
    under_mpi = sys.argv if "mpi" in chosen.peers else None
    for n in chosen.ranks:
        result["worlds"][str(n)] = launch.launch(body, n, 120 + 6 * chosen.seconds, under_mpi)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    result["summary"] = report.summary(result["worlds"], chosen.peers[0], chosen.peers[1:])
    text = report.markdown(result)
    print(text, end="")
    for path, content in ((chosen.json, json.dumps(result, indent=1)), (chosen.markdown, text)):
        if path:
            with open(path, "w") as file:
                file.write(content)


if __name__ == "__main__":
    main()
