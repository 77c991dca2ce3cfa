# SPDX-License-Identifier: BSD-3-Clause
"""States over HTTP: the sender offers a copy of its state and goes on; receivers fetch it in pieces, from one or
several senders, each piece with a sum of its own. No pickle."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import Callable, Iterator, List, Optional, TypeVar

from .fetching import Fetch, OtherStateError, Progress
from .plain import check_plain
from .snapshot_server import SnapshotServer
from .stream import Incoming, Snapshot
from .transport import CheckpointTransport

T = TypeVar("T")
logger = logging.getLogger(__name__)


@contextmanager
def _time(what: str) -> Iterator[List[int]]:
    """Logs how long it took; and for how many bytes, if they are put into the list."""
    begun, size = time.monotonic(), []
    yield size
    took = time.monotonic() - begun
    logger.info("%s: %d MiB in %.2f s (%.2f GB/s)", what, sum(size) >> 20, took, sum(size) / took / 1e9)


class HTTPTransport(CheckpointTransport[T]):
    """`num_chunks` is torchft's, and means nothing here: pieces have one size. `state_dict`: returns the state into
    whose tensors a received one is written where they fit, instead of into new ones. `progress(bytes, of)` is called
    as pieces arrive. With a secret of the job who does not know it gets nothing, and is not believed; without one this
    host alone is served (trust.py)."""

    several_sources = True

    def __init__(
        self,
        timeout: timedelta,
        num_chunks: int = 0,
        state_dict: Optional[Callable[[], T]] = None,
        allow_pickle: bool = False,
        progress: Optional[Progress] = None,
    ) -> None:
        self._timeout, self._state_dict, self._allow_pickle = timeout, state_dict, allow_pickle
        self._progress = progress
        self._left: Optional[Incoming] = None  # a state that did not come to its end
        self._server = SnapshotServer()

    @property
    def in_place(self) -> bool:
        return self._state_dict is not None

    def metadata(self) -> str:
        """The address; several with commas between are several sources of one state."""
        return self._server.address()

    def send_checkpoint(self, dst_ranks: List[int], step: int, state_dict: T, timeout: timedelta) -> None:
        with _time(f"the state of step {step} is copied") as size:
            snapshot = Snapshot(state_dict, self._allow_pickle, self._server.take_back(), step)
            size.append(snapshot.payload.numel())
        self._server.offer(step, snapshot)

    def check_state(self, state_dict: T) -> None:
        check_plain(state_dict, self._allow_pickle)

    def refuse(self, dst_ranks: List[int], step: int, why: str) -> None:
        self._server.refuse(step, why)

    def disallow_checkpoint(self) -> None:
        """Waits for nobody: readers have a copy of the state."""
        self._server.withdraw()

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> T:
        deadline = time.monotonic() + timeout.total_seconds()
        sources = [f"{base.strip().rstrip('/')}/{step}/" for base in metadata.split(",") if base.strip()]
        into = self._state_dict and self._state_dict()
        fetch = Fetch(sources, lambda header: self._open_state(header, step, into), deadline,
                      self._server.token, self._progress)
        with _time(f"the state of step {step} came from {len(sources)} sources") as size:
            try:
                incoming = fetch.run()
            finally:
                self._left = fetch.left
            size.append(incoming.n_bytes)
            return incoming.state()

    def _open_state(self, header: bytes, step: int, into: Optional[T]) -> Incoming:
        """A new one, or that of an earlier try: what is in memory of our own is still there."""
        incoming, self._left = self._left, None
        if incoming is not None and incoming.header == header and incoming.payload is not None:
            incoming.aim(into)
        else:
            incoming = Incoming(header, self._allow_pickle, into)
        if incoming.step != step:
            raise OtherStateError(f"it is the state of step {incoming.step}, not {step}")
        return incoming

    # ---- what torchft's has, too ----

    def allow_checkpoint(self, step: int) -> None:
        """A group that asks for this step gets its state, which was sent, or waits until it is."""
        self._server.allow(step)

    @property
    def _step(self) -> int:
        return self._server.state()[0]

    @property
    def _disallowed(self) -> bool:
        return not self._server.state()[1]

    @property
    def _checkpoint_lock(self) -> "HTTPTransport[T]":
        return self

    def w_locked(self) -> bool:
        """That nobody begins to read now."""
        return self._disallowed

    def shutdown(self, wait: bool = True) -> None:
        self._server.shutdown(wait)
