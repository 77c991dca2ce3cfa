# SPDX-License-Identifier: BSD-3-Clause
"""Words of the reports: sizes, times, ratios and tables as Markdown; and the page of bench/torch_peers.py."""

from __future__ import annotations

import platform
from math import exp, log

SMALL = 64 << 10  # up to here a call is a matter of latency
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    unit = UNITS.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def size_text(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B" if size else ""


def time_text(us: float | None) -> str:
    if us is None:
        return "-"
    value, unit = (us / 1e3, " ms") if us >= 1e3 else (us, "")
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}{unit}"


def ratio_text(value: float | None) -> str:
    return "-" if value is None else format(value, ".0f" if value >= 9.95 else ".2g")


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def geomean(values: list[float]) -> float | None:
    return exp(sum(map(log, values)) / len(values)) if values else None


def row_text(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: list[str], rows: list[list[str]], align: str = "--:") -> list[str]:
    if not rows:
        return []
    return [row_text(head), row_text(["---", *(align for _ in head[1:])]), *map(row_text, rows), ""]


# ---- the page of bench/torch_peers.py ----
def median_of(peers: dict, name: str) -> float | None:
    return peers.get(name, {}).get("median_us")


def ratio(peers: dict, other: str, subject: str) -> float | None:
    """How many times faster the subject is."""
    theirs, own = median_of(peers, other), median_of(peers, subject)
    return theirs / own if theirs and own else None


def cell_lines(world: dict, subject: str, others: list[str]) -> list[str]:
    names, rows = [subject, *others], []
    for cell in world["cells"]:
        times = [time_text(median_of(cell["peers"], name)) for name in names]
        ratios = [ratio_text(ratio(cell["peers"], other, subject)) for other in others]
        rows.append([cell["operation"], size_text(cell["size"]), *times, *ratios])
    return table(["collective", "size", *(f"{n}, us" for n in names), *(f"{o} / {subject}" for o in others)], rows)


def summary(worlds: dict[str, dict], subject: str, others: list[str]) -> dict:
    """For each other peer: the geometric means of the ratios, and the cells in which the subject is slower."""
    result = {}
    for other in others:
        found = [(n, cell, ratio(cell["peers"], other, subject)) for n, w in worlds.items() for cell in w["cells"]]
        cells = [triple for triple in found if triple[2] is not None]
        name = lambda cell: f"{cell['operation']} {size_text(cell['size'])}".strip()  # noqa: E731
        result[other] = {
            "small": geomean([value for _, cell, value in cells if cell["size"] <= SMALL]),
            "large": geomean([value for _, cell, value in cells if cell["size"] > SMALL]),
            "cells": len(cells),
            "lost": [{"cell": name(cell), "ranks": int(n), "ratio": value} for n, cell, value in cells if value < 1],
        }
    return result


def summary_lines(totals: dict, subject: str) -> list[str]:
    lines = []
    for other, t in totals.items():
        if not t["cells"]:
            continue
        parts = [(t["small"], "up to 64 KiB"), (t["large"], "above 64 KiB")]
        told = ", ".join(f"{value:.1f} times as fast {where}" for value, where in parts if value)
        lines.append(f"- {subject} against {other}, geometric mean over {t['cells']} cells: {told}.")
        lost = ", ".join(f"{c['cell']} on {c['ranks']} ranks ({c['ratio']:.2f})" for c in t["lost"])
        lines.append(f"  Slower than {other} in: {lost or 'no cell'}.")
    return lines


def call_lines(world: dict) -> list[str]:
    lines = []
    if parts := world.get("overhead"):
        for where, which in (("alone", "median_us"), ("alone", "min_us"), ("all", "median_us"), ("all", "min_us")):
            p = parts[where][which]
            name = "in a group of one rank" if where == "alone" else "among all ranks"
            lines.append(
                f"- A call of 8 bytes {name}, {'median' if which == 'median_us' else 'best block'}: "
                f"{p['torch']:.2f} us through PyTorch = {p['c']:.2f} the C library + {p['fake']:.2f} PyTorch on its "
                f"backend fake + {p['overhead']:.2f} of the binding; {p['comms']:.2f} us by torchcomms' API."
            )
    if found := world.get("enqueued"):
        told = ", ".join(f"{what} {us:.2f}" if isinstance(us, float) else f"{what}: {us}" for what, us in found.items())
        lines.append(f"- The host enqueues an all_reduce of 1 KiB in so many us: {told}.")
    for peer, row in world.get("overlap", {}).items():
        lines.append(
            f"- Overlap of {peer}, all_reduce of 64 MiB ({row['alone'] / 1e3:.0f} ms alone): "
            f"{row['hidden_compute']:.0%} hidden behind computing, {row['hidden_sleep']:.0%} behind a sleeping caller."
        )
    return [*lines, ""] if lines else []


PROFILED = ("step", "computing", "communicating", "exposed", "idle", "calls")


def training_lines(world: dict, names: list[str]) -> list[str]:
    def cell(entry: dict) -> str:
        return f"{entry['median_us'] / 1e3:.1f}" if "median_us" in entry else entry.get("reason", "-")

    steps = world.get("training", {})
    names = [name for name in ("alone", *names, "tutti, own buckets") if any(name in row for row in steps.values())]
    rows = [[kind, *(cell(row.get(n, {})) for n in names)] for kind, row in steps.items()]
    return table(["step of", *(f"{n}, ms" for n in names)], rows) + profile_lines(steps)


def profile_lines(steps: dict[str, dict]) -> list[str]:
    rows = []
    for kind, row in steps.items():
        for peer, shares in ((peer, found["profile"]) for peer, found in row.items() if "profile" in found):
            rows.append([f"{kind}, {peer}", *(time_text(shares[part]) for part in PROFILED), str(shares["launches"])])
    return table(["us of a step, first rank", *PROFILED, "launches"], rows)


def markdown(result: dict) -> str:
    subject, *others = result["peers"]
    lines = [f"PyTorch {result['torch']}, {result['cpu']}, {result['n_cpus']} CPUs; microseconds a call, medians.", ""]
    for n, world in result["worlds"].items():
        lines += [f"### {n} ranks", "", *cell_lines(world, subject, others), *call_lines(world)]
        lines += training_lines(world, result["peers"])
    return "\n".join([*lines, *summary_lines(result["summary"], subject)]) + "\n"
