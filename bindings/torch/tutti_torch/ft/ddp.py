# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training over groups that come and go: gradients are averaged by the manager."""

from typing import TYPE_CHECKING, Any, Callable, List, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import Work
from torch.nn import parallel

from .wrappers import ProcessGroupDummy

if TYPE_CHECKING:
    from .manager import Manager


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Within backward: calls it when all gradients are there, before backward returns."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


class _Reductions:
    """Those of one backward pass, which goes on while they run. They are waited for at its end; which fails, the
    manager knows, and the step does not count."""

    def __init__(self, manager: "Manager") -> None:
        self._manager = manager
        self._running: List[Tuple[Work, torch.futures.Future, torch.Tensor]] = []

    def start(self, tensor: torch.Tensor) -> torch.futures.Future:
        at_end_of_backward(self.finish)  # each time: a pass that failed may have left some
        future: torch.futures.Future = torch.futures.Future()
        self._running.append((self._manager.allreduce(tensor), future, tensor))
        return future

    def finish(self) -> None:
        running, self._running = self._running, []
        for work, future, tensor in running:
            work.wait()
            future.set_result(tensor)


class DistributedDataParallel(parallel.DistributedDataParallel):
    """PyTorch's, with the manager in the place of a process group. States of groups are made alike by the manager."""

    def __init__(self, manager: "Manager", module: nn.Module, **kwargs: Any) -> None:
        # With find_unused_parameters buckets are never built anew: after the first step, members that joined later
        # would have others.
        super().__init__(module, process_group=ProcessGroupDummy(0, 1), find_unused_parameters=True, **kwargs)
        self.register_comm_hook(_Reductions(manager), self._comm_hook)

    @staticmethod
    def _comm_hook(reductions: _Reductions, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return reductions.start(bucket.buffer())


class PureDistributedDataParallel(nn.Module):
    """One reduction a gradient, and no buckets: for models that DistributedDataParallel does not take."""

    def __init__(self, manager: "Manager", module: nn.Module) -> None:
        super().__init__()
        self.module = module
        reductions = _Reductions(manager)

        def reduce(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                reductions.start(parameter.grad)

        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(reduce)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)
