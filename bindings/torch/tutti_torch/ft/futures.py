# SPDX-License-Identifier: BSD-3-Clause
"""Deadlines for what has none: one thread for all of a process."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import threading
import time
from datetime import timedelta
from typing import Callable, Iterator, List, Optional, Tuple, TypeVar

import torch

from .timeouts import seconds_of
from .utils import record_event

T = TypeVar("T")
WATCHDOG_TIMEOUT_SEC = "TORCHFT_WATCHDOG_TIMEOUT_SEC"
logger = logging.getLogger(__name__)


class _Alarm:
    """Calls a function at its time, unless it was cancelled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Optional[Callable[[], None]] = function
        self._lock = threading.Lock()

    def cancel(self) -> bool:
        """Whether it had not rung; what the function holds is let go of."""
        with self._lock:
            function, self._function = self._function, None
        return function is not None

    def ring(self) -> None:
        with self._lock:
            function, self._function = self._function, None
        if function is not None:
            function()


class _TimeoutManager:
    """One thread with all deadlines of a process, which starts with the first of them, and again in a process that was
    forked. A function that it calls should return at once, or all other deadlines are late: a watchdog says so after
    TORCHFT_WATCHDOG_TIMEOUT_SEC (30)."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._alarms: List[Tuple[float, int, _Alarm]] = []
        self._numbers = itertools.count()
        self._pid = 0
        self._thread: Optional[threading.Thread] = None
        self._stops = False
        self._limit = 30.0  # seconds

    def set(self, function: Callable[[], None], timeout: timedelta) -> _Alarm:
        alarm = _Alarm(function)
        with self._condition:
            if self._pid != os.getpid() or self._thread is None:
                self._limit = seconds_of(WATCHDOG_TIMEOUT_SEC, 30.0)
                self._pid, self._alarms, self._stops = os.getpid(), [], False
                self._thread = threading.Thread(target=self._run, name="tutti_ft_clock", daemon=True)
                self._thread.start()
            at = time.monotonic() + timeout.total_seconds()
            heapq.heappush(self._alarms, (at, next(self._numbers), alarm))
            if self._alarms[0][2] is alarm:
                self._condition.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._stops and (not self._alarms or self._alarms[0][0] > time.monotonic()):
                    self._condition.wait(self._alarms[0][0] - time.monotonic() if self._alarms else None)
                if self._stops:
                    return
                alarm = heapq.heappop(self._alarms)[2]
            watchdog = threading.Timer(self._limit, logger.error, (
                "a function that was called at its deadline has not returned for %g s: no deadline is kept",
                self._limit))
            watchdog.daemon = True
            watchdog.start()
            with contextlib.suppress(Exception):
                alarm.ring()
            watchdog.cancel()

    def shutdown(self) -> None:
        """Cancels all deadlines, and ends the thread; the next deadline starts it again."""
        with self._condition:
            self._stops, self._alarms, thread = True, [], self._thread
            self._thread = None
            self._condition.notify()
        if thread is not None and self._pid == os.getpid() and thread is not threading.current_thread():
            thread.join()

    def register(self, fut: torch.futures.Future, timeout: timedelta) -> torch.futures.Future:
        """The same future, which fails with a TimeoutError when it is not complete by then."""
        if fut.done():
            return fut
        timed: torch.futures.Future = torch.futures.Future()
        alarm = self.set(
            lambda: timed.set_exception(TimeoutError(f"future did not complete within {timeout}")), timeout)

        def complete(done: torch.futures.Future) -> None:
            if not alarm.cancel():
                return
            try:
                timed.set_result(done.value())
            except Exception as error:
                timed.set_exception(error)

        fut.add_done_callback(complete)
        return timed

    def stream_timeout(self, callback: Callable[[], None], timeout: timedelta) -> None:
        """Calls the function if what is on the current stream is not done by then."""
        event = record_event()
        if event is not None:
            self.set(lambda: None if event.query() else callback(), timeout)

    @contextlib.contextmanager
    def context_timeout(self, callback: Callable[[], None], timeout: timedelta) -> Iterator[None]:
        """Calls the function if the block takes longer."""
        alarm = self.set(callback, timeout)
        try:
            yield
        finally:
            alarm.cancel()


_TIMEOUT_MANAGER = _TimeoutManager()
future_timeout = _TIMEOUT_MANAGER.register
stream_timeout = _TIMEOUT_MANAGER.stream_timeout
context_timeout = _TIMEOUT_MANAGER.context_timeout


def future_wait(fut: torch.futures.Future, timeout: timedelta) -> object:
    """Its result; raises a TimeoutError when it is not complete by then."""
    done = threading.Event()
    fut.add_done_callback(lambda _: done.set())
    if not done.wait(timeout.total_seconds()):
        raise TimeoutError(f"future did not complete within {timeout}")
    return fut.wait()
