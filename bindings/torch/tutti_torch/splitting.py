# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.split_group on machines without an accelerator. PyTorch asks for one, where it means a backend that
can split: tutti can, on CPUs too."""

import functools
import hashlib

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .names import backends_of, tutti_backends


def split_group(original):
    @functools.wraps(original)
    def run(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **others):
        parent = parent_pg or c10d._get_default_group()
        ours = tutti_backends(parent)
        if others.get("backend", "tutti") not in (None, "tutti", c10d._world.pg_backend_config.get(parent)):
            ours = []  # some of the parent's backends, or others
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


@functools.lru_cache(maxsize=None)
def enable() -> None:
    """Puts the function in place, once, in versions whose function can be helped."""
    if hasattr(c10d, "split_group") and hasattr(c10d, "_register_pg_in_world"):
        c10d.split_group = split_group(c10d.split_group)
        dist.split_group = c10d.split_group
