# SPDX-License-Identifier: BSD-3-Clause
"""Every collective on single tensors and on lists: all types, all operations, counts from none to tens of thousands,
blocking and not, against what numpy makes of all ranks' inputs."""

from __future__ import annotations

import unittest
from typing import Iterator, List, Sequence

import ranks
import reference
import torch
import torch.distributed as dist
from ranks import finish
from reference import ReduceOp, check, inputs, same, values
from torch.distributed.distributed_c10d import (
    AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions, BroadcastOptions, GatherOptions, ReduceOptions,
    ReduceScatterOptions, ScatterOptions,
)  # fmt: skip

ALL = (1, 2, 3, 4)
COUNTS = (0, 1, 37, 70_003)
SMALL = (0, 1, 37)
# What is only moved is moved alike: these types stand for their sizes in the tests of long lists of cases.
SOME = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)


def types_and_counts(types: Sequence[torch.dtype], counts: Sequence[int] = COUNTS) -> Iterator[tuple]:
    """Large ones for one type of each size only."""
    for dtype in types:
        for count in counts:
            if count < 1000 or dtype in SOME:
                yield dtype, count, f"{dtype} x {count}"


def operation(op: ReduceOp.RedOpType, dtype: torch.dtype, as_tensor: bool) -> tuple:
    """What one passes as the operation, and the factor in it."""
    if op != ReduceOp.PREMUL_SUM:
        return op, 1.0
    factor = 3 if reference.is_integer(dtype) else 0.625  # exact in every type
    return dist._make_nccl_premul_sum(torch.tensor([factor]) if as_tensor else float(factor)), factor


def reductions(types: Sequence[torch.dtype], counts: Sequence[int]) -> Iterator[tuple]:
    """Type, operation, what to pass for it, its factor, count, bits of the inputs, whether asynchronous."""
    turn = 0
    for dtype, count, what in types_and_counts(types, counts):
        for op in reference.ops_of(dtype):
            if count > 1000 and op not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM):
                continue
            passed, factor = operation(op, dtype, turn % 3 == 0)
            bits = 4 if op == ReduceOp.AVG else 0  # its sum is not to wrap
            yield dtype, op, passed, factor, count, bits, turn % 2 == 1, f"{what} {op}"
            turn += 1


# ---- reductions ----


@ranks.on(*ALL)
def all_reduce(rank: int, n: int) -> None:
    group = dist.group.WORLD
    for dtype, op, passed, factor, count, bits, later, what in reductions(reference.REDUCED, COUNTS):
        given = inputs(what, n, count, dtype, bits)
        tensor = given[rank].clone()
        if dtype.is_complex and op not in (ReduceOp.SUM, ReduceOp.AVG):  # PyTorch's function refuses these itself
            options = AllreduceOptions()
            options.reduceOp, options.asyncOp = passed, later
            work = group.allreduce([tensor], options)
        else:
            work = dist.all_reduce(tensor, passed, async_op=later)
        finish(work, later)
        check(tensor, given, op, factor, what)


@ranks.on(2, 3)
def reduce(rank: int, n: int) -> None:
    turn = 0
    types = (torch.bool, torch.int16, torch.uint64, torch.bfloat16, torch.float32, torch.complex64)
    for dtype, op, passed, factor, count, bits, later, what in reductions(types, SMALL):
        if dtype.is_complex and op not in (ReduceOp.SUM, ReduceOp.AVG):
            continue
        root = turn % n
        turn += 1
        given = inputs(what, n, count, dtype, bits)
        tensor = given[rank].clone()
        finish(dist.reduce(tensor, root, passed, async_op=later), later)
        if rank == root:
            check(tensor, given, op, factor, what)
        else:
            same(tensor, given[rank], f"{what}: the input of a rank that is not the root")


@ranks.on(*ALL)
def reduce_scatter_tensor(rank: int, n: int) -> None:
    for dtype, op, passed, factor, count, bits, later, what in reductions(reference.REDUCED, SMALL):
        if dtype.is_complex and op not in (ReduceOp.SUM, ReduceOp.AVG):
            continue
        given = inputs(what, n, n * count, dtype, bits)
        output = torch.empty(count, dtype=dtype)
        source = given[rank].clone()
        finish(dist.reduce_scatter_tensor(output, source, passed, async_op=later), later)
        check(output, [tensor[rank * count:(rank + 1) * count] for tensor in given], op, factor, what)
        same(source, given[rank], f"{what}: the input")


