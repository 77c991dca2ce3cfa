# SPDX-License-Identifier: BSD-3-Clause
"""States over HTTP: the sender offers a copy of its state and goes on; receivers fetch it in pieces, from one or
several senders, each piece with a sum of its own. No pickle."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Callable, List, Optional, TypeVar

from .fetching import Fetch, Progress
from .snapshot_server import SnapshotServer
from .stream import Incoming, Snapshot
from .transport import CheckpointTransport

T = TypeVar("T")
logger = logging.getLogger(__name__)


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

    def metadata(self) -> str:
        """The address; several with commas between are several sources of one state."""
        return self._server.address()

    def send_checkpoint(self, dst_ranks: List[int], step: int, state_dict: T, timeout: timedelta) -> None:
        begun = time.monotonic()
        snapshot = Snapshot(state_dict, self._allow_pickle, self._server.take_back())
        self._server.offer(step, snapshot)
        logger.info("offers %d MiB of step %d after %.2f s", snapshot.payload.numel() >> 20, step,
                    time.monotonic() - begun)

    def disallow_checkpoint(self) -> None:
        """Waits for nobody: readers have a copy of the state."""
        self._server.withdraw()

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> T:
        begun = time.monotonic()
        sources = [f"{base.strip().rstrip('/')}/{step}/" for base in metadata.split(",") if base.strip()]
        into = self._state_dict and self._state_dict()
        fetch = Fetch(sources, lambda header: self._open_state(header, into), begun + timeout.total_seconds(),
                      self._server.token, self._progress)
        try:
            incoming = fetch.run()
        finally:
            self._left = fetch.left
        state = incoming.state()
        took = time.monotonic() - begun
        logger.info("got %d MiB of step %d from %d sources in %.2f s (%.2f GB/s)", incoming.n_bytes >> 20, step,
                    len(sources), took, incoming.n_bytes / took / 1e9)
        return state

    def _open_state(self, header: bytes, into: Optional[T]) -> Incoming:
        """A new one, or that of an earlier try: what is in memory of our own is still there."""
        left, self._left = self._left, None
        if left is None or left.header != header or left.payload is None:
            return Incoming(header, self._allow_pickle, into)
        left.aim(into)
        return left

    def shutdown(self, wait: bool = True) -> None:
        self._server.shutdown(wait)
