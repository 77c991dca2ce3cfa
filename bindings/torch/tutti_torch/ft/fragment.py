# SPDX-License-Identifier: BSD-3-Clause
"""A part of a model that is brought together with the other groups' as a whole, by its outer optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn, optim
from torch.distributed.distributed_c10d import Work

from .buckets import reduce_packed
from .utils import current_stream, get_stream_context, is_dtensor, new_stream

if TYPE_CHECKING:
    from .manager import Manager


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or this rank's shard of it; the memory is shared."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def extract_local_tensor(t: torch.Tensor) -> torch.Tensor:
    """A copy of what of it is here, without a gradient."""
    copy = local_of(t).clone()
    copy.grad = None
    return copy


def like(tensor: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """The local tensor as a part of one that is distributed as the other is."""
    if not is_dtensor(tensor):
        return local
    return type(tensor).from_local(local, tensor.device_mesh, tensor.placements, shape=tensor.shape,
                              stride=tensor.stride())


class _StreamingDiLoCoFragment:
    """original_parameters are those on which all groups agreed last; _grads is how far this group has gone since."""

    def __init__(
        self,
        manager: "Manager",
        model_fragment: nn.Module,
        fragment_id: int,
        outer_optimizer: optim.Optimizer,
        backup_device: Optional[torch.device],
        pin_memory: bool,
        use_bucketization: bool,
        bucket_bytes: int,
        should_quantize: bool,
        fragment_update_alpha: float,
    ) -> None:
        self._manager, self._model_fragment, self._fragment_id = manager, model_fragment, fragment_id
        self._outer_optimizer = outer_optimizer
        self.use_bucketization, self.bucket_cap_mb = use_bucketization, bucket_bytes
        self.should_quantize, self._alpha = should_quantize, fragment_update_alpha
        self._works: List[Work] = []
        self._stream = new_stream()
        self._grads: Dict[str, torch.Tensor] = {}
        self.original_parameters: Dict[str, torch.Tensor] = {}
        device = torch.device("cpu") if backup_device is None else torch.device(backup_device)
        pinned = pin_memory and device.type == "cpu" and torch.accelerator.is_available()
        for name, parameter in self._parameters():
            memory = torch.empty_like(local_of(parameter.data), device=device)
            self.original_parameters[name] = memory.pin_memory() if pinned else memory

    def _parameters(self) -> Iterator[Tuple[str, nn.Parameter]]:
        return self._model_fragment.named_parameters()

    # ---- recovery ----

    def register_state_dict_fn(self) -> None:
        def load(state: Dict[str, Any]) -> None:
            for name, value in state["original_parameters"].items():
                if name in self.original_parameters:
                    self.original_parameters[name].copy_(value)
            self._outer_optimizer.load_state_dict(state["outer_optimizer"])

        def save() -> Dict[str, Any]:
            return {"outer_optimizer": self._outer_optimizer.state_dict(),
                    "original_parameters": {name: value.clone() for name, value in self.original_parameters.items()}}

        self._manager.register_state_dict_fn(f"StreamingDiLoCoFragment_{self._fragment_id}", load, save)

    @torch.no_grad()
    def save_parameters(self) -> None:
        for name, parameter in self._parameters():
            self.original_parameters[name].copy_(local_of(parameter.data))

    @torch.no_grad()
    def restore_parameters(self) -> None:
        for name, parameter in self._parameters():
            local_of(parameter.data).copy_(self.original_parameters[name])

    # ---- a sync ----

    @torch.profiler.record_function("tutti_torch.ft::prepare_sync")
    def prepare_sync(self) -> None:
        """Starts the reduction of how far the groups have gone."""
        if self._works:
            raise RuntimeError(f"fragment {self._fragment_id} is prepared again before it was synced")
        self._save_grads()
        if self._stream is not None:
            self._stream.wait_stream(current_stream())
        with get_stream_context(self._stream):
            self._average_grads()

    @torch.profiler.record_function("tutti_torch.ft::perform_sync")
    def perform_sync(self) -> bool:
        """Waits for it; if the step counts, the outer optimizer goes on from where all agreed, and what this group did
        meanwhile is mixed in; else the fragment is back where all agreed."""
        if not self._works:
            raise RuntimeError(f"fragment {self._fragment_id} is synced before it was prepared")
        with get_stream_context(self._stream):
            for work in self._works:
                work.wait()
            if self._stream is not None:
                self._stream.synchronize()
        self._works = []
        with torch.no_grad():
            here = {name: extract_local_tensor(parameter.data) for name, parameter in self._parameters()}
        self.restore_parameters()
        committed = self._manager.should_commit()
        if committed:
            self._outer_step()
            self.save_parameters()
            self._merge_parameters(here)
        else:
            self._grads = {}
        self._outer_optimizer.zero_grad()
        return committed

    def _outer_step(self) -> None:
        """Steps this fragment alone, also where several share an optimizer: what the others' inner steps left in their
        gradients is none of its."""
        own = {id(parameter) for _, parameter in self._parameters()}
        others = [parameter for group in self._outer_optimizer.param_groups for parameter in group["params"]
                  if id(parameter) not in own]
        kept = [parameter.grad for parameter in others]
        for parameter in others:
            parameter.grad = None
        self._set_grads()
        self._outer_optimizer.step()
        for parameter, grad in zip(others, kept):
            parameter.grad = grad

    @torch.no_grad()
    def _save_grads(self) -> None:
        for name, parameter in self._parameters():
            self._grads[name] = self.original_parameters[name].to(parameter.device) - local_of(parameter)

    @torch.no_grad()
    def _set_grads(self) -> None:
        for name, parameter in self._parameters():
            parameter.grad = like(parameter, self._grads.pop(name))

    def _average_grads(self) -> None:
        def reduce(tensor: torch.Tensor) -> Work:
            return self._manager.allreduce(tensor, should_quantize=self.should_quantize)

        grads = self._grads.values()
        if self.use_bucketization:
            self._works = reduce_packed(grads, self.bucket_cap_mb, reduce)
        else:
            self._works = [reduce(grad) for grad in grads]

    @torch.no_grad()
    def _merge_parameters(self, here: Dict[str, torch.Tensor]) -> None:
        for name, parameter in self._parameters():
            local_of(parameter.data).lerp_(here[name], self._alpha)
