# SPDX-License-Identifier: BSD-3-Clause
"""What tutti is meant to reach against its peers on one host, as data, and how a run compares."""

from __future__ import annotations

from dataclasses import dataclass

from .report import size_text
from .results import LIMITS, PRIVATE, SUBJECT, Results, mean_of, ranks_text, ratios

KIB, MIB = 1 << 10, 1 << 20
OPEN_MPI = ["openmpi", "openmpi_sm", "openmpi_han"]
MANY_CPUS = 16  # from here on the goals against Open MPI stand, by number of ranks


@dataclass(frozen=True)
class Verdict:
    what: str
    goal: str
    reached: str
    met: bool | None  # None: not measured


# ---- every cell: not slower than the best peer ----
LEAST_RATIO = 1.0
LEAST_RATIO_MANY_CPUS = 1 / 1.2


def least_ratio(n_cpus: int) -> float:
    return LEAST_RATIO_MANY_CPUS if n_cpus >= MANY_CPUS else LEAST_RATIO


# ---- geometric means over all cells: (memories, sizes from, to, factor) ----
MEANS = (
    ("private buffers up to 1 MiB", PRIVATE, 0, MIB, 2.0),
    ("mapped buffers up to 1 MiB", ("mapped",), 0, MIB, 2.0),
    ("private buffers above 1 MiB", PRIVATE, MIB + 1, None, 1.5),
    ("mapped buffers above 1 MiB", ("mapped",), MIB + 1, None, 2.5),
)


# ---- on a machine of many CPUs, by number of ranks, over the sizes, against the best setting of Open MPI ----
@dataclass(frozen=True)
class MeanGoal:
    operation: str
    memory: str  # private: pages and huge pages
    factor: float
    ranks: tuple[int, int] = (2, 1 << 20)
    size_from: int = 0

    @property
    def name(self) -> str:
        size = f" from {size_text(self.size_from)}" if self.size_from else ""
        memory = "" if self.operation == "barrier" else f", {self.memory}"
        return f"{self.operation}{size}{memory}"


MEAN_GOALS = (
    MeanGoal("all_reduce", "private", 2.0, ranks=(2, 7)),
    MeanGoal("all_reduce", "private", 3.0, ranks=(8, 1 << 20)),
    MeanGoal("all_reduce", "mapped", 3.0, size_from=4 * KIB),
    MeanGoal("barrier", "private", 1.6),
    MeanGoal("reduce_scatter", "private", 3.0, size_from=MIB),
    MeanGoal("reduce_scatter", "mapped", 8.0, size_from=MIB),
    MeanGoal("all_gather", "private", 1.5),
    MeanGoal("all_gather", "mapped", 2.2),
    MeanGoal("broadcast", "private", 1.3, ranks=(2, 15)),
    MeanGoal("broadcast", "private", 2.0, ranks=(16, 1 << 20)),
    MeanGoal("all_to_all", "private", 1.3),
    MeanGoal("all_to_all", "mapped", 1.9),
)

# ---- microseconds: all_reduce of 8 B where a cache line takes 145 to 210 ns; all_reduce by 2 ranks in state C ----
SMALLEST_US = {2: 0.34, 8: 0.56, 32: 1.12}
SMALLEST_LATENCY_NS = (145.0, 210.0)

