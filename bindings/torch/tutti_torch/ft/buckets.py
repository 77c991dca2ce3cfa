# SPDX-License-Identifier: BSD-3-Clause
"""Many small tensors as few large ones."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Tuple

import torch
from torch.distributed.distributed_c10d import Work


def packed(tensors: Iterable[torch.Tensor], capacity: int) -> List[List[torch.Tensor]]:
    """Each tensor in one bucket, in order, with others of its type and device, up to so many bytes; one that is larger
    has a bucket of its own."""
    full: List[List[torch.Tensor]] = []
    filling: Dict[Tuple[torch.dtype, torch.device], Tuple[List[torch.Tensor], int]] = {}
    for tensor in tensors:
        kind, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        bucket, used = filling.get(kind, ([], 0))
        if bucket and used + size > capacity:
            full.append(bucket)
            bucket, used = [], 0
        filling[kind] = (bucket + [tensor], used + size)
    return full + [bucket for bucket, _ in filling.values()]


def reduce_packed(
    tensors: Iterable[torch.Tensor], capacity: int, reduce: Callable[[torch.Tensor], Work]
) -> List[Work]:
    """Starts the reductions; the tensors have their results when the works are over."""
    works = []
    for bucket in packed(tensors, capacity):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            works.append(reduce(bucket[0]))
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        work = reduce(flat)
        work.get_future().then(lambda _, flat=flat, bucket=bucket: unpack(flat, bucket))
        works.append(work)
    return works


def unpack(flat: torch.Tensor, bucket: List[torch.Tensor]) -> None:
    for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket])):
        tensor.copy_(part.view_as(tensor))
