# SPDX-License-Identifier: BSD-3-Clause
"""Groups that train by themselves and meet every so many steps: LocalSGD (arXiv 1805.09767), DiLoCo (2311.08105) and
Streaming DiLoCo (2501.18512)."""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, List, Optional, Type, Union

import torch
from torch import nn, optim
from torch.utils.hooks import RemovableHandle

from .fragment import _StreamingDiLoCoFragment, extract_local_tensor, local_of

if TYPE_CHECKING:
    from .manager import Manager

logger = logging.getLogger(__name__)


class _AfterSteps:
    """A context in which something happens after steps of the inner optimizer, during which nobody reads the state."""

    def __init__(self, manager: "Manager", optimizer: optim.Optimizer) -> None:
        self._manager, self._local_optimizer = manager, optimizer
        self._local_step = 0
        self._hooks: List[RemovableHandle] = []

    def __enter__(self) -> Any:
        self._hooks = [self._local_optimizer.register_step_pre_hook(self._before),
                       self._local_optimizer.register_step_post_hook(self._after)]
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> bool:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        return False

    def _before(self, *_: Any) -> None:
        self._manager.disallow_state_dict_read()

    def _after(self, *_: Any) -> None:
        self._manager.allow_state_dict_read()
        self._local_step += 1
        self._stepped()

    def _stepped(self) -> None:
        raise NotImplementedError


class LocalSGD(_AfterSteps):
    """Every `sync_every` steps the parameters become their average over the groups. Where that fails, each group goes
    on with its own."""

    def __init__(self, manager: "Manager", model: nn.Module, optimizer: optim.Optimizer, sync_every: int) -> None:
        super().__init__(manager, optimizer)
        if sync_every < 1:
            raise ValueError(f"sync_every is {sync_every}, but at least 1 step is between two syncs")
        self._model, self._sync_every = model, sync_every

    def _stepped(self) -> None:
        if self._local_step >= self._sync_every:
            self.sync()

    @torch.no_grad()
    def sync(self) -> None:
        self._manager.start_quorum()
        averages = [extract_local_tensor(parameter) for parameter in self._model.parameters()]
        works = [self._manager.allreduce(average) for average in averages]
        for work in works:
            work.wait()
        if self._manager.should_commit():
            for parameter, average in zip(self._model.parameters(), averages):
                local_of(parameter.data).copy_(average)
        self._local_step = 0


class DiLoCo(_AfterSteps):
    """Each fragment of the model has an outer optimizer, whose gradient is the average of how far the groups have gone.
    Within sync_every steps every fragment has its turn; one is on its way at a time, for fragment_sync_delay steps
    (tau) in which training goes on. fragment_update_alpha: how much of what a group did meanwhile it keeps. The manager
    is one with use_async_quorum=False.

    Which fragment it is, follows from the steps that counted: one that failed is tried again, from where all agreed."""

    def __init__(
        self,
        manager: "Manager",
        model_fragments: List[nn.Module],
        inner_optimizer: optim.Optimizer,
        outer_optimizer: Union[optim.Optimizer, List[optim.Optimizer]],
        sync_every: int,
        backup_device: Optional[torch.device] = None,
        pin_memory: bool = True,
        use_bucketization: bool = False,
        bucket_cap_mb: Optional[int] = None,
        should_quantize: bool = False,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
    ) -> None:
        super().__init__(manager, inner_optimizer)
        n = len(model_fragments)
        if manager._use_async_quorum:
            raise ValueError("DiLoCo needs a manager with use_async_quorum=False: it begins a step where all agree")
        if sync_every < n or sync_every % n:
            raise ValueError(f"sync_every ({sync_every}) is no multiple of the number of fragments ({n}), which have "
                             "their turns within it")
        self._sync_every = sync_every // n
        if not 0 <= fragment_sync_delay < self._sync_every:
            raise ValueError(f"fragment_sync_delay ({fragment_sync_delay}) is not below the {self._sync_every} steps "
                             "between two fragments")
        if not 0 <= fragment_update_alpha <= 1:
            raise ValueError(f"fragment_update_alpha ({fragment_update_alpha}) is not between 0 and 1")
        optimizers = outer_optimizer if isinstance(outer_optimizer, list) else [outer_optimizer] * n
        if len(optimizers) != n:
            raise ValueError(f"there are {len(optimizers)} outer optimizers, and {n} fragments")
        self._fragment_sync_delay = fragment_sync_delay
        buckets = os.environ.get("TORCHFT_USE_BUCKETIZATION", str(use_bucketization)) == "True"
        bucket_bytes = 1 << 30 if bucket_cap_mb is None else int(bucket_cap_mb * (1 << 20))
        self._fragments = [
            _StreamingDiLoCoFragment(manager, part, i, optimizers[i], backup_device, pin_memory, buckets, bucket_bytes,
                                     should_quantize, fragment_update_alpha)
            for i, part in enumerate(model_fragments)]
        for fragment in self._fragments:
            fragment.save_parameters()
            fragment.register_state_dict_fn()

    def _current_fragment(self) -> int:
        return self._manager.current_step() % len(self._fragments)

    def _stepped(self) -> None:
        if self._local_step == self._sync_every - self._fragment_sync_delay:
            self._manager.start_quorum()
            self._fragments[self._current_fragment()].prepare_sync()
        if self._local_step == self._sync_every:
            number = self._current_fragment()
            committed = self._fragments[number].perform_sync()
            logger.debug("fragment %d synced: %s", number, committed)
            self._local_step = 0
