# SPDX-License-Identifier: BSD-3-Clause
"""Every collective on the tensors of a device, with inputs that are computed late and outputs that are in use until
then. Each gives what has to be waited for, and the results with what they have to be."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

TYPE = os.environ.get("TUTTI_TEST_DEVICE", "tuttidev")
if TYPE == "tuttidev":
    import tuttidev  # noqa: F401

DEVICE, SECOND = torch.device(TYPE, 0), torch.device(TYPE, 1)
module = torch.get_device_module(TYPE)
SLOW = 30 if TYPE == "tuttidev" else 5  # milliseconds that a stream sleeps before it has the data
COPY = 4  # milliseconds of a copy between device and host
Pairs = List[Tuple[torch.Tensor, torch.Tensor]]  # on the device, and as it has to be


def use_device_of(rank: int) -> torch.device:
    """On GPUs each rank has its own, as far as they go."""
    global DEVICE
    DEVICE = torch.device(TYPE, rank % module.device_count())
    module.set_device(DEVICE)
    return DEVICE


def sleep(milliseconds: int, device: Optional[torch.device] = None) -> None:
    """What is enqueued on the device's current stream from now on begins that much later."""
    if TYPE == "tuttidev":
        module.sleep(milliseconds, device or DEVICE)
    else:
        with module.device(device or DEVICE):
            (module._sleep if hasattr(module, "_sleep") else multiply)(milliseconds * 2_000_000)  # cycles


def multiply(cycles: int) -> None:
    """Calls on devices that can not sleep."""
    matrix = torch.ones(512, 512, device=DEVICE)
    for _ in range(cycles // 100_000):
        matrix = matrix @ matrix


def set_copy_delay(milliseconds: int) -> None:
    if TYPE == "tuttidev":
        module.set_copy_delay(milliseconds)


def values(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in any order."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


def late(host: torch.Tensor, device: Optional[torch.device] = None) -> torch.Tensor:
    """On the device, but only when the stream has slept; until then it holds something else."""
    device = device or DEVICE
    source = host.to(device)
    tensor = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device)
    tensor.fill_(99)
    module.synchronize(device)
    sleep(SLOW, device)
    return tensor.copy_(source)


def fresh(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output; in use by the stream until it has slept."""
    tensor = torch.empty(shape, dtype=dtype, device=DEVICE)
    sleep(SLOW)
    return tensor.fill_(55)


def compare(pairs: Pairs) -> None:
    """The stream's next work reads the results, and the work after that overwrites them."""
    seen = [tensor.clone() for tensor, _ in pairs]
    for tensor, _ in pairs:
        tensor.fill_(77)
    for i, (tensor, (_, expected)) in enumerate(zip(seen, pairs)):
        same = torch.equal(tensor.cpu(), expected)
        assert same, f"result {i} differs: {tensor.cpu().flatten()[:5]} and not {expected.flatten()[:5]}"


# ---- every collective ----

CALLS: Dict[str, Callable[[int, int, bool], Tuple[Any, Pairs]]] = {}


def call(function: Callable) -> Callable:
    """function(rank, n, asynchronous): what the call gave, and the results with what they have to be."""
    CALLS[function.__name__] = function
    return function


def reduced(dtype: torch.dtype, op: Any, n: int, *shape: int) -> torch.Tensor:
    parts = torch.stack([values(r, *shape, dtype=dtype) for r in range(n)])
    return {dist.ReduceOp.SUM: lambda: parts.sum(0, dtype=dtype), dist.ReduceOp.MAX: lambda: parts.amax(0)}[op]()


@call
def all_reduce(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 3000))
    expected = reduced(torch.float32, dist.ReduceOp.SUM, n, 3000)
    return dist.all_reduce(tensor, async_op=asynchronous), [(tensor, expected)]


@call
def all_reduce_max(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 7, dtype=torch.int64))
    work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=asynchronous)
    return work, [(tensor, reduced(torch.int64, dist.ReduceOp.MAX, n, 7))]


@call
def all_reduce_bfloat16_transposed(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 20, 30, dtype=torch.bfloat16).t())
    assert not tensor.is_contiguous()
    work = dist.all_reduce(tensor, async_op=asynchronous)
    return work, [(tensor, reduced(torch.bfloat16, dist.ReduceOp.SUM, n, 20, 30).t())]


