# SPDX-License-Identifier: BSD-3-Clause
"""A lock that many may hold for reading or one for writing, with a deadline."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, Iterator, Optional


class RWLock:
    """`timeout` in seconds; below 0: none. Any thread may release it."""

    def __init__(self, timeout: float = -1) -> None:
        self.timeout: Optional[float] = None if timeout < 0 else timeout
        self._changed = threading.Condition()
        self._readers = 0
        self._writing = False

    def _acquire(self, free: Callable[[], bool], what: str) -> None:
        if not self._changed.wait_for(free, self.timeout):
            raise TimeoutError(f"timed out after {self.timeout} seconds waiting to {what}: "
                               f"{self._readers} read, {int(self._writing)} writes")

    def r_acquire(self) -> None:
        with self._changed:
            self._acquire(lambda: not self._writing, "read")
            self._readers += 1

    def r_release(self) -> None:
        with self._changed:
            if self._readers == 0:
                raise RuntimeError("nobody reads who could release it")
            self._readers -= 1
            self._changed.notify_all()

    def w_acquire(self) -> None:
        with self._changed:
            self._acquire(lambda: not self._writing and self._readers == 0, "write")
            self._writing = True

    def w_release(self) -> None:
        with self._changed:
            if not self._writing:
                raise RuntimeError("nobody writes who could release it")
            self._writing = False
            self._changed.notify_all()

    def w_locked(self) -> bool:
        with self._changed:
            return self._writing

    @contextlib.contextmanager
    def r_lock(self) -> Iterator[None]:
        self.r_acquire()
        try:
            yield
        finally:
            self.r_release()

    @contextlib.contextmanager
    def w_lock(self) -> Iterator[None]:
        self.w_acquire()
        try:
            yield
        finally:
            self.w_release()
