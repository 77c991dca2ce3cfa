# SPDX-License-Identifier: BSD-3-Clause
"""Measures one world: the ranks of all peers are alive, and each cell (operation and size) is measured peer after peer,
in another order each time, within seconds. Turn after turn goes over the cells until the time is spent; those with the
fewest turns in which the machine stayed in one state come first."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .programs import Program
from .ranks import Lost, Ranks
from .report import size_text
from .results import HUGE_FROM, KINDS, LIMITS, LIMITS_FROM, SUBJECT, ranks_text, straddles

POINT_LIMIT_SECONDS = 90
IDLE_SHARE = 0.05
LOSSES_MOST = 3  # so often are a peer's ranks started anew

Cell = tuple  # operation, size


@dataclass(frozen=True)
class World:
    n: int
    pinned: bool = True
    where: str = ""  # over the network: "lo" or "hosts"

    @property
    def name(self) -> str:
        return f"{self.n} {self.where or ('' if self.pinned else 'unpinned')}".strip()


@dataclass
class Plan:
    """What is asked of every world."""

    operations: list[str]
    sizes: list[int]
    kinds: list[str]  # one of results.KINDS
    block_us: int  # about how long the calls of one point are timed
    cpus: list[int]
    limits: bool = True  # also what a copy takes

    def cells(self) -> list[Cell]:
        cells = [(op, size) for op in self.operations for size in (self.sizes if op != "barrier" else [0])]
        return cells + [(op, size) for op in LIMITS for size in self.sizes if self.limits and size >= LIMITS_FROM]

    def points(self, cell: Cell, peers: list[str]) -> list[tuple[str, str]]:
        """Peers with the kinds that are measured in the cell."""
        operation, size = cell
        if operation in LIMITS:
            return [(SUBJECT if SUBJECT in peers else peers[0], "huge")] if peers else []
        points = []
        for kind in self.kinds if operation != "barrier" else ["pages"]:  # it has none: that is its name in tables
            memory = KINDS[kind].memory
            if memory == "huge" and size < HUGE_FROM:
                continue
            points += [(peer, kind) for peer in peers if memory != "mapped" or peer == SUBJECT]
        return points


def pressure_us() -> float:
    """Time so far in which some process of this machine waited for a CPU."""
    try:
        return float(Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0])
    except (OSError, IndexError):
        return 0.0


class Session:
    """A world while it is measured."""

    def __init__(
        self, world: World, plan: Plan, programs: dict[str, Program], log: Path, write: Callable[[dict], None]
    ) -> None:
        self.world, self.plan, self.programs, self.log, self.write = world, plan, programs, log, write
        self.alive: dict[str, Ranks] = {}
        self.lost: dict[str, int] = {}
        self.refused: set = set()  # (cell, peer, kind) that a peer does not offer, or that ended it
        self.seen: set = set()
        self.kept: dict[Cell, int] = {}
        self.took: dict[Cell, float] = {}
        self.turns = 0

    def __enter__(self) -> Session:
        try:
            for name in self.programs:
                self.start(name)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        for ranks in self.alive.values():
            ranks.stop(0) if kind else ranks.stop()

    def start(self, name: str) -> None:
        log = self.log / f"{self.world.name.replace(' ', '_')}-{name}.log"
        try:
            self.alive[name] = Ranks(self.programs[name], self.world.n, self.plan.cpus, self.world.pinned, log)
        except Lost as reason:
            self.note(("", 0), name, "", str(reason))

    def note(self, cell: Cell, peer: str, kind: str, reason: str) -> None:
        self.write({**self.row(cell, peer, kind), "reason": reason})
        if reason != "not offered":
            print(f"{ranks_text(self.world.name)}, {peer}: {cell[0]} {reason}", file=sys.stderr)

    def row(self, cell: Cell, peer: str, kind: str) -> dict:
        where = {"world": self.world.name, "operation": cell[0], "size": cell[1]}
        return {**where, "peer": peer, "kind": kind}

    def point(self, cell: Cell, peer: str, kind: str) -> dict | None:
        who = (cell, peer, kind)
        verify = 0 if who in self.seen else 1
        limit, what = POINT_LIMIT_SECONDS, KINDS[kind]
        order = f"point {cell[0]} {cell[1]} {what.memory} {what.way} {verify} {self.plan.block_us} {limit}"
        begin, pressed = time.monotonic(), pressure_us()
        try:
            answer = self.alive[peer].point(order, limit)
        except Lost as reason:
            self.refused.add(who)
            self.note(cell, peer, kind, f"ended: {reason}")
            self.restart(peer)
            return None
        if "reason" in answer:
            self.refused.add(who)
            self.note(cell, peer, kind, answer["reason"])
            return None
        wall = time.monotonic() - begin
        answer["pressure"] = round((pressure_us() - pressed) / 1e6 / wall, 3)
        if answer["idle"] > IDLE_SHARE:
            print(f"{peer} used {answer['idle']:.0%} of a CPU while it should sleep", file=sys.stderr)
        self.seen.add(who)
        row = {**self.row(cell, peer, kind), **answer, "at": round(time.time(), 1)}
        self.write(row)
        return row

    def restart(self, peer: str) -> None:
        self.alive.pop(peer).stop(0)
        self.lost[peer] = self.lost.get(peer, 0) + 1
        if self.lost[peer] <= LOSSES_MOST:
            self.start(peer)

    def measure(self, cell: Cell, shuffle: random.Random) -> None:
        begin, kept = time.monotonic(), True
        points = self.plan.points(cell, list(self.alive))
        shuffle.shuffle(points)
        for peer, kind in points:
            if (cell, peer, kind) in self.refused or peer not in self.alive:
                continue
            row = self.point(cell, peer, kind)
            kept = kept and row is not None and not straddles(row)
        self.kept[cell] = self.kept.get(cell, 0) + kept
        self.took[cell] = time.monotonic() - begin

    def run(self, seconds: float, shuffle: random.Random, turns: int | None = None) -> None:
        """For about so many seconds; asked for a number of turns, at least one and at most as many."""
        until = time.monotonic() + seconds
        cells = self.plan.cells()
        while self.alive and self.turns != turns and (time.monotonic() < until or (turns and not self.turns)):
            shuffle.shuffle(cells)
            # The first turn takes the small sizes first: they tell most in little time.
            cells.sort(key=(lambda c: self.kept[c]) if self.turns else (lambda c: c[1]))
            done = 0
            for cell in cells:
                late = time.monotonic() + self.took.get(cell, 0.0) > until
                if late and (self.turns or not turns):
                    continue
                self.progress(cell, until)
                self.measure(cell, shuffle)
                self.kept.setdefault(cell, 0)
                done += 1
            for cell in cells:
                self.kept.setdefault(cell, 0)
            self.turns += done == len(cells)
            if not done:
                break

    def progress(self, cell: Cell, until: float) -> None:
        if sys.stderr.isatty():
            left = f"{max(0.0, until - time.monotonic()):.0f} s left"
            text = f"{ranks_text(self.world.name)}, turn {self.turns + 1}: {cell[0]} {size_text(cell[1])}, {left}"
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
