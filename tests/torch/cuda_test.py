# SPDX-License-Identifier: BSD-3-Clause
# label: gpu
"""Collectives on CUDA tensors (or Intel's: cuda_world.py): results against references on the host, and the order of
streams, graphs and memory. Inputs are computed late and outputs overwritten at once (device/calls.py), so that each
result says that its call came in between."""

from __future__ import annotations

import itertools
import time
import unittest
from typing import Any, Callable, List

import cuda_world
import ranks
import torch
import torch.distributed as dist
from cuda_world import calls
from calls import CALLS, TYPE, compare, late, module, values

SIZES = (1, 2, 7, 256, 1000, 4099, 65_536) if cuda_world.PLAYED else (1, 2, 7, 256, 1000, 4099, 65_536, 1_000_003)
REPLAYS, LARGE = (6, 100_000) if cuda_world.PLAYED else (1000, 700_000)


def device_of(rank: int) -> torch.device:
    return calls.use_device_of(rank)


def of_call(name: str) -> Callable:
    def test(rank: int, n: int) -> None:
        device_of(rank)
        for asynchronous in (True, False):
            work, pairs = CALLS[name](rank, n, asynchronous)
            for one in work if isinstance(work, list) else [work]:
                if one is not None:
                    one.wait()
            compare(pairs)

    test.__qualname__ = f"call_{name}"
    return ranks.on(2)(test)


NOT_HERE = ["recv_any"]  # a source is named on devices
NOT_HERE += ["all_reduce_sparse"] if cuda_world.PLAYED else []  # the played device has no sparse tensors
for name in CALLS:
    if name not in NOT_HERE:
        globals()[f"call_{name}"] = of_call(name)


# ---- values ----

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OPS = {
    dist.ReduceOp.SUM: lambda parts: parts.sum(0),
    dist.ReduceOp.PRODUCT: lambda parts: parts.prod(0),
    dist.ReduceOp.MIN: lambda parts: parts.amin(0),
    dist.ReduceOp.MAX: lambda parts: parts.amax(0),
}
BITS = {
    dist.ReduceOp.BAND: lambda a, b: a & b,
    dist.ReduceOp.BOR: lambda a, b: a | b,
    dist.ReduceOp.BXOR: lambda a, b: a ^ b,
}


