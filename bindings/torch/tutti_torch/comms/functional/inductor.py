# SPDX-License-Identifier: BSD-3-Clause
"""What Inductor has to be told of the operators: their order. In the graphs that it gets, each call takes the token of
the one before. Its own lowering of tokens (PyTorch 2.12, 2.13) notes that order by the names of buffers, where its
scheduler looks for names of operations, and so loses it for calls that share no data. Here each call is lowered as
there, and noted by the name that is looked for."""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterable

import torch

_taught = False


def keep_order(operators: Callable[[], Iterable[Any]]) -> None:
    """Called while a graph is traced: before Inductor, if it is what compiles, lowers it."""
    global _taught
    lowering = sys.modules.get("torch._inductor.lowering")
    if _taught or lowering is None:
        return
    _taught = True
    for operator in operators():
        lowering.lowerings[operator] = after_the_last(operator, lowering)


def after_the_last(operator: Any, lowering: Any) -> Callable:
    lower = lowering.fallback_handler(operator, add_to_fallback_set=False)
    ordered = torch._library.effects.EffectType.ORDERED

    def lowered(*args: Any, **kwargs: Any) -> Any:
        graph = lowering.V.graph
        known = len(graph.operations)
        results = lower(*args, **kwargs)
        last = graph.effectful_ops.get(ordered)
        for operation in graph.operations[known:]:
            if last is not None:
                graph.additional_star_deps[operation.get_operation_name()].add(last.get_name())
        return results

    return lowered
