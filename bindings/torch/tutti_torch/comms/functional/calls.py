# SPDX-License-Identifier: BSD-3-Clause
"""The collectives as functions: (comm, what goes in) -> what comes out, in new tensors, with gradients. They work in
plain programs and in those that torch.compile traces.

`op` is a ReduceOp. A call's gradient is that of the sum of all ranks' losses, and its backward is a call of all ranks:
so either all ranks' tensors require grad, or none, and each rank's loss uses what the rank got. Where a rank gets
nothing (gather, on ranks but the root), it gets empty tensors for that; where it gives nothing (scatter), the tensor
`like` stands for what it would have given."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ..known import facts, reduction, window_facts
from . import ops

if TYPE_CHECKING:
    from .. import ReduceOp, TorchComm, TorchCommWindow

Hints = Optional[Dict[str, str]]


def milliseconds(timeout: Optional[timedelta]) -> int:
    """In words that a compiler can follow."""
    if timeout is None:
        return 0
    return timeout.days * 86_400_000 + timeout.seconds * 1000 + timeout.microseconds // 1000


def arguments(
    comm: TorchComm,
    tensor: Tensor,
    counts: List[int],
    op: str = "SUM",
    peer: int = -1,
    splits: Sequence[int] = (),
    hints: Hints = None,
    timeout: Optional[timedelta] = None,
) -> ops.Args:
    flat = [word for pair in (hints or {}).items() for word in pair]
    return ops.Args(
        counts, tensor.dtype, tensor.device, facts(comm).key, op, peer, list(splits), flat, milliseconds(timeout)
    )


class Plan(NamedTuple):
    """A call: the operator, what it is given, and the shapes of its results."""

    name: str
    inputs: List[Tensor]
    shapes: List[Tuple[int, ...]]
    args: ops.Args

    def run(self) -> List[Tensor]:
        return self.shaped(ops.traced(self.name, self.inputs, self.args))

    def begin(self) -> Tensor:
        return torch.ops.tutti_comms.begin(self.name, [tensor.detach() for tensor in self.inputs], *self.args)

    def end(self, ticket: Tensor) -> List[Tensor]:
        return self.shaped(ops.traced(self.name, self.inputs, self.args, ticket))

    def shaped(self, flat: List[Tensor]) -> List[Tensor]:
        return [tensor.view(shape) for tensor, shape in zip(flat, self.shapes)]


def plan(
    comm: TorchComm,
    name: str,
    inputs: List[Tensor],
    shapes: Sequence[Sequence[int]],
    like: Optional[Tensor] = None,
    **more: Any,
) -> Plan:
    """`like` says type and device where there is no input."""
    sizes = [tuple(shape) for shape in shapes]
    counts = [numel(shape) for shape in sizes]
    return Plan(name, inputs, sizes, arguments(comm, inputs[0] if like is None else like, counts, **more))


def numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count = count * size
    return count


def rows(shape: Sequence[int], n: int) -> Tuple[int, ...]:
    return (n, *shape[1:]) if len(shape) else (n,)


def reducing(
    comm: TorchComm, name: str, inputs: List[Tensor], op: ReduceOp, shapes: Sequence[Sequence[int]], **more: Any
) -> Plan:
    """PREMUL_SUM is a product and a sum, so that the factor has a gradient, too."""
    known = reduction(op)
    if known.name == "PREMUL_SUM":
        inputs = [(tensor * known.factor).to(tensor.dtype) for tensor in inputs]
        return plan(comm, name, inputs, shapes, op="SUM", **more)
    return plan(comm, name, inputs, shapes, op=known.name, **more)


# ---- of one tensor ----


def all_reduce(comm: TorchComm, tensor: Tensor, op: ReduceOp, **how: Any) -> Tensor:
    return reducing(comm, "all_reduce", [tensor], op, [tensor.shape], **how).run()[0]


def reduce(comm: TorchComm, tensor: Tensor, root: int, op: ReduceOp, **how: Any) -> Tensor:
    """On the other ranks, what they gave."""
    (result,) = reducing(comm, "reduce", [tensor], op, [tensor.shape], peer=root, **how).run()
    if reduction(op).name == "PREMUL_SUM" and facts(comm).rank != root:
        return result / reduction(op).factor
    return result


def broadcast(comm: TorchComm, tensor: Tensor, root: int, **how: Any) -> Tensor:
    return plan(comm, "broadcast", [tensor], [tensor.shape], peer=root, **how).run()[0]


# ---- from one tensor to many, or to a large one ----


def all_gather(comm: TorchComm, tensor: Tensor, **how: Any) -> List[Tensor]:
    return plan(comm, "all_gather", [tensor], [tensor.shape] * facts(comm).size, **how).run()


def all_gather_v(comm: TorchComm, tensor: Tensor, shapes: Sequence[Sequence[int]], **how: Any) -> List[Tensor]:
    """`shapes`: of each rank's tensor."""
    return plan(comm, "all_gather_v", [tensor], shapes, **how).run()


