# SPDX-License-Identifier: BSD-3-Clause
"""Where groups meet that get other members: each process serves one store, whose address is in the handles of its
groups; those who are to become one group meet in the store of the first of them. So nothing that is needed was made by
somebody who may be gone."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Dict, List, Optional, Set, Tuple, Union

from torch.distributed import Store, TCPStore

from .. import _C
from .trust import LOOPBACK, listening_host, own_name, secret

try:
    from torch._C._distributed_c10d import ReconfigureOptions
except ImportError:  # before 2.14

    @dataclass
    class ReconfigureOptions:  # type: ignore[no-redef]
        """The members of a group: handles in the order of the ranks, under a number that they use once."""

        uuid: int = 0
        handles: Union[List[str], Set[str]] = field(default_factory=list)
        timeout: Optional[timedelta] = None
        hints: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """What one member reads from the handles of all."""

    store: str  # "host:port" of the first member
    number: int  # the meeting's
    digest: str  # over the members
    rank: int
    world_size: int
    global_ranks: Optional[List[int]]

    @property
    def prefix(self) -> str:
        return f"{self.number}/{self.digest}/"

    @property
    def store_addr(self) -> str:
        """As torchft's names it, which knows no digest."""
        return f"{self.store}/torchft/{self.number}"


def place_among(opts: ReconfigureOptions, own_id: str) -> Place:
    """Raises ValueError where the handles do not say it."""
    handles = opts.handles
    if not isinstance(handles, list):
        raise ValueError("reconfigure: the handles are a set, but ranks are in their order: give a list")
    try:
        peers = [json.loads(handle) for handle in handles]
        ids = [peer["id"] for peer in peers]
        ranks = [peer["global_rank"] for peer in peers]
        store = peers[0]["store"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"reconfigure: handles that are none of get_reconfigure_handle: {handles}") from error
    if ids.count(own_id) != 1:
        raise ValueError(f"reconfigure: this rank's handle is {ids.count(own_id)} times among the {len(ids)} given")
    # The whole list, so that members who were told otherwise, or another group of the process, do not meet these.
    digest = hashlib.sha256("\n".join(handles).encode()).hexdigest()[:24]
    return Place(store, opts.uuid, digest, ids.index(own_id), len(ids),
                 None if None in ranks else ranks)


def split_address(address: str) -> Tuple[str, int]:
    """"host:port", "[v6]:port" or "v6:port"."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"'{address}' is no address: host:port is")
    return host.strip("[]"), int(port)


def store_at(host: str, port: int, timeout: timedelta) -> TCPStore:
    """The store that the group's launcher serves, which may be starting. PyTorch's own client tries for a minute and
    longer, whatever it is told; so the address is dialled first."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        rest = deadline - time.monotonic()
        try:
            socket.create_connection((host, port), max(0.05, rest)).close()
            break
        except (OSError, OverflowError) as error:
            if rest <= 0.1:
                raise TimeoutError(f"timed out: no store answers at {host}:{port} (MASTER_ADDR, MASTER_PORT) within "
                                   f"{timeout.total_seconds():g} s: {error}") from error
        time.sleep(0.1)
    return TCPStore(host_name=host, port=port, is_master=False, wait_for_workers=False,
                    timeout=max(timedelta(seconds=1), timedelta(seconds=deadline - time.monotonic())))


# ---- the process's own store ----

_lock = threading.Lock()
_served: Dict[int, _C.StoreServer] = {}  # by process; a forked one keeps its parent's, whose thread it does not have


def served_port() -> int:
    """The port of this process's store, which is served from now on."""
    with _lock:
        if os.getpid() not in _served:
            _served[os.getpid()] = _C.StoreServer(listening_host(), secret=secret())
        return _served[os.getpid()].port


def meeting_store(place: Place, timeout: timedelta) -> Store:
    host, port = split_address(place.store)
    if host == own_name():
        host = LOOPBACK
    try:
        return _C.OwnStore(host, port, place.prefix, timeout, secret())
    except Exception as error:
        if place.store.startswith(LOOPBACK) and not secret():
            raise type(error)(f"{error}; members of other hosts are not reached without the job's secret: give all "
                              "ranks the same TUTTI_SECRET or TUTTI_SECRET_FILE") from error
        raise
