# SPDX-License-Identifier: BSD-3-Clause
"""Collectives for torch.compile (fullgraph=True) and autograd, in two forms:

functions (functional.all_reduce(comm, tensor, op) -> tensor), which are always there, and the methods of TorchComm
themselves (comm.all_reduce(tensor, op, async_op=False)), after enable(), or with TORCHCOMMS_PATCH_FOR_COMPILE=1 in the
environment when tutti_torch.comms is imported. Both become operators of torch.ops.tutti_comms (ops.py)."""

from __future__ import annotations

import os
from typing import Optional

from . import async_tensor
from .calls import (
    all_gather,
    all_gather_single,
    all_gather_v,
    all_reduce,
    all_to_all,
    all_to_all_single,
    all_to_all_v_single,
    barrier,
    batch_send_recv,
    broadcast,
    gather,
    gather_single,
    get,
    map_remote_tensor,
    put,
    put_signal,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_v,
    scatter,
    send,
    signal,
    wait_signal,
)
from .methods import enable
from .ops import is_torch_compile_supported

__all__ = [
    "all_gather",
    "all_gather_single",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_v_single",
    "async_tensor",
    "barrier",
    "batch_send_recv",
    "broadcast",
    "enable",
    "gather",
    "gather_single",
    "get",
    "map_remote_tensor",
    "put",
    "put_signal",
    "is_torch_compile_supported",
    "is_torch_compile_supported_and_enabled",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_v",
    "scatter",
    "send",
    "signal",
    "wait_signal",
]


def is_torch_compile_supported_and_enabled(_current_version: Optional[str] = None) -> bool:
    return is_torch_compile_supported(_current_version) and os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE") == "1"