@ranks.on(*ALL)
def reduce_scatter_tensor_in_place(rank: int, n: int) -> None:
    for dtype, count, what in types_and_counts((torch.float32, torch.int32)):
        given = inputs(what, n, n * count, dtype)
        whole = given[rank].clone()
        mine = slice(rank * count, (rank + 1) * count)
        dist.reduce_scatter_tensor(whole[mine], whole)
        check(whole[mine], [tensor[mine] for tensor in given], ReduceOp.SUM, what=what)


def blocks_of(whole: torch.Tensor, sizes: Sequence[int]) -> List[torch.Tensor]:
    return list(whole.split(list(sizes)))


@ranks.on(*ALL)
def reduce_scatter_list(rank: int, n: int) -> None:
    """Equal and unequal blocks; separate tensors, and chunks of one."""
    for sizes in ([5] * n, [3 * r for r in range(n)], [20_011 + r for r in range(n)]):
        for dtype in (torch.int32, torch.float64, torch.bfloat16):
            for chunks in (False, True):
                what = f"{sizes} {dtype} chunks {chunks}"
                given = inputs(what, n, sum(sizes), dtype)
                list_ = blocks_of(given[rank], sizes)
                list_ = list_ if chunks else [block.clone() for block in list_]
                output = torch.empty(sizes[rank], dtype=dtype)
                finish(dist.reduce_scatter(output, list_, async_op=chunks), chunks)
                check(output, [blocks_of(tensor, sizes)[rank] for tensor in given], ReduceOp.SUM, what=what)


# ---- what is only moved ----


@ranks.on(*ALL)
def broadcast(rank: int, n: int) -> None:
    for turn, (dtype, count, what) in enumerate(types_and_counts(reference.MOVED)):
        root, later = turn % n, turn % 2 == 0
        tensor = values(what, rank, count, dtype)
        finish(dist.broadcast(tensor, root, async_op=later), later)
        same(tensor, values(what, root, count, dtype), what)


@ranks.on(*ALL)
def all_gather(rank: int, n: int) -> None:
    """Into separate tensors, into chunks of one tensor, in place, and with sizes that differ."""
    for turn, (dtype, count, what) in enumerate(types_and_counts(reference.MOVED)):
        later = turn % 2 == 0
        given = inputs(what, n, count, dtype)
        separate = [torch.empty(count, dtype=dtype) for _ in range(n)]
        finish(dist.all_gather(separate, given[rank].clone(), async_op=later), later)
        chunks = list(torch.empty(n, count, dtype=dtype))
        finish(dist.all_gather(chunks, given[rank].clone(), async_op=later), later)
        in_place = list(torch.empty(n, count, dtype=dtype))
        in_place[rank].copy_(given[rank])
        finish(dist.all_gather(in_place, in_place[rank], async_op=later), later)
        for r in range(n):
            same(separate[r], given[r], f"{what}, separate")
            same(chunks[r], given[r], f"{what}, chunks")
            same(in_place[r], given[r], f"{what}, in place")


@ranks.on(*ALL)
def all_gather_of_different_sizes(rank: int, n: int) -> None:
    for dtype in SOME:
        for scale in (1, 7, 9_001):
            sizes = [scale * r for r in range(n)]
            given = [values(f"{dtype}{scale}", r, sizes[r], dtype) for r in range(n)]
            outputs = [torch.empty(size, dtype=dtype) for size in sizes]
            dist.all_gather(outputs, given[rank])
            whole = torch.empty(sum(sizes), dtype=dtype)
            dist.all_gather(blocks_of(whole, sizes), given[rank])
            for r in range(n):
                same(outputs[r], given[r], f"{dtype} {sizes}")
            same(whole, torch.cat(given), f"{dtype} {sizes}")


