# SPDX-License-Identifier: BSD-3-Clause
# timeout: 120
"""Quantised reductions by torchft's interface: against float64, for all wires, types and operations, with tensors whose
rows no number of ranks divides."""

from __future__ import annotations

import unittest
from typing import List

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllreduceOptions, ReduceScatterOptions

from comms_support import on_threads
from ft_process_group_test import Meeting, reconfigure
from tutti_torch.ft import collectives
from tutti_torch.ft.process_group import ProcessGroup, ProcessGroupTutti
from tutti_torch.ft.wrappers import ProcessGroupDummy

ERROR = {"bfloat16": 2**-8, "float8_e4m3": 2**-4, "float8_e5m2": 2**-3, "int8": 1 / 127}  # parts of a block's largest
SHAPES = [(1000,), (7, 33), (1,), (5, 3, 2)]
OPERATIONS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG]


def fresh(rank: int, dtype: torch.dtype) -> List[torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + rank)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def wanted(n: int, dtype: torch.dtype, op: dist.ReduceOp) -> List[torch.Tensor]:
    sums = [sum(ts) for ts in zip(*([t.double() for t in fresh(r, dtype)] for r in range(n)))]
    return [s / n for s in sums] if op == dist.ReduceOp.AVG else sums


def bound(n: int, wire: str, dtype: torch.dtype, op: dist.ReduceOp) -> float:
    """Each contribution is packed once and the sum once more; contributions and partial sums are below 6 and 6 n."""
    most = 6.0 * (1 if op == dist.ReduceOp.AVG else n)
    return 2.2 * most * (ERROR[wire] + torch.finfo(dtype).eps)


def group(meeting: Meeting, rank: int) -> ProcessGroup:
    pg = ProcessGroupTutti()
    reconfigure(pg, 1, meeting.of(pg, rank))
    return pg


class Quantised(unittest.TestCase):
    def each(self, n: int, check) -> None:
        meeting = Meeting(n)

        def run(rank: int, n: int, store: dist.Store) -> None:
            pg = group(meeting, rank)
            for wire in ERROR:
                for op in OPERATIONS:
                    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                        check(pg, rank, n, wire, op, dtype)
            pg.shutdown()

        on_threads(n, run)

    def test_allreduce(self) -> None:
        for n in (1, 2, 3):
            results: dict = {}

            def check(pg, rank, n, wire, op, dtype) -> None:
                tensors, opts = fresh(rank, dtype), AllreduceOptions()
                opts.reduceOp = op
                collectives.allreduce_quantized(tensors, opts, pg, wire=wire).wait()
                for got, want in zip(tensors, wanted(n, dtype, op)):
                    apart = (got.double() - want).abs().max().item()
                    assert apart <= bound(n, wire, dtype, op), (n, wire, op, dtype, apart)
                results[rank, wire, str(op), dtype] = tensors

            self.each(n, check)
            for (rank, *what), tensors in results.items():
                assert all(map(torch.equal, tensors, results[(0, *what)])), (rank, what)

    def test_it_is_quantised(self) -> None:
        """What int8 can not hold is lost: the calls do not travel whole."""
        meeting, values = Meeting(2), torch.linspace(0, 1, 1024)

        def run(rank: int, n: int, store: dist.Store) -> None:
            pg = group(meeting, rank)
            tensor = values.clone()
            collectives.allreduce_quantized([tensor], dist.ReduceOp.SUM, pg, wire="int8").wait()
            assert not torch.equal(tensor, 2 * values) and (tensor - 2 * values).abs().max() < 0.02
            pg.allreduce([tensor], dist.ReduceOp.SUM).wait()  # and the next one is not
            whole = values.clone()
            pg.allreduce([whole], dist.ReduceOp.SUM).wait()
            assert torch.equal(whole, 2 * values)
            pg.shutdown()

        on_threads(2, run)

    def test_reduce_scatter(self) -> None:
        for n in (2, 3):

            def check(pg, rank, n, wire, op, dtype) -> None:
                inputs, opts = fresh(rank, dtype), ReduceScatterOptions()
                opts.reduceOp = op
                output, sizes = collectives.allocate_reduce_scatter_output(inputs, n)
                collectives.reduce_scatter_quantized(output, inputs, opts, pg, wire=wire).wait()
                parts = output.split([size.numel() // n for size in sizes])
                for part, size, want in zip(parts, sizes, wanted(n, dtype, op)):
                    whole = torch.zeros(size.numel(), dtype=torch.float64)
                    whole[: want.numel()] = want.flatten()
                    mine = whole.view(n, -1)[rank]
                    apart = (part.double() - mine).abs().max().item()
                    assert apart <= bound(n, wire, dtype, op), (n, wire, op, dtype, apart)

            self.each(n, check)

    def test_sizes(self) -> None:
        tensors = [torch.empty(shape) for shape in SHAPES]
        self.assertEqual([tuple(s) for s in collectives.get_padded_sizes(tensors, 4)],
                         [(1000, 1), (8, 33), (4, 1), (8, 3, 2)])

    def test_refused(self) -> None:
        meeting = Meeting(1)
        pg, tensor = group(meeting, 0), torch.ones(3)
        with self.assertRaisesRegex(NotImplementedError, "MAX.*SUM and AVG"):
            collectives.allreduce_quantized([tensor], dist.ReduceOp.MAX, pg)
        with self.assertRaisesRegex(ValueError, "tensors are of one type"):
            collectives.allreduce_quantized([tensor, tensor.double()], dist.ReduceOp.SUM, pg)
        with self.assertRaisesRegex(RuntimeError, "wire is 'int4'; it is one of none, bfloat16"):
            collectives.allreduce_quantized([tensor], dist.ReduceOp.SUM, pg, wire="int4")
        pg.shutdown()
        with self.assertRaisesRegex(ValueError, "quantised reductions are tutti's"):
            collectives.allreduce_quantized([tensor], dist.ReduceOp.SUM, ProcessGroupDummy(0, 1))


if __name__ == "__main__":
    unittest.main()
