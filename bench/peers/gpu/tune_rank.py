# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tune.py: as one of gpu_peers.py, but what takes turns are the methods of tutti's back end cuda, and
communicators whose launches have fewer blocks. A method that does not fit a call says so, on all ranks alike."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Callable

from .rank import OPENING_S, TYPES, Calls, Rank, must_end
from .tutti import Tutti

METHODS = ("lines", "sentinel", "sentinel2", "tiles", "direct", "engines")
BLOCKS = (16, 32, 64, 128)
BLOCKS_FROM = 16 << 20  # bytes, from which on the number of blocks bounds bytes a second


class Tuner(Rank):
    def __init__(self, plan: dict) -> None:
        super().__init__(plan)
        self.by_blocks = {blocks: self.with_blocks(blocks) for blocks in BLOCKS}

    def with_options(self, options: dict[str, str], name: str) -> Tutti:
        where = self.plan["library"], self.device.index, self.rank, self.world
        return Tutti(*where, {**self.plan["options"], **options}, name)

    def with_blocks(self, blocks: int) -> Tutti:
        with tempfile.NamedTemporaryFile("w", suffix=".tune") as file:
            file.write(f"blocks {blocks}\n")
            file.flush()
            return self.with_options({"gpu_tuning": file.name}, f"{blocks} blocks")

    def calls(self, op: str, n: int, dtype: str, in_place: bool) -> Calls:
        own, large = self.tutti, n * TYPES[dtype].itemsize >= BLOCKS_FROM
        tried = [(method, own, method, "window") for method in METHODS]
        tried += [(f"tiles@{b}", tutti, "tiles", "plain") for b, tutti in self.by_blocks.items() if large]
        found: Calls = {}
        for name, tutti, method, memory in tried:
            self.plan["method"] = f"cuda:{method}"
            call = self.by(tutti, self.tutti_call(op, memory, n, dtype, in_place))
            try:
                call()
                found[name], self.memory_of[name] = call, memory
            except RuntimeError:
                continue
        self.plan["method"] = None
        return found

    def by(self, tutti: Tutti, call: Callable[[], None]) -> Callable[[], None]:
        def called() -> None:
            own, self.tutti = self.tutti, tutti
            try:
                call()
            finally:
                self.tutti = own

        return called

    def run(self) -> None:
        super().run()
        for tutti in (self.casting, *self.by_blocks.values()):
            tutti.close()


if __name__ == "__main__":
    must_end(OPENING_S)
    Tuner(json.loads(sys.argv[1])).run()