SPEED_SIZES = (8, 512, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
SPEED_US = {
    "huge": (0.08, 0.11, 0.23, 1.2, 9, 42, 170, 1200, 6400, 25000),
    "pages": (0.08, 0.11, 0.23, 1.2, 10, 46, 185, 1250, 6600, 27000),
    "mapped": (0.08, 0.11, 0.15, 0.6, 4.7, 19, 82, 1000, 4300, 18000),
}
SPEED_BEST_PEER_US = (0.14, 0.19, 0.46, 1.9, 15, 51, 187, 1750, 9600, 39000)
SPEED_STATE = "C"

# ---- mapped all_reduce: at most so many times a concurrent non-temporal copy ----
COPY_FACTOR, COPY_FROM = 1.2, 16 * MIB


def private_mean(results: Results, state: str, world: str, memory: str, peers: list[str] | None, accept):
    memories = PRIVATE if memory == "private" else (memory,)
    found = [r for m in memories for r in ratios(results, state, world, m, peers) if accept(r)]
    return mean_of(found), len(found)


def verdict_of_mean(what: str, factor: float, value: float | None, cells: int) -> Verdict:
    reached = f"{value:.2f} ({cells} cells)" if value else "not measured"
    return Verdict(what, f"at least {factor:g}", reached, value >= factor if value else None)


def means(results: Results, state: str) -> list[Verdict]:
    verdicts = []
    for world in results.worlds:
        for name, memories, low, high, factor in MEANS:
            memory = "mapped" if memories == ("mapped",) else "private"
            accept = lambda r: r.size >= low and (high is None or r.size <= high)  # noqa: E731
            value, cells = private_mean(results, state, world, memory, None, accept)
            verdicts.append(verdict_of_mean(f"{ranks_text(world)}, {name}", factor, value, cells))
    return verdicts


def means_many_cpus(results: Results, state: str) -> list[Verdict]:
    verdicts = []
    for world in results.worlds if results.head["machine"]["n_cpus"] >= MANY_CPUS else []:
        for goal in MEAN_GOALS:
            if not goal.ranks[0] <= results.ranks(world) <= goal.ranks[1]:
                continue
            accept = lambda r: r.operation == goal.operation and r.size >= goal.size_from  # noqa: E731
            value, cells = private_mean(results, state, world, goal.memory, OPEN_MPI, accept)
            what = f"{ranks_text(world)}, {goal.name}, against Open MPI"
            verdicts.append(verdict_of_mean(what, goal.factor, value, cells))
    return verdicts


def cells(results: Results, state: str) -> list[Verdict]:
    least, verdicts = least_ratio(results.head["machine"]["n_cpus"]), []
    for world in results.worlds:
        found = [r for memory in (*PRIVATE, "mapped") for r in ratios(results, state, world, memory)]
        lost = sum(r.value < least for r in found)
        reached = f"{len(found) - lost} of {len(found)} cells" if found else "not measured"
        goal = "in every cell" + ("" if least == 1 else ", within 1.2 counts as equal")
        met = not lost if found else None
        verdicts.append(Verdict(f"{ranks_text(world)}, not slower than the best peer", goal, reached, met))
    return verdicts


def smallest(results: Results, state: str) -> list[Verdict]:
    latency, verdicts = results.latency.get(state, 0.0), []
    if not SMALLEST_LATENCY_NS[0] <= latency <= SMALLEST_LATENCY_NS[1]:
        return []
    for n, goal in SMALLEST_US.items():
        entry = results.entry(state, str(n), "all_reduce", 8, SUBJECT, "pages")
        reached = f"{entry.us:.2f} us" if entry else "not measured"
        what = f"{n} ranks, all_reduce of 8 B (cache line {latency:.0f} ns)"
        verdicts.append(Verdict(what, f"at most {goal:g} us", reached, entry.us <= goal if entry else None))
    return verdicts


def against_copy(results: Results, state: str) -> list[Verdict]:
    verdicts = []
    for world in results.worlds:
        for size in (s for s in results.sizes(world, "all_reduce") if s >= COPY_FROM):
            entry = results.entry(state, world, "all_reduce", size, SUBJECT, "mapped")
            copy = results.limit_us(state, world, size, LIMITS[1:])
            value = entry.us / copy if entry and copy else None
            verdicts.append(
                Verdict(
                    f"{ranks_text(world)}, mapped all_reduce of {size_text(size)} over a concurrent non-temporal copy",
                    f"at most {COPY_FACTOR:g}",
                    f"{value:.2f}" if value else "not measured",
                    value <= COPY_FACTOR if value else None,
                )
            )
    return verdicts


def crowded(results: Results, state: str) -> list[Verdict]:
    """More ranks than CPUs: with whichever pinning suits each best."""
    n_cpus, verdicts = results.head["machine"]["n_cpus"], []
    for n in sorted({results.ranks(w) for w in results.worlds if results.ranks(w) >= 4 * n_cpus}):
        worlds = [w for w in results.worlds if results.ranks(w) == n]
        mine = [results.entry(state, w, "all_reduce", 8, SUBJECT, "pages") for w in worlds]
        best = [results.best(state, w, "all_reduce", 8) for w in worlds]
        own, other = min((e.us for e in mine if e), default=None), min((b[1].us for b in best if b), default=None)
        reached = f"{own:.3g} us against {other:.3g} us" if own and other else "not measured"
        met = own <= other if own and other else None
        verdicts.append(Verdict(f"{n} ranks on {n_cpus} CPUs, all_reduce of 8 B", "not slower", reached, met))
    return verdicts


def verdicts(results: Results, state: str) -> list[Verdict]:
    parts = (cells, means, means_many_cpus, smallest, against_copy, crowded)
    return [verdict for part in parts for verdict in part(results, state)]