@ranks.on(*ALL)
def all_gather_into_tensor(rank: int, n: int) -> None:
    for turn, (dtype, count, what) in enumerate(types_and_counts(reference.MOVED)):
        if dtype == torch.complex32:  # as numbers PyTorch itself can not concatenate it
            continue
        later = turn % 2 == 0
        given = inputs(what, n, count, dtype)
        whole = torch.empty(n * count, dtype=dtype)
        finish(dist.all_gather_into_tensor(whole, given[rank].clone(), async_op=later), later)
        stacked = torch.empty(n, count, dtype=dtype)
        stacked[rank].copy_(given[rank])
        finish(dist.all_gather_into_tensor(stacked, stacked[rank], async_op=later), later)
        for r in range(n):
            same(whole[r * count:(r + 1) * count], given[r], what)
            same(stacked[r], given[r], f"{what}, in place")


@ranks.on(2, 3)
def gather_and_scatter(rank: int, n: int) -> None:
    for turn, (dtype, count, what) in enumerate(types_and_counts(reference.MOVED)):
        root, later = turn % n, turn % 2 == 0
        for sizes in ([count] * n, [count + r for r in range(n)]):
            given = [values(what, r, sizes[r], dtype) for r in range(n)]
            outputs = [torch.empty(size, dtype=dtype) for size in sizes] if rank == root else None
            finish(dist.gather(given[rank].clone(), outputs, root, async_op=later), later)
            output = torch.empty(sizes[rank], dtype=dtype)
            whole = [tensor.clone() for tensor in given] if rank == root else None
            finish(dist.scatter(output, whole, root, async_op=later), later)
            for r in range(n) if rank == root else ():
                same(outputs[r], given[r], f"gather, {what}")
            same(output, given[rank], f"scatter, {what}")


@ranks.on(1, 4)
def gather_and_scatter_at_the_ends(rank: int, n: int) -> None:
    for root in {0, n - 1}:
        given = inputs("ends", n, 11, torch.float32)
        outputs = list(torch.empty(n, 11)) if rank == root else None
        dist.gather(given[rank], outputs, root)
        output = torch.empty(11)
        dist.scatter(output, outputs, root)
        same(output, given[rank])
        if rank == root:
            same(torch.stack(outputs), torch.stack(given))


# ---- all to all ----


@ranks.on(*ALL)
def all_to_all_single_equal(rank: int, n: int) -> None:
    for turn, (dtype, count, what) in enumerate(types_and_counts(reference.MOVED)):
        if dtype == torch.complex32:
            continue
        later = turn % 2 == 0
        given = [tensor.view(n, count) for tensor in inputs(what, n, n * count, dtype)]
        output = torch.empty(n, count, dtype=dtype)
        finish(dist.all_to_all_single(output, given[rank].clone(), async_op=later), later)
        for r in range(n):
            same(output[r], given[r][rank], what)


@ranks.on(*ALL)
def all_to_all_single_unequal(rank: int, n: int) -> None:
    """Rows by a table of splits: some zero, one rank with none at all; one and three dimensions."""
    tables = {
        "growing": lambda a, b: a + 2 * b,
        "diagonal": lambda a, b: 4 if a == b else 0,
        "one silent": lambda a, b: 0 if a == n - 1 else 3 + b,
        "none": lambda a, b: 0,
        "large": lambda a, b: 5_003 + a * b,
    }
    for dtype in SOME:
        for name, rows in tables.items():
            for row in ((), (2, 3)):
                what = f"{name} {dtype} {row}"
                split = [[rows(a, b) for b in range(n)] for a in range(n)]
                width = 6 if row else 1
                given = [values(what, r, sum(split[r]) * width, dtype).view(-1, *row) for r in range(n)]
                receive = [split[a][rank] for a in range(n)]
                output = torch.empty(sum(receive), *row, dtype=dtype)
                later = bool(row)
                work = dist.all_to_all_single(output, given[rank].clone(), receive, split[rank], async_op=later)
                finish(work, later)
                want = [given[a].split(split[a])[rank] for a in range(n)]
                same(output, torch.cat(want), what)


