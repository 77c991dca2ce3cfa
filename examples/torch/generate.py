# SPDX-License-Identifier: BSD-3-Clause
"""Tensor-parallel generation: every rank has a part of each layer's weights, and what the parts give is summed over the
ranks, twice a layer and token. The tokens have to be those of one process with the whole model. The same weights then
run on other backends, in turns, and the tokens a second of each are told.
    tutti run -n 2 -- python examples/torch/generate.py                       # beside gloo
    tutti run -n 2 -- python examples/torch/generate.py --device cuda         # beside nccl, where PyTorch has it
    torchrun --nproc-per-node 2 examples/torch/generate.py --layers 8 --peers"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Dict, List, Optional

import torch
import torch.distributed as dist
from torch import nn

import example
import llama
from train_device import use_device

BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")  # each rank computes some of them
BY_INPUTS = ("o_proj", "down_proj")  # each rank has some of them: what it computes is a part of every sum
PEERS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


class Parts:
    """The model's parts on this rank, and the group that puts what they give together."""

    def __init__(self, model: nn.Module, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.group: Optional[dist.ProcessGroup] = None
        for name, layer in model.named_modules():
            kind = name.rpartition(".")[2]
            if kind in BY_OUTPUTS:
                self.keep_part(layer, dim=0)
            elif kind in BY_INPUTS:
                self.keep_part(layer, dim=1)
                layer.register_forward_hook(self.sum)
            if kind == "lm_head":
                layer.register_forward_hook(self.gather)

    def keep_part(self, layer: nn.Linear, dim: int) -> None:
        if layer.weight.shape[dim] % self.world:
            raise SystemExit(f"generate: {layer.weight.shape[dim]} rows or columns can not be divided by {self.world}")
        part = layer.weight.chunk(self.world, dim)[self.rank]
        layer.weight = nn.Parameter(part.detach().clone(), requires_grad=False)

    def sum(self, _layer: nn.Module, _inputs: tuple, output: torch.Tensor) -> None:
        dist.all_reduce(output, group=self.group)

    def gather(self, _layer: nn.Module, _inputs: tuple, output: torch.Tensor) -> torch.Tensor:
        parts = output.new_empty(self.world * output.shape[0], *output.shape[1:])
        dist.all_gather_into_tensor(parts, output.contiguous(), group=self.group)
        return parts.unflatten(0, (self.world, -1)).movedim(0, -2).flatten(-2)


def seconds(model: nn.Module, prompts: torch.Tensor, n_tokens: int, into: List[torch.Tensor]) -> float:
    """How long it takes to generate; the tokens become the only element of `into`."""
    begin = time.perf_counter()
    tokens = model.generate(prompts, max_new_tokens=n_tokens, do_sample=False)
    into[:] = [tokens.cpu()]  # which waits for the device
    return time.perf_counter() - begin


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=tuple(PEERS), default="cpu")
    parser.add_argument("--peers", nargs="*", help="backends beside tutti; else gloo, nccl or xccl, as the device")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="plain PyTorch, also where transformers is installed")
    for field, size in llama.Shape()._asdict().items():
        parser.add_argument(f"--{field.replace('_', '-')}", type=int, default=size)
    return parser.parse_args()


def peers_of(options: argparse.Namespace) -> List[str]:
    if options.peers is not None:
        return options.peers
    usual = PEERS[options.device]
    return [usual] if dist.is_backend_available(usual) else []


def measure(model: nn.Module, parts: Parts, groups: Dict[str, dist.ProcessGroup], prompts: torch.Tensor,
            options: argparse.Namespace, want: torch.Tensor) -> Dict[str, float]:  # fmt: skip
    """Tokens a second on each group. The first round warms up."""
    spent: Dict[str, List[float]] = {name: [] for name in groups}
    for _ in range(options.rounds + 1):
        for name, parts.group in groups.items():
            got: List[torch.Tensor] = []
            dist.barrier()
            spent[name].append(seconds(model, prompts, options.tokens, got))
            if not torch.equal(got[0], want):
                first = int((got[0] != want).nonzero()[:, 1].min())
                raise SystemExit(f"generate: on {name} token {first} on rank {parts.rank} is not that of one process")
    n_new = options.prompts * options.tokens
    return {name: n_new / statistics.median(times[1:] or times) for name, times in spent.items()}


def main() -> int:
    options = read_arguments()
    device = use_device(options.device)
    rank, world = example.start()
    groups = {"tutti": dist.new_group(backend="tutti")}
    groups.update({name: dist.new_group(backend=name) for name in peers_of(options)})
    torch.manual_seed(1)
    shape = llama.Shape(*(getattr(options, field) for field in llama.Shape._fields))
    model, what = llama.make(shape, options.plain)
    model.to(device)
    size = sum(parameter.numel() for parameter in model.parameters())
    prompts = torch.randint(1, shape.vocabulary, (options.prompts, 16)).to(device)
    want: List[torch.Tensor] = []
    alone = min(seconds(model, prompts, options.tokens, want) for _ in range(2))
    parts = Parts(model, rank, world)
    speeds = measure(model, parts, groups, prompts, options, want[0])
    if rank == 0:
        n_new = options.prompts * options.tokens
        print(f"{what}, {size / 1e6:.0f} M parameters on {world} ranks, {device.type}: {n_new} new tokens, "
              f"{len(want[0][:, 16:].unique())} different")  # fmt: skip
        print(f"one process a model: {n_new / alone:.1f} tokens/s, while the others did the same")
        for name, speed in speeds.items():
            which = groups[name]._get_backend(device).name()
            print(f"{name}{'' if which == name else ', which is ' + which}: the same tokens, {speed:.1f} tokens/s")
    sys.stdout.flush()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
