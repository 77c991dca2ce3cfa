# SPDX-License-Identifier: BSD-3-Clause
"""Draws time and bus bandwidth of one operation against size as SVG, a column for each world."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from .report import size_text

WIDTH, HEIGHT = 430.0, 300.0  # a panel's
LEFT, TOP, GAP, LEGEND = 80.0, 46.0, 60.0, 230.0
COLOURS = ("#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#000")
SUBJECT_COLOUR, SUBJECT_DASHES = "#d62728", ("", "7 3", "2 3")


@dataclass(frozen=True)
class Line:
    title: str
    points: list[tuple[int, float]]  # bytes, microseconds
    is_subject: bool = False


def bus_factor(operation: str, n: int) -> float:
    """As nccl-tests: bytes that cross the busiest link over bytes of the call."""
    share = (n - 1) / n
    return {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0, "scan": 1.0}.get(operation, share)


def styles(lines: list[Line]) -> list[str]:
    own, others = iter(SUBJECT_DASHES), iter(COLOURS)
    found = []
    for line in lines:
        colour, dashes, width = (SUBJECT_COLOUR, next(own), 2.4) if line.is_subject else (next(others), "", 1.3)
        found.append(f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"')
    return found


def panel(x: float, y: float, lines: list[Line], unit: str) -> list[str]:
    """Logarithmic axes, with a grid of decades and of every fourth power of two."""
    points = [point for line in lines for point in line.points]
    x_low, x_high = log10(min(p[0] for p in points)), log10(max(p[0] for p in points))
    y_low, y_high = floor(log10(min(p[1] for p in points))), ceil(log10(max(p[1] for p in points)))

    def place(size: float, value: float) -> tuple[float, float]:
        right = (log10(size) - x_low) / max(x_high - x_low, 1e-9)
        return x + WIDTH * right, y + HEIGHT * (1 - (log10(value) - y_low) / max(y_high - y_low, 1))

    drawn = []
    for decade in range(y_low, y_high + 1):
        _, down = place(10**x_low, 10.0**decade)
        drawn.append(f'<line x1="{x:.1f}" y1="{down:.1f}" x2="{x + WIDTH:.1f}" y2="{down:.1f}" stroke="#ddd"/>')
        drawn.append(f'<text x="{x - 6:.1f}" y="{down + 4:.1f}" text-anchor="end">{10.0**decade:g} {unit}</text>')
    for size in (2**e for e in range(0, 40, 4) if x_low - 1e-9 <= log10(2**e) <= x_high + 1e-9):
        right, bottom = place(size, 10.0**y_low)
        drawn.append(f'<line x1="{right:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{bottom:.1f}" stroke="#eee"/>')
        drawn.append(f'<text x="{right:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{size_text(size)}</text>')
    for line, style in zip(lines, styles(lines)):
        places = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line.points)
        drawn.append(f'<polyline fill="none" {style} points="{places}"/>')
    return drawn


def svg(operation: str, columns: dict[str, tuple[int, list[Line]]]) -> str:
    """columns: by title, the number of ranks and the lines."""
    step, body = WIDTH + LEFT + 14, []
    for i, (title, (n, lines)) in enumerate(columns.items()):
        x, factor = LEFT + i * step, bus_factor(operation, n)
        rates = [Line(a.title, [(s, s / us / 1e3 * factor) for s, us in a.points], a.is_subject) for a in lines]
        body.append(f'<text x="{x}" y="{TOP - 10}" font-size="15">{escape(title)}</text>')
        body += panel(x, TOP, lines, "us") + panel(x, TOP + HEIGHT + GAP, rates, "GB/s")
    lines, x = next(iter(columns.values()))[1], len(columns) * step + 6
    for i, (line, style) in enumerate(zip(lines, styles(lines))):
        y = TOP + 10 + 20 * i
        body.append(f'<line x1="{x}" y1="{y}" x2="{x + 30}" y2="{y}" {style}/>')
        body.append(f'<text x="{x + 38}" y="{y + 4}">{escape(line.title)}</text>')
    width, height = len(columns) * step + LEGEND, TOP + 2 * (HEIGHT + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
    head += f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"