@ranks.on(2, 3)
def all_to_all_single_with_splits_on_some_ranks(rank: int, n: int) -> None:
    """Ranks without splits mean equal ones. Rank 0 says the same in words, and keeps other rows for itself."""
    for dtype, rows in ((torch.float32, 1), (torch.int64, 3), (torch.float32, 2_001)):
        own = rows + 4 if rank == 0 else rows
        split = [own if r == rank else rows for r in range(n)]
        given = [values(f"some{rows}", r, n * rows + (4 if r == 0 else 0), dtype) for r in range(n)]
        for later in (False, True):
            output = torch.empty(sum(split), dtype=dtype)
            splits = (split, split) if rank == 0 else (None, split) if rank == 2 else (None, None)
            finish(dist.all_to_all_single(output, given[rank].clone(), *splits, async_op=later), later)
            first = 4 if rank > 0 else 0  # where rank 0's rows for the others begin
            want = [given[r][r and rank * rows or rank * rows + first:][:split[r]] for r in range(n)]
            same(output, torch.cat(want), f"{dtype} {rows}")


@ranks.on(1, 2)
def all_to_all_single_in_place(rank: int, n: int) -> None:
    given = inputs("in place", n, 3 * n, torch.float32)
    tensor = given[rank].clone()
    dist.all_to_all_single(tensor, tensor)
    same(tensor, torch.cat([whole.chunk(n)[rank] for whole in given]))


@ranks.on(*ALL)
def all_to_all_list(rank: int, n: int) -> None:
    """Sizes that differ, in both directions."""
    for dtype in SOME:
        for size in (lambda a, b: 5, lambda a, b: 2 * a + b, lambda a, b: a * b, lambda a, b: 8_001 + a):
            given = [[values(f"{dtype}{a}", b, size(a, b), dtype) for b in range(n)] for a in range(n)]
            outputs = [torch.empty(size(a, rank), dtype=dtype) for a in range(n)]
            later = size(1, 1) == 5
            finish(dist.all_to_all(outputs, [block.clone() for block in given[rank]], async_op=later), later)
            for a in range(n):
                same(outputs[a], given[a][rank], f"{dtype} from {a}")


# ---- several at once ----


@ranks.on(2, 3)
def coalesced(rank: int, n: int) -> None:
    """The methods that take many tensors: mixed sizes, an empty one among them."""
    group, sizes = dist.group.WORLD, (4, 0, 1, 333)
    for dtype in (torch.float32, torch.int64, torch.bool):
        given = [[values(f"{dtype}{i}", r, size, dtype) for i, size in enumerate(sizes)] for r in range(n)]
        mine = given[rank]
        for later in (False, True):
            tensors = [tensor.clone() for tensor in mine]
            options = AllreduceCoalescedOptions()
            options.asyncOp = later
            finish(group.allreduce_coalesced(tensors, options), later)
            for i, tensor in enumerate(tensors):
                check(tensor, [given[r][i] for r in range(n)], ReduceOp.SUM)
            outputs = [torch.empty(n * size, dtype=dtype) for size in sizes]
            gather = AllgatherOptions()
            gather.asyncOp = later
            finish(group.allgather_into_tensor_coalesced(outputs, mine, gather), later)
            for i, output in enumerate(outputs):
                same(output, torch.cat([given[r][i] for r in range(n)]))
            scattered = [torch.empty(size, dtype=dtype) for size in sizes]
            scatter = ReduceScatterOptions()
            scatter.asyncOp = later
            finish(group.reduce_scatter_tensor_coalesced(scattered, [t.repeat(n) for t in mine], scatter), later)
            for i, output in enumerate(scattered):
                check(output, [given[r][i] for r in range(n)], ReduceOp.SUM)


@ranks.on(2, 3)
def coalesced_twice(rank: int, n: int) -> None:
    """A tensor that is in the list twice is reduced once, as with gloo; on the other ranks it may be two."""
    group = dist.group.WORLD
    given = inputs("twice", n, 37, torch.float32)
    for repeated in (range(n), [0]):
        first = given[rank].clone()
        second = first if rank in repeated else given[rank].clone()
        group.allreduce_coalesced([first, torch.ones(3), second], AllreduceCoalescedOptions()).wait()
        check(first, given, ReduceOp.SUM)
        check(second, given, ReduceOp.SUM)
    tensor = given[rank].clone()
    with dist._coalescing_manager():
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
    check(tensor, given, ReduceOp.SUM)


@ranks.on(2, 3)
def all_gather_coalesced(rank: int, n: int) -> None:
    sizes = (4, 1, 333)
    types = (torch.float32, torch.int64, torch.bool)
    given = [[values("coalesced", r, size, dtype) for size, dtype in zip(sizes, types)] for r in range(n)]
    outputs = [[torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, types)] for _ in range(n)]
    work = dist.group.WORLD.allgather_coalesced(outputs, given[rank])
    if work is not None:
        work.wait()
    for r in range(n):
        for output, want in zip(outputs[r], given[r]):
            same(output, want)


