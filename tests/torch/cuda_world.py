# SPDX-License-Identifier: BSD-3-Clause
"""What the tests on CUDA devices have in common: whether there is one, and worlds to run in. Ranks are forked, so the
parent never touches CUDA: it asks in a child. TUTTI_TEST_CUDA names a library that plays the device where there is none
(device/tutticuda.py). The same tests run on Intel's devices: with TUTTI_TEST_DEVICE=xpu on real ones, with
TUTTI_TEST_XPU on a library that plays them (device/tuttixpu.py)."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any, Callable, List

os.environ.setdefault("TUTTI_TEST_DEVICE", "xpu" if "TUTTI_TEST_XPU" in os.environ else "cuda")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more would be processes, of which a fork knows nothing

import torch
import torch.distributed as dist

TYPE = os.environ["TUTTI_TEST_DEVICE"]
PLAYED = f"TUTTI_TEST_{TYPE.upper()}" in os.environ
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "device"))


def count_devices() -> int:
    pid = os.fork()
    if pid == 0:
        module = torch.get_device_module(TYPE)
        os._exit(min(module.device_count(), 100) if module.is_available() else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def require_device() -> int:
    """How many there are; ends the program where there are none."""
    n = count_devices()
    if n <= 0:
        print(f"skipped: no {TYPE.upper()} device")
        sys.exit(77)
    return n


def world(rank: int, n: int, store: dist.Store, backend: str, name: str = "", **options: Any) -> torch.device:
    """A process group, and this rank's device."""
    device = calls.use_device_of(rank)
    options.setdefault("timeout", timedelta(seconds=60))
    store = dist.PrefixStore(name or backend, store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=n, **options)
    return device


def on_each(backends: List[str], function: Callable, rank: int, n: int, store: dist.Store) -> List[Any]:
    """function(rank, n, device) in a world of each backend, one after the other."""
    results = []
    for backend in backends:
        device = world(rank, n, store, backend, f"{function.__name__} on {backend}")
        results.append(function(rank, n, device))
        calls.module.synchronize()
        dist.destroy_process_group()
    return results


if PLAYED:
    __import__(f"tutti{TYPE}")

import calls  # noqa: E402  after the variable that it reads
