# SPDX-License-Identifier: BSD-3-Clause
# What hooks are told of calls; of tutti_torch.comms, for type checkers alone.
from typing import Generic, List, Optional, TypeVar

from torch import Tensor

from . import ReduceOp, TorchComm, TorchCommWindow, TorchWork

_In = TypeVar("_In")
_Out = TypeVar("_Out")

class _Message:
    tensor: Tensor
    peer: int
    async_op: bool

class _Between(Generic[_In, _Out]):
    input: _In
    output: _Out
    async_op: bool

class SendPreHookArgs(_Message): ...
class RecvPreHookArgs(_Message): ...

class BroadcastPreHookArgs:
    tensor: Tensor
    root: int
    async_op: bool

class AllReducePreHookArgs:
    tensor: Tensor
    op: ReduceOp
    async_op: bool

class ReducePreHookArgs:
    tensor: Tensor
    root: int
    op: ReduceOp
    async_op: bool

class AllGatherPreHookArgs(_Between[Tensor, List[Tensor]]): ...
class AllGatherVPreHookArgs(_Between[Tensor, List[Tensor]]): ...
class AllGatherSinglePreHookArgs(_Between[Tensor, Tensor]): ...

class ReduceScatterPreHookArgs(_Between[List[Tensor], Tensor]):
    op: ReduceOp

class ReduceScatterVPreHookArgs(_Between[List[Tensor], Tensor]):
    op: ReduceOp

class ReduceScatterSinglePreHookArgs(_Between[Tensor, Tensor]):
    op: ReduceOp

class AllToAllSinglePreHookArgs(_Between[Tensor, Tensor]): ...

class AllToAllVSinglePreHookArgs(_Between[Tensor, Tensor]):
    input_split_sizes: List[int]
    output_split_sizes: List[int]

class AllToAllPreHookArgs(_Between[List[Tensor], List[Tensor]]): ...

class BarrierPreHookArgs:
    async_op: bool

class ScatterPreHookArgs(_Between[List[Tensor], Tensor]):
    root: int

class GatherPreHookArgs(_Between[Tensor, List[Tensor]]):
    root: int

class GatherSinglePreHookArgs(_Between[Tensor, Tensor]):
    root: int

class SplitPreHookArgs:
    ranks: List[int]
    name: str

class NewWindowPreHookArgs: ...

class BatchOpIssuePreHookArgs:
    num_ops: int
    async_op: bool

class FinalizePreHookArgs: ...

class CollectivePostHookArgs:
    work: Optional[TorchWork]

class SendPostHookArgs(CollectivePostHookArgs): ...
class RecvPostHookArgs(CollectivePostHookArgs): ...
class BroadcastPostHookArgs(CollectivePostHookArgs): ...
class AllReducePostHookArgs(CollectivePostHookArgs): ...
class ReducePostHookArgs(CollectivePostHookArgs): ...
class AllGatherPostHookArgs(CollectivePostHookArgs): ...
class AllGatherVPostHookArgs(CollectivePostHookArgs): ...
class AllGatherSinglePostHookArgs(CollectivePostHookArgs): ...
class ReduceScatterPostHookArgs(CollectivePostHookArgs): ...
class ReduceScatterVPostHookArgs(CollectivePostHookArgs): ...
class ReduceScatterSinglePostHookArgs(CollectivePostHookArgs): ...
class AllToAllSinglePostHookArgs(CollectivePostHookArgs): ...
class AllToAllVSinglePostHookArgs(CollectivePostHookArgs): ...
class AllToAllPostHookArgs(CollectivePostHookArgs): ...
class BarrierPostHookArgs(CollectivePostHookArgs): ...
class ScatterPostHookArgs(CollectivePostHookArgs): ...
class GatherPostHookArgs(CollectivePostHookArgs): ...
class GatherSinglePostHookArgs(CollectivePostHookArgs): ...
class BatchOpIssuePostHookArgs(CollectivePostHookArgs): ...

class SplitPostHookArgs:
    new_comm: Optional[TorchComm]

class NewWindowPostHookArgs:
    new_window: Optional[TorchCommWindow]

class FinalizePostHookArgs: ...
