# SPDX-License-Identifier: BSD-3-Clause
"""The model of the training steps, a decoder of blocks as GPT-2 has them, in three sizes, and what it learns from. By
its projections, of which each head has its own rows, it can be cut among ranks; by its blocks, into stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """The size of the model, and the sequences that each rank learns from in a step."""

    width: int
    layers: int
    heads: int
    words: int
    tokens: int
    batch: int


SIZES = {
    "cpu": {
        "small": Size(64, 2, 4, 512, 32, 4),
        "medium": Size(256, 4, 8, 2048, 64, 4),
        "large": Size(512, 6, 8, 8192, 64, 4),
    },
    "cuda": {
        "small": Size(512, 6, 8, 8192, 512, 8),  # 24 million parameters
        "medium": Size(768, 12, 12, 50304, 512, 8),  # 124, as GPT-2
        "large": Size(1024, 24, 16, 50304, 512, 8),  # 354, as GPT-2 medium
    },
}
MODELS = ("small", "medium", "large")


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        width, self.of_head = size.width, size.width // size.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.heads(self.before_attention(x)).unflatten(-1, (-1, 3, self.of_head))
        query, key, value = parts.permute(3, 0, 2, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Model(nn.Module):
    """The blocks from the first one on to the last; with all of them it takes words and gives their successors' scores,
    as a stage it begins or ends with what flows between blocks."""

    def __init__(self, size: Size, first: int = 0, last: int | None = None) -> None:
        super().__init__()
        last = size.layers if last is None else last
        self.embedding = nn.Embedding(size.words, size.width) if first == 0 else None
        self.places = nn.Embedding(size.tokens, size.width) if first == 0 else None
        self.blocks = nn.ModuleDict({str(i): Block(size) for i in range(first, last)})
        self.norm = nn.LayerNorm(size.width) if last == size.layers else None
        self.scores = nn.Linear(size.width, size.words, bias=False) if last == size.layers else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x) + self.places.weight
        for block in self.blocks.values():
            x = block(x)
        return x if self.scores is None else self.scores(self.norm(x))


def make_model(size: Size, device: torch.device) -> Model:
    torch.manual_seed(1)
    return Model(size).to(device)


def stage_of(size: Size, device: torch.device, rank: int, n: int) -> Model:
    """Rank's blocks of the same model."""
    cuts = [size.layers * r // n for r in range(n + 1)]
    whole, stage = make_model(size, torch.device("cpu")), Model(size, cuts[rank], cuts[rank + 1])
    known = whole.state_dict()
    stage.load_state_dict({name: known[name] for name in stage.state_dict()})
    return stage.to(device)


def loss_of(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())


def words_of(size: Size, ranks: Sequence[int], device: torch.device, step: int = 0) -> torch.Tensor:
    """What these ranks learn from in a step, one rank's sequences after another's."""
    found = []
    for rank in ranks:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        found.append(torch.randint(size.words, (size.batch, size.tokens), generator=generator))
    return torch.cat(found).to(device)
