# SPDX-License-Identifier: BSD-3-Clause
"""Makes the backend known to torch.distributed: by its name, as the default of devices, and in place of others. All
versions of PyTorch create every group through one function; ours stands before it, for gloo can not be registered anew
before 2.14, and some versions do not find the backend of a group again that several devices share."""

import contextlib
import functools
import multiprocessing.util
import os
import threading
from typing import Dict, Iterator, Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import tutti_torch_autoload
from tutti_torch_autoload import DEVICES, NAME

from . import _C, patches, stand_ins, variables

# How a group's own backend is called that this thread is making: "tutti", or what it replaces.
making = threading.local()


def devices() -> list:
    """All device types whose tensors can be given to tutti."""
    name = torch._C._get_privateuse1_backend_name()
    return [*DEVICES, name] if name != "privateuseone" or hasattr(torch, name) else list(DEVICES)


def end_program() -> None:
    """Ends the groups while Python is still there. First come the threads that Python waits for: they may use them. It
    has waited already, unless this is a process of multiprocessing, where it does so later."""
    try:
        threading._shutdown()
    finally:
        _C.end_program()


@functools.lru_cache(maxsize=None)
def end_with_process(pid: int) -> None:
    """Forked processes of multiprocessing do not call what is registered with atexit; all call this."""
    multiprocessing.util.Finalize(None, end_program, exitpriority=100)


def create(group, options) -> _C.Backend:
    """What torch.distributed calls on each member of a new group (its extended API)."""
    end_with_process(os.getpid())
    own = stand_ins.carried(options, group.timeout, getattr(making, "name", NAME))
    if hasattr(own, "group_name"):  # from 2.9 on
        own.group_name = group.group_id
        own.global_ranks_in_group = group.global_ranks_in_group
    return _C.Backend(group.store, group.group_rank, group.group_size, own)


def register() -> None:
    """Registers the name, and does what the variables ask for."""
    defaults, replaced = variables.default_devices(), variables.replaced_backends()
    tutti_torch_autoload.announce()
    c10d._new_process_group_helper = new_group(c10d._new_process_group_helper, replaced)
    for name, method in (("_shutdown_backend", "shutdown"), ("_abort_backend", "abort")):
        if hasattr(c10d, name):
            setattr(c10d, name, reaching_tutti(getattr(c10d, name), method))
    dist.Backend.default_device_backend_map.update(dict.fromkeys(defaults, NAME))


def reaching_tutti(original, method: str):
    """Before 2.8, PyTorch ends the groups of nccl alone by a call; the others when nobody holds them any more."""

    @functools.wraps(original)
    def run(group: dist.ProcessGroup) -> None:
        original(group)
        for backend in patches.tutti_backends(group):
            getattr(backend, method)()

    return run


# ---- groups ----


def is_there(device: str) -> bool:
    """Whether this machine has such a device."""
    return device == "cpu" or (hasattr(torch, device) and torch.get_device_module(device).is_available())


def backends_asked(backend: str) -> Dict[str, str]:
    """By device type, as PyTorch reads the name."""
    return dict(c10d.BackendConfig(dist.Backend(backend)).get_device_backend_map())


def stand_in(asked: Dict[str, str], replaced: list) -> Dict[str, str]:
    """The same with tutti in place of what it replaces, for the tensors that it does that for: gloo's of the CPU,
    nccl's of "cuda", xccl's of "xpu". Other devices keep what was asked for; where they are absent it would only cost
    time. Without an accelerator, groups of nccl and xccl serve the CPU: so their programs can be tried there."""
    taken = {device: NAME for device, name in asked.items()
             if name in replaced and variables.REPLACEABLE[name] == device}  # fmt: skip
    if not taken:
        return asked
    if "cpu" not in asked and not any(map(is_there, taken)):
        taken["cpu"] = NAME
    kept = {device: name for device, name in asked.items() if name not in replaced or is_there(device)}
    return {**kept, **taken}


def main_device(served: Dict[str, str], bound: Optional[torch.device] = None) -> str:
    """The device with the backend that answers for the group as a whole: the accelerator, if it has one."""
    wanted = [bound.type] if bound is not None else []
    wanted += [device for device in served if device != "cpu" and is_there(device)] + ["cpu"]
    return next((device for device in wanted if device in served), next(iter(served)))


def default_type(group: dist.ProcessGroup, served: Dict[str, str]) -> dist.ProcessGroup.BackendType:
    """Before 2.14, PyTorch takes a group that is not asked for by one name for gloo's, or for nobody's."""
    return dist.Backend.backend_type_map[served[main_device(served, group.bound_device_id)]]


@contextlib.contextmanager
def named(asked: Dict[str, str], served: Dict[str, str]) -> Iterator[None]:
    """While a group is made: its backend of tutti's is called what the program called it."""
    ours = {device: name for device, name in asked.items() if served.get(device) == NAME}
    making.name = ours[main_device(ours)] if ours else NAME
    try:
        yield
    finally:
        making.name = NAME


def show_as(group: dist.ProcessGroup, group_store, backend: str) -> None:
    """A group in which tutti stands in for another: programs are told what they said. Its type stays: what PyTorch
    takes for gloo's, it casts to gloo's class."""
    c10d._world.pg_map[group] = (backend, group_store)
    c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(dist.Backend(backend)))


def new_group(original, replaced: list):
    """What stands before PyTorch's function that creates a group, on its members and on the other ranks."""

    @functools.wraps(original)
    def create_group(group_size, group_rank, global_ranks_in_group, backend, store, *args, **options):
        dist.Backend.backend_capability[NAME] = devices()
        asked = backends_asked(backend)
        served = stand_in(asked, replaced)
        given = backend if served == asked else ",".join(f"{device}:{name}" for device, name in served.items())
        try:
            with named(asked, served):
                group, group_store = original(group_size, group_rank, global_ranks_in_group, given, store, *args,
                                              **options)
        except BaseException:
            if not dist.is_initialized():
                c10d._world.group_count = 0  # names are counted: those of the next world are the other ranks' again
            raise
        if isinstance(group, dist.ProcessGroup) and (NAME in served.values() or group.name() == "undefined"):
            group._set_default_backend(default_type(group, served))
            if served != asked:
                show_as(group, group_store, backend)
        return group, group_store

    return create_group
