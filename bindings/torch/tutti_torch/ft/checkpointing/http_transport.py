# SPDX-License-Identifier: BSD-3-Clause
"""States over HTTP: the sender offers a copy of its state and goes on; receivers fetch it in pieces, from one or
several senders, each piece with a sum of its own. No pickle."""

from __future__ import annotations

import logging
import time
import urllib.request
from datetime import timedelta
from typing import Callable, List, Optional, Tuple, TypeVar

from .fetching import Fetch, Progress
from .snapshot_server import SnapshotServer
from .stream import Incoming, Snapshot, parse_header
from .transport import CheckpointTransport

T = TypeVar("T")
logger = logging.getLogger(__name__)


class HTTPTransport(CheckpointTransport[T]):
    """`num_chunks` is torchft's, and means nothing here: pieces have one size. `state_dict`: returns the state into
    whose tensors a received one is written where they fit, instead of into new ones. `progress(bytes, of)` is called
    as pieces arrive."""

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
        deadline = begun + timeout.total_seconds()
        sources = [f"{base.strip().rstrip('/')}/{step}/" for base in metadata.split(",") if base.strip()]
        header, alike = self._headers(sources, deadline)
        incoming = Incoming(header, self._allow_pickle, self._state_dict and self._state_dict())
        Fetch(incoming, alike, deadline, self._progress).run()
        state = incoming.state()
        took = time.monotonic() - begun
        logger.info("got %d MiB of step %d from %d sources in %.2f s (%.2f GB/s)", incoming.n_bytes >> 20, step,
                    len(alike), took, incoming.n_bytes / took / 1e9)
        return state

    def _headers(self, sources: List[str], deadline: float) -> Tuple[bytes, List[str]]:
        """The header, and the sources that have the very state that it describes. Those that do not answer are left
        out, unless none does."""
        found: List[Tuple[bytes, str]] = []
        failed: Optional[Exception] = None
        for source in sources:
            rest = max(0.0, deadline - time.monotonic())
            wait = rest if not found else min(rest, 1.0)
            try:
                with urllib.request.urlopen(f"{source}header?wait={wait:.3f}", timeout=wait) as answer:
                    header = answer.read()
                parse_header(header)
                found.append((header, source))
            except Exception as error:
                failed = error
                logger.warning("%s has no state to give: %s", source, error)
        if not found:
            raise failed or ValueError("recv_checkpoint: the metadata names no source")
        alike = [source for header, source in found if header == found[0][0]]
        return found[0][0], alike

    def shutdown(self, wait: bool = True) -> None:
        self._server.shutdown(wait)
