# SPDX-License-Identifier: BSD-3-Clause
"""Where ranks meet beside the calls that are tested: by the store, and in groups of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

LARGE = 500_003  # elements: a call that takes a while
PATIENCE = 30.0


def group_of_all(timeout: float = 60.0) -> Any:
    """A group that a test may number, time or break."""
    return dist.new_group(timeout=timedelta(seconds=timeout))


def store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


def meet(name: str, rank: int, n: int) -> None:
    """All ranks come here, by the store and not by a collective."""
    store().set(f"{name}/{rank}", "here")
    store().wait([f"{name}/{r}" for r in range(n)])
