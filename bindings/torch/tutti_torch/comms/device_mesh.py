# SPDX-License-Identifier: BSD-3-Clause
"""Communicators as a DeviceMesh, for fully_shard, DTensor, tensor parallelism and pipelines: each dimension of the mesh
is a communicator of this rank, and PyTorch uses it as a process group.

PyTorch keeps process groups in global tables that have no public door. What is used of them here, and why:
  - distributed_c10d._register_pg_in_world (before 2.9: the tables of _world themselves), so that a group is known by
    its name and its ranks;
  - distributed_c10d._update_default_pg, since a mesh asks the default group for this process's rank;
  - ProcessGroup._register_backend, _set_default_backend and _set_group_name, which make a group of a backend;
  - of DeviceMesh, for _flatten_with_comm alone: _get_root_mesh, _flatten_mapping, _layout, _rank_map, _pg_registry.
The mesh itself is made by DeviceMesh.from_group, which is public. tests/torch/comms_mesh_test.py says when one of these
is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from tutti_torch_autoload import NAME

if TYPE_CHECKING:
    from . import TorchComm

__all__ = ["init_device_mesh"]

_default: List[TorchComm] = []  # the communicator that this module made the default group of


# ---- groups ----


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = NAME,
    global_ranks_mapping: Optional[Dict[int, int]] = None,
) -> dist.ProcessGroup:
    """A process group of the communicator's ranks, known to torch.distributed. It lives as long as the communicator;
    global_ranks_mapping has the rank of the group for each rank of the world."""
    backend = comm.get_backend_impl()
    store = comm.get_options().store or dist.HashStore()  # without one, no further groups can be made of this one
    group = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(custom)
    for kind in sorted({comm.get_device().type, "cpu"}):
        group._register_backend(torch.device(kind), custom, backend)
    name = free_name(group_name)
    group._set_group_name(name)
    ranks = global_ranks_mapping or {rank: rank for rank in range(comm.get_size())}
    register(group, store, name, backend_str, ranks)
    return group


def free_name(wanted: str) -> str:
    """Names are the process's; those of groups that are gone are free again."""
    taken = set(c10d._world.pg_names.values())
    name, n = wanted, 1
    while name in taken:
        n += 1
        name = f"{wanted}#{n}"
    return name


