# SPDX-License-Identifier: BSD-3-Clause
"""Draws what bench/gpu_peers.py measured as SVG: for one operation, time and bus bandwidth against size."""

from __future__ import annotations

from html import escape

from ..plots import COLOURS, GAP, HEIGHT, LEFT, LEGEND, TOP, WIDTH, Panel, bus_factor, time_label

SUBJECT_STYLES = {"tutti": ("#d62728", ""), "tutti window": ("#d62728", "7 3")}
SUBJECT_WIDTH, PEER_WIDTH = 2.4, 1.3

Cells = list  # of the lines of one operation, type and place


def cells_of(lines: list[dict], dtype: str, in_place: bool, op: str) -> Cells:
    found = [c for c in lines if c.get("op") == op and c["dtype"] == dtype and c["in_place"] == in_place]
    return sorted(found, key=lambda cell: cell["bytes"])


def drawn(lines: list[dict]) -> list[tuple[str, bool, str]]:
    """Type, place and operation of each picture; one point is none."""
    keys = dict.fromkeys((line["dtype"], line["in_place"], line["op"]) for line in lines if "op" in line)
    return [key for key in keys if len(cells_of(lines, *key)) > 1]


def styles(cells: Cells) -> dict[str, tuple[str, str, float]]:
    """Colour, dashes and width of each library's line."""
    names = dict.fromkeys(name for cell in cells for name in cell["us"])
    peers = zip((name for name in names if name not in SUBJECT_STYLES), COLOURS)
    found = {name: (*style, SUBJECT_WIDTH) for name, style in SUBJECT_STYLES.items() if name in names}
    return {**found, **{name: (colour, "", PEER_WIDTH) for name, colour in peers}}


def series_of(cells: Cells, n: int, bandwidth: bool) -> list:
    def value(cell: dict, us: float) -> float:
        return cell["bytes"] / us / 1e3 * bus_factor(cell["op"], n) if bandwidth else us

    return [
        ([(cell["bytes"], value(cell, cell["us"][name])) for cell in cells if name in cell["us"]], *style)
        for name, style in styles(cells).items()
    ]


def legend(cells: Cells, x: float) -> list[str]:
    text = []
    for i, (name, (colour, dashes, width)) in enumerate(styles(cells).items()):
        y = TOP + 10 + 20 * i
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        text.append(f'<line x1="{x}" y1="{y}" x2="{x + 30}" y2="{y}" stroke="{colour}" stroke-width="{width}"{dash}/>')
        text.append(f'<text x="{x + 38}" y="{y + 4}">{escape(name)}</text>')
    return text


def svg(lines: list[dict], dtype: str, in_place: bool, op: str) -> str:
    cells = cells_of(lines, dtype, in_place, op)
    head = next((line for line in lines if "machine" in line), {"machine": "?", "ranks": 2})
    n, step = head["ranks"], WIDTH + LEFT + 14
    width, height = 2 * step + LEGEND, TOP + HEIGHT + GAP
    place = "in place" if in_place else "out of place"
    title = f"{op}, {dtype}, {place}, {n} x {head['machine']}"
    body = [f'<text x="{LEFT}" y="{TOP - 14}" font-size="15">{escape(title)}</text>']
    for column, label in enumerate((time_label, lambda gbs: f"{gbs:g} GB/s")):
        panel = Panel(LEFT + column * step, TOP, series_of(cells, n, column == 1))
        body += panel.grid(label) + panel.lines()
    body += legend(cells, 2 * step + 6)
    text = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
    text += f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">'
    return "\n".join([text, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"
