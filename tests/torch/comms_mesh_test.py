# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
# short: On2Ranks PrivateNames On4Ranks.test_two_dimensions On4Ranks.test_flattened
"""tutti_torch.comms.device_mesh: communicators as a DeviceMesh under fully_shard, DTensor, tensor parallelism and
pipelines, against one process; flattened dimensions; a second mesh after the first one's end; and the names of
PyTorch's own that the module stands on."""

from __future__ import annotations

import sys
import unittest
from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from comms_support import new_comm
from ranks import cases, on, raises
from tutti_torch.comms import ReduceOp
from tutti_torch.comms.device_mesh import _flatten_with_comm, init_device_mesh

Comms = Dict[str, Any]


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))


def alone(n: int, steps: int) -> List[torch.Tensor]:
    """What one process learns of all ranks' rows."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        (model(random(step, 2 * n, 6)).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


def learn(model: nn.Module, rank: int, n: int, steps: int) -> List[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        model(random(step, 2 * n, 6).chunk(n)[rank]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().detach() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]


def close(got: List[torch.Tensor], want: List[torch.Tensor]) -> None:
    for one_got, one_want in zip(got, want):
        torch.testing.assert_close(one_got, one_want, rtol=1e-5, atol=1e-6)


def one_dimension(rank: int, n: int, store: Any, name: str) -> Tuple[Any, DeviceMesh]:
    comm = new_comm(rank, n, store, name)
    return comm, init_device_mesh((comm,), ("main",))


def grid(rank: int, n: int, store: Any, name: str) -> Tuple[Comms, DeviceMesh]:
    """Two rows."""
    world = new_comm(rank, n, store, name)
    row, column = rank // 2, rank % 2
    comms = {
        "world": world,
        "dp": world.split([column, 2 + column], f"{name}.dp"),
        "tp": world.split([2 * row, 2 * row + 1], f"{name}.tp"),
    }
    return comms, init_device_mesh((comms["dp"], comms["tp"]), ("dp", "tp"), _global_comm=world)


def end(*comms: Any) -> None:
    for comm in comms:
        comm.finalize()


@on(2)
def a_group_of_torch(rank: int, n: int, store: Any) -> None:
    comm, mesh = one_dimension(rank, n, store, "group")
    group = mesh.get_group("main")
    assert group.group_name == "main" and dist.get_backend(group) == "tutti"
    assert dist.get_process_group_ranks(group) == list(range(n)) and mesh.get_local_rank() == rank
    assert c10d._get_group_tag(group) == "ptd:main"
    tensor = torch.ones(10, dtype=torch.int32)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == n
    comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)  # one communicator
    assert tensor[0] == n * n
    got: List[Any] = [None] * n
    dist.all_gather_object(got, rank, group=group)
    assert got == list(range(n))
    end(comm)
    comm, mesh = one_dimension(rank, n, store, "group.again")  # the first one's groups are gone
    assert mesh.get_group().group_name == "main" and dist.get_world_size() == n
    dist.barrier(group=mesh.get_group())
    end(comm)


@on(2)
def fsdp(rank: int, n: int, store: Any) -> None:
    comm, mesh = one_dimension(rank, n, store, "fsdp")
    model = net()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    assert sum(p.to_local().numel() for p in model.parameters()) < sum(p.numel() for p in model.parameters())
    close(learn(model, rank, n, 3), alone(n, 3))
    end(comm)


@on(2)
def dtensor(rank: int, n: int, store: Any) -> None:
    comm, mesh = one_dimension(rank, n, store, "dtensor")
    whole = random(5, 8, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.to_local(), whole.chunk(n)[rank])
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).to_local(), whole.chunk(n, 1)[rank])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    torch.testing.assert_close((sharded.t() @ sharded).full_tensor(), whole.t() @ whole)
    end(comm)


@on(2)
def tensor_parallel(rank: int, n: int, store: Any) -> None:
    comm, mesh = one_dimension(rank, n, store, "tensor_parallel")
    model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    rows = random(0, 4, 6)
    want = net()
    model(rows).square().mean().backward()
    want(rows).square().mean().backward()
    close([p.grad.full_tensor() for p in model.parameters()], [p.grad for p in want.parameters()])
    end(comm)


@on(2)
def pipeline(rank: int, n: int, store: Any) -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    comm, mesh = one_dimension(rank, n, store, "pipeline")
    whole = net()
    part = whole[:2] if rank == 0 else whole[2:]
    stage = PipelineStage(part, rank, n, torch.device("cpu"), group=mesh.get_group())
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda y, target: (y - target).square().mean())
    rows, target = random(0, 4, 6), random(1, 4, 6)
    schedule.step(rows) if rank == 0 else schedule.step(target=target)
    want = net()
    sum((want(x) - t).square().mean() / 2 for x, t in zip(rows.chunk(2), target.chunk(2))).backward()
    wanted = list(want.parameters())[2 * rank : 2 * rank + 2]
    close([p.grad for p in part.parameters()], [p.grad for p in wanted])
    end(comm)


@on(4)
def two_dimensions(rank: int, n: int, store: Any) -> None:
    comms, mesh = grid(rank, n, store, "grid")
    for name in ("dp", "tp"):
        part = mesh[name]
        assert part.get_rank() == rank and part.size() == 2 and part.get_group().group_name == name
        assert part.get_local_rank() == comms[name].get_rank()
        assert dist.get_process_group_ranks(part.get_group()) == comms[name].get_ranks()
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=part.get_group())
        assert tensor == sum(comms[name].get_ranks())
    close(learn(hsdp(mesh), rank, n, 2), alone(n, 2))
    end(comms["dp"], comms["tp"], comms["world"])


def hsdp(mesh: DeviceMesh) -> nn.Module:
    """Replicas along one dimension, parts along the other."""
    model = net()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


@on(4)
def both_parallelisms(rank: int, n: int, store: Any) -> None:
    """fully_shard over dp of what is parallel over tp."""
    comms, mesh = grid(rank, n, store, "both")
    model = parallelize_module(net(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    close(learn(model, rank // 2, 2, 2), alone(2, 2))
    end(comms["dp"], comms["tp"], comms["world"])


@on(4)
def flattened(rank: int, n: int, store: Any) -> None:
    comms, mesh = grid(rank, n, store, "flattened")
    for how, given in enumerate(({}, {"global_ranks": list(range(n)), "layout": mesh["dp", "tp"]._layout})):
        comm = comms["world"].split(list(range(n)), f"flattened.all{how}")
        name = f"all{how}"
        made = _flatten_with_comm(mesh["dp", "tp"] if not given else mesh, name, comm, **given)
        assert mesh[name].size() == n and made.get_local_rank() == rank
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=mesh[name].get_group())
        assert tensor == n
        comms[name] = comm
    model = net()
    fully_shard(model, mesh=mesh["all0"])
    close(learn(model, rank, n, 2), alone(n, 2))
    with raises(RuntimeError, "_flatten_with_comm", "which is to have the ranks [0, 1]"):
        _flatten_with_comm(mesh, "wrong", comms["world"], [0, 1], mesh._layout)
    end(*comms.values())


@on(2)
def what_does_not_fit(rank: int, n: int, store: Any) -> None:
    comm, reverse = (new_comm(rank, n, store, name) for name in ("fits", "reverse"))
    reverse = reverse.split([1, 0], "reversed")
    with raises(ValueError, "1 communicators and 2 names"):
        init_device_mesh((comm,), ("a", "b"))
    with raises(RuntimeError, "_global_comm"):
        init_device_mesh((comm, comm), ("a", "b"))
    with raises(RuntimeError, f"rank {rank} of {n} in communicator 'fits'"):
        init_device_mesh((comm, comm), ("a", "b"), _global_comm=comm)
    init_device_mesh((comm,), ("a",))
    with raises(RuntimeError, f"rank {1 - rank} of {n} in communicator 'reversed' is rank {rank}"):
        init_device_mesh((reverse,), ("b",))
    end(comm, reverse)


class PrivateNames(unittest.TestCase):
    """Names of PyTorch: when it changes them, this says so before a mesh breaks in the middle."""

    def test_they_are_there(self) -> None:
        tables = ("pg_map", "pg_names", "pg_backend_config", "pg_group_ranks", "tags_to_pg", "pg_to_tag")
        found: Dict[str, bool] = {
            "distributed_c10d._update_default_pg": hasattr(c10d, "_update_default_pg"),
            "distributed_c10d._register_pg_in_world, or the tables of _world": hasattr(c10d, "_register_pg_in_world")
            or all(hasattr(c10d._world, table) for table in tables),
            "distributed_c10d._world.pg_names": hasattr(c10d._world, "pg_names"),
            "DeviceMesh.from_group": hasattr(DeviceMesh, "from_group"),
            "DeviceMesh._get_root_mesh": hasattr(DeviceMesh, "_get_root_mesh"),
        }
        for method in ("_register_backend", "_set_default_backend", "_set_group_name"):
            found[f"ProcessGroup.{method}"] = hasattr(dist.ProcessGroup, method)
        mesh_arguments = DeviceMesh.__init__.__code__.co_varnames
        for argument in ("_init_backend", "_rank", "_layout", "_rank_map", "_root_mesh"):
            found[f"DeviceMesh(..., {argument}=)"] = argument in mesh_arguments
        gone = [name for name, there in found.items() if not there]
        self.assertEqual(gone, [], "PyTorch has changed what tutti_torch/comms/device_mesh.py stands on")


cases(globals(), backend=None, timeout=120.0)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
