# SPDX-License-Identifier: BSD-3-Clause
"""Makes the backend known to torch.distributed."""

import torch.distributed as dist

from . import _C

NAME = "tutti"
DEVICES = ["cpu", "cuda", "xpu"]


def create(group, options) -> _C.Backend:
    """What torch.distributed calls on each member of a new group (its extended API)."""
    if options is None:
        options = _C.Backend.Options()
    options._timeout = group.timeout
    return _C.Backend(group.store, group.group_rank, group.group_size, options)


def register() -> None:
    if not dist.is_backend_available(NAME):
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=DEVICES)
