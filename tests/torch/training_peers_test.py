# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 300
"""bench/peers/training.py: gradients that a library has made wrong are found in DDP and FSDP2, and told of that library
alone. The wrong ones are gloo's, which are spoiled before or after they are summed."""

from __future__ import annotations

import sys
import unittest
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from peers import cells, launch, training  # noqa: E402

LEFT_OUT = "one rank left out"
N = 2
KINDS = {"ddp", "fsdp2"}


def give(tensor: torch.Tensor, fault, rank: int, n: int) -> None:
    """Before the sum."""
    if fault == LEFT_OUT and rank == n - 1:
        tensor.zero_()


def spoil(tensor: torch.Tensor, fault) -> torch.Tensor:
    """After it."""
    return tensor if fault == LEFT_OUT else tensor.mul_(fault)


def plant(spoiled: dist.ProcessGroup, fault, rank: int, n: int) -> None:
    """In what DDP and FSDP2 call to sum gradients."""

    def hook(_state, bucket):
        data = bucket.buffer()
        give(data, fault, rank, n)
        dist.all_reduce(data.div_(n), group=spoiled)
        done = torch.futures.Future()
        done.set_result(spoil(data, fault))
        return done

    def wrap(group, device, under_ddp=training.under_ddp):
        model = under_ddp(group, device)
        if group is spoiled:
            model.register_comm_hook(None, hook)
        return model

    def around(reduce_scatter):
        def call(output, input, *arguments, group, async_op=False, **more):
            if group.group_name != spoiled.group_name:
                return reduce_scatter(output, input, *arguments, group=group, async_op=async_op, **more)
            give(input, fault, rank, n)
            reduce_scatter(output, input, *arguments, group=group, **more)
            spoil(output, fault)
            return None

        return call

    training.under_ddp = wrap
    for name in ("reduce_scatter_single", "reduce_scatter_tensor"):  # the newer and the older one
        if hasattr(dist, name):
            setattr(dist, name, around(getattr(dist, name)))


def learnt(fault) -> dict:
    """What is told of a group whose sums are spoiled, which is asked first, and of one whose are not."""

    def body(rank: int, n: int, store: str) -> dict:
        training.SIZES = {"cpu": training.Size(64, 2, 4)}
        torch.set_num_threads(1)
        shared, limit = dist.FileStore(store, n), timedelta(seconds=60)
        dist.init_process_group("gloo", store=shared, rank=rank, world_size=n, timeout=limit)
        peers = [SimpleNamespace(name=name, group=dist.new_group()) for name in ("spoiled", "right")]
        plant(peers[0].group, fault, rank, n)
        return training.measure_training(cells.Clock(), peers, rank, n, 0.1, torch.device("cpu"))

    return launch.launch(body, N, 100, None)


class Gradients(unittest.TestCase):
    def test_right_ones_are_timed(self) -> None:
        found = learnt(1)
        self.assertEqual(set(found), KINDS)
        for kind, entries in found.items():
            for name, entry in entries.items():
                self.assertIn("median_us", entry, (kind, name))

    def test_wrong_ones_are_told_of_their_library(self) -> None:
        for fault in (0, -1, 2, 8, 1.01, LEFT_OUT):
            found = learnt(fault)
            self.assertEqual(set(found), KINDS)
            for kind, entries in found.items():
                with self.subTest(fault=fault, kind=kind):
                    self.assertIn("wrong gradients", entries["spoiled"].get("reason", ""))
                    self.assertIn("median_us", entries["right"])


if __name__ == "__main__":
    unittest.main()
