# SPDX-License-Identifier: BSD-3-Clause
"""A state dict as bytes, without pickle: a header, which says where each tensor is, and a payload of their elements.

    8 bytes    "TUTTIFT" and the version
    8 bytes    of the header
    8 bytes    of the payload
    4 bytes    CRC-32 of the header
    header     JSON: the step, the tree of the state (plain.py), the tensors (type, shape, strides, place), and a
               CRC-32C for each piece
    payload    each tensor at a multiple of 64

Pieces of the payload can be fetched from anywhere in any order: each has a CRC-32C of its own, by which a piece that
was damaged, or belongs elsewhere, is told before it is believed."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from ... import _C
from ..utils import is_dtensor
from .memory import fresh
from .plain import Packer, Unpacker, dtype_of

MAGIC = b"TUTTIFT\x02"
PREFIX = struct.Struct("<8sQQI")
ALIGNMENT = 64
PIECE = 4 << 20  # bytes
HEADER_MAX = 1 << 30
FIELDS = {"step", "tree", "tensors", "piece", "crcs"}  # fields of the header


def _crc_of(piece: torch.Tensor, number: int) -> int:
    """The CRC of the piece's place and its bytes."""
    return _C.crc32c(memoryview(piece.numpy()), _C.crc32c(number.to_bytes(8, "little")))


def digest_of(piece: torch.Tensor) -> str:
    return hashlib.sha256(memoryview(piece.numpy())).hexdigest()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of memory, as bytes; of a dense tensor of the CPU, without a copy."""
    flat = tensor.detach()
    flat = flat.as_strided((flat.numel(),), (1,)) if flat.numel() else flat.reshape(-1)
    return flat.view(torch.uint8)


def _dense(tensor: torch.Tensor) -> bool:
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


@dataclass
class Entry:
    """One tensor of the payload."""

    dtype: torch.dtype
    shape: List[int]
    stride: List[int]
    offset: int
    n_bytes: int

    def words(self) -> List[Any]:
        return [str(self.dtype).removeprefix("torch."), self.shape, self.stride, self.offset]

    def view(self, payload: torch.Tensor) -> torch.Tensor:
        """The tensor, in the payload's memory."""
        part = payload[self.offset : self.offset + self.n_bytes].view(self.dtype)
        return part.as_strided(self.shape, self.stride) if part.numel() else part.reshape(self.shape)


# ---- writing ----


