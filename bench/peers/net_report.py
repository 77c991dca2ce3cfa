# SPDX-License-Identifier: BSD-3-Clause
"""Tells what bench/net_peers.py measured as Markdown, and keeps it in docs/performance.md between two marks."""

from __future__ import annotations

from pathlib import Path

from .net_programs import TITLES
from .pages import machine_name, peers_lines, table, time_text
from .report import size_text
from .results import SUBJECT, Ratio, Results, mean_of, name_of, ranks_text, ratio_text, ratios

BEGIN, END = "<!-- net_peers: written by bench/net_peers.py -->", "<!-- net_peers: end -->"
EQUAL = 1 / 1.1  # as fast as the best peer, from here on
SMALL = 64 << 10
GOALS = {2: (1.25, 1.4), 4: (1.25, 1.2), 8: (1.25, 1.2)}  # by ranks: geometric means up to SMALL, and above


def goal_lines(found: dict[str, list[Ratio]], results: Results) -> list[str]:
    rows = []
    for world, every in found.items():
        for i, (what, of_size) in enumerate((("up to 64 KiB", True), ("above", False))):
            part = [r for r in every if (r.size <= SMALL) == of_size]
            goal, mean = GOALS.get(results.ranks(world), (None, None))[i], mean_of(part)
            met = "-" if goal is None or mean is None else "yes" if mean >= goal else "no"
            rows.append([ranks_text(world), what, f"{goal or '-'}", f"{mean:.2f}" if mean else "-", met])
        lost = sum(r.value < EQUAL for r in every)
        met = "-" if not every else "no" if lost else "yes"
        rows.append([ranks_text(world), "no cell slower", "", f"{len(every) - lost} of {len(every)}", met])
    return table(["geometric mean over the best peer", "", "goal", "reached", "met"], rows, "---")


def matrix_lines(world: str, every: list[Ratio], results: Results) -> list[str]:
    found = {(r.operation, r.size): r for r in every}
    all_sizes = sorted({size for _, size in found})

    def cell(operation: str, size: int) -> str:
        ratio = found.get((operation, size))
        if not ratio:
            return "-"
        text = ratio_text(ratio.value) + TITLES[ratio.peer][1]
        return f"**{text}**" if ratio.value < EQUAL else text

    rows = [[op, *(cell(op, s) for s in all_sizes)] for op in results.operations(world)]
    return [f"{ranks_text(world)}:", "", *table(["", *map(size_text, all_sizes)], rows)] if found else []


def lost_lines(found: dict[str, list[Ratio]]) -> list[str]:
    lines = []
    for world, every in found.items():
        lost = sorted((r for r in every if r.value < EQUAL), key=lambda r: r.value)
        text = "; ".join(map(name_of, lost)) or "none"
        lines.append(f"- {ranks_text(world)}, slower than the best peer in {len(lost)} of {len(every)} cells: {text}.")
    return [*lines, ""]


def speed_lines(results: Results, state: str) -> list[str]:
    """Absolute times of all_reduce."""
    rows, all_sizes = [], sorted({s for w in results.worlds for s in results.sizes(w, "all_reduce")})
    for world in results.worlds:
        entries = [results.entry(state, world, "all_reduce", s, SUBJECT, "pages") for s in all_sizes]
        best = [results.best(state, world, "all_reduce", s, ("pages",)) for s in all_sizes]
        rows.append([f"{ranks_text(world)}: tutti", *(time_text(e.us if e else None) for e in entries)])
        rows.append(["- best peer", *(f"{time_text(b[1].us)} {TITLES[b[0]][1]}" if b else "-" for b in best)])
    return ["all_reduce, microseconds:", "", *table(["", *map(size_text, all_sizes)], rows)] if rows else []


def section(results: Results) -> str:
    head = results.head
    if not results.state_names:
        return f"### {machine_name(results)}\n\nNothing was measured.\n"
    state = results.state_names[0]
    points = sum(e.points for rows in results.table.values() for cells in rows.values() for e in cells.values())
    found = {world: ratios(results, state, world, "pages") for world in results.worlds}
    lines = [
        f"### {machine_name(results)}",
        "",
        f"{head['date']}, {head['kernel']}; `{head['command']}`. Float32, out of place, calls back to back; lo: "
        f"processes on the loopback interface, hosts: one rank on each of so many network namespaces. {points} points, "
        f"and {sum(results.dropped.values())} more dropped because the machine changed under them; state {state}, in "
        f"which a cache line takes {results.latency[state]:.0f} ns one way.",
        "",
        *peers_lines(results, TITLES),
        *goal_lines(found, results),
        "How many times as fast as the best peer, whose letter follows (bold: slower by more than a tenth; -: not "
        "measured):",
        "",
    ]
    for world, every in found.items():
        lines += matrix_lines(world, every, results)
    lines += lost_lines(found) + speed_lines(results, state)
    if results.wrong:
        wrong = {(r["peer"], r["operation"], size_text(r["size"]), ranks_text(r["world"])) for r in results.wrong}
        lines += [f"Wrong results, not counted: {'; '.join(map(' '.join, sorted(wrong)))}.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def with_section(page: str, text: str) -> str:
    """The page, with what is between the marks replaced."""
    if BEGIN not in page:
        page = f"{page.rstrip()}\n\n## Between hosts\n\n{BEGIN}\n{END}\n"
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{text}{END}{rest.split(END, 1)[1]}"


def write_docs(results: Results, folder: Path) -> None:
    path = folder / "performance.md"
    path.write_text(with_section(path.read_text() if path.exists() else "# Performance\n", section(results)))
