# SPDX-License-Identifier: BSD-3-Clause
"""What a compiler may know of communicators, windows and reductions: constants, which lie beside them as attributes,
since it can not look into objects of C++. Its operators know a communicator or a window by a word, and find it here."""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch

if TYPE_CHECKING:
    from . import ReduceOp, TorchComm, TorchCommWindow


class Facts(NamedTuple):
    """What is known of a communicator; `key` is its name, and more where several of one name live in this process."""

    key: str
    name: str
    rank: int
    size: int
    device: torch.device


class WindowFacts(NamedTuple):
    """This rank's part of a window that has a tensor."""

    key: str
    shape: Tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Reduction(NamedTuple):
    """What is known of a ReduceOp; `factor` is that of PREMUL_SUM."""

    name: str
    factor: Any = None


_by_key: Dict[str, Callable[[], Any]] = {}
_numbers = itertools.count(1)


def know(comm: TorchComm) -> TorchComm:
    """Notes what a communicator is now: when it is made, and after a reconfiguration."""
    before: Optional[Facts] = getattr(comm, "_traced", None)
    name = comm.get_name()
    key = before.key if before else name
    if not before and _by_key.get(key, lambda: None)() is not None:
        key = f"{name}#{next(_numbers)}"
    remember(key, comm)
    comm._traced = Facts(key, name, comm.get_rank(), comm.get_size(), comm.get_device())
    return comm


def know_window(window: TorchCommWindow) -> None:
    key = f"window {next(_numbers)}"
    remember(key, window)
    window._traced = WindowFacts(key, tuple(window.shape), window.dtype, window.device)


def remember(key: str, one: Any) -> None:
    _by_key[key] = weakref.ref(one)
    weakref.finalize(one, forget, key, _by_key[key])


def forget(key: str, reference: Callable[[], Any]) -> None:
    if _by_key.get(key) is reference:
        del _by_key[key]


def comm_of(key: str) -> Any:
    """The communicator, or the window."""
    comm = _by_key.get(key, lambda: None)()
    if comm is None:
        raise RuntimeError(f"tutti: there is no communicator {key!r} in this process any more")
    return comm


def window_facts(window: TorchCommWindow) -> WindowFacts:
    noted: Optional[WindowFacts] = getattr(window, "_traced", None)
    if noted is None:
        raise RuntimeError("tutti: a window is given its tensor before it is compiled")
    return noted


def facts(comm: TorchComm) -> Facts:
    noted: Optional[Facts] = getattr(comm, "_traced", None)
    if noted is not None:
        return noted
    if torch.compiler.is_compiling():
        raise RuntimeError("tutti: this communicator was reconfigured: use it once before it is compiled")
    return know(comm)._traced


def reduction(op: ReduceOp) -> Reduction:
    known: Optional[Reduction] = getattr(op, "_traced", None)
    if known is None:
        if torch.compiler.is_compiling():
            raise RuntimeError("tutti: a ReduceOp to be compiled is ReduceOp.SUM, ..., or ReduceOp.PREMUL_SUM(factor)")
        return Reduction(op.type.name, op.factor)
    return known


# ---- what notes them ----


def noting(make: Callable) -> Callable:
    """Wraps a function that gives a communicator, or None."""

    @functools.wraps(make)
    def made(*given: Any, **named: Any) -> Any:
        comm = make(*given, **named)
        if comm is not None:
            comm._traced = None
            if not named.get("enable_reconfigure"):
                know(comm)
        return comm

    return made


def changing(method: Callable) -> Callable:
    """Wraps a method that gives a communicator other members."""

    @functools.wraps(method)
    def changed(self: Any, *given: Any, **named: Any) -> Any:
        self._traced = None
        return method(self, *given, **named)

    return changed


def noting_window(method: Callable, made: bool) -> Callable:
    """Wraps a method that gives a window, or gives one a tensor."""

    @functools.wraps(method)
    def noted(self: Any, *given: Any, **named: Any) -> Any:
        result = method(self, *given, **named)
        window = result if made else self
        if window.get_size() > 0:
            know_window(window)
        return result

    return noted


def noting_factor(premul_sum: Callable) -> Callable:
    @functools.wraps(premul_sum)
    def made(factor: Any) -> Any:
        op = premul_sum(factor)
        op._traced = Reduction("PREMUL_SUM", factor)
        return op

    return made


def note_reductions(reduce_op: type) -> None:
    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"):
        getattr(reduce_op, name)._traced = Reduction(name)
    reduce_op.PREMUL_SUM = staticmethod(noting_factor(reduce_op.PREMUL_SUM))
