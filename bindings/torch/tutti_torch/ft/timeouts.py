# SPDX-License-Identifier: BSD-3-Clause
"""One knob for all deadlines of a manager: the longest that anything may take in which this rank waits for others. What
is not given is derived from it; what contradicts it is said in a sentence."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional

from .. import _C

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timeouts:
    call: timedelta  # collectives, votes, recovery
    quorum: timedelta  # until all groups have asked: a step of the slowest is in it
    connect: timedelta  # to a manager or a lighthouse that may be starting

    @staticmethod
    def of(timeout: Optional[timedelta], quorum: Optional[timedelta], connect: Optional[timedelta]) -> "Timeouts":
        """With TORCHFT_TIMEOUT_SEC, TORCHFT_QUORUM_TIMEOUT_SEC and TORCHFT_CONNECT_TIMEOUT_SEC before all; where
        nothing is given, with the library's TUTTI_FT_TIMEOUT, or a minute."""
        call = from_environment("TORCHFT_TIMEOUT_SEC", of_library() if timeout is None else timeout)
        made = Timeouts(call, from_environment("TORCHFT_QUORUM_TIMEOUT_SEC", call if quorum is None else quorum),
                        from_environment("TORCHFT_CONNECT_TIMEOUT_SEC", call if connect is None else connect))
        for name, value in (("timeout", made.call), ("quorum_timeout", made.quorum),
                            ("connect_timeout", made.connect)):
            if not isinstance(value, timedelta):
                raise TypeError(f"{name} is {value!r}, but a datetime.timedelta is expected, such as "
                                "timedelta(seconds=30)")
            if value <= timedelta(0):
                raise ValueError(f"{name} is {value}, but nothing can be done within that")
        return made

    def heartbeat(self, given: Optional[timedelta]) -> timedelta:
        """How often the lighthouse hears of this group: several times in whatever time it may wait."""
        if given is None:
            return min(timedelta(milliseconds=100), self.quorum / 10)
        if not isinstance(given, timedelta):
            raise TypeError(f"heartbeat_interval is {given!r}, but a datetime.timedelta is expected")
        if not timedelta(0) < given < self.quorum:
            raise ValueError(f"heartbeat_interval ({given}) is not between 0 and quorum_timeout ({self.quorum}): the "
                             "lighthouse would take this group for dead while it waits")
        return given

    def check(self, of_group: Optional[timedelta]) -> None:
        """Says what makes one deadline pass before another that it should contain."""
        if self.quorum < self.call:
            logger.warning("quorum_timeout (%s) is below timeout (%s): a group that waits for a call of the step "
                           "before can miss the quorum", self.quorum, self.call)
        if of_group is not None and of_group > self.call:
            logger.warning("the process group's timeout (%s) is above the manager's (%s): a call that hangs keeps this "
                           "rank longer than the others wait for its vote", of_group, self.call)


def of_library() -> timedelta:
    """TUTTI_FT_TIMEOUT, as the library reads it."""
    return timedelta(microseconds=_C.option("ft_timeout")[1] / 1000)


def from_environment(name: str, given: timedelta) -> timedelta:
    return given if os.environ.get(name) is None else timedelta(seconds=seconds_of(name, 0.0))


def seconds_of(name: str, given: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return given
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}={text} is no number of seconds") from None


def text_given(argument: str, variable: str) -> str:
    """What the launcher set, where the caller has not said it."""
    text = os.environ.get(variable)
    if not text:
        raise ValueError(f"{variable} is not set, and {argument} is not given: start the script by a launcher that "
                         f"sets it, such as torchrun, or pass {argument}")
    return text


def number_given(argument: str, value: Optional[int], variable: str, fallback: Optional[int] = None) -> int:
    """The value, or the variable's; fallback: where neither is there, else that is an error."""
    if value is not None:
        return value
    if fallback is not None and not os.environ.get(variable):
        return fallback
    text = text_given(argument, variable)
    if not text.isdigit():
        raise ValueError(f"{variable}={text} is no number")
    return int(text)
