# SPDX-License-Identifier: BSD-3-Clause
"""fully_shard (FSDP2) over a communicator: a small model, of which every rank holds a part, learns to say which of two
interleaved spirals a point is on. `tutti run -n 2 -- python examples/torchcomms/fsdp2.py`, or torchrun."""

from __future__ import annotations

import math
from typing import Tuple

import torch
import tutti_torch.comms as torchcomms
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from tutti_torch.comms.device_mesh import init_device_mesh

POINTS, STEPS, LOSS = 256, 120, 0.1


def spirals() -> Tuple[Tensor, Tensor]:
    labels = torch.arange(POINTS) % 2
    turn = torch.linspace(0.5, 2.0, POINTS) * math.pi
    angle = turn + labels * math.pi
    return torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / math.pi, labels


def main() -> None:
    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")
    rank, size = comm.get_rank(), comm.get_size()
    mesh = init_device_mesh((comm,), ("shard",))

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    points, labels = spirals()
    points, labels = points[rank::size], labels[rank::size]
    for step in range(STEPS):
        loss = nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    mean = loss.detach()
    comm.all_reduce(mean, torchcomms.ReduceOp.AVG, async_op=False)
    held = sum(p.to_local().numel() for p in model.parameters())
    print(f"rank {rank} of {size}: holds {held} parameters, the loss of all is {mean:.3f}", flush=True)
    assert mean < LOSS, "it has not learned"
    comm.finalize()


if __name__ == "__main__":
    main()
