# SPDX-License-Identifier: BSD-3-Clause
"""Fetches the payload of a state from several sources at once. Pieces are taken in turn, so a slow source gets few;
what one has not brought when nothing else is left is fetched from another, too; one that fails is not asked again."""

from __future__ import annotations

import http.client
import logging
import threading
import time
import urllib.parse
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Set, Tuple

import torch

from .stream import PIECE, DamagedError, Incoming

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # bytes that are there, of how many
BATCH = 4  # pieces of one request
CONNECTIONS = 2  # to each source
TRIES = 2  # of one source, in a row


class Fetch:
    """One state, from sources with addresses as "http://host:port/checkpoint/STEP/"."""

    def __init__(self, incoming: Incoming, sources: List[str], deadline: float, progress: Optional[Progress]) -> None:
        self._incoming, self._sources, self._deadline, self._progress = incoming, sources, deadline, progress
        self._changed = threading.Condition()
        self._todo: Deque[Tuple[int, int]] = deque(
            (first, min(first + BATCH, incoming.n_pieces)) for first in range(0, incoming.n_pieces, BATCH))
        self._in_flight: Dict[Tuple[int, int], int] = {}  # by how many
        self._missing: Set[int] = set(range(incoming.n_pieces))
        self._claimed: Set[int] = set()  # checked, and being stored
        self._errors: Dict[str, str] = {}
        self._alive = len(sources) * CONNECTIONS
        self._bytes = 0
        self._told = time.monotonic()

    def run(self) -> None:
        """Until all is there; raises TimeoutError or RuntimeError, saying what each source did."""
        for source in self._sources * CONNECTIONS if self._missing else []:
            threading.Thread(target=self._work, args=(source,), name="tutti_ft_fetch", daemon=True).start()
        with self._changed:
            over = self._changed.wait_for(lambda: not self._missing or self._alive == 0,
                                          max(0.0, self._deadline - time.monotonic()))
            missing, self._todo = len(self._missing), deque()
            if not missing:
                return
            self._missing = set()
        what = f"{missing} of {self._incoming.n_pieces} pieces of the state are missing"
        if not over or time.monotonic() >= self._deadline:
            raise TimeoutError(f"timed out: {what} {self._errors or ''}")
        raise RuntimeError(f"{what}: {self._errors}")

    # ---- one connection ----

    def _work(self, source: str) -> None:
        connection: Optional[http.client.HTTPConnection] = None
        failed = 0
        try:
            while failed < TRIES:
                batch = self._take()
                if batch is None:
                    return
                try:
                    connection = connection or self._connect(source)
                    self._get(connection, source, batch)
                    failed = 0
                except (OSError, http.client.HTTPException, DamagedError) as error:
                    failed += 1
                    connection = self._drop(connection)
                    with self._changed:
                        self._errors[source] = str(error) or type(error).__name__
                    logger.warning("%s failed: %s", source, error)
                finally:
                    self._give_back(batch)
        finally:
            self._drop(connection)
            with self._changed:
                self._alive -= 1
                self._changed.notify_all()

    def _connect(self, source: str) -> http.client.HTTPConnection:
        url = urllib.parse.urlsplit(source)
        return http.client.HTTPConnection(url.hostname or "", url.port,
                                          timeout=max(0.001, self._deadline - time.monotonic()))

    @staticmethod
    def _drop(connection: Optional[http.client.HTTPConnection]) -> None:
        if connection is not None:
            connection.close()

    def _take(self) -> Optional[Tuple[int, int]]:
        """What is to be fetched next; None: nothing any more."""
        with self._changed:
            while self._missing and time.monotonic() < self._deadline:
                if self._todo:
                    batch = self._todo.popleft()
                else:  # what others have had for longest, if nobody doubles it yet
                    doubled = (known for known, by in self._in_flight.items() if by == 1)
                    batch = next(doubled, None) if len(self._sources) > 1 else None
                if batch is not None:
                    self._in_flight[batch] = self._in_flight.get(batch, 0) + 1
                    return batch
                self._changed.wait(0.1)
            return None

    def _give_back(self, batch: Tuple[int, int]) -> None:
        with self._changed:
            by = self._in_flight.pop(batch) - 1
            if by:
                self._in_flight[batch] = by
            elif any(piece in self._missing for piece in range(*batch)):
                self._todo.appendleft(batch)
            self._changed.notify_all()

    def _get(self, connection: http.client.HTTPConnection, source: str, batch: Tuple[int, int]) -> None:
        begin, end = batch[0] * PIECE, min(batch[1] * PIECE, self._incoming.n_bytes)
        path = urllib.parse.urlsplit(source).path
        connection.request("GET", f"{path}payload", headers={"Range": f"bytes={begin}-{end - 1}"})
        response = connection.getresponse()
        if response.status != 206 or response.length != end - begin:
            raise http.client.HTTPException(f"{response.status} {response.reason}")
        for piece in range(*batch):
            self._read(response, piece)

    def _read(self, response: http.client.HTTPResponse, piece: int) -> None:
        first, end = self._incoming.range_of(piece)
        # With several sources two may bring one piece, and the second must not write over the first's.
        own = self._incoming.memory_of(piece) if len(self._sources) == 1 else None
        data = torch.empty(end - first, dtype=torch.uint8) if own is None else own
        view = memoryview(data.numpy())
        while view:
            n = response.readinto(view)
            if not n:
                raise http.client.IncompleteRead(b"")
            view = view[n:]
        self._incoming.check(piece, data)
        with self._changed:
            if piece not in self._missing or piece in self._claimed:
                return
            self._claimed.add(piece)
        if own is None:
            self._incoming.store(piece, data)
        with self._changed:
            self._missing.discard(piece)
            self._bytes += end - first
            self._tell()
            self._changed.notify_all()

    def _tell(self) -> None:
        now = time.monotonic()
        if self._progress is not None:
            self._progress(self._bytes, self._incoming.n_bytes)
        if now - self._told > 2:
            self._told = now
            logger.info("%d of %d MiB of the state are here", self._bytes >> 20, self._incoming.n_bytes >> 20)
