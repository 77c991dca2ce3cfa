# SPDX-License-Identifier: BSD-3-Clause
"""The manager of a rank: who takes part in a step, whether the step counts, and how a group that missed some catches
up. torchft's API.

    start_quorum()    asks who takes part, while the forward pass runs; the process group gets its members
    allreduce(...)    averages over those who contribute; errors are kept, not raised
    should_commit()   votes: whether all ranks of this group have had no error

A step is a transaction: an error makes it void, here and by the next quorum at all who saw it."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import traceback
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import AllreduceOptions, Work

from .checkpointing.http_transport import HTTPTransport
from .checkpointing.transport import CheckpointTransport
from .collectives import allreduce_quantized, can_quantize
from .coordination import ManagerClient, ManagerServer
from .futures import future_timeout
from .managed_work import _ManagedFuture, _ManagedWork  # noqa: F401  torchft's module has these names, too
from .meeting import ReconfigureOptions, store_at
from .process_group import ProcessGroup, ProcessGroupTutti
from .recovery import Recovery
from .surviving_steps import SurvivingSteps
from .timeouts import Timeouts, number_given, text_given
from .trust import listening_host
from .user_state import UserState
from .utils import current_stream, get_stream_context, synchronize
from .work import _DummyWork

T = TypeVar("T")

MANAGER_ADDR_KEY = "manager_addr"
REPLICA_ID_KEY = "replica_id"
TRACES = "TORCH_FR_DUMP_TEMP_FILE"


class WorldSizeMode(Enum):
    """How many take part when more than min_replica_size groups are there: all, or that many, and the others contribute
    zeros and are ready to take a place."""

    DYNAMIC = 0
    FIXED_WITH_SPARES = 1


class ExceptionWithTraceback(Exception):
    """An error that was kept, and where it came from."""

    def __init__(self, e: Exception) -> None:
        self.original_exception = e
        self.stack_trace = "".join(traceback.format_exception(type(e), e, e.__traceback__))
        super().__init__(f"{e}\n{self.stack_trace}")


class _Logger(logging.LoggerAdapter):
    def process(self, msg: Any, kwargs: Any) -> Any:
        manager = self.extra["manager"]
        return f"[{self.extra['replica_id']}/{manager._group_rank} - step {manager._step}] {msg}", kwargs


def number_at_end(replica_id: Optional[str]) -> int:
    """ "train_ddp_3" -> 3; 0 of names that end otherwise, such as random ones."""
    found = re.fullmatch(r"(?:.*[^0-9a-fA-F-])?(\d{1,9})", replica_id or "")
    return int(found.group(1)) if found else 0


class Manager(UserState):
    """Every rank has one. Rank 0 of the group also runs the server that speaks for the group. The store at store_addr
    and store_port (MASTER_ADDR, MASTER_PORT) is the group's, and is there already (torchrun serves it).

    Whoever saves checkpoints of the model saves and loads this state_dict(), too."""

    def __init__(
        self,
        pg: dist.ProcessGroup,
        load_state_dict: Optional[Callable[[T], None]],
        state_dict: Optional[Callable[[], T]],
        min_replica_size: int,
        use_async_quorum: bool = True,
        timeout: Optional[timedelta] = None,
        quorum_timeout: Optional[timedelta] = None,
        connect_timeout: Optional[timedelta] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        world_size_mode: WorldSizeMode = WorldSizeMode.DYNAMIC,
        store_addr: Optional[str] = None,
        store_port: Optional[int] = None,
        lighthouse_addr: Optional[str] = None,
        replica_id: Optional[str] = None,
        port: Optional[int] = None,
        hostname: str = socket.gethostname(),
        heartbeat_interval: Optional[timedelta] = None,
        checkpoint_transport: Optional[CheckpointTransport[Dict[str, T]]] = None,
        init_sync: bool = True,
        max_retries: Optional[int] = None,
        quorum_retries: int = 0,
        survive: bool = False,
    ) -> None:
        """`timeout` (TUTTI_FT_TIMEOUT, 60 s) is the one knob: quorum_timeout, connect_timeout, heartbeat_interval, and
        the timeout of a ProcessGroupTutti which was given none, follow from it. `min_replica_size`: a step with fewer
        groups does not count. `init_sync`: at step 0 all take the state of one group. `max_retries`: so many steps may
        be void one after another. `survive`: a step in which a group dies counts, with what the survivors gave
        (docs/no_lost_step.md); all groups say the same. rank, world_size, lighthouse_addr and port are RANK,
        WORLD_SIZE, TORCHFT_LIGHTHOUSE and TORCHFT_MANAGER_PORT unless given."""
        if not getattr(pg, "supports_reconfigure", False) and not hasattr(pg, "configure"):
            raise ValueError("the process group can not get other members: it is one of tutti_torch.ft.process_group, "
                             "or one that PyTorch made with enable_reconfigure=True")
        self._timeouts = Timeouts.of(timeout, quorum_timeout, connect_timeout)
        self._timeout = self._timeouts.call
        self._pg = pg
        self._settle_group_timeout()
        self._use_async_quorum, self._min_replica_size = use_async_quorum, min_replica_size
        self._replica_world_size_mode, self._init_sync = world_size_mode, init_sync
        self._max_retries, self._replica_id = max_retries, replica_id
        self._quorum_retries = number_given("quorum_retries", None, "TORCHFT_QUORUM_RETRIES", quorum_retries)
        self._group_rank = number_given("rank", rank, "RANK")
        self._group_world_size = world_size or number_given("world_size", None, "WORLD_SIZE")

        super().__init__(self._timeout)
        if load_state_dict and state_dict:
            self.register_state_dict_fn("default", load_state_dict, state_dict)

        self._begin()
        self._checkpoint_transport = checkpoint_transport or HTTPTransport(timeout=self._timeout, num_chunks=0)
        self._recovery = Recovery(self, lambda address: ManagerClient(address, self._timeouts.connect))
        self._join_group(store_addr, store_port, lighthouse_addr, port, hostname,
                         self._timeouts.heartbeat(heartbeat_interval))

        self.quorum_logger = logging.getLogger("torchft_quorums")
        self.commits_logger = logging.getLogger("torchft_commits")
        self._global_rank = number_at_end(self._replica_id) * self._group_world_size + self._group_rank
        if isinstance(pg, ProcessGroup) or hasattr(pg, "set_rank_info"):
            pg.set_rank_info(self._replica_id or "0", self._group_rank, self._group_world_size, self._global_rank)
        self._traces = os.environ.get(TRACES)
        self._update_traces()
        self._surviving = SurvivingSteps(self) if survive else None

    def _begin(self) -> None:
        """Before the first step."""
        self._commit_failures = 0
        self._state_tried = False
        self._quorum_id = -1
        self._members: Any = None  # the last quorum: its number and its groups
        self._errored: Optional[ExceptionWithTraceback] = None
        self._round = 0  # counts start_quorum: a late error of a call of an older one voids nothing
        self._n_calls = 0  # in this step
        self._told_of_quantization = False
        self._left_round = 0  # the last one that this rank left early
        self._lock = threading.Lock()
        self._works: List[_ManagedWork] = []  # in this step
        self._healing = False
        self._participating_replica_rank: Optional[int] = None
        self._participating_replica_world_size = 0
        self._quorum_future: Optional[Future] = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="async_quorum")

    # ---- the group ----

    def _settle_group_timeout(self) -> None:
        pg: Any = self._pg
        while isinstance(pg, ProcessGroup) and isinstance(getattr(pg, "_pg", None), ProcessGroup):
            pg = pg._pg  # a wrapper's
        given = pg._timeout if isinstance(pg, ProcessGroupTutti) and pg.timeout_given else None
        if isinstance(pg, ProcessGroupTutti) and given is None:
            pg.set_timeout(self._timeout)
        self._timeouts.check(given)

    def _join_group(
        self,
        store_addr: Optional[str],
        store_port: Optional[int],
        lighthouse_addr: Optional[str],
        port: Optional[int],
        hostname: str,
        heartbeat_interval: timedelta,
    ) -> None:
        host = store_addr or text_given("store_addr", "MASTER_ADDR")
        store_port = store_port or number_given("store_port", None, "MASTER_PORT")
        self._store = store_at(host, store_port, self._timeouts.connect)
        self._manager: Optional[ManagerServer] = None
        if self._group_rank == 0:
            alone = listening_host()
            if alone and hostname not in (socket.gethostname(), "localhost", alone):
                alone = ""
                logging.getLogger(__name__).warning(
                    "unauthenticated: the manager listens at all addresses, as hostname=%s was given", hostname)
            own = str(uuid.uuid4())  # a group that was restarted is another one
            full_id = f"{self._replica_id}:{own}" if self._replica_id else own
            self._manager = ManagerServer(
                replica_id=full_id,
                lighthouse_addr=lighthouse_addr or text_given("lighthouse_addr", "TORCHFT_LIGHTHOUSE"),
                hostname=alone or hostname,
                bind=f"{alone or '[::]'}:{number_given('port', port, 'TORCHFT_MANAGER_PORT', 0)}",
                store_addr=f"{host}:{store_port}",
                world_size=self._group_world_size,
                heartbeat_interval=heartbeat_interval,
                connect_timeout=self._timeouts.connect,
                quorum_retries=self._quorum_retries,
            )
            self._store.set(MANAGER_ADDR_KEY, self._manager.address())
            self._store.set(REPLICA_ID_KEY, full_id)
        address = self._store.get(MANAGER_ADDR_KEY).decode()
        self._client = ManagerClient(address, connect_timeout=self._timeouts.connect)
        self._logger = _Logger(logging.getLogger(__name__),
                               {"manager": self, "replica_id": self._store.get(REPLICA_ID_KEY).decode()})

    def shutdown(self, wait: bool = True) -> None:
        if self._surviving is not None:
            self._surviving.stop()
        self._checkpoint_transport.shutdown(wait=wait)
        if self._manager is not None:
            self._manager.shutdown()
        if self._surviving is not None and wait:
            self._surviving.end()
        self._executor.shutdown(wait=wait)

    # ---- quorum ----

    def _apply_pending_state_dict(self) -> None:
        self.wait_quorum()
        if self._load_pending():
            self._logger.info("took over the state of another group")
        elif self._errored is None:
            raise RuntimeError("this group should have got the state of another one, but has not, without an error")

    def start_quorum(
        self, allow_heal: bool = True, shrink_only: bool = False, timeout: Optional[timedelta] = None
    ) -> None:
        """A new step begins: to be called before the forward pass, by all ranks of all groups with the same arguments.
        Returns at once with use_async_quorum; else when the members are known and this group has caught up."""
        if self._quorum_future is not None:
            self._quorum_future.result()
        self._try_state()
        with self._lock:
            self._round += 1
            self._errored, self._healing, self._works, self._n_calls = None, False, [], 0
        device = torch.accelerator.current_device_index() if torch.accelerator.is_available() else -1
        timeout = timeout or self._timeouts.quorum
        if self._surviving is not None:
            self._quorum_future = self._surviving.begin(allow_heal, timeout)
        else:
            self._quorum_future = self._executor.submit(self._async_quorum, allow_heal, shrink_only, timeout, device)
        if not self._use_async_quorum:
            self.wait_quorum()
            self._recovery.give()
            if self._healing:
                self._apply_pending_state_dict()
                self._healing = False  # caught up before the step: it contributes

    def _try_state(self) -> None:
        """At the first step: a state that can not travel would keep every other group from catching up later."""
        check = getattr(self._checkpoint_transport, "check_state", None)  # not torchft's
        if self._state_tried or check is None or not self._user_state_dicts or not self._is_state_dict_read_allowed:
            return
        self._state_tried = True
        check(self._manager_state_dict())

    def wait_quorum(self) -> None:
        """Until it is known who takes part; raises what kept this rank from learning it."""
        if self._quorum_future is None:
            raise RuntimeError("wait_quorum: there is no quorum to wait for before start_quorum")
        self._quorum_future.result()

    @torch.profiler.record_function("tutti_torch.ft::quorum")
    def _async_quorum(self, allow_heal: bool, shrink_only: bool, timeout: timedelta, device: int) -> None:
        if device >= 0:
            torch.accelerator.set_device_index(device)
        handle = getattr(self._pg, "get_reconfigure_handle", str)
        quorum = self._client._quorum(
            group_rank=self._group_rank,
            step=-1 if self._recovery.half_written else self._step,  # behind all others: it has to heal
            checkpoint_metadata=self._checkpoint_transport.metadata(),
            shrink_only=shrink_only,
            timeout=timeout,
            init_sync=self._init_sync,
            commit_failures=self._commit_failures,
            reconfigure_handle=handle(),
        )
        self._take_place(quorum, allow_heal)
        members = (quorum.quorum_id, quorum.replica_ids)  # a lighthouse that begins anew gives numbers again
        is_new, self._members = members != self._members, members
        if is_new and not self._meet(quorum):
            return
        if allow_heal:
            self._recovery.run(quorum)

    def _take_place(self, quorum: Any, allow_heal: bool) -> None:
        """The groups that contribute: all where those behind catch up first, else those that are up to date."""
        caught_up = not self._use_async_quorum and allow_heal
        rank = quorum.replica_rank if caught_up else quorum.max_replica_rank
        size = quorum.replica_world_size if caught_up else quorum.max_world_size
        if self._has_spares():
            size = min(size, self._min_replica_size)
            rank = None if rank is None or rank >= size else rank
        self._participating_replica_rank, self._participating_replica_world_size = rank, size

    def _has_spares(self) -> bool:
        return self._replica_world_size_mode == WorldSizeMode.FIXED_WITH_SPARES

    def _note_quorum(self, quorum_id: int, size: int, rank: int, step: int) -> None:
        self._quorum_id = quorum_id
        self._logger.info(f"quorum {quorum_id}: {size} groups, this is number {rank}")
        self.quorum_logger.info("quorum %d", quorum_id, extra=self._event(step=step))

    def _meet(self, quorum: Any) -> bool:
        self._note_quorum(quorum.quorum_id, quorum.replica_world_size, quorum.replica_rank, quorum.max_step)
        try:
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            self._reconfigure_pg(quorum.quorum_id, quorum.reconfigure_handles, quorum)
            self._update_traces()
            return True
        except Exception as error:
            self._logger.exception("the members of the quorum did not meet")
            self.report_error(error)
            return False

    def _reconfigure_pg(self, communicator_id: int, handles: List[str], quorum: Any = None) -> None:
        if quorum is not None and (len(handles) != quorum.replica_world_size or not all(handles)):
            # A manager that does not know of handles: the members meet at the store that it names.
            self._pg.configure(f"{quorum.store_address}/torchft/{communicator_id}/{self._group_rank}",
                               self._replica_id or "0", quorum.replica_rank, quorum.replica_world_size,
                               communicator_id, self._group_rank, self._group_world_size)
            return
        opts = ReconfigureOptions()
        opts.uuid, opts.handles, opts.timeout = communicator_id, handles, self._timeout
        self._pg.reconfigure(opts).wait()

    def _update_traces(self) -> None:
        """Each quorum has a folder of its own for the flight recorder's files."""
        if self._traces:
            folder = f"{self._traces}_quorum_{self._quorum_id}"
            os.makedirs(folder, exist_ok=True)
            os.environ[TRACES] = f"{folder}/{self._global_rank}"

    def _event(self, **more: Any) -> Dict[str, Any]:
        return {"job_id": os.environ.get("JOB_ID", "unknown"), "replica_id": self._replica_id,
                "rank": self._group_rank, "quorum_id": self._quorum_id, **more}

    # ---- the step ----

    @torch.profiler.record_function("tutti_torch.ft::allreduce")
    def allreduce(
        self, tensor: torch.Tensor, should_quantize: bool = False, reduce_op: ReduceOp = ReduceOp.AVG
    ) -> Work:
        """Reduces over the groups that take part; the average is over those that contribute. A group that does not (it
        is behind, or a spare) gives zeros. Never raises for what happens to others: after an error the tensor is
        undefined, and so is the step. `should_quantize`: floating-point numbers travel in fewer bits
        (collectives.py), where the process group is one of tutti."""
        if self.errored() and self._surviving is None:
            self._leave_step()
            return _DummyWork(tensor)
        self.wait_quorum()
        self._recovery.give()
        if not self.is_participating():
            tensor.zero_()
        if reduce_op == ReduceOp.AVG and not torch.is_floating_point(tensor):
            raise ValueError(f"allreduce: the average of {tensor.dtype} is not defined; use ReduceOp.SUM")
        try:
            op, finish = self._reduction(tensor, reduce_op)
            opts = AllreduceOptions()
            opts.reduceOp = op
            quantize = should_quantize and self._quantizes(tensor)
            call = partial(allreduce_quantized, process_group=self._pg) if quantize else self._pg.allreduce
            made = call([tensor], opts)
            failed = self._report_of_round
            if self._surviving is not None:
                self._surviving.made(made)
                failed = self._surviving.failed
            work = _ManagedWork(self, made, tensor, partial(failed, self._round), finish and partial(finish, made))
        except Exception as error:
            self.report_error(error)
            return _DummyWork(tensor)
        self._works.append(work)
        self._n_calls += 1
        self._tell_progress()
        return work

    def _reduction(self, tensor: torch.Tensor, op: ReduceOp) -> Tuple[ReduceOp, Optional[Callable[[Any], Any]]]:
        """The operation that is called, and what is done with the call when it is over."""
        if self._surviving is not None:
            return self._surviving.reduction(tensor, op)
        if op != ReduceOp.AVG:
            return op, None
        n = self.num_participants()
        return ReduceOp.SUM, lambda _: tensor.div_(n)

    def _quantizes(self, tensor: torch.Tensor) -> bool:
        can = can_quantize(self._pg)
        if not can and not self._told_of_quantization:
            self._told_of_quantization = True
            self._logger.warning("should_quantize: the process group is not tutti's: all bits travel")
        return can and tensor.is_floating_point()

    def _leave_step(self) -> None:
        """This rank will not make the calls that the others wait for: they are told, once a step, and do not wait."""
        if self._left_round != self._round:
            self._left_round = self._round
            self._pg.abort()

    def report_error(self, e: Exception) -> None:
        """The step is void. The first error of a step is kept."""
        with self._lock:
            first = self._errored is None
            if first:
                self._errored = ExceptionWithTraceback(e)
        if first:
            self._logger.warning(f"the step is void: {e}")

    def _report_of_round(self, number: int, e: Exception) -> None:
        if number == self._round:
            self.report_error(e)
        else:
            self._logger.warning(f"a call of an older step failed: {e}")

    def errored(self) -> Optional[ExceptionWithTraceback]:
        return self._errored

    def wrap_future(
        self, fut: torch.futures.Future, default: T, timeout: Optional[timedelta] = None
    ) -> torch.futures.Future:
        """The same future, which completes with the default where it fails or takes too long: the manager keeps the
        error."""
        stream = current_stream()

        def value_of(done: torch.futures.Future) -> T:
            with get_stream_context(stream):
                try:
                    return done.value()
                except Exception as error:
                    self.report_error(error)
                    return default

        return future_timeout(fut, timeout or self._timeout).then(value_of)

    @torch.profiler.record_function("tutti_torch.ft::should_commit")
    def should_commit(self, timeout: Optional[timedelta] = None) -> bool:
        """Whether the step counts: to be called once, after backward and before the optimizer's step, which happens
        only if it says so. All ranks of the group get the same answer."""
        if self._quorum_future is not None:
            self.wait_quorum()
            self._recovery.give()
        self._recovery.wait()
        self._finish_calls()
        error = self._group_error()
        if error is not None:
            self.report_error(error)
        committed, enough = self._decide(timeout or self._timeout)
        self._tell_commit(committed, enough)
        self._tell_progress()
        self._works = []
        if committed:
            self._step += 1
            self._batches_committed += self.num_participants()
            self._commit_failures = 0
            return True
        self._commit_failures += 1
        if self._max_retries is not None and self._commit_failures > self._max_retries:
            raise RuntimeError(f"should_commit failed {self._commit_failures} times one after another, exceeding "
                               f"max_retries={self._max_retries}; the last error here: {self._errored}")
        return False

    def _finish_calls(self) -> None:
        for work in self._works:
            if not work._waited:
                work.wait()
        synchronize()

    def _decide(self, timeout: timedelta) -> Tuple[bool, bool]:
        """Whether the step counts, and whether enough groups were in it."""
        if self._surviving is not None:
            return self._surviving.decide(self._min_replica_size)
        if self._healing:
            self._apply_pending_state_dict()
        enough = self.num_participants() >= self._min_replica_size
        committed = self._client.should_commit(
            self._group_rank, self._step, enough and self._errored is None, timeout=timeout)
        self._checkpoint_transport.disallow_checkpoint()
        return committed, enough

    def _tell_progress(self) -> None:
        """For the lighthouse, with the next heartbeat: a rank that hangs is told from one that lives, within a step,
        too, by the calls that the others have made and it has not."""
        tell = getattr(self._client, "progress", None)  # not torchft's
        if tell is not None:
            tell(self._group_rank, self._step, self._n_calls)

    def _group_error(self) -> Optional[Exception]:
        pg: Any = self._pg
        if hasattr(pg, "errored"):
            return pg.errored()
        for device in pg._device_types:
            error = pg._get_backend(device).get_error()
            if error != torch._C._distributed_c10d.ErrorType.SUCCESS:
                return dist.DistBackendError(f"the process group failed: {error}")
        return None

    def _tell_commit(self, committed: bool, enough: bool) -> None:
        changed = not committed or self._commit_failures > 0
        self.commits_logger.log(logging.INFO if changed else logging.DEBUG, "step %d: commit %s", self._step, committed,
                                extra=self._event(step=self._step, commit_result=committed))
        if not committed:
            why = self._errored or ("another rank of the group had an error" if enough else
                                    f"{self.num_participants()} groups take part, of at least {self._min_replica_size}")
            self._logger.info(f"the step does not count: {why}")

    # ---- what there is to know ----

    def current_step(self) -> int:
        """Steps that counted."""
        return self._step

    def batches_committed(self) -> int:
        """The same times the groups that took part in each."""
        return self._batches_committed

    def participating_rank(self) -> Optional[int]:
        """The rank of this group among those that contribute; None: it does not. Waits for the quorum."""
        if self._quorum_future is None:
            return None
        self.wait_quorum()
        return self._participating_replica_rank

    def num_participants(self) -> int:
        """How many groups contribute. Waits for the quorum."""
        if self._quorum_future is None:
            return 0
        self.wait_quorum()
        return self._participating_replica_world_size

    def is_participating(self) -> bool:
        """Whether this group contributes."""
        return self._participating_replica_rank is not None and not self._healing
