# SPDX-License-Identifier: BSD-3-Clause
"""Tells what bench/cpu_peers.py measured as Markdown, and keeps it in docs/performance.md: between two marks each
machine has a section, which a new run on such a machine replaces."""

from __future__ import annotations

import re
from pathlib import Path

from . import goals
from .plots import svg
from .programs import PEERS
from .report import row_text, size_text
from .results import BY_ONECCL, PRIVATE, SUBJECT, Results, mean_of, name_of, ranks_text, ratio_text, ratios

BEGIN, END = "<!-- cpu_peers: written by bench/cpu_peers.py -->", "<!-- cpu_peers: end -->"
TITLES = {name: (peer.title, peer.letter) for name, peer in PEERS.items()}
MEMORY_TITLES = {
    "pages": "private buffers in 4 KiB pages",
    "huge": "private buffers in huge pages",
    "mapped": "mapped buffers (tutti_mem_alloc), against the best peer's private ones",
}


def time_text(us: float | None) -> str:
    if us is None:
        return "-"
    value, unit = (us / 1e3, " ms") if us >= 1e3 else (us, "")
    return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}" if value >= 10 else f"{value:.2f}{unit}"


def table(head: list[str], rows: list[list[str]], align: str = "--:") -> list[str]:
    if not rows:
        return []
    return [row_text(head), row_text(["---", *(align for _ in head[1:])]), *map(row_text, rows), ""]


# ---- parts of a section ----
def peers_lines(results: Results, titles: dict[str, tuple[str, str]]) -> list[str]:
    told = dict(results.head["peers"])
    told.update((name, f"not measured: {why}") for name, why in results.head["missing"].items())
    for row in results.rows:
        if not row["operation"]:  # its ranks did not start
            told[row["peer"]] += f"; {ranks_text(row['world'])}: {row['reason']}"
    return table(["peer", "", "version"], [[*titles[name], text] for name, text in told.items()], "---")


def goal_lines(results: Results, state: str) -> list[str]:
    met = {True: "yes", False: "no", None: "-"}
    return table(
        ["goal", "", "reached", "met"],
        [[v.what, v.goal, v.reached, met[v.met]] for v in goals.verdicts(results, state)],
        "---",
    )


def matrix_lines(results: Results, state: str, world: str, memory: str) -> list[str]:
    """Ratios: a row an operation, a column a size."""
    found = {(r.operation, r.size): r for r in ratios(results, state, world, memory)}
    if not found:
        return []
    sizes = sorted({size for _, size in found if size})
    least = goals.least_ratio(results.head["machine"]["n_cpus"])

    def cell(operation: str, size: int) -> str:
        ratio = found.get((operation, size))
        if not ratio:
            return "-"
        text = ratio_text(ratio.value) + PEERS[ratio.peer].letter
        return f"**{text}**" if ratio.value < least else text

    operations = [op for op in results.operations(world) if any(size for o, size in found if o == op)]
    rows = [[op, *(cell(op, s) for s in sizes)] for op in operations]
    title = f"{ranks_text(world)}, {MEMORY_TITLES[memory]}"
    if ("barrier", 0) in found:
        title += f" (barrier: {cell('barrier', 0)})"
    return [f"{title}:", "", *table(["", *(size_text(s) for s in sizes)], rows)]


def lost_lines(results: Results, state: str) -> list[str]:
    lines, least = [], goals.least_ratio(results.head["machine"]["n_cpus"])
    for world in results.worlds:
        found = [r for memory in (*PRIVATE, "mapped") for r in ratios(results, state, world, memory)]
        lost = sorted((r for r in found if r.value < least), key=lambda r: r.value)
        if found:
            names = "; ".join(map(name_of, lost)) or "none"
            counted = f"{len(lost)} of {len(found)} cells"
            lines.append(f"- {ranks_text(world)}, slower than the best peer in {counted}: {names}.")
    return [*lines, ""] if lines else []


def speed_lines(results: Results, state: str) -> list[str]:
    """Absolute times of all_reduce on 2 ranks; the goals stand for one state of one kind of machine."""
    sizes = results.sizes("2", "all_reduce") if "2" in results.worlds else []
    if not sizes:
        return []

    def own(memory: str, peer: str = SUBJECT) -> list[str]:
        entries = [results.entry(state, "2", "all_reduce", s, peer, memory) for s in sizes]
        return [time_text(entry.us if entry else None) for entry in entries]

    def goal(values: tuple[float, ...]) -> list[str]:
        by_size = dict(zip(goals.SPEED_SIZES, values))
        return [time_text(by_size[s]) if s in by_size else "" for s in sizes]

    best = [results.best(state, "2", "all_reduce", s) for s in sizes]
    rows = [
        ["limit: concurrent copy", *(time_text(results.limit_us(state, "2", s)) for s in sizes)],
        ["best peer", *(f"{time_text(b[1].us)} {PEERS[b[0]].letter}" if b else "-" for b in best)],
    ]
    for memory in ("huge", "pages", "mapped"):
        rows.append([f"tutti, {memory}", *own(memory)])
        if state == goals.SPEED_STATE:
            rows.append([f"- goal, {memory}", *goal(goals.SPEED_US[memory])])
    if BY_ONECCL in results.head["peers"]:
        rows += [[PEERS[peer].title, *own("pages", peer)] for peer in ("oneccl", BY_ONECCL)]
    return ["all_reduce on 2 ranks, microseconds:", "", *table(["", *(size_text(s) for s in sizes)], rows)]


