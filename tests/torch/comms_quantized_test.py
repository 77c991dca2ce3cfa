# SPDX-License-Identifier: BSD-3-Clause
"""What torchcomms has in its backend ncclx alone, on all devices here: quantised all_reduce and reduce_scatter by hints
and as reduce_scatter_quantized, all_to_all_v of which only the senders know how much comes, sparse blocks."""

from __future__ import annotations

import unittest
from typing import List

import ranks
import torch
import torch.distributed as dist
import tutti_torch.comms as tc
from comms_support import new_comm

# Half the distance of neighbouring codes, of the largest magnitude in a block.
NEAREST = {"bfloat16": 2**-8, "float8_e4m3": 2**-4, "float8_e5m2": 2**-3, "int8": 1 / 254}


def inputs(n: int, count: int, salt: int = 0) -> List[torch.Tensor]:
    generator = torch.Generator().manual_seed(77 + salt)
    return [torch.randn(count, generator=generator) for _ in range(n)]


def bound(given: List[torch.Tensor], wire: str, steps: int, packed_again: bool) -> float:
    """The bound of every element, with the largest magnitude of all in place of the block's."""
    step = NEAREST[wire] * steps * 1.001
    parts = sum(float(tensor.abs().max()) for tensor in given)
    return step * parts + (step * (parts * (1 + step)) if packed_again else 0) + 1e-5


@ranks.on(1, 2, 4)
def by_hints(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "hints")
    for wire in NEAREST:
        for seed in (0, 5):
            for count in (1, 37, 5000):
                given = inputs(n, count, count + seed)
                hints = {"wire": wire, "wire_seed": str(seed), "wire_block": "64"}
                tensor = given[rank].clone()
                work = comm.all_reduce(tensor, tc.ReduceOp.SUM, seed > 0, hints=hints)
                work.wait()
                worst = float((tensor - sum(given)).abs().max())
                assert worst <= bound(given, wire, 2 if seed else 1, True), (wire, seed, count, worst)
                everybody = [torch.empty_like(tensor) for _ in range(n)]
                comm.all_gather(everybody, tensor, False)
                assert all(torch.equal(other, tensor) for other in everybody), "ranks differ"
                if n > 1 and count > 1 and wire != "bfloat16":
                    assert worst > 0, "nothing was quantised"
                rows = inputs(n, count * n, count)
                output = torch.empty(count)
                comm.reduce_scatter_single(output, rows[rank], tc.ReduceOp.AVG, False, hints=hints)
                want = sum(row[rank * count : (rank + 1) * count] for row in rows) / n
                assert float((output - want).abs().max()) <= bound(rows, wire, 2 if seed else 1, False) / n
    comm.finalize()


@ranks.on(2)
def refused(rank: int, n: int, store: dist.Store) -> None:
    comm, tensor = new_comm(rank, n, store, "refused"), torch.ones(8)
    for hints, says in (
        ({"wire": "int4"}, "it is one of none, bfloat16, float8_e4m3, float8_e5m2, int8"),
        ({"wire": "int8", "wire_block": "33"}, "wire_block is 33"),
        ({"wire": "int8", "wire_seed": "x"}, "not a number"),
    ):
        with ranks.raises(Exception, says):
            comm.all_reduce(tensor, tc.ReduceOp.SUM, False, hints=hints)
    with ranks.raises(Exception, "only sum and avg can be quantised"):
        comm.all_reduce(tensor, tc.ReduceOp.MAX, False, hints={"wire": "int8"})
    comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
    assert tensor[0] == n
    comm.finalize()


@ranks.on(1, 3)
def as_ncclx(rank: int, n: int, store: dist.Store) -> None:
    """The mean over seeds is exact, which rounding to nearest is not."""
    comm, count, turns = new_comm(rank, n, store, "ncclx"), 50, 300
    given = inputs(n, count * n, 3)
    want = sum(tensor[rank * count : (rank + 1) * count] for tensor in given)
    mean, output = torch.zeros(count, dtype=torch.float64), torch.empty(count)
    for seed in range(turns):
        work = comm.reduce_scatter_quantized(output, given[rank], tc.ReduceOp.SUM, torch.tensor([seed]), seed % 2 > 0)
        work.wait()
        assert float((output - want).abs().max()) <= bound(given, "bfloat16", 2, False)
        mean += output / turns
    error = float((mean - want).abs().max())
    assert error <= bound(given, "bfloat16", 2, False) / 3, error
    comm.finalize()


@ranks.on(1, 2, 4)
def dynamic(rank: int, n: int, store: dist.Store) -> None:
    comm = new_comm(rank, n, store, "dynamic")
    for turn in range(12):
        width = (1, 3)[turn % 2]
        rows = [[(3 * turn + 5 * source + 7 * dest) % 6 for dest in range(n)] for source in range(n)]
        shape = (lambda count: (count, width) if width > 1 else (count,))
        sent = [torch.full(shape(rows[rank][dest]), 100.0 * rank + dest) for dest in range(n)]
        output = torch.full(shape(40), -1.0)
        counts = torch.zeros(n, dtype=torch.int64)
        work = comm.all_to_all_v_dynamic(output, torch.cat(sent), counts, torch.tensor(rows[rank]), turn % 3 == 0)
        work.wait()
        assert turn % 3 == 0 or work.is_completed()
        want = torch.cat([torch.full(shape(rows[source][rank]), 100.0 * source + rank) for source in range(n)])
        assert counts.tolist() == [rows[source][rank] for source in range(n)], counts
        assert torch.equal(output[: len(want)], want) and bool((output[len(want) :] == -1).all())
        comm.device_alltoallv_single(output, torch.cat(sent), counts, torch.tensor(rows[rank]), False)
    room = torch.full((1 if rank == 0 else 40,), -1.0)
    counts, twos = torch.zeros(n, dtype=torch.int64), torch.full((n,), 2)
    with ranks.raises(Exception, "rank 0 would receive"):  # on all ranks, and nothing moves
        comm.all_to_all_v_dynamic(room, torch.ones(2 * n), counts, twos, False)
    assert bool((room == -1).all()) and torch.equal(counts, twos)
    comm.barrier(False)
    comm.finalize()


@ranks.on(1, 3)
def sparse(rank: int, n: int, store: dist.Store) -> None:
    comm, blocks, block = new_comm(rank, n, store, "sparse"), 9, 4
    given = []
    for source in range(n):
        generator = torch.Generator().manual_seed(source)
        indices = torch.randint(0, blocks, (source + 2,), generator=generator)  # some repeat
        given.append((indices, torch.randint(-4, 5, (source + 2, block), generator=generator).float()))
    want = torch.zeros(blocks, block)
    for indices, values in given:
        want.index_add_(0, indices, values)
    output = torch.full((blocks * block,), 7.0)
    comm.all_reduce_sparse_block(output, given[rank][1].flatten(), given[rank][0], tc.ReduceOp.SUM, True).wait()
    assert torch.equal(output.view(blocks, block), want)
    wrong = torch.tensor([blocks if rank == n - 1 else 0])
    with ranks.raises(Exception, f"an index of rank {n - 1} is none"):
        comm.all_reduce_sparse_block(output, torch.ones(block), wrong, tc.ReduceOp.SUM, False)
    comm.finalize()


ranks.cases(globals(), backend=None)

if __name__ == "__main__":
    unittest.main()
