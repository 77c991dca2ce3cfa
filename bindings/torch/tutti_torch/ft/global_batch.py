# SPDX-License-Identifier: BSD-3-Clause
"""Steps whose gradients are sums over the same samples, however many groups there are, and whichever dies:

    batch = GlobalBatch(manager, model, 192)
    while manager.current_step() < steps:
        optimizer.zero_grad()
        for rows in batch:  # this group's among the 192 samples of the step
            (cross_entropy(parallel(x[rows]), y[rows], reduction="sum") / 192).backward()
        optimizer.step()

When a group dies, the others share what it had, and take that in addition: the loop comes round once more. The
gradients of before were kept as they were before they were reduced; the result is that of a step which fewer groups
had begun, with more samples each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Optional

import torch
from torch import nn

if TYPE_CHECKING:
    from .manager import Manager


def shares(rows: torch.Tensor, ranks: List[int]) -> Dict[int, torch.Tensor]:
    """Each one's, as equal as can be; the first have one more."""
    return dict(zip(ranks, torch.tensor_split(rows, len(ranks)))) if ranks else {}


class GlobalBatch:
    """`model`: whose parameters have the gradients. A group that does not contribute to a step (it gets its state) has
    some samples, too, whose gradients are not used; a part may be empty where there are fewer samples than groups. The
    ranks of a group get the same rows, to be shared by them."""

    def __init__(self, manager: "Manager", model: nn.Module, size: int) -> None:
        if manager._surviving is None:
            raise ValueError("GlobalBatch: the manager is one with survive=True")
        if size < 1:
            raise ValueError(f"GlobalBatch: size is {size}, but a step has at least 1 sample")
        self._manager, self._model, self._size = manager, model, size
        self._kept: List[torch.Tensor] = []  # own gradients, of the rounds so far
        self._n = 0  # calls of this round

    def __iter__(self) -> Iterator[torch.Tensor]:
        manager, steps = self._manager, self._manager._surviving
        manager.wait_quorum()
        steps.rounds, self._kept, self._n = self, [], 0
        parts = shares(torch.arange(self._size), steps.giving)
        while True:
            yield self._part(parts)
            manager._finish_calls()
            lost = steps.lost()
            if not lost or manager.errored():
                return
            manager._logger.info(f"the samples of {len(lost)} lost groups are taken again")
            rows = torch.cat([parts[rank] for rank in lost])
            steps.giving = [rank for rank in steps.giving if rank not in lost]
            parts = shares(rows, steps.giving)
            self._n = manager._n_calls = 0
            for parameter in self._model.parameters():
                parameter.grad = None

    def _part(self, parts: Dict[int, torch.Tensor]) -> torch.Tensor:
        rank: Optional[int] = self._manager._surviving.rank
        return parts[rank] if rank in parts else torch.arange(min(1, self._size))

    def add(self, tensor: torch.Tensor) -> None:
        """To a gradient of this round, before it is reduced, that of the rounds before, which is kept."""
        if self._n < len(self._kept):
            self._kept[self._n].add_(tensor)
            tensor.copy_(self._kept[self._n])
        else:
            self._kept.append(tensor.clone())
        self._n += 1
