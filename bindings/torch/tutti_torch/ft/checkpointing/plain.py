# SPDX-License-Identifier: BSD-3-Clause
"""Plain data as JSON and back, without code of the sender's: None, bool, int, float, str, bytes, lists, tuples, dicts
with their order and any such keys, torch.dtype, torch.Size, torch.device. Tensors are numbers of a list beside it.
Anything else is refused in a sentence, unless pickle is allowed."""

from __future__ import annotations

import base64
import pickle
from collections import OrderedDict
from typing import Any, Callable, Dict, List

import torch

Tensor = torch.Tensor
KINDS = (type(None), bool, int, str)  # which JSON keeps as they are


class NotPlain(TypeError):
    """What can not travel."""


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Packer:
    """Writes; `tensor_of` gives each tensor its word."""

    def __init__(self, tensor_of: Callable[[Tensor], Any], allow_pickle: bool) -> None:
        self._tensor_of, self._allow_pickle = tensor_of, allow_pickle

    def pack(self, value: Any, where: str = "state") -> Any:
        kind = type(value)
        if kind in KINDS:
            return value
        if isinstance(value, Tensor):
            return self._tensor_of(value)
        if kind in WRITERS:
            return WRITERS[kind](value)
        if kind in (list, tuple):
            return ["l" if kind is list else "t", [self.pack(v, f"{where}[{i}]") for i, v in enumerate(value)]]
        if kind in (dict, OrderedDict):
            pairs = [[self.pack(k, f"a key of {where}"), self.pack(v, f"{where}[{k!r}]")] for k, v in value.items()]
            if kind is dict:
                return ["d", pairs]
            return ["o", pairs, self.pack(dict(getattr(value, "_metadata", None) or {}), f"{where}._metadata")]
        if self._allow_pickle:
            return ["p", _base64(pickle.dumps(value))]
        raise NotPlain(f"{where} is a {kind.__module__}.{kind.__qualname__}, which is neither a tensor nor plain data: "
                       "leave it out of the state dict, turn it into plain data there, or give both sides' transports "
                       "allow_pickle=True, by which whoever sends can run code here")


def check_plain(value: Any, allow_pickle: bool) -> None:
    """Raises NotPlain where the state has something that can not travel. Copies nothing."""
    Packer(lambda tensor: None, allow_pickle).pack(value)


WRITERS: Dict[type, Callable[[Any], Any]] = {
    float: lambda value: ["f", value.hex()],
    bytes: lambda value: ["b", _base64(value)],
    torch.dtype: lambda value: ["y", str(value).removeprefix("torch.")],
    torch.Size: lambda value: ["z", list(value)],
    torch.device: lambda value: ["c", str(value)],
}


class Unpacker:
    """Reads what somebody sent: every word of it is checked."""

    def __init__(self, tensor_of: Callable[[Any], Tensor], allow_pickle: bool) -> None:
        self._tensor_of, self._allow_pickle = tensor_of, allow_pickle
        self._readers: Dict[str, Callable[[List[Any]], Any]] = {
            "l": lambda word: [self.unpack(v) for v in word[1]],
            "t": lambda word: tuple(self.unpack(v) for v in word[1]),
            "d": lambda word: {self.unpack(k): self.unpack(v) for k, v in word[1]},
            "o": self._ordered,
            "f": lambda word: float.fromhex(word[1]),
            "b": lambda word: base64.b64decode(word[1], validate=True),
            "y": lambda word: dtype_of(word[1]),
            "z": lambda word: torch.Size(word[1]),
            "c": lambda word: torch.device(word[1]),
            "T": lambda word: self._tensor_of(word),
            "D": lambda word: self._tensor_of(word),
            "p": self._pickled,
        }

    def unpack(self, word: Any) -> Any:
        if type(word) in KINDS:
            return word
        if type(word) is not list or not word or word[0] not in self._readers:
            raise ValueError(f"the state is damaged: {str(word)[:80]} is no value")
        return self._readers[word[0]](word)

    def _ordered(self, word: List[Any]) -> Any:
        made: Any = OrderedDict((self.unpack(k), self.unpack(v)) for k, v in word[1])
        metadata = self.unpack(word[2])
        if metadata:
            made._metadata = OrderedDict(metadata)
        return made

    def _pickled(self, word: List[Any]) -> Any:
        if not self._allow_pickle:
            raise NotPlain("the other side sent a pickle, which can run code: give this side's transport "
                           "allow_pickle=True if that is meant")
        return pickle.loads(base64.b64decode(word[1], validate=True))


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the state is damaged: '{name}' is no type of tensors here")
    return found
