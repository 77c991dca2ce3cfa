# SPDX-License-Identifier: BSD-3-Clause
"""Element types and operations by their definitions, in Python's own numbers: nothing here comes from the library.
Values are small whole numbers, whose sums and products every type holds exactly; integers also wrap."""

import struct
from functools import lru_cache, reduce
from math import copysign

INTEGERS = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
            "uint64": "Q"}
FLOATS = {"float16": "e", "float32": "f", "float64": "d"}
COMPLEX = {"complex64": "f", "complex128": "d"}
# Bits of the exponent, of the mantissa, and the exponent's bias.
SMALL = {"float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15), "bfloat16": (8, 7, 127)}
TYPES = [*INTEGERS, "bool", *SMALL, *FLOATS, *COMPLEX]

OPS = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "min": min,
    "max": max,
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
}


def ops_of(name):
    """The operations that a type has."""
    if name == "bool" or name in INTEGERS:
        return list(OPS)
    return ["sum", "prod"] if name in COMPLEX else ["sum", "prod", "min", "max"]


def _small(value, exponent_bits, mantissa_bits, bias):
    """The code of a small whole number."""
    sign = (copysign(1, value) < 0) << (exponent_bits + mantissa_bits)
    if value == 0:
        return sign
    mantissa, exponent = abs(value), 0
    while mantissa >= 2:
        mantissa, exponent = mantissa / 2, exponent + 1
    return sign | (exponent + bias) << mantissa_bits | round((mantissa - 1) * (1 << mantissa_bits))


def encode(name, values):
    """The bytes of these numbers as elements of a type."""
    if name in INTEGERS:
        bits = 8 * struct.calcsize(INTEGERS[name])
        wrapped = [value & (1 << bits) - 1 for value in values]
        return bytearray(struct.pack(f"{len(values)}{INTEGERS[name].upper()}", *wrapped))
    if name == "bool":
        return bytearray(1 if value else 0 for value in values)
    if name in SMALL:
        codes = [_small(value, *SMALL[name]) for value in values]
        return bytearray(struct.pack(f"{len(values)}{'H' if name == 'bfloat16' else 'B'}", *codes))
    if name in COMPLEX:
        parts = [part for value in values for part in (complex(value).real, complex(value).imag)]
        return bytearray(struct.pack(f"{len(parts)}{COMPLEX[name]}", *parts))
    return bytearray(struct.pack(f"{len(values)}{FLOATS[name]}", *values))


def bytes_of(name):
    return len(encode(name, [0]))


def signed(name):
    return name not in ("bool",) and not name.startswith("uint")


@lru_cache(maxsize=None)
def values(name, rank, count):
    """What a rank contributes: other numbers on each rank; large ones for types that wrap."""
    numbers = [(3 * i + 5 * rank + 1) % 4 - (1 if signed(name) else 0) for i in range(count)]
    if name in INTEGERS:
        return [number + (i % 3) * 0x1234567 for i, number in enumerate(numbers)]
    if name == "bool":
        return [number & 1 for number in numbers]
    if name in COMPLEX:
        return [complex(number, i % 3 - 1) for i, number in enumerate(numbers)]
    return [float(number) for number in numbers]  # products of negative numbers and zero have a sign


def wrap(name, value):
    """The number that an integer type makes of one; min and max compare these."""
    if name not in INTEGERS:
        return value
    bits = 8 * bytes_of(name)
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed(name) and value >> (bits - 1) else value


def reduced(name, op, contributions):
    """The elements of a reduction over ranks, in rank order."""
    rows = [[wrap(name, value) for value in row] for row in contributions]
    function = {"sum": lambda a, b: a | b, "prod": lambda a, b: a & b}.get(op, OPS[op]) if name == "bool" else OPS[op]
    return [reduce(function, column) for column in zip(*rows)] if rows[0] else []
