# SPDX-License-Identifier: BSD-3-Clause
"""A fault tolerant process group over a communicator of torchcomms' API: tutti_torch.comms, or the package itself."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist
from torch.distributed import Store

from .. import dist2
from .process_group import MINUTE, ProcessGroupWrapper

HANDLE = "torchcomms_init_handle/{}"


class ProcessGroupTorchComms(ProcessGroupWrapper):
    """`comm` was made with enable_reconfigure=True, and is this group's from now on: configuring the group gives it
    other members. They tell one another their handles in the store that the quorum names."""

    def __init__(self, comm: Any, timeout: timedelta = MINUTE) -> None:
        super().__init__(timeout)
        self._comm = comm

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        store.set(HANDLE.format(rank), self._comm.get_init_handle())
        handles = [store.get(HANDLE.format(peer)).decode() for peer in range(world_size)]
        self._comm.reconfigure(self._quorum_id or 0, handles, timeout=self._timeout).wait()
        wrap = getattr(sys.modules.get(type(self._comm).__module__), "_BackendWrapper", None)
        backend = wrap(self._comm) if wrap is not None else self._comm.get_backend_impl()
        return dist2.group_of(backend, store, {self._comm.get_device().type})

    def _end_old(self) -> None:
        self._pg = None  # the communicator ends its old members when it gets others

    def abort(self, errored: bool = True) -> None:
        self._pg = None
        super().abort(errored)
        self._comm.abort()

    def shutdown(self) -> None:
        self._pg = None
        self._comm.finalize()

    def errored(self) -> Optional[Exception]:
        if not self._comm.is_aborted():
            return None
        return RuntimeError("the communicator is aborted until the group is reconfigured")

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def getBackendName(self) -> str:
        return str(self._comm.get_backend())
