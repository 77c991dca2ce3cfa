# SPDX-License-Identifier: BSD-3-Clause
"""Process groups that get other members while the program runs, and that it survives when one of them dies:
torchft's API, on the backend tutti. ProcessGroupTutti serves CPUs and the accelerator that is there."""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import threading
import uuid
from datetime import timedelta
from typing import Any, Dict, List, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore
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

from .. import _C, dist2, registration
from .compatible import with_torchft
from .meeting import Place, ReconfigureOptions, meeting_store, place_among, served_port, split_address
from .meeting import place_among as _rendezvous  # noqa: F401  its name in torchft's module
from .trust import own_name, url_host
from .work import _DummyWork

logger = logging.getLogger(__name__)

Tensors = List[torch.Tensor]
MINUTE = timedelta(seconds=60)


def create_store_client(store_addr: str, timeout: timedelta) -> Store:
    """The store at "host:port/prefix"."""
    address, _, prefix = store_addr.partition("/")
    host, port = split_address(address)
    return PrefixStore(prefix, TCPStore(host_name=host, port=port, is_master=False, wait_for_workers=False,
                                        timeout=timeout))


def reconfigure_with_store(
    pg: dist.ProcessGroup, store_addr: str, rank: int, world_size: int, timeout: timedelta = MINUTE
) -> None:
    """Makes these ranks one group, without a manager: they tell one another their handles at store_addr
    ("host:port/prefix"), whose prefix is used once."""
    store = create_store_client(store_addr, timeout)
    store.set(f"handle/{rank}", pg.get_reconfigure_handle())
    if rank == 0:
        store.set("uuid", str(uuid.uuid4().int >> 65))
    keys = ["uuid", *(f"handle/{peer}" for peer in range(world_size))]
    store.wait(keys, timeout)
    number, *handles = store.multi_get(keys)
    opts = ReconfigureOptions()
    opts.uuid, opts.handles, opts.timeout = int(number), [handle.decode() for handle in handles], timeout
    pg.reconfigure(opts).wait()


# ---- what all have ----