class Snapshot:
    """A state as it is now, copied: what becomes of the tensors afterwards does not matter. `memory`: of a snapshot
    that nobody needs any more. `step`: of which it is the state. `crcs_beside`: the header has none, as each is told
    with its piece, so that the first piece need not wait for the last one's."""

    def __init__(self, state: Any, allow_pickle: bool = False, memory: Optional[torch.Tensor] = None,
                 step: int = 0, crcs_beside: bool = False) -> None:
        self._sources: List[torch.Tensor] = []
        self.entries: List[Entry] = []
        self._known: Dict[Tuple[Any, ...], int] = {}
        self._end = 0
        self._digests: Dict[Tuple[int, int], str] = {}
        tree = Packer(self._word_of, allow_pickle).pack(state)
        self.payload = self._copied(memory)
        crcs = [] if crcs_beside else [_crc_of(piece, number) for number, piece in enumerate(self.pieces())]
        text = json.dumps({"step": step, "tree": tree, "tensors": [entry.words() for entry in self.entries],
                           "piece": PIECE, "crcs": crcs}, separators=(",", ":")).encode()
        self.header = PREFIX.pack(MAGIC, len(text), self._end, zlib.crc32(text)) + text
        self._sources = []

    def pieces(self) -> Sequence[torch.Tensor]:
        return self.payload.split(PIECE) if self._end else ()

    def digests(self, first: int, end: int) -> List[str]:
        """SHA-256 of the bytes from first to end, a piece each; made once for each piece, however many read it."""
        return [self._digest(begin, min(begin + PIECE, end)) for begin in range(first, end, PIECE)]

    def _digest(self, first: int, end: int) -> str:
        if (first, end) not in self._digests:  # two threads may make the same one
            self._digests[first, end] = digest_of(self.payload[first:end])
        return self._digests[first, end]

    def crc(self, number: int) -> int:
        return _crc_of(self.payload[number * PIECE : (number + 1) * PIECE], number)

    def _word_of(self, tensor: torch.Tensor) -> List[Any]:
        if is_dtensor(tensor):
            from .dtensors import write_spec

            return ["D", self._entry_of(tensor.to_local()), write_spec(tensor)]
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise TypeError(f"a tensor of {tensor.dtype} on {tensor.device} with layout {tensor.layout} can not "
                            "travel: dense ones with memory can")
        return ["T", self._entry_of(tensor), tensor.requires_grad]

    def _entry_of(self, tensor: torch.Tensor) -> int:
        tensor = tensor.detach()
        key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.dtype, tensor.shape,
               tensor.stride(), tensor.device)
        if tensor.numel() and key in self._known:  # shared weights travel once
            return self._known[key]
        dense = tensor if _dense(tensor) else tensor.contiguous()
        n_bytes = dense.numel() * dense.element_size()
        self.entries.append(Entry(dense.dtype, list(dense.shape), list(dense.stride()), self._end, n_bytes))
        self._sources.append(dense)
        self._end += -(-n_bytes // ALIGNMENT) * ALIGNMENT
        self._known[key] = len(self.entries) - 1
        return len(self.entries) - 1

    def _copied(self, memory: Optional[torch.Tensor]) -> torch.Tensor:
        pinned = torch.accelerator.is_available() and any(t.device.type != "cpu" for t in self._sources)
        if memory is None or memory.numel() != self._end:
            memory = torch.empty(self._end, dtype=torch.uint8, pin_memory=True) if pinned else fresh(self._end)
        for entry, source in zip(self.entries, self._sources):
            entry.view(memory).copy_(source, non_blocking=pinned)
            memory[entry.offset + entry.n_bytes : entry.offset + -(-entry.n_bytes // ALIGNMENT) * ALIGNMENT].zero_()
        if pinned:
            torch.accelerator.current_stream().synchronize()
        return memory


# ---- reading ----


class DamagedError(RuntimeError):
    """What came is not what was sent."""


class Incoming:
    """A state that comes: made from its header, filled piece by piece, by several threads if need be. `into`: a state
    whose tensors are filled where they fit in type, shape and strides; what does not fit is made anew. `crcs_beside`:
    as the snapshot's."""

    def __init__(self, header: bytes, allow_pickle: bool = False, into: Any = None, crcs_beside: bool = False) -> None:
        self.header = header
        self.n_bytes, words = parse_header(header)
        self.step, self._tree, self._crcs = words["step"], words["tree"], words["crcs"]
        self._allow_pickle = allow_pickle
        self.entries = [self._entry(word) for word in words["tensors"]]
        if words["piece"] != PIECE or len(self._crcs) != (0 if crcs_beside else self.n_pieces):
            raise DamagedError(f"the state is damaged: {len(self._crcs)} CRCs of {self.n_pieces} pieces")
        self.missing = set(range(self.n_pieces))  # the reader takes out what has been checked and stored
        self.aim(into)
        in_place = bool(self.entries) and all(target is not None for target in self._targets)
        self.payload = None if in_place else fresh(self.n_bytes)

    def aim(self, into: Any) -> None:
        """Tensors of this state are filled in the end."""
        self._targets = _targets(self._tree, into, len(self.entries))
        for number, entry in enumerate(self.entries):
            if self._targets[number] is not None and not _fits(entry, self._targets[number]):
                self._targets[number] = None

    def alike(self, header: bytes) -> Set[int]:
        """The pieces that are the same in the state of that header."""
        n_bytes, words = parse_header(header)
        if n_bytes != self.n_bytes or words["piece"] != PIECE:
            return set()
        return {piece for piece, (own, other) in enumerate(zip(self._crcs, words["crcs"])) if own == other}

    @property
    def n_pieces(self) -> int:
        return -(-self.n_bytes // PIECE)

    def _entry(self, word: List[Any]) -> Entry:
        dtype, shape, stride, offset = dtype_of(word[0]), list(word[1]), list(word[2]), word[3]
        n, reach = 1, 1
        for size, step in zip(shape, stride):
            if type(size) is not int or type(step) is not int or size < 0 or step < 0:
                raise DamagedError(f"the state is damaged: {word} is no tensor")
            n, reach = n * size, reach + (size - 1) * step
        n_bytes = n * torch.empty(0, dtype=dtype).element_size()
        if len(shape) != len(stride) or type(offset) is not int or offset < 0 or offset % ALIGNMENT or \
                offset + n_bytes > self.n_bytes or (n and reach != n):
            raise DamagedError(f"the state is damaged: the tensor {word} is not within {self.n_bytes} bytes")
        return Entry(dtype, shape, stride, offset, n_bytes)

    def range_of(self, piece: int) -> Tuple[int, int]:
        """Its first byte in the payload, and the one behind it."""
        return piece * PIECE, min((piece + 1) * PIECE, self.n_bytes)

    def memory_of(self, piece: int) -> Optional[torch.Tensor]:
        """Where its bytes can be received; None: nowhere, they are to be stored when they have been checked."""
        first, end = self.range_of(piece)
        return None if self.payload is None else self.payload[first:end]

    def check(self, piece: int, data: torch.Tensor, crc: Optional[int] = None) -> None:
        """Raises DamagedError unless it is what was sent. `crc`: that came beside it."""
        if _crc_of(data, piece) != (self._crcs[piece] if crc is None else crc):
            raise DamagedError(f"piece {piece} of {self.n_pieces} was damaged on its way")

    def store(self, piece: int, data: torch.Tensor) -> None:
        """Stores a piece that was checked, and not received where it belongs."""
        first, end = self.range_of(piece)
        if self.payload is not None:
            self.payload[first:end] = data
            return
        for entry, target in self._within(first, end):
            begin, stop = max(entry.offset, first), min(entry.offset + entry.n_bytes, end)
            _bytes_of(target)[begin - entry.offset : stop - entry.offset].copy_(data[begin - first : stop - first])

    def _within(self, first: int, end: int) -> Iterator[Tuple[Entry, torch.Tensor]]:
        low, high = 0, len(self.entries)  # the first one that ends behind `first`
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].offset + self.entries[middle].n_bytes <= first:
                low = middle + 1
            else:
                high = middle
        while low < len(self.entries) and self.entries[low].offset < end:
            yield self.entries[low], self._targets[low]
            low += 1

    def state(self) -> Any:
        """When all pieces are there."""
        made: Dict[int, torch.Tensor] = {}

        def tensor_of(word: List[Any]) -> torch.Tensor:
            number = word[1]
            if type(number) is not int or not 0 <= number < len(self.entries):
                raise DamagedError(f"the state is damaged: there is no tensor {number}")
            if number not in made:
                made[number] = self._tensor(number)
            if word[0] == "D":
                from .dtensors import dtensor, read_spec

                return dtensor(made[number], read_spec(word[2]))
            return made[number].requires_grad_(True) if word[2] and not made[number].requires_grad else made[number]

        return Unpacker(tensor_of, self._allow_pickle).unpack(self._tree)

    def _tensor(self, number: int) -> torch.Tensor:
        target = self._targets[number]
        if self.payload is None:
            return target
        value = self.entries[number].view(self.payload)
        return value if target is None else target.copy_(value)


def parse_header(header: bytes) -> Tuple[int, Dict[str, Any]]:
    """Bytes of the payload, and what the header says."""
    if len(header) < PREFIX.size or header[:7] != MAGIC[:7]:
        raise DamagedError("this is no state of tutti_torch.ft: is torchft itself at the other end?")
    magic, n_text, n_bytes, crc = PREFIX.unpack_from(header)
    if magic != MAGIC:
        raise DamagedError(f"the state has version {magic[7]}, and this side reads version {MAGIC[7]}")
    text = header[PREFIX.size :]
    if len(text) != n_text or n_text > HEADER_MAX or zlib.crc32(text) != crc:
        raise DamagedError("the header of the state was damaged on its way")
    words = json.loads(text)
    if not isinstance(words, dict) or not FIELDS <= words.keys():
        raise DamagedError(f"the header of the state is damaged: it lacks some of {sorted(FIELDS)}")
    return n_bytes, words


def _fits(entry: Entry, target: torch.Tensor) -> bool:
    return (target.dtype == entry.dtype and list(target.shape) == entry.shape and list(target.stride()) == entry.stride
            and _dense(target))


def _targets(tree: Any, into: Any, n: int) -> List[Optional[torch.Tensor]]:
    """For each tensor of the tree the one at the same place of the other state."""
    found: List[Optional[torch.Tensor]] = [None] * n

    def walk(word: Any, value: Any) -> None:
        if type(word) is not list or value is None:
            return
        if word[0] in ("T", "D") and isinstance(value, torch.Tensor):
            local = value.to_local() if is_dtensor(value) else value
            if type(word[1]) is int and 0 <= word[1] < n:
                found[word[1]] = local.detach()
        elif word[0] in ("d", "o") and isinstance(value, dict):
            for key, inner in word[1]:
                if isinstance(key, (str, int)):
                    walk(inner, value.get(key))
        elif word[0] in ("l", "t") and isinstance(value, (list, tuple)):
            for inner, part in zip(word[1], value):
                walk(inner, part)

    walk(tree, into)
    return found
