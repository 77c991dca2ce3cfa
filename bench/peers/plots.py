# SPDX-License-Identifier: BSD-3-Clause
"""Draws what bench/cpu_peers.py measured as SVG: for one operation, time and bus bandwidth against size, a column for
each number of ranks, with the limit of the machine."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import Callable

from .programs import PEERS
from .report import size_text
from .results import SUBJECT, Results, ranks_text

WIDTH, HEIGHT = 430.0, 300.0  # of a panel
LEFT, TOP, GAP, LEGEND = 80.0, 46.0, 60.0, 200.0
COLOURS = ("#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
SUBJECT_STYLES = {"pages": ("#d62728", ""), "huge": ("#d62728", "7 3"), "mapped": ("#d62728", "2 3")}
SUBJECT_NAMES = {"pages": "private buffers", "huge": "private, huge pages", "mapped": "mapped buffers"}


def bus_factor(operation: str, n: int) -> float:
    """As nccl-tests: bytes that cross the busiest link over bytes of the call."""
    share = (n - 1) / n
    return {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0, "scan": 1.0}.get(operation, share)


def limit_share(operation: str, n: int) -> float | None:
    """Bytes that each rank must read and write at least, over those of a copy of the whole size; None where one rank
    alone has the work."""
    shares = {"all_reduce": 1.0, "all_gather": 1.0, "all_to_all": 1.0, "broadcast": 1.0, "scan": 1.0}
    return (1 + 1 / n) / 2 if operation == "reduce_scatter" else shares.get(operation)


class Panel:
    """Logarithmic axes for some series of points."""

    def __init__(self, x: float, y: float, series: list[tuple[list, str, str, float]]) -> None:
        points = [point for line, *_ in series for point in line]
        self.x, self.y, self.series = x, y, series
        self.x_range = self.range_of([p[0] for p in points], False)
        self.y_range = self.range_of([p[1] for p in points], True)

    @staticmethod
    def range_of(values: list[float], whole: bool) -> tuple[float, float]:
        low, high = (log10(min(values)), log10(max(values))) if values else (0.0, 1.0)
        low, high = (floor(low), ceil(high)) if whole else (low, high)
        return low, high if high > low else low + 1

    def at(self, value: float, span: tuple[float, float], length: float) -> float:
        return (log10(value) - span[0]) / (span[1] - span[0]) * length

    def place(self, point: tuple[float, float]) -> tuple[float, float]:
        down = HEIGHT - self.at(point[1], self.y_range, HEIGHT)
        return self.x + self.at(point[0], self.x_range, WIDTH), self.y + down

    def grid(self, y_text: Callable[[float], str]) -> list[str]:
        lines = []
        for decade in range(int(self.y_range[0]), int(self.y_range[1]) + 1):
            _, y = self.place((10 ** self.x_range[0], 10.0**decade))
            lines.append(f'<line x1="{self.x:.1f}" y1="{y:.1f}" x2="{self.x + WIDTH:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            text = y_text(10.0**decade)
            lines.append(f'<text x="{self.x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for exponent in range(0, 40, 4):
            size = 2.0**exponent
            if not self.x_range[0] - 1e-9 <= log10(size) <= self.x_range[1] + 1e-9:
                continue
            x, _ = self.place((size, 10 ** self.y_range[0]))
            bottom = self.y + HEIGHT
            lines.append(f'<line x1="{x:.1f}" y1="{self.y:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#eee"/>')
            label = size_text(int(size))
            lines.append(f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{label}</text>')
        return lines

    def lines(self) -> list[str]:
        drawn = []
        for line, colour, dashes, width in self.series:
            places = " ".join("{:.1f},{:.1f}".format(*self.place(p)) for p in line)
            style = f'stroke="{colour}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
            drawn.append(f'<polyline fill="none" {style} points="{places}"/>')
        return drawn


def time_label(us: float) -> str:
    return f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} us"


def styles(results: Results) -> list[tuple[str, str, str, str, float, str]]:
    """Peer, memory, colour, dashes, width and legend of each line."""
    found = [
        (SUBJECT, memory, colour, dashes, 2.4, f"{SUBJECT}, {SUBJECT_NAMES[memory]}")
        for memory, (colour, dashes) in SUBJECT_STYLES.items()
    ]
    for peer, colour in zip(results.peers, COLOURS):
        found.append((peer, "pages", colour, "", 1.3, PEERS[peer].title))
    return found


def series_of(results: Results, state: str, world: str, operation: str, bandwidth: bool) -> list:
    n = results.ranks(world)

    def value(size: int, us: float) -> float:
        return size / us / 1e3 * bus_factor(operation, n) if bandwidth else us

    series = []
    for peer, memory, colour, dashes, width, _ in styles(results):
        entries = [(s, results.entry(state, world, operation, s, peer, memory)) for s in results.sizes(world)]
        line = [(s, value(s, e.us)) for s, e in entries if e]
        if line:
            series.append((line, colour, dashes, width))
    share = limit_share(operation, n)
    limits = [(s, results.limit_us(state, world, s)) for s in results.sizes(world)] if share else []
    line = [(s, value(s, us * share)) for s, us in limits if us]
    return series + ([(line, "#000", "5 4", 1.3)] if line else [])


def legend(results: Results, x: float) -> list[str]:
    rows = [(colour, dashes, width, text) for _, _, colour, dashes, width, text in styles(results)]
    rows.append(("#000", "5 4", 1.3, "concurrent copy"))
    drawn = []
    for i, (colour, dashes, width, text) in enumerate(rows):
        y = TOP + 10 + 20 * i
        line = f'<line x1="{x}" y1="{y}" x2="{x + 30}" y2="{y}" stroke="{colour}" stroke-width="{width}"'
        drawn.append(line + (f' stroke-dasharray="{dashes}"/>' if dashes else "/>"))
        drawn.append(f'<text x="{x + 38}" y="{y + 4}">{escape(text)}</text>')
    return drawn


def svg(results: Results, state: str, operation: str) -> str:
    worlds = [w for w in results.worlds if results.sizes(w, operation)]
    step = WIDTH + LEFT + 14
    width, height = len(worlds) * step + LEGEND, TOP + 2 * (HEIGHT + GAP)
    body = []
    for column, world in enumerate(worlds):
        x = LEFT + column * step
        body.append(f'<text x="{x}" y="{TOP - 10}" font-size="15">{operation}, {ranks_text(world)}</text>')
        for row, text in enumerate((time_label, lambda gbs: f"{gbs:g} GB/s")):
            panel = Panel(x, TOP + row * (HEIGHT + GAP), series_of(results, state, world, operation, row == 1))
            body += panel.grid(text) + panel.lines()
    body += legend(results, len(worlds) * step + 6)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
    head += f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"
