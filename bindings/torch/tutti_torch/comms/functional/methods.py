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

CALLS = _comms._calls()  # for each a letter an argument, and their names (tensors/request.hpp)


def ask(name: str, comm: Any, *values: Any, **how: Any) -> Asked:
    """By the letters. On the other ranks of a scatter an output that requires grad says that the root's tensors do."""
    given = dict(zip(CALLS[name][0], values))
    known = facts(comm)
    peer = given.get("p", -1)
    elsewhere = "p" in given and peer != known.rank
    inputs = of_side(given, "t", "i", "I")
    outputs = of_side(given, "t", "o", "O")
    shapes = [output.shape for output in outputs] or [(0,)]
    like = None
    if name == "scatter" and elsewhere:
        inputs = outputs
    elif name == "gather" and elsewhere:
        outputs, shapes = [], [(0,)] * known.size
    elif name == "gather_single" and elsewhere:
        outputs, shapes = [], [rows(inputs[0].shape, 0)]
    elif name == "reduce" and elsewhere:
        outputs = []
    elif name == "send":
        inputs = [inputs[0].detach()]
    elif name == "recv":
        like = outputs[0]
    elif name == "barrier":
        like = torch.empty(0, device=known.device)
    if "r" in given:
        return Asked(reducing(comm, name, inputs, given["r"], shapes, peer=peer, **how), outputs)
    if "s" in given:
        row = calls.numel(inputs[0].shape[1:])
        how["splits"] = [size * row for size in (*given["S"], *given["s"])]
    return Asked(plan(comm, name, inputs, shapes, like=like, peer=peer, **how), outputs)


def of_side(given: Dict[str, Any], both: str, one: str, many: str) -> Tensors:
    if many in given:
        return list(given[many])
    return [given[letter] for letter in (both, one) if letter in given]


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

# The names of the arguments before async_op.
NAMES = {
    **{name: tuple(words) for name, (_, words) in CALLS.items()},
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
        asked = ask(name, self, *values[:-3], hints=hints, timeout=timeout)
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


class Batch:
    """A batch of sends and receives in a compiled program."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.sends: List[Any] = []
        self.recvs: List[Any] = []

    def send(self, tensor: Tensor, dst: int) -> None:
        self.sends.append((tensor, dst))

    def recv(self, tensor: Tensor, src: int) -> None:
        self.recvs.append((tensor, src))

    def issue(self, async_op: bool, options: Any = None) -> Any:
        asked = Asked(calls.batch_plan(self.comm, self.sends, self.recvs), [tensor for tensor, _ in self.recvs])
        if async_op:
            return Finished(asked, asked.plan.begin())
        deliver(asked, asked.plan.run())
        return None


def batching(original: Callable) -> Callable:
    def batch_op_create(self: Any) -> Any:
        return Batch(self) if torch.compiler.is_compiling() else original(self)

    batch_op_create.__doc__ = original.__doc__
    return batch_op_create


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
    for name in CALLS:
        setattr(cls, name, method(name, getattr(cls, name)))
    cls.batch_op_create = batching(cls.batch_op_create)
    for name in ("get_rank", "get_size", "get_name", "get_device"):
        setattr(cls, name, constant(name, getattr(cls, name)))


def enable_windows(cls: type) -> None:
    if cls in _enabled:
        return
    _enabled.append(cls)
    for name in ASK_OF_WINDOWS:
        setattr(cls, name, method_of_windows(name, getattr(cls, name)))
    cls.map_remote_tensor = mapping(cls.map_remote_tensor)
