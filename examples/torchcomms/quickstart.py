# SPDX-License-Identifier: BSD-3-Clause
"""The first program of torchcomms: every rank has a tensor, and all of them become the sum; the same again, while this
rank does something else. `tutti run -n 2 -- python examples/torchcomms/quickstart.py`, or torchrun."""

from __future__ import annotations

import torch

try:
    import torchcomms
except ModuleNotFoundError:
    import tutti_torch.comms as torchcomms


def main() -> None:
    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")
    rank, size = comm.get_rank(), comm.get_size()
    expected = size * (size + 1) / 2

    tensor = torch.full((1024,), rank + 1.0)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    assert torch.all(tensor == expected)

    tensor = torch.full((1024,), rank + 1.0)
    work = comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=True)
    other = torch.arange(1000).sum()
    work.wait()
    assert torch.all(tensor == expected) and other == 499500

    print(f"rank {rank} of {size}: the sum is {tensor[0]:g}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
