# SPDX-License-Identifier: BSD-3-Clause
"""The environment variables that make programs use tutti which do not name it, and what they may say."""

import os

import torch

DEFAULT = "TUTTI_TORCH_DEFAULT"  # device types whose default backend is tutti: "cpu", "cpu,cuda,xpu"
REPLACE = "TUTTI_TORCH_REPLACE"  # backends that tutti stands in for: "nccl", "gloo,nccl"
DDP = "TUTTI_TORCH_DDP"  # 1: tutti averages the gradients of DistributedDataParallel in buckets of its own
REPLACEABLE = {"gloo": "cpu", "nccl": "cuda", "xccl": "xpu"}  # ... and for tensors of which devices


def words_of(name: str) -> list:
    """The value's words, without blanks and in lower case, as PyTorch takes the names."""
    return [word.strip().lower() for word in os.environ.get(name, "").split(",") if word.strip()]


def check_device(word: str) -> None:
    try:
        known = torch.device(word).type == word
    except RuntimeError:
        known = False
    if not known:
        raise ValueError(f"{DEFAULT}={os.environ[DEFAULT]}: {word!r} is no device type of torch {torch.__version__}; "
                         "write types as in \"cpu\" or \"cpu,cuda,xpu\"")


def default_devices() -> list:
    words = words_of(DEFAULT)
    for word in words:
        check_device(word)
    return words


def replaced_backends() -> list:
    words = words_of(REPLACE)
    for word in words:
        if word not in REPLACEABLE:
            raise ValueError(f"{REPLACE}={os.environ[REPLACE]}: tutti can not stand in for {word!r}, only for "
                             f"{', '.join(map(repr, REPLACEABLE))}")
    return words


def is_on(name: str) -> bool:
    word = os.environ.get(name, "").strip().lower()
    if word not in ("", "0", "1", "false", "true"):
        raise ValueError(f"{name}={os.environ[name]}: it is 1 or 0")
    return word in ("1", "true")
