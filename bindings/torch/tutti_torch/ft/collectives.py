# SPDX-License-Identifier: BSD-3-Clause
"""Reductions whose data travels in fewer bits: torchft's interface, on CPUs and CUDA, without Triton. What happens, and
how large the error is: docs/quantized.md of the source tree. The process group is one of tutti."""

from __future__ import annotations

from typing import List, Optional, Tuple, Union

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    ReduceScatterOptions,
    Work,
)

from .. import _C
from .process_group import ProcessGroup
from .utils import get_stream_context

WIRE = "float8_e4m3"  # float8 with a scale for each block of 256 elements
OPERATIONS = (ReduceOp.SUM, ReduceOp.AVG)


def can_quantize(process_group: ProcessGroup) -> bool:
    """Whether it is one of tutti: other backends would send all bits."""
    return process_group.getBackendName() == "tutti"


def _check(call: str, process_group: ProcessGroup, tensors: List[torch.Tensor], op: ReduceOp) -> None:
    if not can_quantize(process_group):
        name = process_group.getBackendName()
        raise ValueError(f"{call}: process_group is of the backend {name}; quantised reductions are tutti's")
    if not any(op == operation for operation in OPERATIONS):  # `in` asks the other one, which does not know
        raise NotImplementedError(f"{call}: opts asks for {op}; quantised reductions are SUM and AVG")
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype or tensor.device != tensors[0].device:
            raise ValueError(f"{call}: tensors are of one type on one device, but some are {tensors[0].dtype} on "
                             f"{tensors[0].device} and some {tensor.dtype} on {tensor.device}")


def _operation(opts: Union[AllreduceOptions, ReduceScatterOptions, ReduceOp]) -> ReduceOp:
    return opts if isinstance(opts, (ReduceOp, ReduceOp.RedOpType)) else opts.reduceOp


def allreduce_quantized(
    tensors: List[torch.Tensor],
    opts: Union[AllreduceOptions, ReduceOp],
    process_group: ProcessGroup,
    sync_stream: Optional[torch.Stream] = None,
    wire: str = WIRE,
    seed: int = 0,
) -> Work:
    """Reduces each tensor in place, SUM or AVG; all ranks get the same bits. `wire`: bfloat16, float8_e4m3,
    float8_e5m2 or int8, equal on all ranks, as `seed` is: 0 rounds to nearest, another one stochastically. On an
    accelerator the call is in the order of sync_stream, or of the current stream."""
    operation = _operation(opts)
    _check("allreduce_quantized", process_group, tensors, operation)
    options = AllreduceCoalescedOptions()
    options.reduceOp = operation
    with get_stream_context(sync_stream), _C.Quantised(wire, seed=seed):
        return process_group.allreduce_coalesced(tensors, options)


def get_padded_sizes(tensors: List[torch.Tensor], world_size: int) -> List[torch.Size]:
    """With the rows of each tensor rounded up to a multiple of the ranks; rows of 1-D tensors have one element."""
    sizes = []
    for tensor in tensors:
        rows, *row = tensor.shape if tensor.dim() > 1 else (tensor.numel(), 1)
        sizes.append(torch.Size((-(-rows // world_size) * world_size, *row)))
    return sizes


def allocate_reduce_scatter_output(
    tensors: List[torch.Tensor], world_size: int
) -> Tuple[torch.Tensor, List[torch.Size]]:
    """Where reduce_scatter_quantized puts this rank's rows of each tensor, one after the other; the padded sizes."""
    sizes = get_padded_sizes(tensors, world_size)
    n = sum(size.numel() // world_size for size in sizes)
    return torch.empty(n, device=tensors[0].device, dtype=tensors[0].dtype), sizes


def _by_rank(tensors: List[torch.Tensor], world_size: int) -> torch.Tensor:
    """All tensors in one row: what rank 0 gets of each, what rank 1 gets, ..."""
    padded = []
    for tensor, size in zip(tensors, get_padded_sizes(tensors, world_size)):
        flat = tensor.reshape(-1)
        missing = size.numel() - flat.numel()
        padded.append(torch.nn.functional.pad(flat, (0, missing)).view(world_size, -1))
    return torch.cat(padded, dim=1).view(-1)


def reduce_scatter_quantized(
    output: torch.Tensor,
    inputs: List[torch.Tensor],
    opts: Union[ReduceScatterOptions, ReduceOp],
    process_group: ProcessGroup,
    sync_stream: Optional[torch.Stream] = None,
    wire: str = WIRE,
    seed: int = 0,
) -> Work:
    """This rank's rows of the reduction of each input, in `output` as allocate_reduce_scatter_output makes it. The rest
    as allreduce_quantized."""
    options = ReduceScatterOptions()
    options.reduceOp = _operation(opts)
    _check("reduce_scatter_quantized", process_group, [output, *inputs], options.reduceOp)
    with get_stream_context(sync_stream), _C.Quantised(wire, seed=seed):
        rows = _by_rank(inputs, process_group.size())
        return process_group.reduce_scatter_tensor_coalesced([output], [rows], options)
