# SPDX-License-Identifier: BSD-3-Clause
"""Methods of TorchComm beyond torchcomms' own, without tensors that callers do not care for."""

import torch

from .._C import comms as _comms


def _status(beside):
    return torch.zeros(1, dtype=torch.int32, device=beside.device)


def all_to_all_v_dynamic(self, output, input, output_split_sizes, input_split_sizes, async_op, hints=None, timeout=None,
                         status=None):
    """all_to_all_v_single whose receivers do not know how much comes: `input_split_sizes` (int64, rows of dimension 0
    for each rank) is a tensor beside `input`, and so is `output_split_sizes`, which becomes the rows from each rank,
    packed in `output`. On CUDA nothing waits for the host, and the call can be captured. Where something does not fit,
    nothing moves on any rank: `status`, one int32, becomes negative, and what the host sees raises an error."""
    return self._all_to_all_v_dynamic(
        output, input, output_split_sizes, input_split_sizes, _status(input) if status is None else status, async_op,
        hints, timeout,
    )


def device_alltoallv_single(self, output, input, output_split_sizes, input_split_sizes, async_op):
    """As torchcomms' backend ncclx has it; here output_split_sizes is written, whatever it was."""
    return self.all_to_all_v_dynamic(output, input, output_split_sizes, input_split_sizes, async_op)


def all_reduce_sparse_block(self, output, values, indices, op, async_op, hints=None, timeout=None, status=None):
    """output becomes the reduction (sum, avg) of what all ranks bring: block i of `values` belongs to block indices[i]
    of `output`, both of the size that values.numel() / indices.numel() is; what repeats is added, the rest is 0. A
    wrong index is an error on all ranks; on CUDA `status`, one int32, becomes negative instead."""
    return self._all_reduce_sparse_block(
        output, values, indices, op, _status(output) if status is None else status, async_op, hints, timeout
    )


for method in (all_to_all_v_dynamic, device_alltoallv_single, all_reduce_sparse_block):
    setattr(_comms.TorchComm, method.__name__, method)
