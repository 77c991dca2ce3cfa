# SPDX-License-Identifier: BSD-3-Clause
"""Fetches a state from several sources at once. The first one that answers says what the state is; every other
brings those pieces that are the same there. Pieces are taken in turn, so a slow source gets few; what one has not
brought after a while is fetched from another, too; one that fails is not asked again. What is there when all fail stays
there, and the next fetch of the same state goes on behind it."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
import urllib.error
import urllib.parse
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Deque, Dict, List, Optional, Set, Tuple

import torch

from ..trust import Token
from .plain import NotPlain
from .snapshot_server import DIGESTS, REFUSED
from .stream import HEADER_MAX, PIECE, DamagedError, Incoming, digest_of

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # bytes that are there, of how many
Batch = Tuple[int, int]  # its first piece, and the one behind it
BATCH = 4  # pieces of one request
CONNECTIONS = 2  # to each source
TRIES = 2  # with one source, in a row
SLOW = 0.5  # seconds after which a batch is asked of another source, too


class OtherStateError(RuntimeError):
    """The source has nothing that belongs to this state."""


REFUSALS = (urllib.error.HTTPError, OtherStateError, NotPlain)  # nothing is gained by asking again


@dataclass
class Flight:
    """A batch on its way."""

    since: float = field(default_factory=time.monotonic)
    sources: List[str] = field(default_factory=list)


class Fetch:
    """One state, from sources with addresses as "http://host:port/checkpoint/STEP/". `make`: of its header."""

    def __init__(self, sources: List[str], make: Callable[[bytes], Incoming], deadline: float, token: Token,
                 progress: Optional[Progress] = None) -> None:
        self._sources, self._make, self._deadline, self._token = sources, make, deadline, token
        self._progress = progress
        self._changed = threading.Condition()
        self.incoming: Optional[Incoming] = None
        self.left: Optional[Incoming] = None  # what another fetch of the same state can go on with
        self._there = 0  # bytes
        self._todo: Deque[Batch] = deque()
        self._flights: Dict[Batch, Flight] = {}
        self._claimed: Set[int] = set()  # checked, and being stored
        self._errors: Dict[str, Exception] = {}
        self._alive = 0  # connections
        self._open: Set[http.client.HTTPConnection] = set()
        self._threads: List[threading.Thread] = []
        self._over = False
        self._told = time.monotonic()

    def run(self) -> Incoming:
        """Until all is there. Raises what the only source said, or TimeoutError or RuntimeError with what each did."""
        with self._changed:
            for source in self._sources:
                self._start(source, None)
            self._changed.wait_for(lambda: self._done() or self._alive == 0,
                                   max(0.0, self._deadline - time.monotonic()))
            self._over, done = True, self._done()
        self._hang_up()
        if done:
            return self.incoming
        raise self._failure()

    def _done(self) -> bool:
        return self.incoming is not None and not self.incoming.missing

    def _failure(self) -> Exception:
        late = time.monotonic() >= self._deadline or any(
            isinstance(error, TimeoutError) for error in self._errors.values())
        if self.incoming is None:
            if late:
                return urllib.error.URLError(TimeoutError(f"timed out: no source has the state {self._errors or ''}"))
            return next(iter(self._errors.values()), ValueError("recv_checkpoint: the metadata names no source"))
        if not any(thread.is_alive() for thread in self._threads):  # which may still write there
            self.left = self.incoming
        what = f"{len(self.incoming.missing)} of {self.incoming.n_pieces} pieces of the state are missing"
        errors = {source: str(error) for source, error in self._errors.items()}
        return TimeoutError(f"timed out: {what} {errors or ''}") if late else RuntimeError(f"{what}: {errors}")

    def _hang_up(self) -> None:
        with self._changed:
            self._changed.notify_all()
            for connection in self._open:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except (OSError, AttributeError):
                    pass  # it has ended by itself
        until = time.monotonic() + 1
        for thread in self._threads if not self._done() else []:
            thread.join(max(0.0, until - time.monotonic()))

    # ---- one connection ----

    def _start(self, source: str, has: Optional[Set[int]]) -> None:
        self._alive += 1
        self._threads.append(threading.Thread(target=self._work, args=(source, has), name="tutti_ft_fetch",
                                              daemon=True))
        self._threads[-1].start()

    def _work(self, source: str, has: Optional[Set[int]]) -> None:
        """`has`: pieces that the source has; None: it is to be asked."""
        connection: Optional[http.client.HTTPConnection] = None
        failed = 0
        while failed < TRIES and not self._over:
            try:
                connection = connection or self._connect(source)
                if has is None:
                    has = self._begin(connection, source)
                elif not self._bring(connection, source, has):
                    break
                failed = 0
            except Exception as error:
                failed = TRIES if isinstance(error, REFUSALS) else failed + 1
                connection = self._drop(connection)
                self._note(source, error)
        self._drop(connection)
        with self._changed:
            self._alive -= 1
            self._changed.notify_all()

    def _note(self, source: str, error: Exception) -> None:
        with self._changed:
            if self._over:
                return
            self._errors[source] = error
        logger.warning("%s failed: %s", source, error)

    def _connect(self, source: str) -> http.client.HTTPConnection:
        url = urllib.parse.urlsplit(source)
        rest = self._deadline - time.monotonic()
        if rest <= 0:
            raise TimeoutError("timed out")
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=rest)
        connection.connect()
        with self._changed:
            self._open.add(connection)
        return connection

    def _drop(self, connection: Optional[http.client.HTTPConnection]) -> None:
        if connection is not None:
            with self._changed:
                self._open.discard(connection)
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, url: str, part: str, status: int
             ) -> Tuple[http.client.HTTPResponse, str]:
        """The answer, and by which words it was asked for."""
        rest = self._deadline - time.monotonic()
        if rest <= 0:
            raise TimeoutError("timed out")
        connection.sock.settimeout(rest)
        path = url[url.index("/", len("http://")) :]
        headers = self._token.headers(path, part)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != status or response.length is None:
            response.close()
            if response.status == REFUSED:
                raise NotPlain(f"the state of the group that this one is to catch up with can not travel: "
                               f"{response.reason}")
            raise urllib.error.HTTPError(url, response.status, response.reason, response.headers, None)
        return response, headers.get("Authorization", "")

    def _begin(self, connection: http.client.HTTPConnection, source: str) -> Set[int]:
        """What the source has of the state, and another connection to it."""
        wait = max(0.0, self._deadline - time.monotonic())
        response, asked = self._ask(connection, f"{source}header?wait={wait:.3f}", "", 200)
        with response:
            if response.length > HEADER_MAX:
                raise OtherStateError(f"it announces a header of {response.length} bytes")
            header = response.read()
        if not self._token.is_proved(asked, header, response.headers.get("Tutti-Proof", "")):
            raise OtherStateError("it does not prove that it knows the job's secret")
        with self._changed:
            if self.incoming is None:
                self._open_state(header)
            has = self.incoming.alike(header)
            if self.incoming.n_pieces and not has:
                raise OtherStateError("its state is another one")
            for _ in range(CONNECTIONS - 1 if self.incoming.missing else 0):
                self._start(source, has)
            self._changed.notify_all()
        return has

    def _open_state(self, header: bytes) -> None:
        self.incoming = self._make(header)
        missing = sorted(self.incoming.missing)
        self._there = self.incoming.n_bytes - sum(map(self._bytes_of, missing))
        begin = 0
        for i in range(1, len(missing) + 1):
            if i == len(missing) or missing[i] != missing[i - 1] + 1 or i - begin == BATCH:
                self._todo.append((missing[begin], missing[i - 1] + 1))
                begin = i

    # ---- who brings what ----

    def _bring(self, connection: http.client.HTTPConnection, source: str, has: Set[int]) -> bool:
        """False: nothing is left to bring."""
        batch = self._take(source, has)
        if batch is None:
            return False
        try:
            self._get(connection, source, batch)
        finally:
            self._give_back(source, batch)
        return True

    def _take(self, source: str, has: Set[int]) -> Optional[Batch]:
        with self._changed:
            while not self._over and not self.incoming.missing.isdisjoint(has):
                batch = self._next(has) or self._slow(source, has)
                if batch is not None:
                    self._flights.setdefault(batch, Flight()).sources.append(source)
                    return batch
                self._changed.wait(0.1)
            return None

    def _next(self, has: Set[int]) -> Optional[Batch]:
        """The first pieces that nobody fetches, and this source has."""
        for i, (first, end) in enumerate(self._todo):
            begin = next((piece for piece in range(first, end) if piece in has), end)
            stop = next((piece for piece in range(begin, end) if piece not in has), end)
            if begin < stop:
                del self._todo[i]
                self._todo.extendleft(rest for rest in ((stop, end), (first, begin)) if rest[0] < rest[1])
                return begin, stop
        return None

    def _slow(self, source: str, has: Set[int]) -> Optional[Batch]:
        """What others have had for too long."""
        before = time.monotonic() - SLOW
        for batch, flight in self._flights.items():
            if flight.since < before and source not in flight.sources and has.issuperset(range(*batch)):
                flight.since = time.monotonic()  # a third source waits for the second
                return batch
        return None

    def _give_back(self, source: str, batch: Batch) -> None:
        with self._changed:
            flight = self._flights[batch]
            flight.sources.remove(source)
            if not flight.sources:
                del self._flights[batch]
                left = [piece for piece in range(*batch) if piece in self.incoming.missing]
                if left:
                    self._todo.appendleft((left[0], batch[1]))
            self._changed.notify_all()

    # ---- pieces ----

    def _get(self, connection: http.client.HTTPConnection, source: str, batch: Batch) -> None:
        begin, end = batch[0] * PIECE, min(batch[1] * PIECE, self.incoming.n_bytes)
        response, asked = self._ask(connection, f"{source}payload", f"bytes={begin}-{end - 1}", 206)
        with response:
            if response.length != end - begin:
                raise http.client.HTTPException(f"{response.length} bytes came of {end - begin}")
            digests = self._digests(response, asked, batch[1] - batch[0])
            for piece, digest in zip(range(*batch), digests):
                self._read(response, piece, digest)

    def _digests(self, response: http.client.HTTPResponse, asked: str, n: int) -> List[Optional[str]]:
        """What each piece has to be, by the word of a server that knows the job's secret; without one: anything."""
        if not asked:
            return [None] * n
        words = response.headers.get(DIGESTS, "")
        digests: List[Optional[str]] = list(words.split(","))
        proof = response.headers.get("Tutti-Proof", "")
        if len(digests) != n or not self._token.is_proved(asked, words.encode(), proof):
            raise OtherStateError("it does not prove by the job's secret what it sends")
        return digests

    def _read(self, response: http.client.HTTPResponse, piece: int, digest: Optional[str]) -> None:
        first, end = self.incoming.range_of(piece)
        # With several sources two may bring one piece, and the second must not write over the first's.
        own = self.incoming.memory_of(piece) if len(self._sources) == 1 else None
        data = torch.empty(end - first, dtype=torch.uint8) if own is None else own
        view = memoryview(data.numpy())
        while view:
            n = response.readinto(view)
            if not n:
                raise http.client.IncompleteRead(b"")
            view = view[n:]
        self.incoming.check(piece, data)
        if digest is not None and digest_of(data) != digest:
            raise DamagedError(f"piece {piece} of {self.incoming.n_pieces} was changed on its way")
        if self._claim(piece):
            try:
                if own is None:
                    self.incoming.store(piece, data)
            except BaseException:
                with self._changed:
                    self._claimed.discard(piece)  # another source may bring it
                raise
            self._have(piece)

    def _claim(self, piece: int) -> bool:
        with self._changed:
            if self._over or piece not in self.incoming.missing or piece in self._claimed:
                return False
            self._claimed.add(piece)
            return True

    def _have(self, piece: int) -> None:
        with self._changed:
            self._claimed.discard(piece)
            self.incoming.missing.discard(piece)
            self._there += self._bytes_of(piece)
            self._tell()
            self._changed.notify_all()

    def _bytes_of(self, piece: int) -> int:
        first, end = self.incoming.range_of(piece)
        return end - first

    def _tell(self) -> None:
        now, n_bytes = time.monotonic(), self.incoming.n_bytes
        if self._progress is not None:
            self._progress(self._there, n_bytes)
        if now - self._told > 2:
            self._told = now
            logger.info("%d of %d MiB of the state are here", self._there >> 20, n_bytes >> 20)
