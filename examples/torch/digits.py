# SPDX-License-Identifier: BSD-3-Clause
"""The images of train_digits: reading, holding out, shuffling. All of it is equal on all ranks, and equal to the C
example's (examples/digits_data.c), since nothing here is random."""

from __future__ import annotations

from pathlib import Path
from typing import List, NamedTuple, Tuple

import torch

PIXELS, CLASSES = 64, 10
HOLD_OUT = 5  # every fifth image
FILE = Path(__file__).resolve().parent.parent / "data" / "digits.csv"


class Digits(NamedTuple):
    pixels: torch.Tensor  # n x 64, 0 to 1
    labels: torch.Tensor


def shuffle(n: int, epoch: int) -> List[int]:
    """The order of an epoch: a permutation of range(n) that depends on nothing but n and the epoch (splitmix64)."""
    mask, state, order = (1 << 64) - 1, 0x6469676974 + epoch, list(range(n))
    for i in range(n, 1, -1):
        state = (state + 0x9E3779B97F4A7C15) & mask
        x = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
        j = (x ^ x >> 31) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def load(path: Path = FILE) -> Tuple[Digits, Digits]:
    """The images to train on, and those held out."""
    rows = torch.tensor([[int(value) for value in line.split(",")] for line in path.read_text().splitlines()])
    assert rows.shape[1] == PIXELS + 1, f"{path}: not {PIXELS} pixels and a digit on each line"
    rows = rows[shuffle(len(rows), 0xFFFFFFFF)]  # the file is sorted by writer
    pixels, labels = rows[:, :PIXELS].float() / 16, rows[:, PIXELS].contiguous()
    held_out = torch.arange(len(rows)) % HOLD_OUT == 0
    return Digits(pixels[~held_out], labels[~held_out]), Digits(pixels[held_out], labels[held_out])
