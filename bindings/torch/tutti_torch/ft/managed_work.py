# SPDX-License-Identifier: BSD-3-Clause
"""A call whose error goes to the manager: who waits for it goes on, and the step is not committed."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional, Protocol

import torch
import torch.distributed as dist

from .utils import current_stream


class Reports(Protocol):
    """The one that hears of errors: a manager."""

    def report_error(self, e: Exception) -> None: ...


class _ManagedFuture(torch.futures.Future):
    """The end of a managed call, or of what is done then. What is hung on it runs as soon as the call is over, in
    the thread that sees that, and before wait() of the call returns."""

    def __init__(self, work: "_ManagedWork", inner: torch.futures.Future) -> None:
        super().__init__(devices=None if work._stream is None else [work._stream.device])
        self._work, self._inner = work, inner
        inner.add_done_callback(self._mirror)

    def _mirror(self, inner: torch.futures.Future) -> None:
        """For C++, which sees no Python's methods."""
        try:
            super().set_result(inner.value())
        except Exception as error:
            super().set_exception(error)

    def then(self, callback: Callable[[torch.futures.Future], Any]) -> "_ManagedFuture":
        following = _ManagedFuture(self._work, self._inner.then(callback))
        self._work._add(following._inner)
        return following

    def add_done_callback(self, callback: Callable[[torch.futures.Future], None]) -> None:
        self._inner.add_done_callback(callback)

    def wait(self) -> Any:
        return self._inner.wait()

    def value(self) -> Any:
        return self._inner.value()

    def done(self) -> bool:
        return self._inner.done()

    def set_result(self, result: object) -> None:
        raise RuntimeError("the future of a call is completed by the call")

    def set_exception(self, result: object) -> None:
        raise RuntimeError("the future of a call is completed by the call")


class _ManagedWork(dist._Work):
    """The work of a call that ends with `value`: a tensor that the call has changed."""

    def __init__(
        self,
        manager: Reports,
        work: dist._Work,
        value: object,
        report: Optional[Callable[[Exception], None]] = None,
        finish: Optional[Callable[[], None]] = None,
    ) -> None:
        """`finish` is done to the value when the call is over, `report` is told of an error; else the manager is."""
        super().__init__()
        self._manager, self._work = manager, work
        self._stream = current_stream()
        self._lock = threading.Lock()
        self._waited = False
        report = report or manager.report_error

        def over(future: torch.futures.Future) -> object:
            try:
                future.value()
                if finish is not None:
                    finish()
            except Exception as error:
                report(error)
            return value

        self._futures: List[torch.futures.Future] = [work.get_future().then(over)]

    def _add(self, future: torch.futures.Future) -> None:
        with self._lock:
            self._futures.append(future)

    def _check_stream(self) -> None:
        if self._stream is not None and self._stream != current_stream():
            raise RuntimeError("a managed call is waited for on the stream on which it was made")

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """False: it failed, and the manager knows."""
        self._check_stream()
        self._waited = True
        try:
            self._work.wait() if timeout is None else self._work.wait(timeout)
            for future in self._futures:  # grows while what is hung on them hangs on more
                future.wait()
            return True
        except Exception as error:
            self._manager.report_error(error)
            return False

    def block_current_stream(self) -> None:
        """The stream waits, the host does not."""
        self._check_stream()
        self._work.block_current_stream()
        for future in self._futures:
            if future.done():
                future.wait()

    def synchronize(self) -> None:
        if self._stream is not None:
            self.block_current_stream()

    def is_completed(self) -> bool:
        return self._futures[-1].done()

    def get_future(self) -> _ManagedFuture:
        return _ManagedFuture(self, self._futures[-1])
