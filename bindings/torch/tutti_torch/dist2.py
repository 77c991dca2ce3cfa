# SPDX-License-Identifier: BSD-3-Clause
"""tutti in torch.distributed._dist2, PyTorch's experimental API of groups that no global state knows; versions that
have it keep a table of factories of their own."""

import functools

import torch
import torch.distributed as dist

from . import _C

OPTIONS = ("is_high_priority_stream", "library")


def group_of(backend: _C.Backend, store, kinds: set) -> dist.ProcessGroup:
    """A group that the backend serves on devices of these kinds, and that no global state knows."""
    group = dist.ProcessGroup(store, backend.rank(), backend.size())
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(custom)
    for kind in kinds:
        group._register_backend(torch.device(kind), custom, backend)
    return group


def create(called, store, rank, world_size, timeout, device, **options) -> dist.ProcessGroup:
    """What _dist2.new_group calls: a group that tutti serves on the device and on the CPU, called by this name."""
    own = _C.Backend.Options(timeout, called)
    for name, value in options.items():
        if name not in OPTIONS:
            raise KeyError(f"tutti has no option {name}")
        setattr(own, name, value)
    backend = _C.Backend(store, rank, world_size, own)
    return group_of(backend, store, {torch.device(device).type, "cpu"})


def register(names: list) -> None:
    """Under these names; where PyTorch has a backend of that name, in its place."""
    try:
        from torch.distributed import _dist2
    except ImportError:
        return
    for name in names:
        _dist2._BACKENDS[name] = functools.partial(create, name)
