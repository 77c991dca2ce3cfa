# SPDX-License-Identifier: BSD-3-Clause
"""Learns to tell cosmic rays from neutrinos by DDP on tutti, on events that are made up as they are needed:

    tutti run -n 2 -- python examples/cosmictagger/train.py

prints the loss, and the intersection over union (IoU) of each class on events that are never learned from. Alone,

    python examples/cosmictagger/train.py --record a21.job

times a step of the full network instead, as a job for `tutti sched job` (README.md)."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import events
import network

HELD_OUT = 1 << 30  # seeds from here on are never learned from
A21_SIZE = 640, 1024  # pixels of a plane, as published


def iou(model, n_events, batch, rank, world):
    """By class, over all ranks: pixels that are and are said to be it, by those that are or are said to be."""
    both = torch.zeros(2, len(network.CLASSES))
    model.eval()
    with torch.no_grad():
        for first in range(rank * batch, n_events, world * batch):
            charge, labels = events.batch(range(HELD_OUT + first, HELD_OUT + first + batch))
            said = model(charge).argmax(1)
            for c in range(len(network.CLASSES)):
                both[0, c] += ((said == c) & (labels == c)).sum()
                both[1, c] += ((said == c) | (labels == c)).sum()
    model.train()
    dist.all_reduce(both)
    return (both[0] / both[1].clamp(min=1)).tolist()


def learn(args):
    import tutti_torch  # noqa: F401  (registers the backend)

    alone = dict(store=dist.HashStore(), rank=0, world_size=1) if "RANK" not in os.environ else {}
    dist.init_process_group(args.backend, **alone)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(network.Tagger(network.SMALL))
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, args.steps)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        first = ((step - 1) * world + rank) * args.batch
        charge, labels = events.batch(range(first, first + args.batch))
        loss = network.loss_of(model(charge), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % args.every and step < args.steps:
            continue
        scores = iou(model, args.held_out, args.batch, rank, world)
        if rank == 0:
            words = ", ".join(f"{name} {score:.3f}" for name, score in zip(network.CLASSES, scores))
            print(f"step {step:4d} of {args.steps} on {world} ranks: loss {loss.item():.3f}, IoU {words}; "
                  f"{time.perf_counter() - begin:.0f} s", flush=True)
    dist.destroy_process_group()
    return scores


def record(args):
    """A step of the full network on smaller images. Its passes keep their shares, so the time of a full step on the
    machine that is meant says how much faster that one is; the optimizer's work does not depend on the image."""
    from tutti_torch.job import record_job

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = network.Tagger(network.A21)
    optimizer = torch.optim.RMSprop(model.parameters(), 3e-4)
    height, width = args.size
    charge, labels = events.batch([1], height, width)
    with record_job(model) as recorder:
        for _ in range(args.steps):
            network.loss_of(model(charge), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    done, median = recorder.medians(1)
    passes, update = median(lambda s: s.end - s.begin), median(lambda s: s.optimizer[1] - s.optimizer[0])
    update *= height * width / (A21_SIZE[0] * A21_SIZE[1])
    keys = {"name": "CosmicTagger a21", "ranks_per_node": 12, "nodes": "1,2,4,8,16,32,64,128,256,512,1024,2048",
            "net": "dragonfly:aurora", "published": "1:99%,2048:92%", "call_overhead": "50us",
            "optimizer": f"{update * 1e3:.6f}ms", "speed": f"{(passes + update) / args.step_seconds:.3f}"}
    with open(args.record, "w") as file:
        file.write(recorder.text(**keys).split("[steps]")[0])  # this machine's noise is not the one that is meant
    print(f"{args.record}: {passes:.3f} s on images of {height}x{width} here, taken for {args.step_seconds} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4, help="events of a rank in a step")
    parser.add_argument("--held-out", type=int, default=64, help="events that IoU is of")
    parser.add_argument("--every", type=int, default=100, help="steps between two looks at these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--record", metavar="FILE", help="time a step of the full network, and write it as a job")
    parser.add_argument("--size", type=int, nargs=2, default=(128, 192), help="of the images of --record")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="what a full step takes on the machine meant")
    args = parser.parse_args()
    record(args) if args.record else learn(args)


if __name__ == "__main__":
    main()
