# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch asks for the name of a backend in places where it means an ability, and knows the names of its own only.
Some of these questions, most of them gone in 2.14, stand in the way of what tutti can do: each function here stands
before PyTorch's, answers for groups that tutti serves, and hands every other group on."""

import functools
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ._C import Backend

type_of = dist.ProcessGroup.name  # "custom" for what is not PyTorch's own


def backends_of(group: Optional[dist.ProcessGroup]) -> list:
    """The backends that serve the group, each once; none for a group that this rank is not in."""
    group = c10d._get_default_group() if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        return []
    found = [group._get_backend(device) for device in group._device_types]
    found = [getattr(backend, "wrapped_pg", backend) for backend in found]  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return list({id(backend): backend for backend in found}.values())


def tutti_backends(group: Optional[dist.ProcessGroup]) -> list:
    """Not those that torchcomms has around ours: what they can is torchcomms' matter."""
    return [backend for backend in backends_of(group) if isinstance(backend, Backend)]


def shown_name(group: dist.ProcessGroup) -> str:
    """What programs are told that serves the group's CPU tensors: gloo's name where tutti stands in for it."""
    served = dict(pair.split(":") for pair in c10d._world.pg_backend_config.get(group, "").split(",") if ":" in pair)
    return served.get("cpu", "tutti")


def get_name(original):
    @functools.wraps(original)
    def run(group):
        name = original(group)
        replaced = name == "custom" and shown_name(group) != "tutti" and tutti_backends(group)
        return shown_name(group) if replaced else name

    return run


def monitored_barrier(original):
    @functools.wraps(original)
    def run(group=dist.group.WORLD, timeout=None, wait_all_ranks=False):
        if c10d._rank_not_in_group(group) or not tutti_backends(group):
            return original(group, timeout, wait_all_ranks)
        if timeout is None:
            timeout = c10d._get_default_timeout(c10d.get_backend(group))
        elif isinstance(timeout, float):
            timeout = timedelta(seconds=timeout)
        c10d._check_valid_timeout(timeout)
        return (group or c10d._get_default_group()).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    return run


def set_pg_timeout(original):
    @functools.wraps(original)
    def run(timeout, group=None):
        ours = [] if c10d._rank_not_in_group(group) else tutti_backends(group)
        for backend in ours:
            backend._set_default_timeout(timeout)
        if not ours or len(ours) < len(backends_of(group)):
            original(timeout, group)

    return run


def get_sequence_number(original):
    @functools.wraps(original)
    def run(group):
        ours = tutti_backends(group) if type_of(group) == "custom" else []
        return ours[0]._get_sequence_number_for_group() if ours else original(group)

    return run


def get_ddp_logging_data(original):
    @functools.wraps(original)
    def run(model):
        data = original(model)
        if data.get("backend_name") == "custom" and tutti_backends(model.process_group):
            data["backend_name"] = shown_name(model.process_group)
        return data

    return run


# What is wrapped: where it is, its name there, by what.
ALWAYS = (
    (dist.ProcessGroup, "name", get_name),
    (dist.ProcessGroup, "_get_backend_name", get_name),
    (torch.nn.parallel.DistributedDataParallel, "_get_ddp_logging_data", get_ddp_logging_data),
)
BEFORE_2_14 = (
    (dist, "monitored_barrier", monitored_barrier),
    (c10d, "monitored_barrier", monitored_barrier),
    (c10d, "_set_pg_timeout", set_pg_timeout),
    (dist.ProcessGroup, "_get_sequence_number_for_group", get_sequence_number),
)


@functools.lru_cache(maxsize=None)
def answer() -> None:
    """Puts the functions in place, once, as this version of PyTorch needs them."""
    for place, name, wrap in ALWAYS + (() if hasattr(dist, "set_timeout") else BEFORE_2_14):
        setattr(place, name, wrap(getattr(place, name)))
