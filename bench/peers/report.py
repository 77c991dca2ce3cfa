# SPDX-License-Identifier: BSD-3-Clause
"""What was measured, as Markdown: a table for each number of ranks, then what it comes to."""

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


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def time_text(entry: dict | None) -> str:
    if not entry or "median_us" not in entry:
        return "-"
    us = entry["median_us"]
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def ratio(entry: dict, other: str, subject: str, which: str = "median_us") -> float | None:
    """How many times faster the subject is."""
    a, b = entry.get(other, {}), entry.get(subject, {})
    return a[which] / b[which] if which in a and which in b else None


def ratio_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def geomean(values: list[float]) -> float | None:
    return exp(sum(map(log, values)) / len(values)) if values else None


def row_text(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(world: dict, subject: str, others: list[str]) -> list[str]:
    names = [subject, *others]
    lines = [
        row_text(["collective", "size", *(f"{n}, us" for n in names), *(f"{o} / {subject}" for o in others)]),
        row_text(["---", "--:", *("--:" for _ in range(len(names) + len(others)))]),
    ]
    for cell in world["cells"]:
        ratios = [ratio_text(ratio(cell["peers"], other, subject)) for other in others]
        times = [time_text(cell["peers"].get(name)) for name in names]
        lines.append(row_text([cell["operation"], size_text(cell["size"]), *times, *ratios]))
    return lines


def summary(worlds: dict[str, dict], subject: str, others: list[str]) -> dict:
    """For each other peer: the geometric means of the ratios, and the cells in which the subject is slower."""
    result = {}
    for other in others:
        small, large, lost = [], [], []
        for n, world in worlds.items():
            for cell in world["cells"]:
                value = ratio(cell["peers"], other, subject)
                if value is None:
                    continue
                (small if cell["size"] <= SMALL else large).append(value)
                if value < 1:
                    name = f"{cell['operation']} {size_text(cell['size'])}".strip()
                    lost.append({"cell": name, "ranks": int(n), "ratio": value})
        result[other] = {
            "small": geomean(small),
            "large": geomean(large),
            "cells": len(small) + len(large),
            "lost": lost,
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


def call_lines(world: dict, subject: str) -> list[str]:
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
    for peer, row in world.get("overlap", {}).items():
        lines.append(
            f"- Overlap of {peer}, all_reduce of 64 MiB ({row['alone'] / 1e3:.0f} ms alone): "
            f"{row['hidden_compute']:.0%} hidden behind computing, {row['hidden_sleep']:.0%} behind a sleeping caller."
        )
    return lines


def training_lines(world: dict, subject: str, others: list[str]) -> list[str]:
    if not world.get("training"):
        return []
    names = [subject, *others]
    lines = [row_text(["step of", *(f"{n}, ms" for n in names)]), row_text(["---", *("--:" for _ in names)])]
    for kind, row in world["training"].items():
        cells = []
        for name in names:
            entry = row.get(name, {})
            cells.append(f"{entry['median_us'] / 1e3:.1f}" if "median_us" in entry else entry.get("reason", "-"))
        lines.append(row_text([{"ddp": "DDP", "fsdp2": "FSDP2"}[kind], *cells]))
    return lines


def markdown(result: dict) -> str:
    subject, others = result["peers"][0], result["peers"][1:]
    lines = [f"PyTorch {result['torch']}, {result['cpu']}, {result['n_cpus']} CPUs; microseconds a call, medians.", ""]
    for n, world in result["worlds"].items():
        lines += [f"### {n} ranks", ""]
        if world["cells"]:
            lines += [*table(world, subject, others), ""]
        for part in (call_lines(world, subject), training_lines(world, subject, others)):
            lines += [*part, ""] if part else []
    lines += summary_lines(result["summary"], subject)
    return "\n".join(lines) + "\n"
