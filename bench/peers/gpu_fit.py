# SPDX-License-Identifier: BSD-3-Clause
"""From how long each method takes to the constants from which the back end cuda predicts it (backend/cuda_speed.h), and
their file, which the library finds by the device's name and the number of ranks."""

from __future__ import annotations

import re
from typing import Callable

Point = tuple  # bytes pushed, nanoseconds
LEAST, MOST = 0.1, 1e7
MEET_NS = 2500.0  # of a meeting: what engines take beyond copies can not be told apart from it
NEARLY = 1.01  # so little is not worth more blocks


def pushed(op: str, n_bytes: int, n: int) -> float:
    """What a rank sends to its peers, if it sends blocks as they are; bytes as nccl-tests counts them."""
    return (n - 1) * n_bytes * (1 if op in ("all_reduce", "broadcast") else 1 / n)


def line_through(points: list[Point]) -> tuple[float, float] | None:
    """Latency and time a byte with the least squares of relative errors."""
    if len({x for x, _ in points}) < 2:
        return None
    w = sum(1 / t**2 for _, t in points)
    wx = sum(x / t**2 for x, t in points)
    wxx = sum(x * x / t**2 for x, t in points)
    wt = sum(1 / t for _, t in points)
    wxt = sum(x / t for x, t in points)
    slope = (w * wxt - wx * wt) / (w * wxx - wx * wx)
    return (wt - slope * wx) / w, slope


def latency_with(points: list[Point], slope: float) -> float:
    """The same where the time a byte is given."""
    return sum((t - slope * x) / t**2 for x, t in points) / sum(1 / t**2 for _, t in points)


def points_of(lines: list[dict], method: str, n: int, factor: Callable[[str], float], ops=None) -> list[Point]:
    return [
        (factor(cell["op"]) * pushed(cell["op"], cell["bytes"], n), cell["us"][method] * 1e3)
        for cell in lines
        if method in cell.get("us", {}) and (ops is None or cell["op"] in ops)
    ]


def fit(lines: list[dict], n: int) -> dict[str, float]:
    """The constants that could be found."""
    found: dict[str, float] = {}
    once, twice = (lambda op: 1.0), (lambda op: 2.0)
    lines_points = points_of(lines, "lines", n, twice)
    sentinel = points_of(lines, "sentinel", n, once)
    store = line_through(sentinel) or line_through(lines_points)
    if store and store[1] > 0:
        found["store_gbs"] = 1 / store[1]
        shots = points_of(lines, "sentinel2", n, lambda op: 2 / n)
        for name, points in (("lines_ns", lines_points), ("sentinel_ns", sentinel), ("sentinel2_ns", shots)):
            if points:
                found[name] = latency_with(points, store[1])
    tiles = line_through(points_of(lines, "tiles", n, once))
    if tiles and tiles[1] > 0:
        found["tiles_ns"], found["tile_gbs"] = tiles[0], 1 / tiles[1]
    engines = line_through(points_of(lines, "engines", n, once, ("all_gather", "all_to_all")))
    if engines and engines[1] > 0:
        found["engine_gbs"], found["meet_ns"] = 1 / engines[1], MEET_NS
        found["engine_ns"] = (engines[0] - 2 * MEET_NS) / (n - 1)
    blocks = fewest_blocks(lines)
    if blocks:
        found["blocks"] = blocks
    return {name: min(max(value, 1.0 if name.endswith("_ns") else LEAST), MOST) for name, value in found.items()}


def fewest_blocks(lines: list[dict]) -> int | None:
    """Of those tried ("tiles@64"), the fewest that are nearly as fast as the fastest in every cell."""
    cells = []
    for line in lines:
        tried = {int(name.split("@")[1]): us for name, us in line.get("us", {}).items() if "@" in name}
        if tried:
            cells.append(tried)
    every = set.intersection(*(set(tried) for tried in cells)) if cells else set()
    return min((b for b in every if all(t[b] <= NEARLY * min(t.values()) for t in cells)), default=None)


# ---- the file ----


def file_name(device: str, n: int) -> str:
    """As tutti_constants_path."""
    return f"{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-') or 'unknown'}-{n}.tune"


def file_text(constants: dict[str, float], about: str) -> str:
    return "".join([f"# {about}\n", *(f"{name:<15} {value:.3f}\n" for name, value in constants.items())])
