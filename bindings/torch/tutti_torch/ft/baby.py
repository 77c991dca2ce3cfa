# SPDX-License-Identifier: BSD-3-Clause
"""The group that scripts of torchft ask for when they want one in a subprocess."""

from __future__ import annotations

import logging
import weakref
from datetime import timedelta
from typing import Any, Optional, Union

import torch.distributed as dist
from torch.distributed import Store
from torch.distributed.distributed_c10d import Work

from .process_group import ProcessGroupTutti

logger = logging.getLogger(__name__)


class _Members:
    """One set of members, in the place of the subprocess, its thread and its pipe, one of each in torchft's groups."""

    def __init__(self) -> None:
        self.over = False

    def is_alive(self) -> bool:
        return not self.over

    def closed(self) -> bool:
        return self.over


class ProcessGroupBabyTutti(ProcessGroupTutti):
    """For programs that ask for torchft's groups in a subprocess, which can be killed when an abort hangs: an abort of
    tutti does not hang, so this is ProcessGroupTutti, in the process itself, with the errors of those."""

    _p = _future_thread = _future_pipe = property(lambda self: self._members)

    def __init__(self, timeout: Union[timedelta, float, None] = None) -> None:
        super().__init__(timeout)
        self._works: "weakref.WeakSet[Work]" = weakref.WeakSet()
        self._members: Optional[_Members] = None
        logger.info("ProcessGroupBabyTutti: calls run in this process; tutti needs no subprocess to survive an abort")

    @property
    def parent(self) -> dist.ProcessGroup:
        if self._members is not None and self._members.over:
            raise OSError("handle is closed: the process group has no members any more")
        return super().parent

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        made = super()._create_pg(store, rank, world_size)
        self._members = _Members()
        return made

    def _end_old(self) -> None:
        self._end_members()
        super()._end_old()

    def shutdown(self) -> None:
        self._end_members()
        super().shutdown()

    def _end_members(self) -> None:
        if self._members is not None:
            self._members.over = True

    def _late(self, error: Exception, timeout: timedelta) -> Exception:
        return TimeoutError(f"timed out after {timeout.total_seconds():g} seconds: {error}")

    def num_active_work(self) -> int:
        """Handles of calls that somebody still holds."""
        return len(self._works)


def _counted(name: str) -> Any:
    def call(self: ProcessGroupBabyTutti, *args: Any) -> Work:
        work = getattr(ProcessGroupTutti, name)(self, *args)
        self._works.add(work)
        return work

    call.__name__ = name
    return call


for _name in ("allgather", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall_base",
              "barrier", "broadcast", "recv", "reduce_scatter", "reduce_scatter_tensor_coalesced", "send"):
    setattr(ProcessGroupBabyTutti, _name, _counted(_name))

ProcessGroupBabyGloo = ProcessGroupBabyNCCL = ProcessGroupBabyXCCL = ProcessGroupBabyTutti
