# SPDX-License-Identifier: BSD-3-Clause
"""The methods of TorchComm where torch.compile traces them, or where a tensor requires grad: the same calls by the
operators, whose results are then copied to the tensors that the caller gave. All other calls go where they went. The
methods of windows in the same way, when they are traced."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from ..._C import comms as _comms
from ..known import facts
from . import calls
from .calls import Plan, plan, reducing, rows, window_plan

Tensors = List[Tensor]
WorkStatus = _comms.WorkStatus


class Asked(NamedTuple):
    """What a method has to do: the call, and where its results go."""

    plan: Plan
    outputs: Tensors


class Finished:
    """The handle of an asynchronous call in a compiled program: a TorchWork whose call ends when it is waited for, as
    what the compiler makes of the program decides when it runs."""

    def __init__(self, asked: Asked, ticket: Tensor) -> None:
        self.asked, self.ticket, self.done = asked, ticket, False

    def wait(self) -> None:
        if not self.done:
            self.done = True
            deliver(self.asked, self.asked.plan.end(self.ticket))

    def wait_blocking(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.done

    def status(self) -> WorkStatus:
        return WorkStatus.COMPLETED if self.done else WorkStatus.INPROGRESS


def deliver(asked: Asked, results: Tensors) -> Tensors:
    """What gradients come through: the tensors that were written, and the results where none were."""
    return [deliver_one(output, result.view(output.shape)) for output, result in zip(asked.outputs, results)] or [
        result for result in results if result.requires_grad
    ]


def deliver_one(output: Tensor, result: Tensor) -> Tensor:
    """A leaf that requires grad has its own gradient: it is written, and the result stands for itself."""
    if output.requires_grad and output.is_leaf:
        output.detach().copy_(result.detach())
        return result
    return output.copy_(result)


# ---- the calls, by the arguments of the methods ----


def in_place(name: str) -> Callable[..., Asked]:
    def ask(comm: Any, tensor: Tensor, *given: Any, **how: Any) -> Asked:
        if name == "broadcast":
            return Asked(plan(comm, name, [tensor], [tensor.shape], peer=given[0], **how), [tensor])
        if name == "reduce":
            outputs = [tensor] if facts(comm).rank == given[0] else []
            return Asked(reducing(comm, name, [tensor], given[1], [tensor.shape], peer=given[0], **how), outputs)
        return Asked(reducing(comm, name, [tensor], given[0], [tensor.shape], **how), [tensor])

    return ask


def to_list(name: str) -> Callable[..., Asked]:
    def ask(comm: Any, outputs: Tensors, tensor: Tensor, **how: Any) -> Asked:
        return Asked(plan(comm, name, [tensor], [output.shape for output in outputs], **how), outputs)

    return ask


def to_one(name: str) -> Callable[..., Asked]:
    def ask(comm: Any, output: Tensor, given: Any, *op: Any, **how: Any) -> Asked:
        inputs = given if isinstance(given, (list, tuple)) else [given]
        make = functools.partial(reducing, comm, name, list(inputs), *op) if op else (
            functools.partial(plan, comm, name, list(inputs))
        )
        return Asked(make([output.shape], **how), [output])

    return ask


def ask_all_to_all(comm: Any, outputs: Tensors, inputs: Tensors, **how: Any) -> Asked:
    return Asked(plan(comm, "all_to_all", inputs, [output.shape for output in outputs], **how), outputs)


def ask_all_to_all_v(comm: Any, output: Tensor, input: Tensor, out: List[int], sent: List[int], **how: Any) -> Asked:
    row = calls.numel(input.shape[1:])
    splits = [size * row for size in (*sent, *out)]
    return Asked(plan(comm, "all_to_all_v_single", [input], [output.shape], splits=splits, **how), [output])


def ask_scatter(comm: Any, output: Tensor, inputs: Tensors, root: int, **how: Any) -> Asked:
    """On the other ranks an output that requires grad says that the root's tensors do."""
    given = list(inputs) if facts(comm).rank == root else [output]
    return Asked(plan(comm, "scatter", given, [output.shape], peer=root, **how), [output])


def ask_gather(comm: Any, outputs: Tensors, input: Tensor, root: int, **how: Any) -> Asked:
    own = outputs if facts(comm).rank == root else []
    shapes = [output.shape for output in own] or [(0,)] * facts(comm).size
    return Asked(plan(comm, "gather", [input], shapes, peer=root, **how), own)


