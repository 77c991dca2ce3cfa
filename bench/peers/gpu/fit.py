# SPDX-License-Identifier: BSD-3-Clause
"""From how long each method takes to the constants from which the back end cuda predicts it (gpu_plan.h), and
their file, which the library finds by the device's name and the number of ranks."""

from __future__ import annotations

import re

from ..programs import ROOT

Point = tuple  # bytes pushed, nanoseconds
FOLDS, MOVES = ("all_reduce",), ("all_gather",)  # operations that are measured
RANGES = {"ns": (1.0, 1e7), "exceptions_ns": (0.0, 1e7), "gbs": (0.1, 1e5), "blocks": (4, 128)}  # as in gpu_plan.h
ROW = re.compile(r'\{"([^"]+)",\s*(\d+),\s*\{[^}]*\.meet_ns = ([0-9.e]+)')
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


def points_of(lines: list[dict], method: str, n: int, times: float, ops: tuple = FOLDS + MOVES) -> list[Point]:
    return [
        (times * pushed(cell["op"], cell["bytes"], n), cell["us"][method] * 1e3)
        for cell in lines
        if cell.get("op") in ops and method in cell["us"]
    ]


def meet_ns(device: str, n: int) -> float:
    """The time of a meeting, as the library has it: it can not be told apart from what engines take beyond copies. The
    row is that of this device and the nearest number of ranks, else of the first device."""
    text = next((ROOT / "src" / "backend").rglob("gpu_methods.c")).read_text()
    rows = [(name, int(ranks), float(ns)) for name, ranks, ns in ROW.findall(text)]
    alike = [row for row in rows if row[0] == device] or rows[:1]
    return min(alike, key=lambda row: abs(row[1] - n))[2]


def fit(lines: list[dict], n: int, meeting: float) -> dict[str, float]:
    """The constants that could be found, as they come out."""
    found = {**fit_slots(lines, n), **fit_rate(lines, n, "tiles", "tile", FOLDS + MOVES)}
    found.update(fit_rate(lines, n, "direct", "direct", MOVES))
    found.update(fit_engines(lines, n, meeting))
    blocks = fewest_blocks(lines)
    if blocks:
        found["blocks"] = blocks
    return found


def sorted_out(found: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Those that can be, and those that can not, whose times were disturbed."""

    def can_be(name: str, value: float) -> bool:
        low, high = RANGES.get(name) or RANGES[name.rpartition("_")[2]]
        return low <= value <= high

    kept = {name: value for name, value in found.items() if can_be(name, value)}
    return kept, {name: value for name, value in found.items() if name not in kept}


def fit_slots(lines: list[dict], n: int) -> dict[str, float]:
    """Lines and sentinels; the ones store twice the bytes at the rate of the others."""
    by_lines = points_of(lines, "lines", n, 2)
    folds, moves = points_of(lines, "sentinel", n, 1, FOLDS), points_of(lines, "sentinel", n, 1, MOVES)
    store = line_through(folds) or line_through(moves) or line_through(by_lines)
    if not store or store[1] <= 0:
        return {}
    shots = points_of(lines, "sentinel2", n, 2 / n)
    named = {"lines_ns": by_lines, "sentinel_ns": folds, "sentinel2_ns": shots}
    found = {"store_gbs": 1 / store[1]}
    found.update({name: latency_with(points, store[1]) for name, points in named.items() if points})
    if folds and moves:
        found["exceptions_ns"] = latency_with(moves, store[1]) - found["sentinel_ns"]
    return found


def fit_rate(lines: list[dict], n: int, method: str, name: str, ops: tuple) -> dict[str, float]:
    line = line_through(points_of(lines, method, n, 1, ops))
    return {f"{method}_ns": line[0], f"{name}_gbs": 1 / line[1]} if line and line[1] > 0 else {}


def fit_engines(lines: list[dict], n: int, meeting: float) -> dict[str, float]:
    engines = line_through(points_of(lines, "engines", n, 1, MOVES))
    if not engines or engines[1] <= 0:
        return {}
    return {"engine_ns": (engines[0] - 2 * meeting) / (n - 1), "engine_gbs": 1 / engines[1]}


def fewest_blocks(lines: list[dict]) -> int | None:
    """The fewest blocks of those tried ("tiles@64") that are nearly as fast as the fastest in every cell."""
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