def all_gather_single(comm: TorchComm, input: Tensor, **how: Any) -> Tensor:
    """One after the other along the first dimension."""
    first = input.shape[0] if input.dim() else 1
    shape = rows(input.shape, first * facts(comm).size)
    return plan(comm, "all_gather_single", [input], [shape], **how).run()[0]


def gather(comm: TorchComm, input: Tensor, root: int, **how: Any) -> List[Tensor]:
    """On the other ranks empty tensors, through which their gradient comes."""
    known = facts(comm)
    shape = input.shape if known.rank == root else (0,)
    return plan(comm, "gather", [input], [shape] * known.size, peer=root, **how).run()


def gather_single(comm: TorchComm, input: Tensor, root: int, **how: Any) -> Tensor:
    """On the other ranks an empty tensor."""
    known = facts(comm)
    first = input.shape[0] if input.dim() else 1
    shape = rows(input.shape, first * known.size if known.rank == root else 0)
    return plan(comm, "gather_single", [input], [shape], peer=root, **how).run()[0]


# ---- from many, or a large one, to one ----


def reduce_scatter(comm: TorchComm, input_list: List[Tensor], op: ReduceOp, **how: Any) -> Tensor:
    return reducing(comm, "reduce_scatter", input_list, op, [input_list[0].shape], **how).run()[0]


def reduce_scatter_v(comm: TorchComm, input_list: List[Tensor], op: ReduceOp, **how: Any) -> Tensor:
    """Block r of the list, of any shape, is reduced to rank r."""
    shape = input_list[facts(comm).rank].shape
    return reducing(comm, "reduce_scatter_v", input_list, op, [shape], **how).run()[0]


def reduce_scatter_single(comm: TorchComm, input: Tensor, op: ReduceOp, **how: Any) -> Tensor:
    """`input` is as many blocks along its first dimension as there are ranks."""
    shape = rows(input.shape, input.shape[0] // facts(comm).size)
    return reducing(comm, "reduce_scatter_single", [input], op, [shape], **how).run()[0]


def scatter(
    comm: TorchComm, input_list: Optional[List[Tensor]], root: int, like: Optional[Tensor] = None, **how: Any
) -> Tensor:
    """The root gives a tensor for each rank; the others give `like`, a tensor of the shape and type that they get."""
    if facts(comm).rank == root:
        assert input_list is not None, "the root of a scatter gives a list"
        return plan(comm, "scatter", input_list, [input_list[root].shape], peer=root, **how).run()[0]
    assert like is not None, "a rank that is not the root of a scatter gives `like`"
    return plan(comm, "scatter", [like], [like.shape], peer=root, **how).run()[0]


# ---- from many to many ----


def all_to_all(
    comm: TorchComm, input_list: List[Tensor], shapes: Optional[Sequence[Sequence[int]]] = None, **how: Any
) -> List[Tensor]:
    """`shapes`: of what each rank sends to this one; if not given, those of what it is sent."""
    return plan(comm, "all_to_all", input_list, shapes or [tensor.shape for tensor in input_list], **how).run()


def all_to_all_single(comm: TorchComm, input: Tensor, **how: Any) -> Tensor:
    return plan(comm, "all_to_all_single", [input], [input.shape], **how).run()[0]


def all_to_all_v_single(
    comm: TorchComm, input: Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], **how: Any
) -> Tensor:
    """Splits are rows of the first dimension."""
    row = numel(input.shape[1:])
    splits = [size * row for size in (*input_split_sizes, *output_split_sizes)]
    total = 0
    for size in output_split_sizes:
        total = total + size
    return plan(comm, "all_to_all_v_single", [input], [rows(input.shape, total)], splits=splits, **how).run()[0]


