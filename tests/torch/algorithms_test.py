# SPDX-License-Identifier: BSD-3-Clause
"""Algorithms of one's own, from files in C and Python: for a group, for the calls of a region, for a group made by
new_group; a wrong one is refused on every rank, and the group goes on."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from pathlib import Path

import ranks
import torch
import torch.distributed as dist
import tutti_torch
from ranks import raises

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "algorithms"
WRONG = """
import tutti

@tutti.algorithm("all_reduce", needs="rank_order")
def lazy(rank):
    if rank.slot:
        rank.recv(rank.slot - 1, 0)
    if rank.slot + 1 < rank.size:
        rank.send(rank.slot + 1, 0)
"""
WRONG_SENTENCE = ("algorithm lazy is refused", "lazy all_reduce, size")


def sums(rank: int, n: int, group: object = None) -> None:
    """Blocking, not blocking, and a kind that the example has no schedule for."""
    for count in (1, 1000, 100_003):
        tensor = torch.arange(count, dtype=torch.int64) + rank
        dist.all_reduce(tensor, group=group)
        expected = torch.arange(count, dtype=torch.int64) * n + n * (n - 1) // 2
        assert torch.equal(tensor, expected)
        tensor = torch.arange(count, dtype=torch.int64) + rank
        dist.all_reduce(tensor, group=group, async_op=True).wait()
        assert torch.equal(tensor, expected)
    gathered = [torch.zeros(7) for _ in range(n)]
    dist.all_gather(gathered, torch.full((7,), float(rank)), group=group)
    assert [int(tensor[0]) for tensor in gathered] == list(range(n))
    dist.barrier(group=group)


@ranks.on(2, 3)
def regions(rank: int, n: int) -> None:
    for name in ("ring.c", "ring.py", "pat.c"):
        with tutti_torch.algorithm(EXAMPLES / name) as nothing:
            assert nothing is None
            sums(rank, n)
    with tutti_torch.algorithm("tree:2"):
        sums(rank, n)
    sums(rank, n)


@ranks.on(3)
def wrong_region(rank: int, n: int) -> None:
    path = Path(os.environ["XDG_CACHE_HOME"]) / "lazy.py"
    tensor = torch.ones(4)
    with tutti_torch.algorithm(path):
        with raises(Exception, *WRONG_SENTENCE):
            dist.all_reduce(tensor)
    sums(rank, n)
    with raises(Exception, "no_file.c can not be read"):
        tutti_torch.algorithm("./no_file.c")


@ranks.on(3)
def of_groups(rank: int, n: int) -> None:
    files = [EXAMPLES / "ring.py", EXAMPLES / "pat.c"]
    group = dist.new_group(list(range(n)), pg_options=tutti_torch.options(algorithms=files))
    sums(rank, n, group)
    lazy = Path(os.environ["XDG_CACHE_HOME"]) / "lazy.py"
    group = dist.new_group(list(range(n)), pg_options=tutti_torch.options(algorithms=lazy))
    with raises(Exception, *WRONG_SENTENCE):  # that it is asked at all is seen by its being wrong
        dist.all_reduce(torch.ones(4), group=group)
    gathered = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(gathered, torch.full((1,), float(rank)), group=group)
    sums(rank, n)


def other_files(rank: int, n: int) -> None:
    path = Path(os.environ["XDG_CACHE_HOME"]) / f"own{rank}.py"
    path.write_text((EXAMPLES / "ring.py").read_text() + f"# rank {rank}\n")
    with raises(Exception, "configurations differ", "algorithms=my_ring#"):
        dist.new_group(list(range(n)), pg_options=tutti_torch.options(algorithms=path))


class Files(unittest.TestCase):
    def test_that_differ(self) -> None:
        ranks.run(other_files, 2)


ranks.cases(globals())

if __name__ == "__main__":
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tutti-algorithms-")
    Path(os.environ["XDG_CACHE_HOME"], "lazy.py").write_text(WRONG)
    try:
        unittest.main()
    finally:
        shutil.rmtree(os.environ["XDG_CACHE_HOME"])
