# SPDX-License-Identifier: BSD-3-Clause
"""What tutti is meant to reach on GPUs, as data, and how the lines of bench/gpu_peers.py compare; and how long an
all_reduce may take on a machine of 64 CPUs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Iterator

from ..goals import KIB, MIB, Verdict
from ..report import geomean
from ..results import SUBJECT, Results

SIZES = tuple(KIB * n for n in (1, 8, 64, 256)) + tuple(MIB * n for n in (1, 4, 16, 64, 256, 1024))
DEVICE = "H200"
# us at most, on so many of them, of a call in a graph on registered memory; bytes as nccl-tests counts them.
TABLES: dict[int, dict[str, tuple[float, ...]]] = {
    2: {
        "all_reduce": (2.5, 2.7, 3.1, 4.3, 6.5, 16, 54, 205, 740, 2900),
        "all_gather": (2.4, 2.6, 2.9, 3.5, 4.6, 9.2, 29, 105, 375, 1470),
        "reduce_scatter": (2.5, 2.7, 2.9, 3.4, 4.6, 9.2, 30, 110, 390, 1520),
        "all_to_all": (2.4, 2.6, 2.9, 3.5, 4.6, 9.2, 29, 105, 375, 1470),
        "broadcast": (2.5, 2.7, 3.1, 4.0, 6.5, 16, 53, 198, 725, 2830),
    },
    4: {
        "all_reduce": (2.5, 2.8, 3.4, 5.3, 8.5, 24, 82, 310, 1110, 4280),
        "all_gather": (2.4, 2.6, 3.0, 3.9, 5.8, 14.5, 43, 155, 562, 2140),
        "reduce_scatter": (2.5, 2.7, 3.0, 3.5, 5.5, 13.5, 43, 165, 600, 2210),
        "all_to_all": (2.4, 2.6, 3.0, 4.0, 6.1, 15, 43, 157, 565, 2140),
        "broadcast": (2.5, 2.7, 3.2, 4.5, 8, 18, 52, 190, 715, 2840),
    },
}


@dataclass(frozen=True)
class Mean:
    """A geometric mean over the collectives and sizes of a range, of how many times as fast as the peer."""

    name: str
    low: int
    high: int
    factor: float


WINDOW_MEANS = {
    2: (
        Mean("up to 256 KiB", 0, 256 * KIB, 2.5),
        Mean("1 to 16 MiB", MIB, 16 * MIB, 1.5),
        Mean("above 16 MiB", 16 * MIB + 1, 1 << 62, 1.15),
    ),
    4: (Mean("up to 256 KiB", 0, 256 * KIB, 2.5), Mean("1 to 16 MiB", MIB, 16 * MIB, 1.5)),
}
PLAIN_MEANS = {2: (Mean("up to 256 KiB", 0, 256 * KIB, 2.0),), 4: ()}
EAGER_C_US, EAGER_PYTHON_US = 5.0, 10.0  # call by call, 1 KiB

# On 64 CPUs, 64 ranks, float32 all_reduce: size, memory, us at most.
MANY_CPUS, MANY_RANKS = 64, "64"
MANY_CPUS_US = (
    (8, "private", 1.5),
    (64 * KIB, "private", 56.0),
    (64 * KIB, "mapped", 40.0),
    (64 * MIB, "private", 75e3),
    (64 * MIB, "mapped", 54e3),
)


def best_peer(us: dict[str, float]) -> tuple[str, float] | None:
    others = [(name, time) for name, time in us.items() if not name.startswith(SUBJECT)]
    return min(others, key=lambda pair: pair[1]) if others else None


# ---- how each kind of memory is compared: tutti's name, and the peer's time ----
def window_ratio(cell: dict) -> tuple[float, str] | None:
    best, own = best_peer(cell["us"]), cell["us"].get("tutti window")
    return (best[1] / own, best[0]) if best and own else None


def plain_ratio(cell: dict) -> tuple[float, str] | None:
    peer, own = cell["us"].get("nccl"), cell["us"].get("tutti")
    return (peer / own, "nccl") if peer and own else None


MEMORIES = {
    "registered memory, best peer": (window_ratio, WINDOW_MEANS),
    "ordinary memory, NCCL": (plain_ratio, PLAIN_MEANS),
}


def cells_of(lines: list[dict]) -> list[dict]:
    return [line for line in lines if "op" in line]


def ranks_of(lines: list[dict]) -> int:
    return next((line["ranks"] for line in lines if "machine" in line), 0)


def table_of(lines: list[dict]) -> int | None:
    """The number of ranks whose goals these are measured by: no other device has any, and no other number."""
    head = next((line for line in lines if "machine" in line), {})
    return head["ranks"] if DEVICE in head.get("machine", "").split() and head["ranks"] in TABLES else None


# ---- verdicts ----
@dataclass(frozen=True)
class Missed:
    cell: dict
    us: float
    goal: float


def timed(lines: list[dict]) -> Iterator[tuple[dict, float, float]]:
    """The cells that have a goal, with the time and the goal."""
    goals = TABLES.get(table_of(lines), {})
    for cell in cells_of(lines):
        if cell["op"] in goals and cell["bytes"] in SIZES and "tutti window" in cell["us"]:
            yield cell, cell["us"]["tutti window"], goals[cell["op"]][SIZES.index(cell["bytes"])]


def missed(lines: list[dict]) -> list[Missed]:
    return [Missed(cell, us, goal) for cell, us, goal in timed(lines) if us > goal]


def slower(lines: list[dict]) -> list[tuple[dict, str, float, str]]:
    """Cell, memory, ratio and peer wherever a peer is faster, the worst first."""
    found = []
    for memory, (ratio, _) in MEMORIES.items():
        for cell in cells_of(lines):
            value = ratio(cell)
            if value and value[0] < 1:
                found.append((cell, memory, *value))
    return sorted(found, key=lambda row: row[2])


def times(lines: list[dict]) -> list[Verdict]:
    by_kind: dict = defaultdict(list)
    for cell, us, goal in timed(lines):
        by_kind[cell["dtype"], cell["in_place"]].append(us <= goal)
    table = table_of(lines)
    return [
        Verdict(
            f"times of the table for {table} GPUs, {dtype}, {'in' if in_place else 'out of'} place",
            "in every cell",
            f"{sum(met)} of {len(met)} cells",
            all(met),
        )
        for (dtype, in_place), met in by_kind.items()
    ]


def not_slower(lines: list[dict]) -> list[Verdict]:
    verdicts = []
    for memory, (ratio, _) in MEMORIES.items():
        found = [value[0] for cell in cells_of(lines) if (value := ratio(cell))]
        lost = sum(value < 1 for value in found)
        reached = f"{len(found) - lost} of {len(found)} cells" if found else "not measured"
        verdicts.append(Verdict(f"not slower: {memory}", "in every cell", reached, not lost if found else None))
    return verdicts


def mean_over(lines: list[dict], ratio, mean: Mean) -> tuple[float | None, int]:
    """Of all types and places."""
    cells = [cell for cell in cells_of(lines) if mean.low <= cell["bytes"] <= mean.high]
    found = [value[0] for cell in cells if (value := ratio(cell))]
    return geomean(found), len(found)


def means(lines: list[dict]) -> list[Verdict]:
    verdicts = []
    for memory, (ratio, goals) in MEMORIES.items():
        for mean in goals.get(table_of(lines), ()):
            value, n = mean_over(lines, ratio, mean)
            reached = f"{value:.2f} ({n} cells)" if value else "not measured"
            met = value >= mean.factor if value else None
            what = f"geometric mean {mean.name}: {memory}"
            verdicts.append(Verdict(what, f"at least {mean.factor:g}", reached, met))
    return verdicts


def eager(lines: list[dict], c_us: float | None) -> list[Verdict]:
    found = next((line["eager_us"] for line in lines if "eager_us" in line), {})
    verdicts = []
    for what, us, goal in (("C", c_us, EAGER_C_US), ("PyTorch", found.get("tutti through torch"), EAGER_PYTHON_US)):
        reached = f"{us:.1f} us" if us else "not measured"
        met = us <= goal if us else None
        verdicts.append(Verdict(f"call by call from {what}, all_reduce of 1 KiB", f"at most {goal:g} us", reached, met))
    return verdicts


def verdicts(lines: list[dict], c_us: float | None = None) -> list[Verdict]:
    if ranks_of(lines) < 2 or not cells_of(lines):
        return []
    return [*times(lines), *not_slower(lines), *means(lines), *eager(lines, c_us)]


def many_cpus(found: Results, state: str) -> list[Verdict]:
    if found.head["machine"]["n_cpus"] < MANY_CPUS or MANY_RANKS not in found.worlds:
        return []
    told = []
    for size, memory, goal in MANY_CPUS_US:
        kinds = ("mapped",) if memory == "mapped" else ("pages", "huge")
        entries = [found.entry(state, MANY_RANKS, "all_reduce", size, SUBJECT, kind) for kind in kinds]
        us = min((entry.us for entry in entries if entry), default=None)
        reached = f"{us:.3g} us" if us else "not measured"
        what = f"64 ranks, all_reduce of {size} B, {memory}"
        told.append(Verdict(what, f"at most {goal:g} us", reached, us <= goal if us else None))
    return told
