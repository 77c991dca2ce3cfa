# SPDX-License-Identifier: BSD-3-Clause
"""Large memory in large pages: touching it for the first time costs more than filling it."""

from __future__ import annotations

import mmap

import torch

LARGE = 8 << 20


def fresh(n_bytes: int) -> torch.Tensor:
    """Bytes with anything in them."""
    if n_bytes < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(n_bytes, dtype=torch.uint8)
    area = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=torch.uint8)
