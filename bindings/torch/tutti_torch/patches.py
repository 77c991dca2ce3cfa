# SPDX-License-Identifier: BSD-3-Clause
"""What stands before functions of PyTorch, for groups that tutti serves; every other group is handed on.

Names: PyTorch asks for the name of a backend in places where it means an ability, and knows the names of its own only.
Most of these questions are gone in 2.14.
Regions: PyTorch ends a coalesced region only when its block ends well. After an error each further call on the group
would join the region that nobody ends, and never start: here the region is dropped, and the group goes on.
Futures: a wait in C++ keeps Python's signal handlers waiting, too. Here the main thread waits in Python.
split_group: PyTorch asks for an accelerator, where it means a backend that can split."""

import contextlib
import functools
import hashlib
import threading
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import stand_ins
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
    """What programs are told that serves the group: the name that they said, where tutti stands in for it."""
    return next((backend.options.backend for backend in tutti_backends(group)), "tutti")


def get_name(original):
    @functools.wraps(original)
    def run(group):
        name = original(group)
        shown = shown_name(group) if name == "custom" else "tutti"
        return name if shown == "tutti" else shown

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


# ---- regions ----


def coalescing_manager(original):
    @contextlib.contextmanager
    @functools.wraps(original)
    def run(group=None, device=None, async_ops=False):
        group = group or c10d._get_default_group()
        try:
            with original(group, device, async_ops) as manager:
                yield manager
        except BaseException:
            drop(group)
            raise

    return run


def drop(group) -> None:
    ours = tutti_backends(group)
    if ours:
        c10d._world.pg_coalesce_state.pop(group, None)
    for backend in ours:
        backend._drop_coalescing()


# ---- futures ----


def wait_of_future(original):
    @functools.wraps(original)
    def wait(self):
        if not self.done() and threading.current_thread() is threading.main_thread():
            over = threading.Event()
            self.add_done_callback(lambda _: over.set())
            over.wait()
        return original(self)

    return wait


# ---- split_group ----


def split_group(original):
    @functools.wraps(original)
    def run(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **others):
        parent = parent_pg or c10d._get_default_group()
        ours = tutti_backends(parent)
        said = (None, "tutti", *c10d._world.pg_map.get(parent, ())[:1], c10d._world.pg_backend_config.get(parent))
        if others.get("backend") not in said:
            ours = []  # some of the parent's backends, or others
        if ours and pg_options is not None:
            pg_options = stand_ins.carried(pg_options, ours[0].options._timeout, ours[0].options.backend)
        if torch.accelerator.is_available() or not ours or len(ours) < len(backends_of(parent)):
            return original(parent_pg, split_ranks, timeout, pg_options, group_desc, **others)
        members = own_part(parent, split_ranks)
        if timeout is None:
            timeout = c10d._get_default_timeout(c10d.get_backend(parent))
        c10d._check_valid_timeout(timeout)
        return members and split(parent, members, timeout, pg_options, group_desc)

    return run


def own_part(parent, split_ranks):
    """The ranks of the group that this rank will be in, None if it will be in none."""
    if not split_ranks:
        raise ValueError("split_group: split_ranks cannot be None or empty")
    if parent not in c10d._world.pg_group_ranks:
        raise ValueError(f"split_group: group {parent} is not registered")
    seen = [rank for part in split_ranks for rank in part]
    if not all(split_ranks) or len(seen) != len(set(seen)) or not set(seen) <= set(range(parent.size())):
        raise ValueError("split_group: split_ranks must be non-empty lists of different ranks of the parent group, "
                         f"which has {parent.size()}: {split_ranks}")
    return next((sorted(part) for part in split_ranks if parent.rank() in part), None)


def split(parent, members, timeout, pg_options, group_desc):
    # c10d's own names count the groups that a rank is in, so those of members may differ.
    nth = tutti_backends(parent)[0]._n_splits(members)
    name = hashlib.sha1(f"{parent.group_name} {members} {nth}".encode(), usedforsecurity=False).hexdigest()
    child = parent.split_group(members, timeout=timeout, opts=pg_options, group_name=name, group_desc=group_desc)
    backend = c10d._world.pg_map[parent][0]
    c10d._register_pg_in_world(
        child,
        backend_name=backend,
        store=child.get_group_store(),
        group_name=name,
        backend_config=str(c10d.BackendConfig(backend)),
        rank_mapping={dist.get_global_rank(parent, rank): place for place, rank in enumerate(members)},
    )
    return child


# What is wrapped: where it is, its name there, by what.
ALWAYS = (
    (dist.ProcessGroup, "name", get_name),
    (dist.ProcessGroup, "_get_backend_name", get_name),
    (torch.nn.parallel.DistributedDataParallel, "_get_ddp_logging_data", get_ddp_logging_data),
    (dist, "_coalescing_manager", coalescing_manager),
    (c10d, "_coalescing_manager", coalescing_manager),
    (torch._C.Future, "wait", wait_of_future),
)
BEFORE_2_14 = (
    (dist, "monitored_barrier", monitored_barrier),
    (c10d, "monitored_barrier", monitored_barrier),
    (c10d, "_set_pg_timeout", set_pg_timeout),
    (dist.ProcessGroup, "_get_sequence_number_for_group", get_sequence_number),
)
CAN_BE_SPLIT = ((dist, "split_group", split_group), (c10d, "split_group", split_group))


@functools.lru_cache(maxsize=None)
def put() -> None:
    """Puts the functions in place, once, as this version of PyTorch needs them."""
    wanted = ALWAYS + (() if hasattr(dist, "set_timeout") else BEFORE_2_14)
    if hasattr(c10d, "split_group") and hasattr(c10d, "_register_pg_in_world"):
        wanted += CAN_BE_SPLIT
    for place, name, wrap in wanted:
        setattr(place, name, wrap(getattr(place, name)))
