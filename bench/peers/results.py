# SPDX-License-Identifier: BSD-3-Clause
"""What bench/cpu_peers.py or bench/net_peers.py measured, read back from its lines of JSON: points sorted by the state
in which the machine was, their medians, and how many times faster the subject is than the best peer."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .report import geomean, ratio_text, size_text

SUBJECT = "tutti"
BY_ONECCL = "tutti_oneccl"  # beside oneCCL itself: no rival
LIMITS = ("copy", "stream")  # the harness's own operations
LIMITS_FROM = 4 << 10  # below, a copy takes less than a cache line's way
PRIVATE, PRIVATE_APART = ("pages", "huge"), ("apart", "huge_apart")
HUGE_FROM = 64 << 10  # smaller buffers are not measured in huge pages
CALM = 0.05  # the part of a point's time in which a process waited for a CPU, at most, unless ranks outnumber CPUs
STRADDLE = 1.5

# One way of a cache line between ranks 0 and 1, by what the two CPUs share, on the machines of this vendor: a core, an
# L3, neither. Elsewhere a state is the range of latencies within this factor of its lowest.
STATES = {"AuthenticAMD": (("S", 30.0), ("C", 110.0), ("X", float("inf")))}
STATE_FACTOR = 1.8

Key = tuple  # a row's: world, operation, size


@dataclass(frozen=True)
class Kind:
    """What the harness is told of a point's memory (private in 4 KiB or huge pages, mapped) and of the way in which
    calls follow one another: back to back, apart (all ranks begin each at one instant), behind
    the peer's own barrier, fresh (and inputs written)."""

    memory: str
    way: str
    title: str
    rivals: tuple[str, ...]  # kinds of the peers that this one of the subject is compared with


KINDS = {
    "pages": Kind("pages", "back", "private buffers", ("pages",)),
    "huge": Kind("huge", "back", "private, huge pages", ("huge",)),
    "mapped": Kind("mapped", "back", "mapped buffers", PRIVATE),
    "apart": Kind("pages", "apart", "private buffers, calls apart", ("apart",)),
    "huge_apart": Kind("huge", "apart", "private, huge pages, calls apart", ("huge_apart",)),
    "mapped_apart": Kind("mapped", "apart", "mapped buffers, calls apart", PRIVATE_APART),
    "malloc": Kind("malloc", "barrier", "malloc's buffers, the peer's own barrier before each call", ("malloc",)),
    "fresh": Kind("pages", "fresh", "private buffers, inputs written before each call", ("fresh",)),
}


@dataclass(frozen=True)
class Entry:
    """One peer in one row and state."""

    us: float
    min_us: float
    points: int


@dataclass
class Results:
    head: dict
    rows: list[dict]
    state_names: list[str] = field(default_factory=list)  # the most frequent one first
    table: dict = field(default_factory=dict)  # state -> Key -> (peer, kind) -> Entry
    measured: dict = field(default_factory=dict)  # Key -> the (peer, kind) that have points in any state
    latency: dict = field(default_factory=dict)  # state -> median of the probes
    dropped: Counter = field(default_factory=Counter)
    wrong: list[dict] = field(default_factory=list)

    @property
    def worlds(self) -> list[str]:
        return list(dict.fromkeys(row["world"] for row in self.rows))

    @property
    def peers(self) -> list[str]:
        return [name for name in self.head["peers"] if name not in (SUBJECT, BY_ONECCL)]

    def ranks(self, world: str) -> int:
        return int(world.split()[0])

    def operations(self, world: str) -> list[str]:
        found = dict.fromkeys(r["operation"] for r in self.rows if r["world"] == world)
        order = self.head["operations"]
        return sorted((op for op in found if op in order), key=order.index)

    def sizes(self, world: str, operation: str | None = None) -> list[int]:
        rows = (r for r in self.rows if r["world"] == world and r["operation"] not in LIMITS)
        return sorted({r["size"] for r in rows if r["size"] and operation in (None, r["operation"])})

    def entry(self, state: str, world: str, operation: str, size: int, peer: str, kind: str) -> Entry | None:
        return self.table.get(state, {}).get((world, operation, size), {}).get((peer, kind))

    def best(
        self, state: str, world: str, operation: str, size: int, kinds=PRIVATE, peers: list[str] | None = None
    ) -> tuple[str, Entry] | None:
        """The fastest peer with any of the kinds; None also while one of those that were measured in other
        states has no point in this one: it might be the fastest."""
        cell = self.table.get(state, {}).get((world, operation, size), {})
        allowed = self.peers if peers is None else peers
        expected = [w for w in self.measured.get((world, operation, size), ()) if w[0] in allowed and w[1] in kinds]
        if not expected or any(who not in cell for who in expected):
            return None
        return min(((who[0], cell[who]) for who in expected), key=lambda found: found[1].us)

    def limit_us(self, state: str, world: str, size: int) -> float | None:
        """What all ranks need to copy so many bytes at once, and at least a cache line's way."""
        found = [self.entry(state, world, op, size, SUBJECT, "huge") for op in LIMITS]
        times, way = [entry.us for entry in found if entry], self.latency.get(state, 0.0) / 1e3
        return max(min(times), way) if times else None