# ---- barriers, objects ----


@ranks.on(*ALL)
def barrier(rank: int, n: int) -> None:
    for later in (False, True):
        finish(dist.barrier(async_op=later), later)


@ranks.on(1, 3)
def objects(rank: int, n: int) -> None:
    mine = {"rank": rank, "text": "x" * 1000 * rank, "set": {rank}}
    all_ = [{"rank": r, "text": "x" * 1000 * r, "set": {r}} for r in range(n)]
    gathered: List[object] = [None] * n
    dist.all_gather_object(gathered, mine)
    assert gathered == all_
    root = n - 1
    at_root: List[object] = [None] * n
    dist.gather_object(mine, at_root if rank == root else None, dst=root)
    assert at_root == (all_ if rank == root else [None] * n)
    pair = [mine, len(mine)] if rank == root else [None, None]
    dist.broadcast_object_list(pair, src=root)
    assert pair == [all_[root], 3]
    got: List[object] = [None]
    dist.scatter_object_list(got, all_ if rank == root else None, src=root)
    assert got == [mine]


@ranks.on(2)
def objects_from_one_to_another(rank: int, n: int) -> None:
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], dst=1)
    else:
        got = [None, None]
        assert dist.recv_object_list(got, src=0) == 0 and got == [{"a": 1}, "b"]


# ---- inputs that share memory with outputs without being in place: the input is what it was at the call ----


@ranks.on(2, 3)
def overlapping(rank: int, n: int) -> None:
    def fresh() -> torch.Tensor:
        return torch.arange(float(n * n)) + 100 * rank

    for later in (False, True):
        before = [torch.arange(float(n * n)) + 100 * r for r in range(n)]
        part = slice(rank * n, (rank + 1) * n)
        x = fresh()
        finish(dist.all_to_all(list(x.chunk(n)), list(x.chunk(n)), async_op=later), later)
        same(x, torch.cat([b[part] for b in before]), "all_to_all")
        x = fresh()
        finish(dist.all_to_all_single(x, x, async_op=later), later)
        same(x, torch.cat([b[part] for b in before]), "all_to_all_single")
        x = fresh()
        shift = (rank + 1) % n * n  # another rank's place
        finish(dist.all_gather(list(x.chunk(n)), x[shift:shift + n], async_op=later), later)
        others = [b[(r + 1) % n * n:(r + 1) % n * n + n] for r, b in enumerate(before)]
        same(x, torch.cat(others), "all_gather")
        x = fresh()
        finish(dist.all_gather_into_tensor(x, x[shift:shift + n], async_op=later), later)
        same(x, torch.cat(others), "all_gather_into_tensor")
        x = fresh()
        output = x[1:1 + n]
        finish(dist.reduce_scatter_tensor(output, x, async_op=later), later)
        same(output, sum(b[part] for b in before), "reduce_scatter_tensor")
        x = fresh()
        output = x[1:1 + n]
        finish(dist.reduce_scatter(output, list(x.chunk(n)), async_op=later), later)
        same(output, sum(b[part] for b in before), "reduce_scatter")
        for root in range(n):
            x = fresh()
            parts = list(x.chunk(n)) if rank == root else None
            finish(dist.gather(x[1:1 + n], parts, dst=root, async_op=later), later)
            if rank == root:
                same(x, torch.cat([b[1:1 + n] for b in before]), "gather")
            x = fresh()
            parts = list(x.chunk(n)) if rank == root else None
            output = x[1:1 + n]
            finish(dist.scatter(output, parts, src=root, async_op=later), later)
            same(output, before[root][part], "scatter")


@ranks.on(2)
def overlapping_coalesced(rank: int, n: int) -> None:
    x = torch.arange(4.0) + 10 * rank
    y = x.clone()
    options = AllgatherOptions()
    dist.group.WORLD.allgather_into_tensor_coalesced([x, y], [x[1:3], y[2:4]], options).wait()
    same(x, torch.tensor([1.0, 2, 11, 12]), "the first")
    same(y, torch.tensor([2.0, 3, 12, 13]), "the second")


