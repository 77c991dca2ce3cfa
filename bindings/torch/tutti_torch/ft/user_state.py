# SPDX-License-Identifier: BSD-3-Clause
"""What a group that catches up gets: the user's state, by functions that give it and take it in, and how far training
is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Dict, Optional, TypeVar

from .checkpointing._rwlock import RWLock

T = TypeVar("T")


class UserState:
    """A manager's."""

    def __init__(self, timeout: timedelta) -> None:
        self._load_state_dict_fns: Dict[str, Callable[[Any], None]] = {}
        self._user_state_dicts: Dict[str, Callable[[], Any]] = {}
        self._state_dict_lock = RWLock(timeout=timeout.total_seconds())
        self._is_state_dict_read_allowed = True
        self._pending_state_dict: Optional[Dict[str, Any]] = None  # got, and not yet loaded
        self._step = 0
        self._batches_committed = 0

    def register_state_dict_fn(
        self, key: str, load_state_dict: Callable[[T], None], state_dict: Callable[[], T]
    ) -> None:
        """What a group that catches up gets, and how it takes it in."""
        if key in self._load_state_dict_fns:
            raise ValueError(f"register_state_dict_fn: '{key}' is registered already")
        self._load_state_dict_fns[key] = load_state_dict
        self._user_state_dicts[key] = state_dict

    def set_state_dict_fns(self, load_state_dict: Callable[[T], None], state_dict: Callable[[], T]) -> None:
        """As register_state_dict_fn, which is newer."""
        self.register_state_dict_fn("set_state_dict_fns", load_state_dict, state_dict)

    def disallow_state_dict_read(self) -> None:
        """The state is changing now: a snapshot of it for others waits."""
        if self._is_state_dict_read_allowed:
            self._state_dict_lock.w_acquire()
            self._is_state_dict_read_allowed = False

    def allow_state_dict_read(self) -> None:
        if not self._is_state_dict_read_allowed:
            self._is_state_dict_read_allowed = True
            self._state_dict_lock.w_release()

    def _manager_state_dict(self) -> Dict[str, Any]:
        with self._state_dict_lock.r_lock():
            if not self._user_state_dicts:
                raise RuntimeError("another group needs this one's state, but no state_dict function is registered")
            return {"user": {key: value() for key, value in self._user_state_dicts.items()},
                    "torchft": self.state_dict()}

    def _load_pending(self) -> bool:
        """Whether there was one."""
        pending, self._pending_state_dict = self._pending_state_dict, None
        if pending is None:
            return False
        if not self._load_state_dict_fns:
            raise RuntimeError("this group got the state of another one, but no load_state_dict function is registered")
        missing = [key for key in self._load_state_dict_fns if key not in pending["user"]]
        if missing:
            raise RuntimeError(f"the state of the other group lacks what is registered here as {missing}; it has "
                               f"{sorted(pending['user'])}")
        for key, load in self._load_state_dict_fns.items():
            load(pending["user"][key])
        return True

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        self._step, self._batches_committed = state_dict["step"], state_dict["batches_committed"]

    def state_dict(self) -> Dict[str, int]:
        """How far training is; belongs into every checkpoint."""
        return {"step": self._step, "batches_committed": self._batches_committed}
