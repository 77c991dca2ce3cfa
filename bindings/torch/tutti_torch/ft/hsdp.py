# SPDX-License-Identifier: BSD-3-Clause
"""Sharded within a group, replicated over the groups: FSDP2 in each group, whose gradient shards the manager averages
with the same shards of the other groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule

if TYPE_CHECKING:
    from .manager import Manager


def ft_init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], mesh_dim_names: Sequence[str], replicate_dim: Optional[int] = None
) -> DeviceMesh:
    """The mesh of this group: without the dimension of the replicas, whose number changes, and which the manager
    serves."""
    if len(mesh_shape) != len(mesh_dim_names):
        raise ValueError(f"the mesh has {len(mesh_shape)} dimensions, and {len(mesh_dim_names)} names")
    kept = [i for i in range(len(mesh_shape)) if i != replicate_dim]
    return init_device_mesh(device_type, tuple(mesh_shape[i] for i in kept),
                            mesh_dim_names=tuple(mesh_dim_names[i] for i in kept))


def replicate(model: nn.Module, manager: "Manager") -> nn.Module:
    """Prepares a model to which fully_shard has been applied: each shard of a gradient is averaged over the groups when
    it is there."""

    def average(gradient: torch.Tensor) -> None:
        manager.allreduce(gradient).wait()

    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise ValueError("replicate: nothing of the model is sharded; apply fully_shard first")
    for module in sharded:
        # Where a module has several groups of parameters (experts), the public call refuses; the shards are the same
        # in all replicas, so each group of them can have the hook.
        for group in module._get_fsdp_state()._fsdp_param_groups:
            group._all_reduce_hook = average
    return model