# ---- without gradient ----


def barrier(comm: TorchComm, **how: Any) -> None:
    device = facts(comm).device
    plan(comm, "barrier", [], [(0,)], like=torch.empty(0, device=device), **how).run()


def send(comm: TorchComm, tensor: Tensor, dst: int, **how: Any) -> None:
    plan(comm, "send", [tensor.detach()], [(0,)], peer=dst, **how).run()


def recv(comm: TorchComm, like: Tensor, src: int, **how: Any) -> Tensor:
    """A tensor of the shape and type of `like`."""
    return plan(comm, "recv", [], [like.shape], like=like, peer=src, **how).run()[0]


def batch_send_recv(
    comm: TorchComm, sends: Sequence[Tuple[Tensor, int]], recvs: Sequence[Tuple[Tensor, int]]
) -> List[Tensor]:
    """Tensors with whom they go to; tensors like those that come, with whom they come from. All are of one type. They
    begin together, so that what crosses does not wait for one another."""
    return batch_plan(comm, sends, recvs).run()[: len(recvs)]


def batch_plan(comm: TorchComm, sends: Sequence[Tuple[Tensor, int]], recvs: Sequence[Tuple[Tensor, int]]) -> Plan:
    inputs = [tensor.detach() for tensor, _ in sends]
    peers = [peer for _, peer in sends] + [peer for _, peer in recvs]
    like = inputs[0] if inputs else recvs[0][0]
    shapes = [tensor.shape for tensor, _ in recvs]
    return plan(comm, "batch", inputs, shapes or [(0,)], like=like, splits=peers)


# ---- on windows; without gradient ----


def window_plan(
    window: TorchCommWindow,
    name: str,
    inputs: List[Tensor],
    shape: Sequence[int] = (0,),
    peer: int = -1,
    offset: int = 0,
    hints: Hints = None,
    timeout: Optional[timedelta] = None,
) -> Plan:
    known = window_facts(window)
    flat = [word for pair in (hints or {}).items() for word in pair]
    device = inputs[0].device if inputs else known.device
    args = ops.Args(
        [numel(shape)], known.dtype, device, known.key, "SUM", peer, [offset], flat, milliseconds(timeout)
    )
    return Plan(name, [tensor.detach() for tensor in inputs], [tuple(shape)], args)


def put(window: TorchCommWindow, tensor: Tensor, dst_rank: int, target_offset_nelems: int, **how: Any) -> None:
    window_plan(window, "put", [tensor], peer=dst_rank, offset=target_offset_nelems, **how).run()


def put_signal(window: TorchCommWindow, tensor: Tensor, dst_rank: int, target_offset_nelems: int, **how: Any) -> None:
    window_plan(window, "put_signal", [tensor], peer=dst_rank, offset=target_offset_nelems, **how).run()


def get(
    window: TorchCommWindow, shape: Sequence[int], src_rank: int, source_offset_nelems: int, **how: Any
) -> Tensor:
    """A tensor of this shape: what is in the part of src_rank now, which may be this rank."""
    return window_plan(window, "get", [], shape, peer=src_rank, offset=source_offset_nelems, **how).run()[0]


def signal(window: TorchCommWindow, peer_rank: int, **how: Any) -> None:
    window_plan(window, "signal", [], peer=peer_rank, **how).run()


def wait_signal(window: TorchCommWindow, peer_rank: int, **how: Any) -> None:
    window_plan(window, "wait_signal", [], peer=peer_rank, **how).run()


def map_remote_tensor(window: TorchCommWindow, rank: int) -> Tensor:
    """A copy of the rank's part as it is now."""
    return window_plan(window, "map_remote_tensor", [], window_facts(window).shape, peer=rank).run()[0]
