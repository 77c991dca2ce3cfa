# SPDX-License-Identifier: BSD-3-Clause
"""What collectives should give: random inputs by seed, which every rank can make for all ranks, and reductions of them
in numpy, in the type itself where that is exact (integers wrap) and in float64 or complex128 where it is not."""

from __future__ import annotations

import zlib
from typing import List, Optional, Sequence

import numpy as np
import torch
from torch.distributed import ReduceOp

INTEGERS = (
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
)  # fmt: skip
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
REDUCED = (torch.bool, *INTEGERS, *FLOATS, *FLOATS8, *COMPLEX)
# What PyTorch has and tutti does not reduce travels as bytes.
AS_BYTES = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex32)
MOVED = (*REDUCED, *AS_BYTES)

ORDERED = (ReduceOp.MIN, ReduceOp.MAX)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
ARITHMETIC = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.PREMUL_SUM)
OPS = (*ARITHMETIC, *ORDERED, *BITWISE)


def is_integer(dtype: torch.dtype) -> bool:
    return dtype in INTEGERS


def ops_of(dtype: torch.dtype) -> tuple:
    """The operations that are defined for a type; the others are refused."""
    if dtype == torch.bool:
        return (ReduceOp.SUM, ReduceOp.PRODUCT, *ORDERED, *BITWISE)
    if is_integer(dtype):
        return OPS
    return ARITHMETIC if dtype.is_complex else (*ARITHMETIC, *ORDERED)


def values(seed: str, rank: int, count: int, dtype: torch.dtype, bits: int = 0) -> torch.Tensor:
    """The input of one rank. Integers take their whole range, or `bits` bits of it."""
    random = np.random.default_rng([zlib.crc32(seed.encode()), rank])
    if dtype == torch.bool:
        return torch.from_numpy(random.integers(0, 2, count).astype(bool))
    if is_integer(dtype):
        info = torch.iinfo(dtype)
        low, high = (max(info.min, -(1 << bits)), (1 << bits) - 1) if bits else (info.min, info.max)
        name = str(dtype).split(".")[1]
        return torch.from_numpy(random.integers(low, high, count, dtype=name, endpoint=True))
    if dtype.is_complex:
        real, imaginary = (torch.from_numpy(random.uniform(-2, 2, count)) for _ in range(2))
        return torch.complex(real, imaginary).to(dtype)
    return torch.from_numpy(random.uniform(-2, 2, count)).to(dtype)


def inputs(seed: str, n: int, count: int, dtype: torch.dtype, bits: int = 0) -> List[torch.Tensor]:
    return [values(seed, rank, count, dtype, bits) for rank in range(n)]


def wide(tensor: torch.Tensor) -> np.ndarray:
    """As numpy: integers and bool as they are, the others in double precision."""
    if tensor.dtype == torch.bool or is_integer(tensor.dtype):
        return tensor.numpy()
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64).numpy()


def bits_of(tensor: torch.Tensor) -> bytes:
    """For comparison of what was only moved, whatever it means: NaNs too."""
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


FOLDS = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PREMUL_SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


def reduced(tensors: Sequence[torch.Tensor], op: ReduceOp.RedOpType, factor: float = 1.0) -> np.ndarray:
    """The reduction of all ranks' inputs."""
    stack = np.stack([wide(tensor) for tensor in tensors])
    if op == ReduceOp.PREMUL_SUM:
        stack = stack * stack.dtype.type(factor)
    fold = FOLDS[op]
    if stack.dtype == bool and fold in (np.add, np.multiply):  # as or, and
        fold = np.logical_or if fold is np.add else np.logical_and
    result = fold.reduce(stack, axis=0, dtype=stack.dtype)
    if op != ReduceOp.AVG:
        return result
    if stack.dtype.kind in "iu":  # towards zero
        return (np.abs(result) // len(tensors) * np.sign(result)).astype(stack.dtype)
    return result / len(tensors)


def bound(tensors: Sequence[torch.Tensor], op: ReduceOp.RedOpType, factor: float) -> Optional[np.ndarray]:
    """How far from the reference a correct result can be, one rounding a rank and one each for a factor and its
    product; None: not at all."""
    dtype = tensors[0].dtype
    if dtype == torch.bool or is_integer(dtype) or op in ORDERED:
        return None
    info = torch.finfo(dtype)
    size = np.abs(np.stack([wide(tensor) for tensor in tensors]))
    roundings = (len(tensors) + 2) * (4 if dtype.is_complex else 1)
    if op == ReduceOp.PRODUCT:
        return roundings * (info.eps * size.prod(axis=0) + info.smallest_normal * info.eps * 3 ** len(tensors))
    return roundings * (info.eps * size.sum(axis=0) * max(abs(factor), 1.0) + info.smallest_normal * info.eps)


def check(
    got: torch.Tensor, tensors: Sequence[torch.Tensor], op: ReduceOp.RedOpType, factor: float = 1.0, what: str = ""
) -> None:
    """That the result is the reduction of these inputs."""
    assert got.dtype == tensors[0].dtype, f"{what}: {got.dtype}"
    want, have = reduced(tensors, op, factor), wide(got.detach())
    assert have.shape == want.shape, f"{what}: shape {have.shape}, {want.shape} expected"
    allowed = bound(tensors, op, factor)
    wrong = have != want if allowed is None else ~(np.abs(have - want) <= allowed)
    if wrong.any():
        at = np.argwhere(wrong)[0]
        place = tuple(at)
        raise AssertionError(f"{what}, {op}, {got.dtype}: {wrong.sum()} of {wrong.size} elements differ, the first at "
                             f"{at.tolist()}: {have[place]}, {want[place]} expected, of "
                             f"{[wide(t)[place].item() for t in tensors]}")


def same(got: torch.Tensor, want: torch.Tensor, what: str = "") -> None:
    """That a tensor was moved unchanged."""
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype} {tuple(got.shape)}"
    assert bits_of(got) == bits_of(want), f"{what}, {got.dtype}: {got} is not {want}"