def ask_gather_single(comm: Any, output: Tensor, input: Tensor, root: int, **how: Any) -> Asked:
    own = [output] if facts(comm).rank == root else []
    shape = output.shape if own else rows(input.shape, 0)
    return Asked(plan(comm, "gather_single", [input], [shape], peer=root, **how), own)


def ask_barrier(comm: Any, **how: Any) -> Asked:
    return Asked(plan(comm, "barrier", [], [(0,)], like=torch.empty(0, device=facts(comm).device), **how), [])


def ask_send(comm: Any, tensor: Tensor, dst: int, **how: Any) -> Asked:
    return Asked(plan(comm, "send", [tensor.detach()], [(0,)], peer=dst, **how), [])


def ask_recv(comm: Any, tensor: Tensor, src: int, **how: Any) -> Asked:
    return Asked(plan(comm, "recv", [], [tensor.shape], like=tensor, peer=src, **how), [tensor])


ASK: Dict[str, Callable[..., Asked]] = {
    "send": ask_send,
    "recv": ask_recv,
    "broadcast": in_place("broadcast"),
    "all_reduce": in_place("all_reduce"),
    "reduce": in_place("reduce"),
    "all_gather": to_list("all_gather"),
    "all_gather_v": to_list("all_gather_v"),
    "all_gather_single": to_one("all_gather_single"),
    "reduce_scatter": to_one("reduce_scatter"),
    "reduce_scatter_v": to_one("reduce_scatter_v"),
    "reduce_scatter_single": to_one("reduce_scatter_single"),
    "all_to_all_single": to_one("all_to_all_single"),
    "all_to_all_v_single": ask_all_to_all_v,
    "all_to_all": ask_all_to_all,
    "barrier": ask_barrier,
    "scatter": ask_scatter,
    "gather": ask_gather,
    "gather_single": ask_gather_single,
}


def ask_put(name: str) -> Callable[..., Asked]:
    def ask(window: Any, tensor: Tensor, dst: int, offset: int, **how: Any) -> Asked:
        return Asked(window_plan(window, name, [tensor], peer=dst, offset=offset, **how), [])

    return ask


def ask_get(window: Any, tensor: Tensor, src: int, offset: int, **how: Any) -> Asked:
    return Asked(window_plan(window, "get", [], tensor.shape, peer=src, offset=offset, **how), [tensor])


def ask_signal(name: str) -> Callable[..., Asked]:
    def ask(window: Any, peer: int, **how: Any) -> Asked:
        return Asked(window_plan(window, name, [], peer=peer, **how), [])

    return ask


ASK_OF_WINDOWS: Dict[str, Callable[..., Asked]] = {
    "put": ask_put("put"),
    "put_signal": ask_put("put_signal"),
    "get": ask_get,
    "signal": ask_signal("signal"),
    "wait_signal": ask_signal("wait_signal"),
}

# The names of the arguments before async_op, as TorchComm has them.
NAMES = {
    "send": ("tensor", "dst"),
    "recv": ("tensor", "src"),
    "broadcast": ("tensor", "root"),
    "all_reduce": ("tensor", "op"),
    "reduce": ("tensor", "root", "op"),
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_v": ("tensor_list", "tensor"),
    "all_gather_single": ("output", "input"),
    "reduce_scatter": ("output", "input_list", "op"),
    "reduce_scatter_v": ("output", "input_list", "op"),
    "reduce_scatter_single": ("output", "input", "op"),
    "all_to_all_single": ("output", "input"),
    "all_to_all_v_single": ("output", "input", "output_split_sizes", "input_split_sizes"),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "barrier": (),
    "scatter": ("output_tensor", "input_tensor_list", "root"),
    "gather": ("output_tensor_list", "input_tensor", "root"),
    "gather_single": ("output", "input", "root"),
    "put": ("tensor", "dst_rank", "target_offset_nelems"),
    "put_signal": ("tensor", "dst_rank", "target_offset_nelems"),
    "get": ("tensor", "src_rank", "source_offset_nelems"),
    "signal": ("peer_rank",),
    "wait_signal": ("peer_rank",),
}


def wants_grad(given: Any) -> bool:
    if isinstance(given, (list, tuple)):
        return any(wants_grad(each) for each in given)
    return isinstance(given, Tensor) and given.requires_grad


