# SPDX-License-Identifier: BSD-3-Clause
"""Fault tolerance of replica groups, by torchft's API: a script that was written for torchft imports it from here. What
is asked for is loaded then."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, Tuple

if TYPE_CHECKING:
    from .baby import ProcessGroupBabyGloo as ProcessGroupBabyGloo
    from .baby import ProcessGroupBabyNCCL as ProcessGroupBabyNCCL
    from .baby import ProcessGroupBabyTutti as ProcessGroupBabyTutti
    from .baby import ProcessGroupBabyXCCL as ProcessGroupBabyXCCL
    from .data import DistributedSampler as DistributedSampler
    from .ddp import DistributedDataParallel as DistributedDataParallel
    from .ddp import PureDistributedDataParallel as PureDistributedDataParallel
    from .global_batch import GlobalBatch as GlobalBatch
    from .manager import Manager as Manager
    from .manager import WorldSizeMode as WorldSizeMode
    from .optim import OptimizerWrapper as Optimizer
    from .optim import OptimizerWrapper as OptimizerWrapper
    from .process_group import ProcessGroupGloo as ProcessGroupGloo
    from .process_group import ProcessGroupNCCL as ProcessGroupNCCL
    from .process_group import ProcessGroupTutti as ProcessGroupTutti
    from .process_group import ProcessGroupXCCL as ProcessGroupXCCL
    from .torchcomms import ProcessGroupTorchComms as ProcessGroupTorchComms

_NAMES: Dict[str, Tuple[str, ...]] = {  # by module
    "baby": ("ProcessGroupBabyGloo", "ProcessGroupBabyNCCL", "ProcessGroupBabyTutti", "ProcessGroupBabyXCCL"),
    "data": ("DistributedSampler",),
    "ddp": ("DistributedDataParallel", "PureDistributedDataParallel"),
    "global_batch": ("GlobalBatch",),
    "manager": ("Manager", "WorldSizeMode"),
    "optim": ("OptimizerWrapper",),
    "process_group": ("ProcessGroupGloo", "ProcessGroupNCCL", "ProcessGroupTutti", "ProcessGroupXCCL"),
    "torchcomms": ("ProcessGroupTorchComms",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted([*_MODULES, "Optimizer"])


def __getattr__(name: str) -> Any:
    wanted = "OptimizerWrapper" if name == "Optimizer" else name
    if wanted not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[wanted]}"), wanted)