def few(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers so small that every type holds the results exactly."""
    return torch.randint(1, 4, (count,), generator=torch.Generator().manual_seed(7 * rank + count)).to(dtype)


@ranks.on(2)
def types_and_operations(rank: int, n: int) -> None:
    device = device_of(rank)
    for dtype, count in itertools.product(FLOATS + WHOLE, (1, 37, 5000)):
        parts = torch.stack([few(r, count, dtype) for r in range(n)])
        for op, of in OPS.items():
            tensor = parts[rank].to(device)
            dist.all_reduce(tensor, op=op)
            want = of(parts.double()).to(dtype)
            assert torch.equal(tensor.cpu(), want), f"{dtype} {op} {count}: {tensor[:5]} and not {want[:5]}"
        for op, of in OPS.items():
            want = of(parts.double()).to(dtype)
            tensor, whole, output = parts[rank].to(device), parts[rank].repeat(n).to(device), parts[rank].to(device)
            dist.reduce(tensor, 1, op=op)
            dist.reduce_scatter_tensor(output, whole, op=op)
            assert rank != 1 or torch.equal(tensor.cpu(), want), f"reduce of {dtype} {op} {count}"
            assert torch.equal(output.cpu(), want), f"reduce_scatter of {dtype} {op} {count}"
    for dtype, (op, of) in itertools.product(WHOLE, BITS.items()):
        parts = [few(r, 77, dtype) for r in range(n)]
        tensor = parts[rank].to(device)
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor.cpu(), of(*parts)), f"{dtype} {op}"


@ranks.on(2)
def all_types_travel(rank: int, n: int) -> None:
    """Also those that the library does not compute with."""
    device = device_of(rank)
    more = (torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
            torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz)  # fmt: skip
    for dtype in FLOATS + WHOLE + more:
        bits = torch.randint(0, 256, (n, 640), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
        bits = bits & 1 if dtype == torch.bool else bits
        parts = [row.view(dtype) for row in bits]
        tensor, output = parts[rank].to(device), torch.empty(n * len(parts[0]), dtype=dtype, device=device)
        dist.all_gather_into_tensor(output, tensor)
        dist.broadcast(tensor, 1)
        assert torch.equal(output.cpu().view(torch.uint8), bits.flatten()), f"{dtype}"
        assert torch.equal(tensor.cpu().view(torch.uint8), bits[1]), f"{dtype}"
        mine, output = parts[rank].to(device), torch.empty(len(parts[0]), dtype=dtype, device=device)
        dist.all_to_all_single(output, mine)
        swapped = torch.cat([row.chunk(n)[rank] for row in bits])
        assert torch.equal(output.cpu().view(torch.uint8), swapped), f"all_to_all of {dtype}"
        exchange = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, output, 1 - rank)]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        assert torch.equal(output.cpu().view(torch.uint8), bits[1 - rank]), f"a message of {dtype}"
        gathered = [torch.empty_like(mine) for _ in range(n)] if rank == 0 else None
        dist.gather(mine, gathered, 0)
        dist.scatter(output, gathered[::-1] if rank == 0 else None, 0)
        assert torch.equal(output.cpu().view(torch.uint8), bits[1 - rank]), f"gather and scatter of {dtype}"


@ranks.on(2)
def sizes_and_offsets(rank: int, n: int) -> None:
    """Random values, at addresses of every alignment; each size several times, so that scratch is used again."""
    device = device_of(rank)
    for size, offset in itertools.product(SIZES, (0, 1, 3)):
        parts = [torch.randn(size + offset, generator=torch.Generator().manual_seed(size + r)) for r in range(n)]
        for again in range(3):
            tensor = parts[rank].to(device)[offset:]
            dist.all_reduce(tensor)
            want = sum(part[offset:] for part in parts)
            torch.testing.assert_close(tensor.cpu(), want, rtol=1e-6, atol=1e-6, msg=f"{size} at {offset}, {again}")


@ranks.on(2)
def factor_on_the_device(rank: int, n: int) -> None:
    device = device_of(rank)
    tensor = values(rank, 5000).to(device)
    factor = torch.tensor([0.25], device=device)
    for again in range(2):
        scattered = torch.empty(5000 // n, device=device)
        dist.reduce_scatter_tensor(scattered, tensor, op=dist._make_nccl_premul_sum(factor))
        want = 0.25 * sum(values(r, 5000) for r in range(n)).chunk(n)[rank]
        assert torch.equal(scattered.cpu(), want)
        assert torch.equal(tensor.cpu(), values(rank, 5000)), "the input was changed"
        scattered.zero_()
        dist.reduce_scatter_tensor(scattered, tensor, op=dist._make_nccl_premul_sum(0.25))
        assert torch.equal(scattered.cpu(), want)


@ranks.on(2)
def beside_the_host(rank: int, n: int) -> None:
    """One group serves both; a call is where its tensors are."""
    device = device_of(rank)
    works = []
    for i in range(20):
        on_device, on_host = values(rank, 100 + i).to(device), values(rank, 50 + i)
        works.append((dist.all_reduce(on_device, async_op=True), on_device, 100 + i))
        works.append((dist.all_reduce(on_host, async_op=True), on_host, 50 + i))
    for work, tensor, size in works:
        work.wait()
        assert torch.equal(tensor.cpu(), sum(values(r, size) for r in range(n)))
    with ranks.raises(ValueError, "different devices"):
        dist.all_gather_into_tensor(torch.empty(20, device=device), torch.empty(20 // n))
    with ranks.raises(ValueError, "coalesced region"):
        with dist._coalescing_manager(device=device):
            dist.broadcast(torch.ones(3, device=device), 0)
            dist.broadcast(torch.ones(3), 0)
    dist.all_reduce(on_device)


# ---- streams and memory ----


@ranks.on(2)
def waits_for_nothing(rank: int, n: int) -> None:
    """The host is back before the device has begun; a Work is complete some time after, unasked."""
    device = device_of(rank)
    tensor = torch.ones(100, device=device)
    dist.all_reduce(tensor)
    module.synchronize()
    begin = time.monotonic()
    calls.sleep(400)
    tensor.fill_(float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    asked = work.is_completed()
    spent = time.monotonic() - begin
    assert not asked or spent > 0.1, "complete before its input was"
    while not work.is_completed():
        assert time.monotonic() - begin < 30
        time.sleep(0.002)
    assert work.is_success()
    assert torch.equal(tensor.cpu(), torch.full((100,), float(sum(range(n)))))


@ranks.on(2)
def side_streams(rank: int, n: int) -> None:
    """A call belongs to the stream that is current then, its wait to the one that is current there."""
    device_of(rank)
    one, two = module.Stream(), module.Stream()
    for asynchronous in (False, True):
        with module.stream(one):
            tensor = late(values(rank, 20_000))
            work = dist.all_reduce(tensor, async_op=asynchronous)
            if not asynchronous:
                two.wait_stream(one)
        with module.stream(two):
            if work:
                work.wait()
            compare([(tensor, sum(values(r, 20_000) for r in range(n)))])


@ranks.on(2)
def memory_is_used_again(rank: int, n: int) -> None:
    """Nobody holds the tensors, and nobody waits: who gets their memory, gets it when the calls have come past."""
    device = device_of(rank)
    dist.all_reduce(torch.ones(1, device=device))
    kept = []
    for i in range(15 if cuda_world.PLAYED else 50):
        dist.all_reduce(torch.full((100_000,), float(i), device=device), async_op=True)
        kept.append(torch.full((100_000,), -1.0, device=device))
        outputs = [torch.empty(999, device=device) for _ in range(n)]
        dist.all_gather(outputs, torch.full((999,), float(i), device=device), async_op=True)
        del outputs
        kept.append(torch.full((999,), -1.0, device=device))
        del kept[:-20]
    dist.barrier(device_ids=[device.index])
    module.synchronize()
    assert all(bool((tensor == -1).all()) for tensor in kept), "the memory was written to by a call that had lost it"


@ranks.on(2)
def future(rank: int, n: int) -> None:
    """Callbacks compute with the result on a stream behind the call, without the host's waiting."""
    device_of(rank)
    tensor = late(values(rank, 20_000))
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0].mul_(2))
    compare([(doubled.wait(), 2 * sum(values(r, 20_000) for r in range(n)))])
    work = dist.all_reduce(late(values(rank, 20)), async_op=True)
    outcome = work.get_future_result()
    assert outcome.wait() == 0  # c10d::WorkResult::SUCCESS
    assert work.is_completed()


