# SPDX-License-Identifier: BSD-3-Clause
"""Groups that do something else with calls: nothing, keep errors to themselves, fail when told to, ask the manager."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, List, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceScatterOptions,
    Work,
)

from .meeting import ReconfigureOptions
from .process_group import ProcessGroup, ProcessGroupWrapper, Tensors
from .work import _DummyWork

if TYPE_CHECKING:
    from .manager import Manager

logger = logging.getLogger(__name__)


class ProcessGroupDummy(ProcessGroup):
    """A group of one: gives the inputs back, and sends nothing."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__(rank, world)
        if (rank, world) != (0, 1):
            raise ValueError(f"ProcessGroupDummy is a group of one rank, not rank {rank} of {world}")
        self.reconfigure_count = 0
        self.configure_count = 0

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        self.reconfigure_count += 1
        return _DummyWork(None)

    def configure(self, *args: Any, **kwargs: Any) -> None:
        self.configure_count += 1

    def _copied(self, outputs: Tensors, inputs: Tensors) -> Work:
        for output, tensor in zip(outputs, inputs):
            output.copy_(tensor)
        return _DummyWork(outputs)

    def allgather(self, output_tensors: List[Tensors], input_tensor: Tensors, opts: AllgatherOptions) -> Work:
        self._copied(output_tensors[0], input_tensor)
        return _DummyWork(output_tensors)

    def allgather_into_tensor_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: AllgatherOptions
    ) -> Work:
        return self._copied(output_tensors, input_tensors)

    def allreduce(self, tensors: Tensors, opts: Union[AllreduceOptions, ReduceOp]) -> Work:
        return _DummyWork(tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: AllreduceCoalescedOptions) -> Work:
        return _DummyWork(tensors)

    def alltoall_base(
        self,
        output_buffer: torch.Tensor,
        input_buffer: torch.Tensor,
        output_split_sizes: List[int],
        input_split_sizes: List[int],
        opts: AllToAllOptions,
    ) -> Work:
        return self._copied([output_buffer], [input_buffer])

    def barrier(self, opts: Optional[BarrierOptions] = None) -> Work:
        return _DummyWork(None)

    def broadcast(self, tensor_list: Tensors, opts: BroadcastOptions) -> Work:
        return _DummyWork(tensor_list)

    def recv(self, tensors: Tensors, src_rank: int, tag: int) -> Work:
        return _DummyWork(None)

    def reduce_scatter(self, output_tensors: Tensors, input_tensors: List[Tensors], opts: ReduceScatterOptions) -> Work:
        return self._copied(output_tensors, input_tensors[0])

    def reduce_scatter_tensor_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: ReduceScatterOptions
    ) -> Work:
        return self._copied(output_tensors, input_tensors)

    def send(self, tensors: Tensors, dst_rank: int, tag: int) -> Work:
        return _DummyWork(None)

    def size(self) -> int:
        return 1

    def set_timeout(self, timeout: timedelta) -> None:
        pass

    def getBackendName(self) -> str:
        return "tutti-dummy"


class _ErrorSwallowingWork(Work):
    """A call whose error goes to the group, while who waits gets the tensors as they are."""

    def __init__(self, pg: "ErrorSwallowingProcessGroupWrapper", work: Work, default_result: object) -> None:
        super().__init__()
        self._pg, self._work, self._default_result = pg, work, default_result

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        try:
            self._work.wait() if timeout is None else self._work.wait(timeout)
        except Exception as error:
            self._pg.report_error(error)
        return True

    def get_future(self) -> torch.futures.Future:
        def value_of(future: torch.futures.Future) -> object:
            try:
                return future.value()
            except Exception as error:
                self._pg.report_error(error)
                return self._default_result

        return self._work.get_future().then(value_of)


class ErrorSwallowingProcessGroupWrapper(ProcessGroupWrapper):
    """Reductions do not raise: the first error is kept, and those that follow do nothing until reconfiguration."""

    def __init__(self, pg: dist.ProcessGroup) -> None:
        super().__init__(pg=pg)
        self._error: Optional[Exception] = None

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        self._error = None
        return super().reconfigure(opts)

    def configure(self, *args: Any, **kwargs: Any) -> None:
        self._error = None
        super().configure(*args, **kwargs)

    def report_error(self, e: Exception) -> None:
        self._error = e

    def error(self) -> Optional[Exception]:
        return self._error

    def allreduce(self, tensors: Tensors, opts: Union[AllreduceOptions, ReduceOp]) -> Work:
        if self._error is not None:
            return _DummyWork(tensors)
        try:
            return _ErrorSwallowingWork(self, super().allreduce(tensors, opts), tensors)
        except Exception as error:
            self.report_error(error)
            return _DummyWork(tensors)


class _FailingWork(Work):
    """A call that is carried out, and then fails."""

    def __init__(self, work: Work, error: Exception) -> None:
        super().__init__()
        self._work, self._error = work, error

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        self._work.wait() if timeout is None else self._work.wait(timeout)
        raise self._error

    def block_current_stream(self) -> None:
        self._work.block_current_stream()

    def get_future(self) -> torch.futures.Future:
        def fail(future: torch.futures.Future) -> object:
            raise self._error

        return self._work.get_future().then(fail)


class FakeProcessGroupWrapper(ProcessGroupWrapper):
    """For tests: fails where it is told to."""

    def __init__(self, pg: dist.ProcessGroup) -> None:
        super().__init__(pg=pg)
        self._future_error: Optional[Exception] = None

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        self._future_error = None
        return super().reconfigure(opts)

    def configure(self, *args: Any, **kwargs: Any) -> None:
        self._future_error = None
        super().configure(*args, **kwargs)

    def report_future_error(self, e: Exception) -> None:
        """The next reduction ends with this error."""
        self._future_error = e

    def allreduce(self, tensors: Tensors, opts: Union[AllreduceOptions, ReduceOp]) -> Work:
        work = super().allreduce(tensors, opts)
        error, self._future_error = self._future_error, None
        return work if error is None else _FailingWork(work, error)


class ManagedProcessGroup(ProcessGroupWrapper):
    """The manager's group as models see it: its size is the number of those who take part, and the errors of its
    reductions go to the manager."""

    def __init__(self, manager: "Manager") -> None:
        super().__init__(pg=manager._pg)
        self._manager = manager

    def allreduce(self, tensors: Tensors, opts: Union[AllreduceOptions, ReduceOp]) -> Work:
        if len(tensors) != 1:
            raise ValueError(f"allreduce: one tensor a call, not {len(tensors)}")
        op = opts.reduceOp if isinstance(opts, AllreduceOptions) else opts
        return self._manager.allreduce(tensors[0], reduce_op=op)

    def size(self) -> int:
        return self._manager.num_participants()

    def getBackendName(self) -> str:
        pg: Any = self._manager._pg
        return pg.getBackendName() if isinstance(pg, ProcessGroup) else pg._get_backend_name()