def state_lines(results: Results, state: str) -> list[str]:
    """A state of the machine that is not the main one, in short."""
    latency = results.latency[state]
    lines = [f"#### State {state}: a cache line takes {latency:.0f} ns", ""]
    for world in results.worlds:
        parts = []
        for memory in (*PRIVATE, "mapped"):
            found = ratios(results, state, world, memory)
            small = mean_of([r for r in found if r.size <= goals.MIB])
            large = mean_of([r for r in found if r.size > goals.MIB])
            told = [f"{ratio_text(v)} {where} 1 MiB" for v, where in ((small, "up to"), (large, "above")) if v]
            if told:
                parts.append(f"{memory} {' and '.join(told)}")
        if parts:
            lines.append(f"- {ranks_text(world)}, best peer over tutti, geometric means: {'; '.join(parts)}.")
    return [*lines, "", *speed_lines(results, state), *lost_lines(results, state)]


def machine_name(results: Results) -> str:
    machine = results.head["machine"]
    return f"{machine['cpu']}, {machine['n_cpus']} CPUs"


def picture_name(results: Results, operation: str) -> str:
    return f"cpu_peers_{results.head['machine']['n_cpus']}_{operation}.svg"


def drawn(results: Results) -> list[str]:
    operations = dict.fromkeys(op for world in results.worlds for op in results.operations(world))
    return [op for op in operations if any(len(results.sizes(w, op)) > 1 for w in results.worlds)]


def section(results: Results, pictures: bool) -> str:
    head = results.head
    if not results.state_names:
        return f"### {machine_name(results)}\n\nNothing was measured.\n"
    state, *others = results.state_names
    points = sum(e.points for rows in results.table.values() for cells in rows.values() for e in cells.values())
    dropped = sum(results.dropped.values())
    method = "fresh inputs" if head["fresh"] else "calls back to back"
    lines = [
        f"### {machine_name(results)}",
        "",
        f"{head['date']}, {head['kernel']}; `{head['command']}`. Float32, out of place, {method}; {points} points, and "
        f"{dropped} more dropped because the machine changed under them. Cache line one way: "
        + ", ".join(f"{ns:.0f} ns in state {name}" for name, ns in results.latency.items())
        + f". What follows is of state {state}.",
        "",
        *peers_lines(results, TITLES),
        *goal_lines(results, state),
        "How many times as fast as the best peer, whose letter follows (bold: slower than it; -: not measured):",
        "",
    ]
    for world in results.worlds:
        for memory in (*PRIVATE, "mapped"):
            lines += matrix_lines(results, state, world, memory)
    lines += lost_lines(results, state)
    lines += speed_lines(results, state)
    if results.wrong:
        wrong = {(r["peer"], r["operation"], size_text(r["size"]), ranks_text(r["world"])) for r in results.wrong}
        lines += [f"Wrong results, not counted: {'; '.join(map(' '.join, sorted(wrong)))}.", ""]
    if pictures:
        for operation in drawn(results):
            picture = picture_name(results, operation)
            lines += [f"![{operation}: time and bus bandwidth against size]({picture})", ""]
    for other in others:
        lines += state_lines(results, other)
    return "\n".join(lines).rstrip("\n") + "\n"


# ---- docs/performance.md ----
def with_section(page: str, name: str, text: str) -> str:
    """The page, with the section of this machine new or replaced."""
    if BEGIN not in page:
        page = f"{page.rstrip()}\n\n## CPUs of one host\n\n{BEGIN}\n{END}\n"
    before, rest = page.split(BEGIN, 1)
    inside, after = rest.split(END, 1)
    sections = dict(re.findall(r"<!-- machine: (.*?) -->\n(.*?)(?=<!-- machine: |\Z)", inside, re.S))
    sections[name] = text + "\n"
    body = "".join(f"<!-- machine: {key} -->\n{value}" for key, value in sections.items())
    return f"{before}{BEGIN}\n{body}{END}{after}"


def write_docs(results: Results, folder: Path) -> None:
    path = folder / "performance.md"
    page = path.read_text() if path.exists() else "# Performance\n"
    path.write_text(with_section(page, machine_name(results), section(results, pictures=True)))
    for operation in drawn(results):
        (folder / picture_name(results, operation)).write_text(svg(results, results.state_names[0], operation))
