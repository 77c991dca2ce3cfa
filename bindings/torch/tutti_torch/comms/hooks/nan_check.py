# SPDX-License-Identifier: BSD-3-Clause
"""A call whose tensors have a NaN is an error before it begins, on the rank that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from torch import Tensor

if TYPE_CHECKING:
    from .. import OpName, TorchComm

__all__ = ["NanCheckHook"]


class NanCheckHook:
    """check_inputs: what a call sends; check_outputs: what is in the memory that it writes, which is seldom wanted. The
    other ranks wait for the call that does not come, until their deadline."""

    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None:
        self._check_inputs, self._check_outputs = check_inputs, check_outputs
        self._comms = 0

    def register_with_comm(self, comm: TorchComm) -> None:
        name = comm.get_name()
        children = {}

        def before(op: OpName, op_id: int, args: Any) -> None:
            if self._check_inputs:
                check(tensors(args, "input", op.name), "input", op.name, name)
            if self._check_outputs:
                check(tensors(args, "output", op.name), "output", op.name, name)
            if op.name == "split":
                children[op_id] = True

        def after(op_id: int, args: Any) -> None:
            if children.pop(op_id, False) and args.new_comm is not None:
                self.register_with_comm(args.new_comm)

        comm.register_pre_hook(before)
        comm.register_post_hook(after)
        self._comms += 1

    def is_enabled(self) -> bool:
        """Whether it was registered with a communicator."""
        return self._comms > 0


def tensors(args: Any, side: str, op: str) -> List[Tensor]:
    """Those of one side of a call. A tensor that is both is checked with either."""
    if op == "batch_op_issue":
        return []
    if hasattr(args, "tensor"):
        wrong_side = {"send": "output", "recv": "input"}.get(op)
        return [] if side == wrong_side else [args.tensor]
    found = getattr(args, side, None)
    if found is None:
        return []
    return [found] if isinstance(found, Tensor) else list(found)


def check(given: List[Tensor], side: str, op: str, comm: str) -> None:
    for place, tensor in enumerate(given):
        if (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any()):
            which = f" {place} of {len(given)}" if len(given) > 1 else ""
            raise RuntimeError(f"NaN detected in {side} tensor{which} for '{op}' on comm '{comm}'")
