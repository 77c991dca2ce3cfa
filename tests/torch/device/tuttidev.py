# SPDX-License-Identifier: BSD-3-Clause
"""The test device in Python: importing this module makes "tuttidev" a device of PyTorch, with this module as
torch.tuttidev. Device memory is out of reach for threads of the host (driver.hpp), so that what a test sees, streams
have done; sleep() and set_copy_delay() make it late."""

import os
import sys

import torch

NAME = "tuttidev"
torch.ops.load_library(os.path.join(os.environ["TUTTI_BUILD"], "torch", "tuttidev.so"))
torch.utils.rename_privateuse1_backend(NAME)
torch._register_device_module(NAME, sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend()

ops = torch.ops.tuttidev
device_count, current_device = ops.device_count, ops.current_device
set_copy_delay = ops.set_copy_delay
Event = torch.Event


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    pass


def manual_seed_all(seed: int) -> None:
    """Random numbers are the host's."""


def index_of(device) -> int:
    """The index of a device, its number or its name; None is the current one."""
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    return current_device() if index is None else index


def set_device(device) -> None:
    ops.set_device(index_of(device))


def sleep(milliseconds: int, device=None) -> None:
    """What is enqueued on the current stream from now on begins that much later."""
    ops.sleep(milliseconds, index_of(device))


def Stream(device=None, priority: int = 0) -> torch.Stream:
    return torch.Stream(device=torch.device(NAME, index_of(device)), priority=priority)


def current_stream(device=None) -> torch.Stream:
    return torch.accelerator.current_stream(index_of(device))


class stream:
    """Makes a stream the current one while the block runs."""

    def __init__(self, chosen) -> None:
        self.chosen = chosen

    def __enter__(self) -> None:
        if self.chosen is not None:
            self.before = current_stream(self.chosen.device)
            torch.accelerator.set_stream(self.chosen)

    def __exit__(self, *error) -> None:
        if self.chosen is not None:
            torch.accelerator.set_stream(self.before)


def set_stream(chosen: torch.Stream) -> None:
    torch.accelerator.set_stream(chosen)


def synchronize(device=None) -> None:
    torch.accelerator.synchronize(index_of(device))