# ---- several tensors of a rank in one call of the backend's object ----


@ranks.on(2, 3)
def several_tensors(rank: int, n: int) -> None:
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    for op, expected in ((ReduceOp.SUM, n * (2 * n - 1)), (ReduceOp.MAX, 2 * n - 1), (ReduceOp.MIN, 0)):
        pair = [torch.full((3,), 2.0 * rank), torch.full((3,), 2.0 * rank + 1)]
        options = AllreduceOptions()
        options.reduceOp = op
        work = group.allreduce(pair, options)
        work.wait()
        for tensor in [*pair, *work.get_future().value()]:
            same(tensor, torch.full((3,), float(expected)), str(op))
    for root in range(n):
        for index in (0, 1):
            pair = [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]
            options = BroadcastOptions()
            options.rootRank, options.rootTensor = root, index
            group.broadcast(pair, options).wait()
            for tensor in pair:
                same(tensor, torch.tensor([2.0 * root + index]), f"root {root}, tensor {index}")
    pair = [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]
    lists = [[torch.zeros(1) for _ in range(2 * n)] for _ in range(2)]
    group.allgather(lists, pair).wait()
    for one in lists:
        same(torch.cat(one), torch.arange(2.0 * n), "all_gather")


@ranks.on(2)
def refusals_in_gloos_words(rank: int, n: int) -> None:
    """Each is a ValueError and a RuntimeError, which gloo raises."""
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    one, double, two = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)

    def refused(words: str, call: str, *arguments: object, **fields: int) -> None:
        names = {"allreduce": AllreduceOptions, "broadcast": BroadcastOptions, "reduce": ReduceOptions,
                 "gather": GatherOptions, "scatter": ScatterOptions, "allgather": AllgatherOptions}  # fmt: skip
        options = names[call]()
        for name, value in fields.items():
            setattr(options, name, value)
        try:
            getattr(group, call)(*arguments, options)
        except RuntimeError as error:
            assert words in str(error) and isinstance(error, (ValueError, TypeError)), error
        else:
            raise AssertionError(f"{call} took {arguments}")

    for root in (-1, n):
        refused("invalid root rank", "broadcast", [one], rootRank=root)
        refused("invalid root rank", "reduce", [one], rootRank=root)
        refused("invalid root rank", "gather", [], [one], rootRank=root)
        refused("invalid root rank", "scatter", [one], [], rootRank=root)
    refused("invalid root tensor", "broadcast", [one], rootRank=rank, rootTensor=1)
    refused("invalid root tensor", "broadcast", [], rootRank=rank)
    refused("requires non-empty tensor list", "allreduce", [])
    refused("requires non-empty input tensor list", "allgather", [[one]], [])
    for call in ("allreduce", "broadcast"):
        refused("invalid tensor type", call, [one, double])
        refused("invalid tensor size", call, [one, two])
    refused("requires a single-element tensor list", "reduce", [one, one], rootRank=rank)
    refused("requires a single-element output tensor list", "scatter", [], [], rootRank=0)
    refused("requires a single-element input tensor list", "gather", [], [], rootRank=0)
    refused("requires a single-element input list", "scatter", [one], [], rootRank=rank)
    refused("requires a single-element output list", "gather", [], [one], rootRank=rank)
    wrong = [one] * (n + 1)
    refused("Incorrect input list size 3. Input list size should be 2", "scatter", [one], [wrong], rootRank=rank)
    refused("Incorrect output list size 3. Output list size should be 2", "gather", [wrong], [one], rootRank=rank)
    refused("requires empty input on non-root", "scatter", [one], [[one] * n], rootRank=1 - rank)
    refused("requires empty output on non-root", "gather", [[one] * n], [one], rootRank=1 - rank)
    for bad, words in ((double, "invalid tensor type"), (two, "invalid tensor size")):
        refused(words, "gather", [[bad] * n], [one], rootRank=rank)
        refused(words, "scatter", [one], [[bad] * n], rootRank=rank)
        refused(words, "allgather", [[bad] * n], [one])
    refused("invalid output tensor list at index 0 (expected length 2, got 3)", "allgather", [wrong], [one])
    refused("same length", "allgather", [[one] * n, [one] * n], [one])


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