@ranks.on(2)
def hook_and_durations(rank: int, n: int) -> None:
    device = device_of(rank)
    group = dist.new_group()
    seen: List[Any] = []
    group._enable_collectives_timing()
    group._register_on_completion_hook(lambda info: seen.append(info.seq))
    works = [dist.all_reduce(torch.ones(100_000, device=device), group=group, async_op=True) for _ in range(5)]
    for work in works:
        work.wait()
    module.synchronize()
    assert all(0 < work._get_duration() < 10_000 for work in works)
    group._wait_for_pending_works()
    assert seen == [1, 2, 3, 4, 5], seen
    dist.destroy_process_group(group)


@ranks.on(2)
def barrier(rank: int, n: int) -> None:
    """The host comes out of it when the streams of all ranks have."""
    device = device_of(rank)
    dist.barrier(device_ids=[device.index])
    begin = torch.tensor(time.monotonic(), dtype=torch.float64)  # the clock is the host's, so ranks can compare
    if rank == 0:
        calls.sleep(300)
        module.current_stream().synchronize()
        begin.fill_(time.monotonic())
        calls.sleep(100)
    dist.barrier(device_ids=[device.index])
    end = torch.tensor(time.monotonic(), dtype=torch.float64)
    dist.broadcast(begin, 0)
    assert end > begin, "rank 0 had not come"


@ranks.on(2)
def groups_on_streams(rank: int, n: int) -> None:
    """Several groups at once, each on a stream of its own, in the same order on all ranks."""
    device = device_of(rank)
    groups = [dist.new_group() for _ in range(3)]
    streams = [module.Stream() for _ in groups]
    tensors = [values(rank, 30_000 + i).to(device) for i in range(3)]
    module.synchronize()
    for _ in range(20):
        for group, stream, tensor in zip(groups, streams, tensors):
            with module.stream(stream):
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
                tensor.add_(rank)
    module.synchronize()
    for i, tensor in enumerate(tensors):
        want = values(rank, 30_000 + i)
        parts = [values(r, 30_000 + i) for r in range(n)]
        for _ in range(20):
            top = torch.stack(parts).amax(0)
            parts = [top + r for r in range(n)]
        want = parts[rank]
        assert torch.equal(tensor.cpu(), want), f"group {i}"
    for group in groups:
        dist.destroy_process_group(group)


