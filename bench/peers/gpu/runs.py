# SPDX-License-Identifier: BSD-3-Clause
"""Runs the ranks of gpu_peers.py, and runs them again when one fails or hangs, for that cell and those after it.
Where
a cell fails in fresh processes, too, the peer that it stopped in is left out of all cells of the operation; where it
stopped in tutti, the cell is left out. Every step is told as a line among the others: {"restarted": why} or
{"failed": why}."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable

from ..report import size_text

BENCH = Path(__file__).resolve().parent.parent.parent
PEERS = ("nccl", "nccl window", "torch", "torch one", "torch two")
OPENING = "the opening"
LAST_WORDS_S = 15  # for ranks to say why they fail, when one has
KILLED_S = 10  # a process that hangs in the driver may take its time, or never end
LEAST_S = 25  # what fresh processes need to be worth it


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cell_text(op: str, size: int, dtype: str, in_place: bool) -> str:
    return f"{op} {size_text(size)} {dtype} {'in' if in_place else 'out of'} place"


@dataclass
class Run:
    """What rank 0 said in the life of one set of processes."""

    at: dict | None = None  # the last cell and library that all ranks have begun
    measured: int = 0
    failed: int | None = None  # the first rank that did


class Session:
    """The cells that are still to be measured, over as many runs as it takes."""

    def __init__(self, plan: dict, n: int, module: str, tell: Callable[[dict], None]) -> None:
        self.plan, self.n, self.module, self.tell_line = plan, n, module, tell
        self.until = time.monotonic() + plan["seconds"]
        self.cells = [list(cell) for cell in plan["cells"]]
        self.banned: dict[str, list[str]] = {}  # peers that cells of an operation go without; "": all cells
        self.lines: list[dict] = []
        self.eager = True
        self.runs, self.now = 0, Run()
        self.failures: Counter = Counter()

    def measure(self) -> list[dict]:
        try:
            while True:
                self.run()
                if self.now.failed is None or not self.goes_on(self.now):
                    break
        except KeyboardInterrupt:
            where, library = self.place(self.now)
            self.tell({"failed": f"interrupted at {where}" + (f", in {library}" if library else "")})
        return self.lines

    def tell(self, line: dict) -> None:
        self.lines.append(line)
        self.tell_line(line)

    # ---- one run ----

    def run(self) -> None:
        self.runs, self.now = self.runs + 1, Run()
        ranks = self.start()
        reader = threading.Thread(target=self.read, args=(ranks[0].stdout, self.now), daemon=True)
        reader.start()
        try:
            self.now.failed = first_failed(ranks)
        finally:
            for rank in ranks:
                rank.kill()
            reader.join(KILLED_S)

    def start(self) -> list[subprocess.Popen]:
        environment = os.environ | {
            "WORLD_SIZE": str(self.n),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "TUTTI_JOB": f"gpu-peers-{os.getpid()}-{self.runs}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCH), os.environ.get("PYTHONPATH")])),
        }
        now = {"cells": self.cells, "until": self.until, "banned": self.banned, "eager": self.eager}
        command = [sys.executable, "-m", self.module, json.dumps({**self.plan, **now})]
        return [
            subprocess.Popen(
                command,
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=None if rank else subprocess.PIPE,
                text=True,
            )
            for rank in range(self.n)
        ]

    def read(self, stream: IO[str], found: Run) -> None:
        for text in stream:
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict):  # a library's own words
                print(text, end="", file=sys.stderr)
            elif "at" in line:
                found.at = line
            elif "machine" not in line or self.runs == 1:
                if "op" in line:
                    self.cells.pop(0)
                    found.measured += 1
                    self.failures[OPENING] = 0  # so it does open
                self.eager = self.eager and "eager_us" not in line
                self.tell(line)

    # ---- after a failure ----

    def goes_on(self, run: Run) -> bool:
        """Whether to run again."""
        where, library = self.place(run)
        told = f"{where}: stopped" + (f" in {library}" if library else "") + f" (rank {run.failed} ended first)"
        self.failures[where] += 1
        if not self.cells:
            self.tell({"failed": told})
            return False
        if self.failures[where] == 1:
            self.tell({"restarted": f"{told}; begun again in fresh processes"})
        elif not self.leaves_out(where, library, f"{told}, in fresh processes, too"):
            return False
        if self.cells and self.until - time.monotonic() < LEAST_S:
            self.tell({"failed": f"too little time was left for {len(self.cells)} cells in fresh processes"})
            return False
        return bool(self.cells)

    def leaves_out(self, where: str, library: str | None, told: str) -> bool:
        """Leaves out what has failed twice: a peer, the first cell, or calls from Python one by one."""
        op = "" if where == OPENING else self.cells[0][0]
        banned = self.banned.setdefault(op, [])
        if library in PEERS and library not in banned:
            banned.append(library)
            self.tell({"restarted": f"{told}; begun again without {library}" + (f" in {op}" if op else "")})
        elif op:
            self.cells.pop(0)
            self.tell({"failed": f"{told}; left out"})
        elif library and self.eager:
            self.eager = False
            self.tell({"failed": f"{told}; calls one by one were left out"})
        else:
            self.tell({"failed": told})
            return False
        return True

    def place(self, run: Run) -> tuple[str, str | None]:
        """The cell, the opening or the end, and the library in which a run stopped."""
        if not self.cells:
            return "the end", None
        at = run.at or {"at": None, "library": None}
        if at["at"] is None and not run.measured:
            return OPENING, at["library"]
        cell = self.cells[0]
        return cell_text(*cell), at["library"] if at["at"] == cell else None


def first_failed(ranks: list[subprocess.Popen]) -> int | None:
    """Waits for all. The others may wait for a rank that failed, for ever: they have a little time to say what they
    see, then are killed; and one that even so does not end is not waited for."""
    ends: queue.SimpleQueue = queue.SimpleQueue()

    def wait(rank: int) -> None:
        ends.put((rank, ranks[rank].wait()))

    for rank in range(len(ranks)):
        threading.Thread(target=wait, args=(rank,), daemon=True).start()
    failed, until, is_killed, running = None, None, False, len(ranks)
    while running:
        try:
            rank, status = ends.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except queue.Empty:
            if is_killed:
                break
            for other in ranks:
                other.kill()
            is_killed, until = True, time.monotonic() + KILLED_S
            continue
        running -= 1
        if status and failed is None:
            failed, until = rank, time.monotonic() + LAST_WORDS_S
    return failed
