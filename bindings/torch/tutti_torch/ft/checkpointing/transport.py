# SPDX-License-Identifier: BSD-3-Clause
"""How the state of a replica gets to one that needs it: torchft's interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Generic, List, TypeVar

T = TypeVar("T")


class CheckpointTransport(Generic[T], ABC):
    several_sources = False  # whether metadata of several, with commas between, are several sources of one state
    in_place = False  # whether what is received is written into tensors of this rank as it comes

    def check_state(self, state_dict: T) -> None:
        """Raises NotPlain where the state has something that can not travel."""

    def refuse(self, dst_ranks: List[int], step: int, why: str) -> None:
        """The state of this step can not travel: these ranks, which wait for it, are told why."""

    @abstractmethod
    def metadata(self) -> str:
        """What a receiver has to know; the manager passes it on."""

    @abstractmethod
    def send_checkpoint(self, dst_ranks: List[int], step: int, state_dict: T, timeout: timedelta) -> None:
        """These ranks can have the state of this step: it is sent, or kept for them until disallow_checkpoint."""

    def disallow_checkpoint(self) -> None:
        """The state is about to change: what was kept need not be any longer."""

    @abstractmethod
    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> T:
        """The state of that step."""

    def shutdown(self, wait: bool = True) -> None:
        """Nothing more will be asked of it."""