class ProcessGroup(dist.ProcessGroup):
    """What a fault tolerant group has to be able to do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group_name: Optional[str] = None
        self._id = uuid.uuid4().hex
        self._generation = 0  # so that no two meetings have the same handles
        self._replica_id: Optional[str] = None
        self._group_rank: Optional[int] = None
        self._group_world_size: Optional[int] = None
        self._global_rank: Optional[int] = None

    # ---- members ----

    @property
    def supports_reconfigure(self) -> bool:
        return True

    def set_rank_info(
        self, replica_id: str, group_rank: int, group_world_size: int, global_rank: Optional[int] = None
    ) -> None:
        """This rank's place: its group of ranks, its number there, and its number in the job."""
        self._replica_id, self._group_rank, self._group_world_size = replica_id, group_rank, group_world_size
        self._global_rank = global_rank

    def _handle_id(self) -> str:
        return self._id

    def get_reconfigure_handle(self) -> str:
        """What the others need to find this one: who it is, and where its process's store is."""
        return json.dumps({"id": self._handle_id(), "store": f"{url_host(own_name())}:{served_port()}",
                           "global_rank": self._global_rank, "generation": self._generation})

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        """The members are those of the handles, in their order; the calls of before are ended. Returns when all are
        there; raises when they do not come in time, and the group has no members then."""
        raise NotImplementedError(f"{self!r} can not be reconfigured")

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: Optional[int] = None,
        group_rank: Optional[int] = None,
        group_world_size: Optional[int] = None,
        global_ranks: Optional[List[int]] = None,
    ) -> None:
        """The same with ranks that are known, who meet at store_addr, "host:port/prefix", a prefix that is used once
        (torchft until 2026-04)."""
        raise NotImplementedError(f"{self!r} can not be configured")

    # ---- errors ----

    def abort(self) -> None:
        """Ends the calls in flight, here and at the others."""

    def shutdown(self) -> None:
        """Leaves the others."""

    def errored(self) -> Optional[Exception]:
        """Why the group is of no use until it is reconfigured."""
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        """The timeout of each call."""
        raise NotImplementedError(f"{self!r} has no timeout")

    # ---- PyTorch's registry ----

    def size(self) -> int:
        raise NotImplementedError(f"{self!r} has no size")

    def getBackendName(self) -> str:
        raise NotImplementedError(f"{self!r} has no backend")

    def _register(self, name: str) -> str:
        backend = f"{self.getBackendName()}:{name}"
        accelerator = torch.accelerator.current_accelerator()
        devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
        dist.Backend.register_backend(backend, lambda store, rank, size, timeout: self, devices=devices)
        return backend

    def register(self, name: str) -> "ProcessGroup":
        """Makes it known to torch.distributed under a name of its own: functional collectives and device meshes find
        it then. There it is a group of one rank, as nothing there can change its size."""
        backend = self._register(name)
        return dist.new_group(ranks=[dist.get_rank()], backend=backend, group_desc=backend, timeout=MINUTE)

    def unregister(self) -> None:
        dist.destroy_process_group(self)

    @property
    def group_name(self) -> str:
        if self._group_name is None:
            raise ValueError("the process group has no name: it is not registered")
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def broadcast_one(self, tensor: torch.Tensor, root: int) -> Work:
        opts = BroadcastOptions()
        opts.rootRank = root
        return self.broadcast([tensor], opts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


# ---- a group around another ----


class ProcessGroupWrapper(ProcessGroup):
    """Hands all calls to another group: to `pg`, or to what _create_pg makes for each set of members."""

    def __init__(self, timeout: timedelta = MINUTE, pg: Optional[dist.ProcessGroup] = None) -> None:
        super().__init__(0, 1)
        self._pg = pg
        self._timeout = timeout
        self._global_ranks: Optional[List[int]] = None
        self._quorum_id: Optional[int] = None
        self.errors_logger = logging.getLogger("torchft_errors")

    @property
    def parent(self) -> dist.ProcessGroup:
        if self._pg is None:
            raise RuntimeError("process group not initialized: it has no members until it is configured")
        return self._pg

    def _inner(self) -> Any:
        """The group inside, if that can be reconfigured itself."""
        return self._pg if getattr(self._pg, "supports_reconfigure", False) is True else None

    def set_rank_info(
        self, replica_id: str, group_rank: int, group_world_size: int, global_rank: Optional[int] = None
    ) -> None:
        super().set_rank_info(replica_id, group_rank, group_world_size, global_rank)
        if self._inner() is not None and hasattr(self._pg, "set_rank_info"):
            self._pg.set_rank_info(replica_id, group_rank, group_world_size, global_rank)

    def get_reconfigure_handle(self) -> str:
        inner = self._inner()
        return super().get_reconfigure_handle() if inner is None else inner.get_reconfigure_handle()

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        inner = self._inner()
        if inner is not None:
            return inner.reconfigure(opts)
        place = place_among(opts, self._handle_id())
        self._generation += 1
        self._quorum_id, self._global_ranks = opts.uuid, place.global_ranks
        self._replace(place, opts.timeout or self._timeout)
        return _DummyWork(None)

    def _replace(self, place: Place, timeout: timedelta) -> None:
        self._end_old()
        try:
            self._pg = self._create_pg(meeting_store(place, timeout), place.rank, place.world_size)
        except dist.DistBackendError as error:
            if "timed out" in str(error):
                raise self._late(error, timeout) from error
            raise

    def _late(self, error: Exception, timeout: timedelta) -> Exception:
        """Members did not come in time: in the words of gloo, too."""
        return dist.DistBackendError(f"{error} (timeout after {timeout / timedelta(milliseconds=1):g}ms)")

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: Optional[int] = None,
        group_rank: Optional[int] = None,
        group_world_size: Optional[int] = None,
        global_ranks: Optional[List[int]] = None,
    ) -> None:
        self._replica_id, self._group_rank, self._group_world_size = replica_id, group_rank, group_world_size
        self._quorum_id, self._global_ranks = quorum_id, global_ranks
        if hasattr(self._pg, "configure"):
            return self._pg.configure(store_addr, replica_id, rank, world_size, quorum_id, group_rank,
                                      group_world_size, global_ranks)
        self._end_old()
        self._pg = self._create_pg(create_store_client(store_addr, self._timeout), rank, world_size)

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        raise NotImplementedError(f"{self!r} can not be reconfigured: it neither wraps a group nor makes one")

    def _end_old(self) -> None:
        pg, self._pg = self._pg, None
        if pg is not None:
            pg.abort()

    def abort(self, errored: bool = True) -> None:
        if errored:
            self.errors_logger.info("", extra={
                "job_id": os.environ.get("JOB_ID", "unknown"), "replica_id": self._replica_id,
                "rank": self._group_rank, "quorum_id": self._quorum_id, "error": "process_group_abort"})
        if self._pg is not None:
            self._pg.abort()

    def shutdown(self) -> None:
        pg, self._pg = self._pg, None
        if pg is not None:
            pg.shutdown()

    def errored(self) -> Optional[Exception]:
        return self._pg.errored() if hasattr(self._pg, "errored") else None

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        if hasattr(self._pg, "set_timeout"):
            self._pg.set_timeout(timeout)

    def size(self) -> int:
        return self.parent.size()

    def getBackendName(self) -> str:
        if isinstance(self._pg, dist.ProcessGroup) and hasattr(self._pg, "getBackendName"):
            return self._pg.getBackendName()
        return "undefined" if self._pg is None else self._pg.name()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pg={self._pg})"

    # ---- calls ----

    def allgather(self, output_tensors: List[Tensors], input_tensor: Tensors, opts: AllgatherOptions) -> Work:
        return self.parent.allgather(output_tensors, input_tensor, opts)

    def allgather_into_tensor_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: AllgatherOptions
    ) -> Work:
        return self.parent.allgather_into_tensor_coalesced(output_tensors, input_tensors, opts)

    def allreduce(self, tensors: Tensors, opts: Union[AllreduceOptions, ReduceOp]) -> Work:
        return self.parent.allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: AllreduceCoalescedOptions) -> Work:
        return self.parent.allreduce_coalesced(tensors, opts)

    def alltoall_base(
        self,
        output_buffer: torch.Tensor,
        input_buffer: torch.Tensor,
        output_split_sizes: List[int],
        input_split_sizes: List[int],
        opts: AllToAllOptions,
    ) -> Work:
        return self.parent.alltoall_base(output_buffer, input_buffer, output_split_sizes, input_split_sizes, opts)

    def barrier(self, opts: Optional[BarrierOptions] = None) -> Work:
        return self.parent.barrier(BarrierOptions() if opts is None else opts)

    def broadcast(self, tensor_list: Tensors, opts: BroadcastOptions) -> Work:
        return self.parent.broadcast(tensor_list, opts)

    def recv(self, tensors: Tensors, src_rank: int, tag: int) -> Work:
        return self.parent.recv(tensors, src_rank, tag)

    def reduce_scatter(self, output_tensors: Tensors, input_tensors: List[Tensors], opts: ReduceScatterOptions) -> Work:
        return self.parent.reduce_scatter(output_tensors, input_tensors, opts)

    def reduce_scatter_tensor_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: ReduceScatterOptions
    ) -> Work:
        return self.parent.reduce_scatter_tensor_coalesced(output_tensors, input_tensors, opts)

    def send(self, tensors: Tensors, dst_rank: int, tag: int) -> Work:
        return self.parent.send(tensors, dst_rank, tag)