@call
def all_reduce_premultiplied(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 100))
    op = dist._make_nccl_premul_sum(torch.tensor([0.5], device=DEVICE))
    return dist.all_reduce(tensor, op=op, async_op=asynchronous), [
        (tensor, reduced(torch.float32, dist.ReduceOp.SUM, n, 100) * 0.5)]


@call
def all_reduce_average(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 100))
    return dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=asynchronous), [
        (tensor, reduced(torch.float32, dist.ReduceOp.SUM, n, 100) / n)]


@call
def all_reduce_complex(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 64, dtype=torch.complex64) * 1j)
    return dist.all_reduce(tensor, async_op=asynchronous), [
        (tensor, sum(values(r, 64, dtype=torch.complex64) * 1j for r in range(n)))]


@call
def broadcast(rank: int, n: int, asynchronous: bool):
    root = n - 1
    tensor = late(values(rank, 1000))
    return dist.broadcast(tensor, root, async_op=asynchronous), [(tensor, values(root, 1000))]


@call
def broadcast_bool(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 11) > 0)
    return dist.broadcast(tensor, 0, async_op=asynchronous), [(tensor, values(0, 11) > 0)]


@call
def reduce(rank: int, n: int, asynchronous: bool):
    tensor = late(values(rank, 1000))
    work = dist.reduce(tensor, 0, async_op=asynchronous)
    return work, [(tensor, reduced(torch.float32, dist.ReduceOp.SUM, n, 1000))] if rank == 0 else []


@call
def all_gather(rank: int, n: int, asynchronous: bool):
    """Into separate tensors: the shim copies from a flat one."""
    tensor, outputs = late(values(rank, 5, 7)), [fresh(5, 7) for _ in range(n)]
    work = dist.all_gather(outputs, tensor, async_op=asynchronous)
    return work, [(output, values(r, 5, 7)) for r, output in enumerate(outputs)]


@call
def all_gather_chunks(rank: int, n: int, asynchronous: bool):
    """Into the chunks of a tensor."""
    tensor, outputs = late(values(rank, 35)), list(fresh(n * 35).chunk(n))
    work = dist.all_gather(outputs, tensor, async_op=asynchronous)
    return work, [(output, values(r, 35)) for r, output in enumerate(outputs)]


@call
def all_gather_uneven(rank: int, n: int, asynchronous: bool):
    tensor, outputs = late(values(rank, 10 + rank)), [fresh(10 + r) for r in range(n)]
    work = dist.all_gather(outputs, tensor, async_op=asynchronous)
    return work, [(output, values(r, 10 + r)) for r, output in enumerate(outputs)]


@call
def all_gather_into_tensor(rank: int, n: int, asynchronous: bool):
    tensor, output = late(values(rank, 500)), fresh(n * 500)
    work = dist.all_gather_into_tensor(output, tensor, async_op=asynchronous)
    return work, [(output, torch.cat([values(r, 500) for r in range(n)]))]


@call
def all_gather_in_place(rank: int, n: int, asynchronous: bool):
    everything = torch.zeros(n, 500)
    everything[rank] = values(rank, 500)
    output = late(everything)
    work = dist.all_gather_into_tensor(output, output[rank], async_op=asynchronous)
    return work, [(output, torch.stack([values(r, 500) for r in range(n)]))]


def parts(rank: int, n: int, *shape: int) -> List[torch.Tensor]:
    """What a rank has for each rank."""
    return [values(100 * rank + to, *shape) for to in range(n)]


def summed(to: int, n: int, *shape: int) -> torch.Tensor:
    return sum(parts(r, n, *shape)[to] for r in range(n))


@call
def reduce_scatter(rank: int, n: int, asynchronous: bool):
    inputs, output = [late(part) for part in parts(rank, n, 40)], fresh(40)
    work = dist.reduce_scatter(output, inputs, async_op=asynchronous)
    return work, [(output, summed(rank, n, 40))]


