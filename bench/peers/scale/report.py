# SPDX-License-Identifier: BSD-3-Clause
"""What bench/gpu_scale.sh tells at the end, from results.json alone: what became of each part, where a peer is faster,
which goals are missed, geometric means by range. As Markdown."""

from __future__ import annotations

from ..goals import Verdict
from ..gpu import goals as gpu_goals
from ..report import row_text, size_text, training_lines
from .source import source_text

MET = {True: "yes", False: "no", None: "-"}
ROWS_MOST = 60  # of a list; the rest is counted


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [row_text(head), row_text(["---"] * len(head)), *map(row_text, rows), ""] if rows else []


def shortened(head: list[str], rows: list[list[str]]) -> list[str]:
    more = [f"... and {len(rows) - ROWS_MOST} more.", ""] if len(rows) > ROWS_MOST else []
    return [*table(head, rows[:ROWS_MOST]), *more]


def machine_text(machine: dict) -> str:
    gpus = f"{machine['n_gpus']} x {machine['gpu']}" if machine["n_gpus"] else "no CUDA device"
    return f"{gpus}; {machine['cpu']}, {machine['n_cpus']} CPUs; {machine['kernel']}"


def cell_text(cell: dict) -> str:
    return f"{cell['op']} {size_text(cell['bytes'])}, {cell['dtype']}, {'in' if cell['in_place'] else 'out of'} place"


# ---- parts ----
def part_lines(results: dict) -> list[str]:
    rows = []
    for name in results["asked"]:
        part = results["parts"].get(name)
        status = [part["status"], f"{part['seconds']:.0f} of {part['limit_s']:.0f}"] if part else ["not begun", ""]
        told = (part or {}).get("why") or (part or {}).get("told") or (part or {}).get("without_torch") or ""
        rows.append([name, *status, told.replace("|", "/")])
    return table(["part", "", "seconds", ""], rows)


def contract_lines(part: dict) -> list[str]:
    rows = [[k, run["outcome"], f"{run['seconds']:.0f}", run["told"]] for k, run in part.get("runs", {}).items()]
    title = "## The contract suite, worlds of 1, 2, 3, 4 and 8 ranks"
    return [title, "", *table(["GPUs", "", "s", ""], rows)] if rows else []


# ---- GPUs ----
def goal_lines(found: list[Verdict]) -> list[str]:
    return table(["goal", "", "reached", "met"], [[v.what, v.goal, v.reached, MET[v.met]] for v in found])


def means_lines(lines: list[dict]) -> list[str]:
    """Of all ranges, those without a goal too."""
    rows = []
    for memory, (ratio, _) in gpu_goals.MEMORIES.items():
        for mean in gpu_goals.WINDOW_MEANS[2]:
            value, n = gpu_goals.mean_over(lines, ratio, mean)
            if value:
                rows.append([memory, mean.name, f"{value:.2f}", str(n)])
    return table(["peer over tutti, geometric mean", "bytes", "times", "cells"], rows)


def slower_lines(lines: list[dict]) -> list[str]:
    found = gpu_goals.slower(lines)
    rows = [[cell_text(cell), memory, peer, f"{ratio:.2f}"] for cell, memory, ratio, peer in found]
    return [f"A peer is faster in {len(found)} cells.", "", *shortened(["cell", "", "peer", "times"], rows)]


def missed_lines(lines: list[dict]) -> list[str]:
    if not gpu_goals.table_of(lines):
        return [f"Times and means are goals of {gpu_goals.DEVICE} alone, 2 or 4 of them.", ""]
    found = sorted(gpu_goals.missed(lines), key=lambda m: m.goal / m.us)
    rows = [[cell_text(m.cell), f"{m.us:.1f}", f"{m.goal:g}", f"{m.us / m.goal:.2f}"] for m in found]
    return [f"{len(found)} cells miss their time.", "", *shortened(["cell", "us", "goal", "times"], rows)]


def peers_lines(part: dict) -> list[str]:
    lines = part.get("lines", [])
    cells = gpu_goals.cells_of(lines)
    if not cells:
        return []
    text = ["## Against the other libraries on GPUs", ""]
    text += [f"{len(cells)} cells; tables are in gpu.md, plots in rest.tar.gz.", ""]
    text += goal_lines(gpu_goals.verdicts(lines, part.get("c_us"))) + means_lines(lines)
    text += slower_lines(lines) + missed_lines(lines)
    text += [f"{line['restarted']}." for line in lines if "restarted" in line]
    return text + [f"Not all cells were measured: {why}" for why in unfinished(lines)]


def unfinished(lines: list[dict]) -> list[str]:
    late = [f"time was up after {line['stopped_after_s']:.0f} s." for line in lines if "stopped_after_s" in line]
    return late + [f"{line['failed']}." for line in lines if "failed" in line]


# ---- the rest ----
def training_part(part: dict) -> list[str]:
    found = training_lines(part.get("world") or {}, "tutti", ["nccl"])
    return ["## Training", "", *found, ""] if found else []


def cpu_part(part: dict) -> list[str]:
    goals = [Verdict(*verdict) for verdict in part.get("goals", [])]
    text = goal_lines(goals)
    if part.get("files"):
        text = ["## CPUs", "", *text, "Tables are in cpu.md of rest.tar.gz.", ""]
    return text


def tune_part(part: dict) -> list[str]:
    if not part.get("constants"):
        return []
    rows = [[name, f"{value:.1f}"] for name, value in part["constants"].items()]
    told = f"In {part['file']}: the option gpu_tuning names it, or gpu_speed.c gets a row."
    return ["## What the choice of methods rests on", "", *table(["constant", ""], rows), told, ""]


TOLD = {
    "contract": contract_lines,
    "peers": peers_lines,
    "training": training_part,
    "cpu": cpu_part,
    "tune": tune_part,
}


def summary(results: dict) -> list[str]:
    text = [f"# {machine_text(results['machine'])}", "", f"{results['date']}, {source_text(results)}.", ""]
    text += part_lines(results)
    for name, told in TOLD.items():
        text += told(results["parts"].get(name, {}))
    while text and not text[-1]:
        text.pop()
    return text