# ---- on tutti ----

_seats = itertools.count()


class ProcessGroupTutti(ProcessGroupWrapper):
    """On the backend tutti. An abort, and the death of a member, end the calls in flight at once, with a sentence that
    errored() returns from then on; the process lives on. Several of one process may be members of one group."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(with_torchft(cls))

    def __init__(self, timeout: Union[timedelta, float, None] = None) -> None:
        """`timeout` of each call: the manager's, or a minute, unless given."""
        given = timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout
        super().__init__(given or MINUTE)
        self.timeout_given = given is not None
        self._seat = next(_seats)
        self._backend: Optional[_C.Backend] = None
        self._lost: Optional[str] = None  # what ended the last one
        self._ends = self._ends_seen = 0  # aborts and shutdowns; those before the members began to meet
        self._life = threading.Lock()

    def _make_backend(self, store: Store, place: Place, survive: bool) -> _C.Backend:
        registration.end_with_process(os.getpid())
        options = _C.Backend.Options(store.timeout)  # until all are there
        options.seat, options.survive = self._seat, survive
        if hasattr(options, "group_name"):  # from 2.9 on
            options.group_name = f"ft_{place.number}_rank_{self._group_rank or 0}"
            options.global_ranks_in_group = place.global_ranks or []
        backend = _C.Backend(store, place.rank, place.world_size, options)
        backend._set_default_timeout(self._timeout)
        return backend

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        place = Place("", self._quorum_id, "", rank, world_size, self._global_ranks)
        backend = self._make_backend(store, place, survive=False)
        with self._life:
            ended = self._ends != self._ends_seen
            if not ended:
                self._backend, self._lost = backend, None
        if ended:
            backend.abort()
            backend.shutdown()
            raise dist.DistBackendError("the process group was aborted or shut down while its members met")
        return dist2.group_of(backend, store, kinds_of_devices())

    def _end_old(self) -> None:
        with self._life:
            backend, self._backend = self._backend, None
            self._pg, self._ends_seen = None, self._ends
        if backend is not None:  # what is over here may not be for others: only calls in flight are aborted
            backend._flush_within(timedelta(milliseconds=1), "the process group gets other members")
            backend.shutdown()

    def meet(self, opts: ReconfigureOptions) -> "Members":
        """A communicator of these members whose calls survive the death of some (docs/no_lost_step.md), beside the
        one in use: it becomes that by take()."""
        place = place_among(opts, self._handle_id())
        timeout = opts.timeout or self._timeout
        store = meeting_store(place, timeout)
        return Members(self._make_backend(store, place, survive=True), store)

    def take(self, members: "Members") -> None:
        """Calls are among these from now on. The others were given by the caller, and are his to leave."""
        with self._life:
            self._pg, self._backend, self._lost = members.group, members.backend, None

    def abort(self, errored: bool = True) -> None:
        with self._life:
            backend = self._backend
            self._ends += 1
            if self._lost is None:
                self._lost = (backend and backend._failure()) or "this rank aborted the process group"
        if backend is not None:
            backend.abort()
        if errored:
            logger.info("aborted: %s", self._lost)
            self._write_traces()

    def _write_traces(self) -> None:
        """The last calls of this rank, for torchfrtrace, where TORCHFT_TRIGGER_FR_ON_ABORT asks for them."""
        path = os.environ.get("TORCH_FR_DUMP_TEMP_FILE")
        if path and os.environ.get("TORCHFT_TRIGGER_FR_ON_ABORT", "").lower() in ("1", "true"):
            with open(f"{path}{self._group_rank or 0}", "wb") as file:
                file.write(_C.flight_recorder())

    def shutdown(self) -> None:
        with self._life:
            backend, self._backend = self._backend, None
            self._pg = None
            self._ends += 1
        if backend is not None:
            backend.shutdown()

    def errored(self) -> Optional[Exception]:
        with self._life:
            why = self._lost or (self._backend._failure() if self._backend is not None else "")
        return RuntimeError(f"the process group is aborted until it is reconfigured: {why}") if why else None

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        if self._backend is not None:
            self._backend._set_default_timeout(timeout)

    def getBackendName(self) -> str:
        return "tutti"


