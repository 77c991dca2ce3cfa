# SPDX-License-Identifier: BSD-3-Clause
"""Lines as bench/gpu_peers.py prints them, made up and small enough to count by hand, and the machine of them: for the
tests of what reads them."""

from __future__ import annotations

KIB, MIB = 1 << 10, 1 << 20
HEAD = {"machine": "NVIDIA H200", "ranks": 2, "unavailable": {}}
MACHINE = {"gpu": "NVIDIA H200", "n_gpus": 2, "gpus_there": 2, "cpu": "Test CPU", "n_cpus": 64, "kernel": "Linux 6.1"}


def cell(op: str, size: int, us: dict, dtype: str = "bfloat16", in_place: bool = False, wrong: int = 0) -> dict:
    return {"op": op, "bytes": size, "dtype": dtype, "in_place": in_place, "us": us, "wrong": wrong}


def some_lines() -> list[dict]:
    return [
        HEAD,
        {"eager_us": {"tutti through torch": 11.0, "nccl": 40.0}},
        cell("all_reduce", KIB, {"tutti": 2.0, "tutti window": 2.0, "nccl": 6.0, "nccl window": 4.0, "torch one": 5.0}),
        cell("all_reduce", 4 * MIB, {"tutti": 40.0, "tutti window": 18.0, "nccl": 30.0, "nccl window": 27.0}),
        cell("all_gather", KIB, {"tutti": 2.4, "tutti window": 2.4, "nccl": 4.8, "nccl window": 9.0}),
        cell("broadcast", 1 << 30, {"tutti": 3000.0, "tutti window": 2830.0, "nccl": 3300.0}, in_place=True),
        {"stopped_after_s": 100.0},
    ]
