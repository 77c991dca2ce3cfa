# SPDX-License-Identifier: BSD-3-Clause
"""The layout of a DTensor as plain data: only its local shard travels, to the rank with the same place."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from .plain import dtype_of

_meshes: Dict[str, DeviceMesh] = {}  # that were made from words


def _write_placement(placement: Placement) -> List[Any]:
    if type(placement) is Shard:
        return ["S", placement.dim]
    if type(placement) is Replicate:
        return ["R"]
    if type(placement) is Partial:
        return ["P", str(placement.reduce_op)]
    raise TypeError(f"a DTensor with the placement {placement} can not travel: Shard, Replicate and Partial can")


def _read_placement(word: List[Any]) -> Placement:
    kinds = {"S": Shard, "R": Replicate, "P": Partial}
    if not word or word[0] not in kinds:
        raise ValueError(f"the state is damaged: {word} is no placement")
    return kinds[word[0]](*word[1:])


def write_spec(tensor: DTensor) -> Dict[str, Any]:
    spec, mesh = tensor._spec, tensor.device_mesh
    return {"device": mesh.device_type, "ranks": mesh.mesh.tolist(), "names": mesh.mesh_dim_names,
            "placements": [_write_placement(p) for p in spec.placements], "shape": list(tensor.shape),
            "stride": list(tensor.stride()), "dtype": str(tensor.dtype).removeprefix("torch.")}


def _mesh_of(word: Dict[str, Any]) -> DeviceMesh:
    key = str((word["device"], word["ranks"], word["names"]))
    if key not in _meshes:
        names: Tuple[str, ...] = tuple(word["names"]) if word["names"] else None
        _meshes[key] = DeviceMesh(word["device"], torch.tensor(word["ranks"]), mesh_dim_names=names,
                                  _init_backend=False)
    return _meshes[key]


def read_spec(word: Dict[str, Any]) -> DTensorSpec:
    meta = TensorMeta(torch.Size(word["shape"]), tuple(word["stride"]), dtype_of(word["dtype"]))
    return DTensorSpec(_mesh_of(word), tuple(_read_placement(p) for p in word["placements"]), tensor_meta=meta)


def dtensor(local: torch.Tensor, spec: DTensorSpec) -> DTensor:
    return DTensor(local, spec, requires_grad=False)