def kinds_of_devices() -> set:
    accelerator = torch.accelerator.current_accelerator()
    return {"cpu"} if accelerator is None else {"cpu", accelerator.type}


class Members:
    """Those that met (ProcessGroupTutti.meet)."""

    def __init__(self, backend: _C.Backend, store: Store) -> None:
        self.backend = backend
        self.group = dist2.group_of(backend, store, kinds_of_devices())

    @property
    def rank(self) -> int:
        return self.backend.rank()

    @property
    def size(self) -> int:
        return self.backend.size()

    def leave(self) -> None:
        """The others go on without this rank."""
        self.backend._flush_within(timedelta(milliseconds=1), "this rank leaves")
        self.backend.shutdown()


# Scripts name the group by what carries it; here one carries all.
ProcessGroupGloo = ProcessGroupNCCL = ProcessGroupXCCL = ProcessGroupTutti

_ELSEWHERE: Dict[str, str] = {name: module for module, names in {
    "wrappers": ("ErrorSwallowingProcessGroupWrapper", "FakeProcessGroupWrapper", "ManagedProcessGroup",
                 "ProcessGroupDummy", "_ErrorSwallowingWork"),
    "baby": ("ProcessGroupBabyGloo", "ProcessGroupBabyNCCL", "ProcessGroupBabyTutti", "ProcessGroupBabyXCCL"),
}.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __package__), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