def register(group: dist.ProcessGroup, store: Any, name: str, backend: str, ranks: Dict[int, int]) -> None:
    config = str(dist.BackendConfig(dist.Backend(backend)))
    if hasattr(c10d, "_register_pg_in_world"):
        c10d._register_pg_in_world(
            group, backend_name=backend, store=store, group_name=name, backend_config=config, rank_mapping=ranks
        )
        return
    world = c10d._world
    world.pg_map[group] = (backend, store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = config
    world.pg_group_ranks[group] = ranks
    c10d._register_process_group(name, group)
    tag = f"ptd:{name}"
    world.tags_to_pg.setdefault(tag, []).append(group)
    world.pg_to_tag[group] = tag


def is_over(comm: TorchComm) -> bool:
    try:
        comm.get_backend_impl()
    except RuntimeError:
        return True
    return False


def make_default(comm: TorchComm, group: dist.ProcessGroup) -> None:
    """A mesh asks the default group for ranks: where the program has one, it must count as the communicator does."""
    if not dist.is_initialized():
        c10d._update_default_pg(group)
        _default[:] = [comm]
    elif (dist.get_rank(), dist.get_world_size()) != (comm.get_rank(), comm.get_size()):
        raise RuntimeError(
            f"init_device_mesh: rank {comm.get_rank()} of {comm.get_size()} in communicator '{comm.get_name()}' is "
            f"rank {dist.get_rank()} of {dist.get_world_size()} in the default process group; they have to be the same"
        )


# ---- meshes ----


def init_device_mesh(
    mesh_dim_comms: Tuple[TorchComm, ...],
    mesh_dim_names: Tuple[str, ...],
    _global_comm: Optional[TorchComm] = None,
) -> DeviceMesh:
    """A mesh whose dimension i is mesh_dim_comms[i], with the name mesh_dim_names[i]. Ranks of the world are counted
    row by row, the last dimension fastest. With several dimensions, _global_comm has all of its ranks, in that order;
    it, or the only dimension's communicator, becomes the default process group if there is none."""
    if len(mesh_dim_comms) != len(mesh_dim_names) or not mesh_dim_comms:
        raise ValueError(
            f"init_device_mesh: there are {len(mesh_dim_comms)} communicators and {len(mesh_dim_names)} names"
        )
    if _global_comm is None and len(mesh_dim_comms) > 1:
        raise RuntimeError(
            "init_device_mesh: a mesh of several communicators needs one of all ranks: pass it as _global_comm"
        )
    if _default and is_over(_default[0]):
        _default.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
    shape = [comm.get_size() for comm in mesh_dim_comms]
    mesh = torch.arange(int(torch.tensor(shape).prod()), dtype=torch.int).view(shape)
    place = tuple(comm.get_rank() for comm in mesh_dim_comms)
    world = _global_comm or mesh_dim_comms[0]
    check_world(world, mesh, place)
    groups = [
        _create_torchcomm_process_group(comm, name, global_ranks_mapping=members(mesh, place, dim))
        for dim, (comm, name) in enumerate(zip(mesh_dim_comms, mesh_dim_names))
    ]
    whole = groups[0] if world is mesh_dim_comms[0] else _create_torchcomm_process_group(world, world.get_name())
    make_default(world, whole)
    group = groups[0] if len(groups) == 1 else groups
    return DeviceMesh.from_group(
        group, world.get_device().type, None if len(groups) == 1 else mesh, mesh_dim_names=tuple(mesh_dim_names)
    )


def members(mesh: torch.Tensor, place: Tuple[int, ...], dim: int) -> Dict[int, int]:
    """The rank in the communicator of this dimension of each rank of the world that is in it."""
    line = mesh[tuple(slice(None) if i == dim else at for i, at in enumerate(place))]
    return {int(rank): i for i, rank in enumerate(line)}


def check_world(world: TorchComm, mesh: torch.Tensor, place: Tuple[int, ...]) -> None:
    if world.get_size() != mesh.numel() or world.get_rank() != int(mesh[place]):
        raise RuntimeError(
            f"init_device_mesh: this rank is at {place} of a mesh of {tuple(mesh.shape)}, which is rank "
            f"{int(mesh[place])} of {mesh.numel()}, and rank {world.get_rank()} of {world.get_size()} in communicator "
            f"'{world.get_name()}'"
        )


def _flatten_with_comm(
    mesh: DeviceMesh,
    mesh_dim_name: str,
    comm: TorchComm,
    global_ranks: Optional[List[int]] = None,
    layout: Any = None,
) -> DeviceMesh:
    """Several dimensions of a mesh as one, with a communicator of its own: afterwards root_mesh[mesh_dim_name] is
    there. `mesh` is a slice (root["dp", "cp"]), or any mesh of the root with `layout`, that of the dimensions;
    global_ranks are the communicator's ranks in the world."""
    root = mesh._get_root_mesh()
    ranks = [int(rank) for rank in (mesh.mesh.flatten() if global_ranks is None else global_ranks)]
    if len(ranks) != comm.get_size() or ranks[comm.get_rank()] != mesh.get_rank():
        raise RuntimeError(
            f"_flatten_with_comm: rank {mesh.get_rank()} is rank {comm.get_rank()} of {comm.get_size()} in "
            f"communicator '{comm.get_name()}', which is to have the ranks {ranks}"
        )
    layout = mesh._layout if layout is None else layout
    if hasattr(layout, "collapse"):
        from torch.distributed._mesh_layout import _MeshLayout

        flat = _MeshLayout([layout.collapse()])
    else:  # before 2.13
        flat = layout.coalesce()
    mapping = {rank: i for i, rank in enumerate(ranks)}
    group = _create_torchcomm_process_group(comm, mesh_dim_name, global_ranks_mapping=mapping)
    flattened = DeviceMesh(
        root.device_type,
        mesh_dim_names=(mesh_dim_name,),
        _init_backend=False,
        _rank=mesh.get_rank(),
        _layout=flat,
        _rank_map=root._rank_map,
        _root_mesh=root,
    )
    flattened._dim_group_names = [group.group_name]
    if hasattr(root, "_pg_registry"):
        root._pg_registry[group.group_name] = group
    root._flatten_mapping[mesh_dim_name] = flattened
    return flattened