@call
def reduce_scatter_tensor(rank: int, n: int, asynchronous: bool):
    tensor, output = late(torch.cat(parts(rank, n, 400))), fresh(400)
    work = dist.reduce_scatter_tensor(output, tensor, async_op=asynchronous)
    return work, [(output, summed(rank, n, 400))]


@call
def reduce_scatter_in_place(rank: int, n: int, asynchronous: bool):
    tensor = late(torch.stack(parts(rank, n, 400)))
    work = dist.reduce_scatter_tensor(tensor[rank], tensor, async_op=asynchronous)
    return work, [(tensor[rank], summed(rank, n, 400))]


@call
def gather(rank: int, n: int, asynchronous: bool):
    tensor, outputs = late(values(rank, 60)), [fresh(60) for _ in range(n)] if rank == 0 else None
    work = dist.gather(tensor, outputs, 0, async_op=asynchronous)
    return work, [(output, values(r, 60)) for r, output in enumerate(outputs or [])]


@call
def scatter(rank: int, n: int, asynchronous: bool):
    inputs, output = [late(part) for part in parts(0, n, 60)] if rank == 0 else None, fresh(60)
    return dist.scatter(output, inputs, 0, async_op=asynchronous), [(output, parts(0, n, 60)[rank])]


@call
def all_to_all(rank: int, n: int, asynchronous: bool):
    inputs, outputs = [late(part) for part in parts(rank, n, 25)], [fresh(25) for _ in range(n)]
    work = dist.all_to_all(outputs, inputs, async_op=asynchronous)
    return work, [(output, parts(r, n, 25)[rank]) for r, output in enumerate(outputs)]


@call
def all_to_all_single(rank: int, n: int, asynchronous: bool):
    tensor, output = late(torch.cat(parts(rank, n, 25))), fresh(n * 25)
    work = dist.all_to_all_single(output, tensor, async_op=asynchronous)
    return work, [(output, torch.cat([parts(r, n, 25)[rank] for r in range(n)]))]


@call
def all_to_all_uneven(rank: int, n: int, asynchronous: bool):
    """Rank r sends r + 1 rows to rank 0, r + 2 to rank 1, ..."""
    rows = lambda r, to: values(100 * r + to, r + to + 1, 3)  # noqa: E731
    tensor = late(torch.cat([rows(rank, to) for to in range(n)]))
    expected = torch.cat([rows(r, rank) for r in range(n)])
    output = fresh(*expected.shape)
    splits = [r + rank + 1 for r in range(n)]
    return dist.all_to_all_single(output, tensor, splits, splits, async_op=asynchronous), [(output, expected)]


@call
def all_to_all_some_splits(rank: int, n: int, asynchronous: bool):
    """Rank 0 says its splits, and keeps more rows for itself; the others have none, which means equal ones."""
    rows = lambda r: [values(100 * r + to, 29 if r == to == 0 else 25) for to in range(n)]  # noqa: E731
    sizes = [len(part) for part in rows(rank)]
    tensor, output = late(torch.cat(rows(rank))), fresh(sum(sizes))
    splits = (sizes, sizes) if rank == 0 else (None, None)
    work = dist.all_to_all_single(output, tensor, *splits, async_op=asynchronous)
    return work, [(output, torch.cat([rows(r)[rank] for r in range(n)]))]


@call
def send_recv(rank: int, n: int, asynchronous: bool):
    """Around the ring."""
    to, source = (rank + 1) % n, (rank - 1) % n
    tensor, output = late(values(rank, 333)), fresh(333)
    works = []
    if asynchronous:
        works = [dist.isend(tensor, to), dist.irecv(output, source)]
    elif rank % 2 == 0:
        dist.send(tensor, to)
        dist.recv(output, source)
    else:
        dist.recv(output, source)
        dist.send(tensor, to)
    return works, [(output, values(source, 333))]


@call
def recv_any(rank: int, n: int, asynchronous: bool):
    to, source = (rank + 1) % n, (rank - 1) % n
    tensor, output = late(values(rank, 333)), fresh(333)
    work = dist.isend(tensor, to)
    assert dist.recv(output) == source
    return [work], [(output, values(source, 333))]


@call
def batch_isend_irecv(rank: int, n: int, asynchronous: bool):
    to, source = (rank + 1) % n, (rank - 1) % n
    tensor, output = late(values(rank, 333)), fresh(333)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, to), dist.P2POp(dist.irecv, output, source)])
    return works, [(output, values(source, 333))]


