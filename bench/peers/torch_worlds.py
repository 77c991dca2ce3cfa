# SPDX-License-Identifier: BSD-3-Clause
"""One rank of bench/torch_peers.py in a world: what of it is asked for, one part after the other."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from . import backends, calls, cells, training
from .report import size_text


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
            print(f"\r\033[K{n} ranks: {operation} {size_text(size)}", end="", file=sys.stderr, flush=True)
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
    peers = [backends.make_peer(name) for name in chosen.peers]
    seconds = chosen.seconds / len(chosen.ranks)
    result: dict = {"cells": []}
    if "overhead" in chosen.parts and chosen.peers[0] == "tutti":
        import tutti_torch

        path, name = tutti_torch.build_info()["library"], os.path.basename(os.path.dirname(store))
        if device.type == "cuda":
            result["enqueued"] = calls.measure_enqueued(clock, peers, path, name, device)
    if "overhead" in chosen.parts and chosen.peers[0] == "tutti" and device.type == "cpu":
        result["overhead"] = calls.measure_overhead(clock, peers[0], path, name, seconds * 0.05)
    if "overlap" in chosen.parts:
        memory = torch.zeros(calls.OVERLAP_BYTES // backends.ELEMENT)
        result["overlap"] = calls.measure_overlap(clock, peers, memory, seconds * 0.1)
    if "training" in chosen.parts:
        share = 0.15 if device.type == "cpu" else 1.0
        result["training"] = training.measure_training(clock, peers, rank, n, seconds * share, device, chosen)
    if "cells" in chosen.parts:
        result["cells"] = measure_cells(clock, peers, rank, n, chosen, seconds * 0.7)
    clock.meet()
    for peer in peers:
        if hasattr(peer, "close"):
            peer.close()
    dist.destroy_process_group()
    return result
