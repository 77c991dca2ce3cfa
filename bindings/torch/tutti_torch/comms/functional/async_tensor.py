# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of asynchronous calls that wait by themselves, and the operators that wait for lists of them, under
torchcomms' names."""

from __future__ import annotations

from typing import Any, List

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["TorchCommsAsyncTensor"]


class TorchCommsAsyncTensor(torch.Tensor):
    """What a call writes (`elem`), with the call's handle: what is done with it first waits for the call, and is done
    with `elem`, whose gradient it has, too."""

    @staticmethod
    def __new__(cls, elem: Tensor, work: Any) -> TorchCommsAsyncTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(), dtype=elem.dtype,
            layout=elem.layout, device=elem.device, requires_grad=elem.requires_grad,
        )  # fmt: skip
        made.elem, made.work, made.completed = elem, work, False
        return made

    def trigger_wait(self) -> Tensor:
        """Waits, once; what the call wrote."""
        if not self.completed and self.work is not None:
            self.work.wait()
        self.completed = True
        return self.elem

    wait = trigger_wait

    def __repr__(self) -> str:
        return f"TorchCommsAsyncTensor({self.trigger_wait()})"

    @property
    def grad(self) -> Any:
        return self.elem.grad

    @property
    def grad_fn(self) -> Any:
        return self.elem.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.elem.is_leaf

    def backward(self, *given: Any, **named: Any) -> None:
        self.trigger_wait().backward(*given, **named)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(cls, cls.trigger_wait, (args, kwargs or {}))
        return func(*args, **kwargs)

    __torch_dispatch__ = __torch_function__


def torchcomm_wait_tensors(inputs: List[Tensor]) -> List[Tensor]:
    """The tensors, when their calls are complete; gradients pass through."""
    return [tensor.view_as(tensor) for tensor in inputs]


def torchcomm_wait_tensors_(inputs: List[Tensor]) -> List[Tensor]:
    """The same tensors."""
    return inputs


def define() -> None:
    """The operators, unless torchcomms is there and has its own."""
    if hasattr(torch.ops.torchcomms, "torchcomm_wait_tensors"):
        return
    global _library
    _library = torch.library.Library("torchcomms", "FRAGMENT")
    _library.define("torchcomm_wait_tensors(Tensor[] inputs) -> Tensor[]")
    _library.define("torchcomm_wait_tensors_(Tensor(a!)[] inputs) -> Tensor(a!)[]")
    _library.impl("torchcomm_wait_tensors", torchcomm_wait_tensors, "CompositeImplicitAutograd")
    _library.impl("torchcomm_wait_tensors_", torchcomm_wait_tensors_, "CompositeImplicitAutograd")


define()
