# SPDX-License-Identifier: BSD-3-Clause
"""A halo exchange by one-sided calls: a ring of cells is cut among the ranks; each step, a cell becomes the mean of its
neighbours, and each rank puts its outermost cells beside those of its neighbours, with a signal that they are there.
There are two places for them, for even and odd steps: who has the signal of a step knows that its own cells of the step
before were read. `tutti run -n 3 -- python examples/torchcomms/halo.py`, or torchrun."""

from __future__ import annotations

import torch
import tutti_torch.comms as torchcomms
from torch import Tensor

CELLS, STEPS = 16, 100  # a rank's


def alone(size: int) -> Tensor:
    """All of it by one rank."""
    cells = start(size)
    for _ in range(STEPS):
        cells = (cells.roll(1) + cells.roll(-1)) / 2
    return cells


def start(size: int) -> Tensor:
    return torch.rand(size * CELLS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def main() -> None:
    device = torch.device("cpu")
    comm = torchcomms.new_comm("tutti", device, name="main")
    rank, size = comm.get_rank(), comm.get_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    # Any tensor can be in a window; memory of the backend is reached directly by the ranks of the host.
    memory = comm.get_backend_impl()
    halo = memory.allocate_tensor(4, dtype=torch.float64, device=device)  # even steps: left, right; then odd ones
    window = comm.new_window(halo)

    cells = start(size)[rank * CELLS : (rank + 1) * CELLS].clone()
    for step in range(STEPS):
        place = 2 * (step % 2)
        window.put_signal(cells[:1], left, place + 1, async_op=False)
        window.put_signal(cells[-1:], right, place, async_op=False)
        window.wait_signal(left, async_op=False)
        window.wait_signal(right, async_op=False)
        whole = torch.cat([halo[place : place + 1], cells, halo[place + 1 : place + 2]])
        cells = (whole[:-2] + whole[2:]) / 2

    assert torch.equal(cells, alone(size)[rank * CELLS : (rank + 1) * CELLS])
    print(f"rank {rank} of {size}: {STEPS} steps, as one rank alone would have made them", flush=True)
    comm.barrier(async_op=False)
    window.tensor_deregister()
    comm.finalize()


if __name__ == "__main__":
    main()
