# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel with buckets of our own (csrc/gradients): the module, its arguments, no_sync and its buffers
stay PyTorch's; its reducer is asked for all but the gradients. TUTTI_TORCH_DDP=1 asks for it for all models whose
groups tutti serves; `average_gradients(model)` for one."""

import functools
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import variables
from ._C import Gradients

log = logging.getLogger("tutti_torch")


class Reducer:
    """What DistributedDataParallel knows as its reducer."""

    def __init__(self, model: DistributedDataParallel, named: dict) -> None:
        self._of_torch, self._group, self._is_arranged = model.reducer, model.process_group, False
        self._device = next(iter(named.values())).device
        self._gradients = Gradients(model.process_group, list(named.values()), list(named), first_bytes(model),
                                    int(model.bucket_bytes_cap), bool(model.gradient_as_bucket_view))

    def __getattr__(self, name):
        return getattr(self._of_torch, name)

    def _rebuild_buckets(self) -> bool:
        return False

    def prepare_for_backward(self, outputs) -> None:
        if not self._is_arranged and (order := self._gradients.order()):
            self._arrange(order)
        self._gradients.arm()

    def _arrange(self, order) -> None:
        """As gradients came on the first rank in the first backward."""
        told = torch.tensor(order, dtype=torch.int64, device=self._device)
        dist.broadcast(told, dist.get_global_rank(self._group, 0), self._group)
        self._gradients.arrange(told.tolist())
        self._is_arranged = True

    def _set_forward_pass_work_handle(self, *_) -> None:
        raise RuntimeError("Join asks for PyTorch's reducer: unset TUTTI_TORCH_DDP for this model")


def first_bytes(model: DistributedDataParallel) -> int:
    return min(getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1 << 20), int(model.bucket_bytes_cap))


def trained(model: DistributedDataParallel) -> dict:
    """By name, in their order, each once."""
    ignored = getattr(model, "parameters_to_ignore", set())
    return {name: p for name, p in model.module.named_parameters() if p.requires_grad and name not in ignored}


def serving(model: DistributedDataParallel, named: dict):
    """The backend for the parameters' device, if it is tutti's."""
    from .patches import tutti_backends

    devices = {p.device.type for p in named.values()}
    group = model.process_group
    if len(devices) != 1 or not devices <= {device.type for device in group._device_types}:
        return None
    backend = group._get_backend(torch.device(devices.pop()))
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return next((ours for ours in tutti_backends(group) if ours is backend), None)


def why_not(model: DistributedDataParallel, named: dict) -> str:
    """What of the model only PyTorch's reducer can do; empty: nothing."""
    backend = serving(model, named)
    sparse = any(getattr(module, "sparse", False) for module in model.module.modules()
                 if isinstance(module, (nn.Embedding, nn.EmbeddingBag)))
    reasons = {
        "tutti does not serve its group": named and not backend,
        "it survives deaths on the host's memory": backend and backend.options.survive,
        "find_unused_parameters": model.find_unused_parameters,
        "static_graph": model.static_graph,
        "mixed_precision": getattr(model, "mixed_precision", None) is not None,
        "a communication hook": bool(model._get_ddp_logging_data().get("comm_hook")),
        "optimizers in backward": any(hasattr(p, "_in_backward_optimizers") for p in named.values()),
        "delayed parameters": bool(getattr(model, "_delay_all_reduce_params", None)),
        "the Python reducer": getattr(model, "_use_python_reducer", False),
        "sparse gradients": sparse,
        "no parameters": not named,
        "parameters on several devices": len({p.device for p in named.values()}) > 1,
        "gradients that are not real": any(not p.is_floating_point() for p in named.values()),
        "this version of PyTorch": not hasattr(model.reducer, "_remove_autograd_hooks"),
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def average_gradients(model: DistributedDataParallel) -> None:
    """Averages the model's gradients by tutti's own buckets from the next forward on; raises ValueError where it can
    not, with the reason. Before the first forward, on all ranks."""
    if isinstance(model.reducer, Reducer):
        return
    named = trained(model)
    reason = why_not(model, named)
    if reason:
        raise ValueError(f"average_gradients: PyTorch's reducer stays: {reason}")
    model.reducer._remove_autograd_hooks()
    model.reducer = Reducer(model, named)


def lazy_init(original):
    """At the first forward, when all that programs say of the model is said."""

    @functools.wraps(original)
    def run(model) -> None:
        original(model)
        reason = why_not(model, trained(model))
        if not reason:
            average_gradients(model)
        elif dist.get_rank(model.process_group) == 0:
            log.warning("TUTTI_TORCH_DDP: PyTorch's reducer averages the gradients: %s", reason)

    return run


@functools.lru_cache(maxsize=None)
def put() -> None:
    if variables.is_on(variables.DDP):
        DistributedDataParallel._lazy_init = lazy_init(DistributedDataParallel._lazy_init)
