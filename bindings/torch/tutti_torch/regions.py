# SPDX-License-Identifier: BSD-3-Clause
"""Coalesced regions that an error leaves. PyTorch ends a region only when its block ends well: after an error (a tensor
that is refused, an exception of the user's) each further call on the group would join the region that nobody ends, and
never start. Here the region is dropped, with all that it has collected, and the group goes on."""

import contextlib
import functools

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .names import tutti_backends


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


@functools.lru_cache(maxsize=None)
def mend() -> None:
    """Puts the manager in place, once."""
    mended = coalescing_manager(c10d._coalescing_manager)
    for place in (dist, c10d):
        place._coalescing_manager = mended
