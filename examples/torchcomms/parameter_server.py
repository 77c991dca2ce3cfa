# SPDX-License-Identifier: BSD-3-Clause
"""A parameter server by one-sided calls: rank 0 holds the parameters in a window, and the others read them, add their
gradients to them, and count their steps, without rank 0's help and without waiting for one another. Gradients are whole
numbers (fixed point), so that adding is one atomic call, and no update is lost.
`tutti run -n 3 -- python examples/torchcomms/parameter_server.py`, or torchrun."""

from __future__ import annotations

import torch
import tutti_torch.comms as torchcomms
from torch import Tensor

WEIGHTS, STEPS, RATE, ONE = 3, 200, 0.05, 1 << 32  # ONE: a fixed-point 1.0
TRUE = torch.tensor([2.0, -1.0, 0.5])


def gradient(weights: Tensor, seed: int) -> Tensor:
    """The gradient of the squared error on a few random points of the line that TRUE describes."""
    x = torch.randn(8, WEIGHTS, generator=torch.Generator().manual_seed(seed))
    return 2 * x.t() @ (x @ weights - x @ TRUE) / len(x)


def main() -> None:
    device = torch.device("cpu")
    comm = torchcomms.new_comm("tutti", device, name="main")
    rank, size = comm.get_rank(), comm.get_size()
    # Any tensor can be in a window; memory of the backend is reached directly by the ranks of the host.
    memory = comm.get_backend_impl()
    shared = memory.allocate_tensor(WEIGHTS + 1, dtype=torch.int64, device=device).zero_()  # and how many steps
    window = comm.new_window(shared)

    if rank > 0:
        found = torch.empty(WEIGHTS, dtype=torch.int64)
        for step in range(STEPS):
            window.get(found, 0, 0, async_op=False)
            change = -RATE * gradient(found.double().div(ONE).float(), 1000 * rank + step)
            for i, value in enumerate(change.double().mul(ONE).round().long().tolist()):
                window.fetch_add(0, i, value)
            window.fetch_add(0, WEIGHTS, 1)
    comm.barrier(async_op=False)

    if rank == 0:
        weights = shared[:WEIGHTS].double().div(ONE)
        print(f"{shared[WEIGHTS]} steps of {size - 1} workers: {[round(w, 3) for w in weights.tolist()]}", flush=True)
        assert shared[WEIGHTS] == STEPS * (size - 1), "a step was lost"
        assert size == 1 or torch.allclose(weights, TRUE.double(), atol=0.01), "it has not learned"
    comm.barrier(async_op=False)
    window.tensor_deregister()
    comm.finalize()


if __name__ == "__main__":
    main()
