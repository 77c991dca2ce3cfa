# SPDX-License-Identifier: BSD-3-Clause
"""Deadlines for what has none: one thread for all of a process."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
from datetime import timedelta
from typing import Callable, Iterator, List, Optional, Tuple, TypeVar

import torch

from .utils import record_event

T = TypeVar("T")


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


class _Clock:
    """The thread; it starts with the first alarm, and again in a process that was forked."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._alarms: List[Tuple[float, int, _Alarm]] = []
        self._numbers = itertools.count()
        self._pid = 0

    def set(self, function: Callable[[], None], timeout: timedelta) -> _Alarm:
        alarm = _Alarm(function)
        with self._condition:
            if self._pid != os.getpid():
                self._pid, self._alarms = os.getpid(), []
                threading.Thread(target=self._run, name="tutti_ft_clock", daemon=True).start()
            at = time.monotonic() + timeout.total_seconds()
            heapq.heappush(self._alarms, (at, next(self._numbers), alarm))
            if self._alarms[0][2] is alarm:
                self._condition.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._alarms or self._alarms[0][0] > time.monotonic():
                    self._condition.wait(self._alarms[0][0] - time.monotonic() if self._alarms else None)
                alarm = heapq.heappop(self._alarms)[2]
            with contextlib.suppress(Exception):
                alarm.ring()


_clock = _Clock()


def future_timeout(fut: torch.futures.Future, timeout: timedelta) -> torch.futures.Future:
    """The same future, which fails with a TimeoutError when it is not complete by then."""
    if fut.done():
        return fut
    timed: torch.futures.Future = torch.futures.Future()
    alarm = _clock.set(
        lambda: timed.set_exception(TimeoutError(f"future did not complete within {timeout}")), timeout)

    def settle(done: torch.futures.Future) -> None:
        if not alarm.cancel():
            return
        try:
            timed.set_result(done.value())
        except Exception as error:
            timed.set_exception(error)

    fut.add_done_callback(settle)
    return timed


def future_wait(fut: torch.futures.Future, timeout: timedelta) -> object:
    """Its result; raises a TimeoutError when it is not complete by then."""
    done = threading.Event()
    fut.add_done_callback(lambda _: done.set())
    if not done.wait(timeout.total_seconds()):
        raise TimeoutError(f"future did not complete within {timeout}")
    return fut.wait()


@contextlib.contextmanager
def context_timeout(callback: Callable[[], None], timeout: timedelta) -> Iterator[None]:
    """Calls the function if the block takes longer."""
    alarm = _clock.set(callback, timeout)
    try:
        yield
    finally:
        alarm.cancel()


def stream_timeout(callback: Callable[[], None], timeout: timedelta) -> None:
    """Calls the function if what is on the current stream is not done by then."""
    event = record_event()
    if event is not None:
        _clock.set(lambda: None if event.query() else callback(), timeout)
