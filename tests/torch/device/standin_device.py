# SPDX-License-Identifier: BSD-3-Clause
"""What tutticuda.py and tuttixpu.py have in common: the functions that PyTorch's module of a device has, by the
operators of the library that plays it. Random numbers are the host's."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict

import torch


def load(name: str) -> Any:
    torch.ops.load_library(os.environ[f"TUTTI_TEST_{name.upper()}"])
    return torch.ops.tuttidev


def index_of(device=None) -> int:
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    return torch.ops.tuttidev.current_device() if index is None else index


class stream:
    """Makes a stream the current one while the block runs."""

    def __init__(self, chosen) -> None:
        self.chosen = chosen

    def __enter__(self) -> None:
        if self.chosen is not None:
            self.before = torch.ops.tuttidev.current_stream(self.chosen.device_index)
            set_stream(self.chosen)

    def __exit__(self, *error) -> None:
        if self.chosen is not None:
            torch.ops.tuttidev.set_stream(self.chosen.device_index, self.before)


def set_stream(chosen: torch.Stream) -> None:
    torch.ops.tuttidev.set_stream(chosen.device_index, chosen.stream_id)


class device:
    def __init__(self, chosen) -> None:
        self.index = index_of(chosen)

    def __enter__(self) -> None:
        self.before = torch.ops.tuttidev.current_device()
        torch.ops.tuttidev.set_device(self.index)

    def __exit__(self, *error) -> None:
        torch.ops.tuttidev.set_device(self.before)


def set_device(device) -> None:
    torch.ops.tuttidev.set_device(index_of(device))


def functions(name: str) -> Dict[str, Callable]:
    ops, type_number = torch.ops.tuttidev, {"cuda": 1, "xpu": 12}[name]

    def Stream(device=None, priority: int = 0) -> torch.Stream:
        return torch.Stream(device=torch.device(name, index_of(device)), priority=priority)

    def current_stream(device=None) -> torch.Stream:
        index = index_of(device)
        return torch.Stream(stream_id=ops.current_stream(index), device_index=index, device_type=type_number)

    return {
        "_lazy_init": lambda: None, "is_available": lambda: True, "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False, "manual_seed_all": lambda seed: None, "manual_seed": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "device_count": ops.device_count, "current_device": ops.current_device, "device": device,
        "set_device": set_device, "Stream": Stream, "stream": stream, "current_stream": current_stream,
        "set_stream": set_stream, "Event": torch.Event, "empty_cache": lambda: None,
        "_sleep": lambda cycles: ops.sleep(max(1, cycles // 2_000_000), ops.current_device()),
        "synchronize": lambda device=None: ops.synchronize(index_of(device)),
    }  # fmt: skip