@dataclass(frozen=True)
class Ratio:
    """Best peer over subject, with one kind of the subject's and its rivals of the peers'."""

    world: str
    operation: str
    size: int
    kind: str
    value: float
    peer: str
    us: float


def load(paths: list[Path]) -> Results:
    head, rows = None, []
    for path in paths:
        with open(path) as file:
            for line in file:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of an interrupted run
                if "run" in row:
                    head = merged(head, row["run"])
                else:
                    rows.append(row)
    if head is None:
        raise ValueError(f"no run in {', '.join(map(str, paths))}")
    results = Results(head, rows)
    sort_out(results)
    return results


def merged(head: dict | None, other: dict) -> dict:
    if head is None:
        return other
    peers = {**other["peers"], **head["peers"]}
    missing = {name: why for name, why in {**head["missing"], **other["missing"]}.items() if name not in peers}
    operations = list(dict.fromkeys([*head["operations"], *other["operations"]]))
    return {**other, "peers": peers, "missing": missing, "operations": operations}


# ---- states ----
def straddles(row: dict) -> bool:
    before, after = row["probe_ns"]
    return max(before, after) > STRADDLE * min(before, after)


def state_finder(rows: list[dict], vendor: str):
    """Latency -> name of the state."""
    named = STATES.get(vendor)
    if named:
        return lambda ns: next(name for name, most in named if ns < most)
    lows: list[float] = []
    for ns in sorted(min(r["probe_ns"]) for r in rows if "us" in r and min(r["probe_ns"]) > 0):
        if not lows or ns > STATE_FACTOR * lows[-1]:
            lows.append(ns)
    names = {low: f"{low:.0f} ns" for low in lows}
    return lambda ns: names[max((low for low in lows if low <= ns), default=lows[0])] if lows else "one"


def state_of(row: dict, find) -> str | None:
    """None: the machine changed meanwhile."""
    before, after = row["probe_ns"]
    if before == after == 0:
        return find(0.0)  # one CPU: nothing to probe
    if min(before, after) <= 0 or find(before) != find(after) or straddles(row):
        return None
    return find(before)


def sort_out(results: Results) -> None:
    """Fills the tables: medians over the points of a row and state, the calm ones if there are any."""
    find = state_finder(results.rows, results.head["machine"].get("vendor", ""))
    groups: dict = defaultdict(list)
    probes: dict = defaultdict(list)
    for row in results.rows:
        key, who = (row["world"], row["operation"], row["size"]), (row["peer"], row["kind"])
        if "us" not in row:
            continue
        if row.get("wrong"):
            results.wrong.append(row)
            continue
        results.measured.setdefault(key, set()).add(who)
        state = state_of(row, find)
        if state is None:
            results.dropped[row["world"]] += 1
            continue
        groups[state, key, who].append(row)
        probes[state] += row["probe_ns"]
    for (state, key, who), points in groups.items():
        calm = [p for p in points if p.get("pressure", 0.0) <= CALM] or points
        entry = Entry(median(p["us"] for p in calm), min(p["min_us"] for p in calm), len(calm))
        results.table.setdefault(state, {}).setdefault(key, {})[who] = entry
    results.latency = {state: median(values) for state, values in probes.items()}
    count = Counter({state: len(values) for state, values in probes.items()})
    results.state_names = [state for state, _ in count.most_common()]


# ---- ratios ----
def ratios(results: Results, state: str, world: str, kind: str, peers: list[str] | None = None) -> list[Ratio]:
    found = []
    for operation in results.operations(world):
        for size in results.sizes(world, operation) or [0]:
            entry = results.entry(state, world, operation, size, SUBJECT, kind)
            best = results.best(state, world, operation, size, KINDS[kind].rivals, peers)
            if entry and best:
                value = best[1].us / entry.us
                found.append(Ratio(world, operation, size, kind, value, best[0], entry.us))
    return found


def mean_of(found: list[Ratio]) -> float | None:
    return geomean([ratio.value for ratio in found])


def name_of(ratio: Ratio) -> str:
    kind = KINDS[ratio.kind]
    memory = {"pages": "", "huge": ", huge pages", "mapped": ", mapped", "malloc": ", malloc"}[kind.memory]
    memory += {"back": "", "apart": ", apart", "barrier": ", own barrier", "fresh": ", fresh"}[kind.way]
    size = f" {size_text(ratio.size)}" if ratio.size else ""
    return f"{ratio.operation}{size}{memory} ({ratio_text(ratio.value)})"


def ranks_text(world: str) -> str:
    """A world's name in words."""
    n, *how = world.split()
    return ", ".join([f"{n} ranks", *how])