def arguments_of(name: str, given: Any, named: Dict[str, Any]) -> List[Any]:
    """In order: those of the call, async_op, hints, timeout."""
    names = (*NAMES[name], "async_op", "hints", "timeout")
    values = list(given)
    for each in names[len(values) :]:
        if each not in named and each not in ("hints", "timeout"):
            raise TypeError(f"{name}() misses the argument '{each}'")
        values.append(named.get(each))
    more = [each for each in named if each not in names]
    if more or len(values) > len(names):
        raise TypeError(f"{name}() takes {', '.join(names)} in compiled programs, and no more: {more}")
    return values


def method(name: str, original: Callable) -> Callable:
    def run(self: Any, *given: Any, **named: Any) -> Any:
        compiling = torch.compiler.is_compiling()
        with_grad = torch.is_grad_enabled() and wants_grad([*given, *named.values()])
        if not compiling and not with_grad:
            return original(self, *given, **named)
        values = arguments_of(name, given, named)
        async_op, hints, timeout = values[-3:]
        asked = ASK[name](self, *values[:-3], hints=hints, timeout=timeout)
        if not compiling:
            return eager(asked)
        if async_op:
            return Finished(asked, asked.plan.begin())
        results = deliver(asked, asked.plan.run())
        if not with_grad:
            return None
        return results[0] if len(results) == 1 else results

    run.__name__, run.__doc__ = name, original.__doc__
    return run


def method_of_windows(name: str, original: Callable) -> Callable:
    def run(self: Any, *given: Any, **named: Any) -> Any:
        if not torch.compiler.is_compiling():
            return original(self, *given, **named)
        values = arguments_of(name, given, named)
        async_op, hints, timeout = values[-3:]
        asked = ASK_OF_WINDOWS[name](self, *values[:-3], hints=hints, timeout=timeout)
        if async_op:
            return Finished(asked, asked.plan.begin())
        deliver(asked, asked.plan.run())
        return None

    run.__name__, run.__doc__ = name, original.__doc__
    return run


def mapping(original: Callable) -> Callable:
    def map_remote_tensor(self: Any, rank: int) -> Tensor:
        if torch.compiler.is_compiling():
            return calls.map_remote_tensor(self, rank)
        return original(self, rank)

    map_remote_tensor.__doc__ = original.__doc__
    return map_remote_tensor


class Handle:
    """What is over has the methods of a TorchWork, too."""

    def wait(self) -> Any:
        return self

    def wait_blocking(self) -> Any:
        return self

    def is_completed(self) -> bool:
        return True

    def status(self) -> WorkStatus:
        return WorkStatus.COMPLETED


class Result(Handle, torch.Tensor):
    """What is computed with it is a plain tensor again."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Results(Handle, list):
    """The same of a list."""


def eager(asked: Asked) -> Any:
    """A tensor that requires grad: the call is over when this returns, and the results are what it returns."""
    results = deliver(asked, asked.plan.run())
    if len(results) == 1:
        return results[0].as_subclass(Result)
    return Results(results)


# ---- what a compiler may ask a communicator ----


def constant(name: str, original: Callable) -> Callable:
    field = name[len("get_") :]

    def run(self: Any) -> Any:
        if torch.compiler.is_compiling():
            return getattr(facts(self), field)
        return original(self)

    run.__name__, run.__doc__ = name, original.__doc__
    return run


_enabled: List[type] = []


def enable(cls: Optional[type] = None) -> None:
    """From now on torch.compile traces the methods of TorchComm and TorchCommWindow, and tensors that require grad
    pass through those of TorchComm."""
    if cls is None:
        from .. import TorchComm as cls
        from .. import TorchCommWindow

        enable_windows(TorchCommWindow)
    if cls in _enabled:
        return
    _enabled.append(cls)
    for name in ASK:
        setattr(cls, name, method(name, getattr(cls, name)))
    for name in ("get_rank", "get_size", "get_name", "get_device"):
        setattr(cls, name, constant(name, getattr(cls, name)))


def enable_windows(cls: type) -> None:
    if cls in _enabled:
        return
    _enabled.append(cls)
    for name in ASK_OF_WINDOWS:
        setattr(cls, name, method_of_windows(name, getattr(cls, name)))
    cls.map_remote_tensor = mapping(cls.map_remote_tensor)
