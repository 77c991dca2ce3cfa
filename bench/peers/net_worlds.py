# SPDX-License-Identifier: BSD-3-Clause
"""What bench/net_peers.py asks of a world, and what it calls one: by its ranks and by where they are."""

from __future__ import annotations

from dataclasses import dataclass

from .worlds import Cell, Plan, World


@dataclass(frozen=True)
class NetWorld(World):
    where: str = "lo"  # or "hosts"

    @property
    def name(self) -> str:
        return f"{self.n} {self.where}"


class NetPlan(Plan):
    """Private memory alone: no other host can map any."""

    def cells(self) -> list[Cell]:
        return [(op, size) for op in self.operations for size in self.sizes]

    def points(self, cell: Cell, peers: list[str]) -> list[tuple[str, str]]:
        return [(peer, "pages") for peer in peers]