@call
def coalesced(rank: int, n: int, asynchronous: bool):
    """Calls of several kinds in one region; they give no Work of their own."""
    one, two, three, output = late(values(rank, 50)), late(values(rank, 60)), late(values(rank, 70)), fresh(50)
    with dist._coalescing_manager(device=DEVICE, async_ops=asynchronous) as manager:
        dist.broadcast(three, 0)
        dist.all_to_all_single(output, one)
        dist.broadcast(two, 1)
    return manager if asynchronous else None, [
        (three, values(0, 70)),
        (output, torch.cat([values(r, 50).chunk(n)[rank] for r in range(n)])),
        (two, values(1, 60)),
    ]


@call
def coalesced_fast(rank: int, n: int, asynchronous: bool):
    """Without a device PyTorch makes one call of them."""
    tensors = [late(values(rank, 50 + i)) for i in range(3)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    return manager if asynchronous else None, [
        (tensor, sum(values(r, 50 + i) for r in range(n))) for i, tensor in enumerate(tensors)]


@call
def coalesced_gathers(rank: int, n: int, asynchronous: bool):
    tensors, outputs = [late(values(rank, 50 + i)) for i in range(3)], [fresh(n * (50 + i)) for i in range(3)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for output, tensor in zip(outputs, tensors):
            dist.all_gather_into_tensor(output, tensor)
    return manager if asynchronous else None, [
        (output, torch.cat([values(r, 50 + i) for r in range(n)])) for i, output in enumerate(outputs)]


@call
def coalesced_scatters(rank: int, n: int, asynchronous: bool):
    tensors, outputs = [late(torch.cat(parts(rank, n, 40 + i))) for i in range(3)], [fresh(40 + i) for i in range(3)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for output, tensor in zip(outputs, tensors):
            dist.reduce_scatter_tensor(output, tensor)
    return manager if asynchronous else None, [
        (output, summed(rank, n, 40 + i)) for i, output in enumerate(outputs)]


@call
def all_gather_coalesced(rank: int, n: int, asynchronous: bool):
    tensors = [late(values(rank, 20 + i)) for i in range(2)]
    outputs = [[fresh(20 + i) for i in range(2)] for _ in range(n)]
    work = dist.all_gather_coalesced(outputs, tensors, async_op=asynchronous)
    return work, [(outputs[r][i], values(r, 20 + i)) for r in range(n) for i in range(2)]


@call
def functional(rank: int, n: int, asynchronous: bool):
    tensor, group = late(values(rank, 80)), dist.group.WORLD
    total = funcol.wait_tensor(funcol.all_reduce(tensor, "sum", group))
    gathered = funcol.wait_tensor(funcol.all_gather_tensor(tensor, 0, group))
    part = funcol.wait_tensor(funcol.reduce_scatter_tensor(gathered, "sum", 0, group))
    return None, [(total, sum(values(r, 80) for r in range(n))),
                  (gathered, torch.cat([values(r, 80) for r in range(n)])), (part, n * values(rank, 80))]


def all_reduce_sparse(rank: int, n: int, asynchronous: bool):
    """Each rank has some rows; the sum's memory is new. The test device has no sparse tensors."""
    def part(r: int) -> torch.Tensor:
        rows = values(r, 30, 4) * (torch.arange(30) % 5 == r % 5).unsqueeze(1)
        return rows.to_sparse(1)

    tensor = part(rank).to(DEVICE)
    sleep(SLOW)
    tensor._values().mul_(2)
    work = dist.all_reduce(tensor, async_op=asynchronous)
    if work is not None:
        work.wait()
    return None, [(tensor.to_dense(), 2 * sum(part(r).to_dense() for r in range(n)))]


if TYPE != "tuttidev":
    call(all_reduce_sparse)


@call
def empty(rank: int, n: int, asynchronous: bool):
    tensor, output = fresh(0), fresh(0)
    dist.all_gather_into_tensor(output, tensor)
    return dist.all_reduce(tensor, async_op=asynchronous), [(tensor, torch.empty(0)), (output, torch.empty(0))]
