# SPDX-License-Identifier: BSD-3-Clause
"""What the words of the command lines may be: the rest is refused before anything starts, with what there is."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Callable

from .report import parse_size


def names(known) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise ArgumentTypeError(f"{name or 'an empty name'} is none of {', '.join(known)}")
        return chosen

    return parse


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def counts(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def size(text: str) -> int:
    try:
        found = parse_size(text)
    except ValueError:
        found = 0
    if found < 1:
        raise ArgumentTypeError(f"{text} is no size, such as 8, 64K, 1M or 1G")
    return found


def sizes(text: str) -> list[int]:
    return [size(part) for part in text.split(",")]


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise ArgumentTypeError(f"{text} is no number of seconds")
    return found


def to_write(text: str) -> Path:
    """Known to have a place before anything is measured for it."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ArgumentTypeError(f"{path} can not be written: {why}")
    return path
