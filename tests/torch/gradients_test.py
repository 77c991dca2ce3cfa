# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of DistributedDataParallel in buckets of ours: means of what each rank finds alone, in float64; with views
and without, over several steps, accumulated, of tied and transposed parameters and those of several types; sentences
for what can not be; and programs that say nothing of it."""

from __future__ import annotations

import os
import unittest

import ranks
import torch
import torch.distributed as dist
from ranks import raises
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

import tutti_torch
from tutti_torch.gradients import Reducer


class Model(nn.Module):
    """Odd sizes, two types, a layout of channels last, a transposed parameter, and one that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.image = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.first, self.second = nn.Linear(5, 13), nn.Linear(13, 13)
        self.tied = nn.Linear(13, 13, bias=False)
        self.tied.weight = self.second.weight
        self.turned = nn.Parameter(torch.randn(7, 13).t())
        self.wide = nn.Linear(7, 3).double()
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x, recomputed=False):
        x = self.image(x).mean((2, 3))
        inner = lambda y: self.tied(torch.tanh(self.second(torch.tanh(self.first(y)))))
        x = checkpoint(inner, x, use_reentrant=True) if recomputed else inner(x)
        return (self.wide((x @ self.turned).double()) * self.frozen).square().mean()


def data(rank: int, step: int) -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(100 * step + rank))


def means(n: int, batches: list) -> dict:
    """By name, of one process: the mean of all ranks' sums over their batches."""
    total = {}
    for rank in range(n):
        model = Model()
        for step in batches:
            model(data(rank, step)).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                total[name] = total.get(name, 0) + p.grad.double() / n
    return total


def check(model: DDP, n: int, batches: list) -> None:
    expected = means(n, batches)
    for name, p in model.module.named_parameters():
        if name not in expected:
            assert p.grad is None, name
            continue
        assert p.grad.dtype == p.dtype and p.grad.shape == p.shape and p.grad.stride() == p.stride(), name
        torch.testing.assert_close(p.grad.double(), expected[name], rtol=1e-5, atol=1e-7, msg=name)


def make(**how) -> DDP:
    model = DDP(Model(), **how)
    tutti_torch.average_gradients(model)
    assert isinstance(model.reducer, Reducer)
    return model


@ranks.on(1, 2, 3)
def means_of_all(rank: int, n: int) -> None:
    for views in (False, True):
        for cap in (25, 0.0002):  # MiB: one bucket a type, and several
            model = make(gradient_as_bucket_view=views, bucket_cap_mb=cap)
            for step in range(4):
                model.zero_grad(set_to_none=step % 2 == 0)
                model(data(rank, step)).backward()
                check(model, n, [step])
            model(data(rank, 9)).backward()  # on top of what is there
            twice, kept = means(n, [3, 9]), dict(model.module.named_parameters())
            torch.testing.assert_close(kept["first.weight"].grad.double(), twice["first.weight"], rtol=1e-4, atol=1e-6)


@ranks.on(2)
def accumulated(rank: int, n: int) -> None:
    model = make(bucket_cap_mb=0.0002)
    for round in range(2):
        model.zero_grad()
        with model.no_sync():
            model(data(rank, 1)).backward()
        alone = {name: p.grad.clone() for name, p in model.module.named_parameters() if p.grad is not None}
        model(data(rank, 2)).backward()
        check(model, n, [1, 2])
        assert any(not torch.equal(p.grad, alone[name]) for name, p in model.module.named_parameters() if name in alone)


@ranks.on(2)
def recomputed(rank: int, n: int) -> None:
    model = make(bucket_cap_mb=0.0002)
    for step in range(3):
        model.zero_grad()
        model(data(rank, step).requires_grad_(), recomputed=True).backward()
        check(model, n, [step])


@ranks.on(2)
def buckets_go_as_gradients_come(rank: int, n: int) -> None:
    """In the order of the first rank, though the other's differs."""
    model = DDP(nn.ParameterList([torch.ones(3) * (i + 1) for i in range(4)]))
    tutti_torch.average_gradients(model)
    for step in range(3):
        parts = list(model.module)
        if rank == 0:
            parts = parts[::-1]
        model.reducer.prepare_for_backward([])
        model.zero_grad()
        loss = sum(p.sum() * (rank + 1) for p in parts)
        loss.backward()
        assert all(p.grad.tolist() == [1.5] * 3 for p in model.module)
    first = torch.tensor(model.reducer._gradients.order())
    assert sorted(first.tolist()) == [0, 1, 2, 3]


@ranks.on(2)
def what_can_not_be(rank: int, n: int) -> None:
    for reason in ("find_unused_parameters", "static_graph"):
        how = {reason: True}
        with raises(ValueError, f"PyTorch's reducer stays: {reason}"):
            tutti_torch.average_gradients(DDP(Model(), **how))
    hooked = DDP(Model())
    hooked.register_comm_hook(None, lambda _, bucket: torch.futures.Future())
    with raises(ValueError, "a communication hook"):
        tutti_torch.average_gradients(hooked)
    with raises(ValueError, "sparse gradients"):
        tutti_torch.average_gradients(DDP(nn.Embedding(4, 3, sparse=True)))
    gloo = dist.new_group(backend="gloo")
    with raises(ValueError, "tutti does not serve its group"):
        tutti_torch.average_gradients(DDP(Model(), process_group=gloo))
    mixed = dist.new_group(backend="cpu:gloo,cuda:tutti")
    with raises(ValueError, "tutti does not serve its group"):
        tutti_torch.average_gradients(DDP(Model(), process_group=mixed))
    lines = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    lines.forward = lambda x: lines[0](x).sum()
    model = DDP(lines)
    tutti_torch.average_gradients(model)
    model(torch.ones(1, 2)).backward()
    with raises(RuntimeError, "brought no gradients of 1.weight, 1.bias"):
        model(torch.ones(1, 2))
    model = make()
    loss = model(data(rank, 1))
    loss.backward(retain_graph=True)
    loss.backward()  # nobody has asked for it to be averaged
    model(data(rank, 2)).backward()
    with raises(ValueError, "an order of 1"):
        model.reducer._gradients.arrange([0])
    with raises(ValueError, "each of which has to be in it once"):
        model.reducer._gradients.arrange([0] * len(model.reducer._gradients.order()))


@ranks.on(2)
def by_the_variable(rank: int, n: int) -> None:
    """Put in place by hand, since the variable is read when the package is imported."""
    from tutti_torch import gradients

    os.environ["TUTTI_TORCH_DDP"] = "1"
    gradients.put.cache_clear()
    gradients.put()
    model = DDP(Model())
    for step in range(2):
        model.zero_grad()
        model(data(rank, step)).backward()
        assert isinstance(model.reducer, Reducer)
        check(model, n, [step])
    other = DDP(Model(), find_unused_parameters=True)
    other(data(rank, 0)).backward()
    assert not isinstance(other.reducer, Reducer)
    check(other, n, [0])
    os.environ["TUTTI_TORCH_DDP"] = "perhaps"
    gradients.put.cache_clear()
    with raises(ValueError, "TUTTI_TORCH_DDP=perhaps: it is 1 or 0"):
        gradients.put()


ranks.cases(globals())

if __name__ == "__main__":
    unittest.main()
