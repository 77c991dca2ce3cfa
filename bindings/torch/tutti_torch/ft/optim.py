# SPDX-License-Identifier: BSD-3-Clause
"""An optimizer whose steps happen only when they count."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import torch
from torch.optim import Optimizer


class OptimizerWrapper(Optimizer):
    """zero_grad() begins a step of the manager, before the forward pass; step() ends it, after backward. All else, such
    as defaults, hooks and what schedulers ask for, is the inner optimizer's: step hooks run where a step counts."""

    def __init__(self, manager: Any, optim: Optimizer) -> None:
        self.optim, self.manager = optim, manager

    def __getattr__(self, name: str) -> Any:
        if name in ("optim", "manager"):  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.optim, name)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.manager.start_quorum()
        self.optim.zero_grad(set_to_none)

    def step(self, closure: Optional[object] = None) -> None:
        if closure is not None:
            raise ValueError("step: a closure would run the model again, behind the manager's back")
        if self.manager.should_commit():
            self.optim.step()

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        self.optim.add_param_group(param_group)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.optim.load_state_dict(state_dict)

    def state_dict(self) -> Dict[str, Any]:
        return self.optim.state_dict()

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        return self.optim.param_groups

    @property
    def state(self) -> Mapping[torch.Tensor, Any]:
        return self.optim.state

    def __repr__(self) -> str:
        return f"OptimizerWrapper({self.optim!r})"