# ---- graphs ----

on_graphs = ranks.on(2) if TYPE == "cuda" else lambda function: function  # SYCL's have no part in calls


@on_graphs
def graph(rank: int, n: int) -> None:
    """Replays with changing data, eager calls in between; synchronous calls, asynchronous ones and regions."""
    device = device_of(rank)
    dist.all_reduce(torch.ones(1, device=device))
    sizes = (64, 20_000, LARGE)
    inputs = [torch.zeros(size, device=device) for size in sizes]
    outputs = [torch.zeros(size, device=device) for size in sizes]
    gathered, eager = torch.zeros(n * sizes[0], device=device), torch.zeros(777, device=device)
    module.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for source, output in zip(inputs, outputs):
            output.copy_(source).mul_(2)
            dist.all_reduce(output)
        work = dist.all_gather_into_tensor(gathered, outputs[0].clone().add_(rank), async_op=True)
        outputs[1].add_(1)
        work.wait()
        gathered.mul_(2)
    with ranks.raises(RuntimeError, "part of a graph"):
        work.is_completed()
    wrong = torch.zeros(1, dtype=torch.int64, device=device)
    for i in range(REPLAYS):
        for j, source in enumerate(inputs):
            source.fill_(i + rank + j)
        captured.replay()
        total = [2.0 * sum(i + r + j for r in range(n)) for j in range(3)]
        for output, want in zip(outputs, (total[0], total[1] + 1, total[2])):
            wrong += (output != want).sum()
        rows = gathered.view(n, -1)
        for r in range(n):
            wrong += (rows[r] != 2 * (total[0] + r)).sum()
        if i % 3 == 0:
            eager.fill_(i + rank)
            dist.all_reduce(eager)
            wrong += (eager != sum(i + r for r in range(n))).sum()
    assert wrong.item() == 0, f"{wrong.item()} elements differ"


@on_graphs
def graph_of_all_kinds(rank: int, n: int) -> None:
    device = device_of(rank)
    to, source = (rank + 1) % n, (rank - 1) % n
    tensor, output = torch.zeros(5000, device=device), torch.zeros(n * 5000, device=device)
    came, parts, swapped = (torch.zeros_like(tensor) for _ in range(3))
    chunks = [torch.zeros(5000, device=device) for _ in range(n)]

    def run() -> None:
        dist.all_gather_into_tensor(output, tensor)
        dist.all_gather(chunks, tensor)
        dist.reduce_scatter_tensor(parts, output)
        dist.all_to_all_single(swapped, tensor)
        exchange = [dist.P2POp(dist.isend, tensor, to), dist.P2POp(dist.irecv, came, source)]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        with dist._coalescing_manager(device=device):
            dist.broadcast(swapped, 0)
            dist.all_reduce(parts)

    run()
    module.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    for i in range(20):
        host = [values(100 * i + r, 5000) for r in range(n)]
        tensor.copy_(host[rank])
        captured.replay()
        assert torch.equal(output.cpu(), torch.cat(host))
        assert all(torch.equal(chunk.cpu(), part) for chunk, part in zip(chunks, host))
        assert torch.equal(parts.cpu(), n * sum(host))
        assert torch.equal(came.cpu(), host[source])
        assert torch.equal(swapped.cpu(), torch.cat([part.chunk(n)[0] for part in host]))


# ---- the flight recorder ----


@ranks.on(2)
def recorder(rank: int, n: int) -> None:
    """What is over is told to be, though nothing was recorded for each call."""
    import pickle

    import tutti_torch

    device = device_of(rank)
    group = dist.new_group()
    for _ in range(10):
        dist.all_reduce(torch.ones(50, device=device), group=group)
    module.synchronize()
    entries = pickle.loads(tutti_torch.dump_flight_recorder())["entries"]
    ours = [entry for entry in entries if entry["process_group"][0] == group.group_name]
    assert [entry["collective_seq_id"] for entry in ours] == list(range(1, 11))
    assert all(entry["state"] == "completed" for entry in ours), [entry["state"] for entry in ours]
    dist.destroy_process_group(group)


ranks.cases(globals(), timeout=120.0)

if __name__ == "__main__":
    cuda_world.require_device()
    unittest.main()
