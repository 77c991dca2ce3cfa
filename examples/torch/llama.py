# SPDX-License-Identifier: BSD-3-Clause
"""A model in the shape of Llama, with random weights: that of transformers, where it is installed, else the same in
plain PyTorch. Both have the same names of layers and the same method generate(); generate.py divides either."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

Cache = List[Optional[Tuple[torch.Tensor, torch.Tensor]]]  # for each layer: keys and values so far
INITIAL = 0.1  # deviation of the weights; with much smaller ones each token is the one before


class Shape(NamedTuple):
    hidden: int = 512
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    inner: int = 1408
    vocabulary: int = 4096


def rotate(x: torch.Tensor, first: int) -> torch.Tensor:
    """Positions, as angles between the halves of each head."""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(first, first + x.shape[-2], device=x.device)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    one, two = x.split(half, dim=-1)
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head = shape.hidden // shape.heads
        self.q_proj = nn.Linear(shape.hidden, shape.heads * self.head, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * self.head, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * self.head, bias=False)
        self.o_proj = nn.Linear(shape.heads * self.head, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, cache: Cache, layer: int) -> torch.Tensor:
        """As many heads as the weights that are here have."""
        q, k, v = (p(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        before = cache[layer]
        first = before[0].shape[-2] if before else 0
        q, k = rotate(q, first), rotate(k, first)
        if before:
            k, v = torch.cat([before[0], k], dim=-2), torch.cat([before[1], v], dim=-2)
        cache[layer] = k, v
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=q.shape[-2] > 1)
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


class Inner(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(shape.hidden, eps=1e-6), Attention(shape)
        self.post_attention_layernorm, self.mlp = nn.RMSNorm(shape.hidden, eps=1e-6), Inner(shape)

    def forward(self, x: torch.Tensor, cache: Cache, layer: int) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class PlainLlama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INITIAL)

    def forward(self, tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
        """What may come after the last of the tokens."""
        x = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number)
        return self.lm_head(self.norm(x[:, -1:]))

    @torch.inference_mode()
    def generate(self, tokens: torch.Tensor, max_new_tokens: int, do_sample: bool = False) -> torch.Tensor:
        """The tokens, and behind them as many as wanted, each the most probable one."""
        cache: Cache = [None] * len(self.layers)
        new = tokens
        for _ in range(max_new_tokens):
            new = self(new, cache)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, new], dim=1)
        return tokens


def make(shape: Shape, plain: bool = False) -> Tuple[nn.Module, str]:
    """The model, and what it is. The same on all ranks that have the same seed."""
    try:
        if plain:
            raise ImportError
        import transformers
    except ImportError:
        return PlainLlama(shape).eval(), "Llama in plain PyTorch"
    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, intermediate_size=shape.inner, vocab_size=shape.vocabulary,
        initializer_range=INITIAL, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None  # it goes on until there are as many as wanted
    return model, f"LlamaForCausalLM of transformers {transformers.__version__}"
