# SPDX-License-Identifier: BSD-3-Clause
"""Tells what bench/cpu_peers.py and bench/net_peers.py measured as Markdown, and keeps it in docs/performance.md: each
of the two has marks there, and between them each machine has a section, which a new run on such a machine replaces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .plots import Line, svg
from .report import ratio_text, size_text, table, time_text
from .results import KINDS, SUBJECT, Ratio, Results, mean_of, name_of, ranks_text, ratios


@dataclass(frozen=True)
class Page:
    """What the pages of the two programs differ in."""

    mark: str  # the program's name, which its marks and pictures bear
    heading: str  # above its part of the page
    titles: dict[str, tuple[str, str]]  # each peer's, and its letter in tables
    kinds: tuple[str, ...]  # one of results.KINDS
    small: int  # means are of sizes up to here, and of those above
    equal: float  # as fast as the best peer, from this ratio on
    about: str
    pictures: bool = False

    @property
    def begin(self) -> str:
        return f"<!-- {self.mark}: written by bench/{self.mark}.py -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.mark}: end -->"


# ---- parts of a section ----
def peers_lines(page: Page, results: Results) -> list[str]:
    told = dict(results.head["peers"])
    told.update((name, f"not measured: {why}") for name, why in results.head["missing"].items())
    for row in results.rows:
        if not row["operation"]:  # its ranks did not start
            told[row["peer"]] += f"; {ranks_text(row['world'])}: {row['reason']}"
    return table(["peer", "", "version"], [[*page.titles[name], text] for name, text in told.items()], "---")


def mean_lines(page: Page, results: Results, state: str) -> list[str]:
    rows = []
    for world in results.worlds:
        for kind in page.kinds:
            found = ratios(results, state, world, kind)
            if not found:
                continue
            means = (mean_of([r for r in found if (r.size <= page.small) == small]) for small in (True, False))
            even = sum(r.value >= page.equal for r in found)
            rows.append([ranks_text(world), KINDS[kind].title, *map(ratio_text, means), f"{even} of {len(found)}"])
    size = size_text(page.small)
    head = ["geometric mean over the best peer", "", f"up to {size}", "above", "not slower"]
    return table(head, rows)


def matrix_lines(page: Page, results: Results, state: str, world: str, kind: str) -> list[str]:
    """Ratios: a row an operation, a column a size."""
    found = {(r.operation, r.size): r for r in ratios(results, state, world, kind)}
    sizes = sorted({size for _, size in found if size})

    def cell(ratio: Ratio | None) -> str:
        if not ratio:
            return "-"
        text = ratio_text(ratio.value) + page.titles[ratio.peer][1]
        return f"**{text}**" if ratio.value < page.equal else text

    operations = [op for op in results.operations(world) if any(size for o, size in found if o == op)]
    rows = [[op, *(cell(found.get((op, s))) for s in sizes)] for op in operations]
    barrier = f" (barrier: {cell(found['barrier', 0])})" if ("barrier", 0) in found else ""
    title = f"{ranks_text(world)}, {KINDS[kind].title}{barrier}:"
    return [title, "", *table(["", *map(size_text, sizes)], rows)] if found else []


def lost_lines(page: Page, results: Results, state: str) -> list[str]:
    lines = []
    for world in results.worlds:
        found = [r for kind in page.kinds for r in ratios(results, state, world, kind)]
        lost = sorted((r for r in found if r.value < page.equal), key=lambda r: r.value)
        names = "; ".join(map(name_of, lost)) or "none"
        lines.append(f"- {ranks_text(world)}, slower than the best peer in {len(lost)} of {len(found)} cells: {names}.")
    return [*lines, ""]


def speed_lines(page: Page, results: Results, state: str) -> list[str]:
    """Absolute times of all_reduce."""
    rows, sizes = [], sorted({s for w in results.worlds for s in results.sizes(w, "all_reduce")})
    for world in results.worlds:
        for kind in page.kinds:
            entries = [results.entry(state, world, "all_reduce", s, SUBJECT, kind) for s in sizes]
            if any(entries):
                name = f"{ranks_text(world)}: tutti, {KINDS[kind].title}"
                rows.append([name, *(time_text(e.us if e else None) for e in entries)])
        best = [results.best(state, world, "all_reduce", s) for s in sizes]
        rows.append(["- best peer", *(f"{time_text(b[1].us)} {page.titles[b[0]][1]}" if b else "-" for b in best)])
        limits = [results.limit_us(state, world, s) for s in sizes]
        rows += [["- limit: concurrent copy", *map(time_text, limits)]] if any(limits) else []
    return ["all_reduce, microseconds:", "", *table(["", *map(size_text, sizes)], rows)] if rows else []


def wrong_lines(results: Results) -> list[str]:
    wrong = {(r["peer"], r["operation"], size_text(r["size"]), ranks_text(r["world"])) for r in results.wrong}
    return [f"Wrong results, not counted: {'; '.join(map(' '.join, sorted(wrong)))}.", ""] if wrong else []


def machine_name(results: Results) -> str:
    return f"{results.head['machine']['cpu']}, {results.head['machine']['n_cpus']} CPUs"


def section(page: Page, results: Results) -> str:
    head = results.head
    if not results.state_names:
        return f"### {machine_name(results)}\n\nNothing was measured.\n"
    state, *others = results.state_names
    points = sum(e.points for rows in results.table.values() for cells in rows.values() for e in cells.values())
    probes = ", ".join(f"{ns:.0f} ns in state {name}" for name, ns in results.latency.items())
    lines = [
        f"### {machine_name(results)}",
        "",
        f"{head['date']}, {head['kernel']}; `{head['command']}`. Float32, out of place; {page.about}"
        f"{points} points, and {sum(results.dropped.values())} more dropped because the machine changed under them. "
        f"Cache line one way: {probes}. What follows is of state {state}.",
        "",
        *peers_lines(page, results),
        *mean_lines(page, results, state),
        "How many times as fast as the best peer, whose letter follows (bold: slower; -: not measured):",
        "",
    ]
    for world in results.worlds:
        for kind in page.kinds:
            lines += matrix_lines(page, results, state, world, kind)
    lines += lost_lines(page, results, state) + speed_lines(page, results, state) + wrong_lines(results)
    for other in others:
        lines += [f"#### State {other}: a cache line takes {results.latency[other]:.0f} ns", ""]
        lines += mean_lines(page, results, other) + lost_lines(page, results, other)
    return "\n".join(lines).rstrip("\n") + "\n"


# ---- pictures ----
def pictures(page: Page, results: Results) -> dict[str, str]:
    """File names and contents: of each operation time and bus bandwidth against size, a column a world."""
    found, operations = {}, dict.fromkeys(op for world in results.worlds for op in results.operations(world))
    for operation in operations if page.pictures and results.state_names else ():
        worlds = [w for w in results.worlds if len(results.sizes(w, operation)) > 1]
        drawn = {w: lines_of(page, results, w, operation) for w in worlds}
        columns = {f"{operation}, {ranks_text(w)}": (results.ranks(w), lines) for w, lines in drawn.items() if lines}
        if columns:
            found[f"{page.mark}_{results.head['machine']['n_cpus']}_{operation}.svg"] = svg(operation, columns)
    return found


def lines_of(page: Page, results: Results, world: str, operation: str) -> list[Line]:
    state, sizes = results.state_names[0], results.sizes(world, operation)
    shown = [(SUBJECT, kind, f"tutti, {KINDS[kind].title}") for kind in page.kinds]
    shown += [(peer, "pages", page.titles[peer][0]) for peer in results.peers]
    lines = []
    for peer, kind, title in shown:
        entries = [(s, results.entry(state, world, operation, s, peer, kind)) for s in sizes]
        lines.append(Line(title, [(s, e.us) for s, e in entries if e], peer == SUBJECT))
    return lines if any(line.points for line in lines) else []


# ---- docs/performance.md ----
def with_section(page: Page, text: str, name: str, section_text: str) -> str:
    """The text, with the section of this machine new or replaced."""
    if page.begin not in text:
        text = f"{text.rstrip()}\n\n## {page.heading}\n\n{page.begin}\n{page.end}\n"
    before, rest = text.split(page.begin, 1)
    inside, after = rest.split(page.end, 1)
    sections = dict(re.findall(r"<!-- machine: (.*?) -->\n(.*?)(?=<!-- machine: |\Z)", inside, re.S))
    sections[name] = section_text + "\n"
    body = "".join(f"<!-- machine: {key} -->\n{value}" for key, value in sections.items())
    return f"{before}{page.begin}\n{body}{page.end}{after}"


def write_docs(page: Page, results: Results, folder: Path) -> None:
    path = folder / "performance.md"
    text, drawn = path.read_text() if path.exists() else "# Performance\n", pictures(page, results)
    told = section(page, results) + "".join(f"\n![{name}]({name})\n" for name in drawn)
    path.write_text(with_section(page, text, machine_name(results), told))
    for name, content in drawn.items():
        (folder / name).write_text(content)
