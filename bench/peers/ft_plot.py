# SPDX-License-Identifier: BSD-3-Clause
"""Draws what ft_peers.py measured as SVG: the samples of each of the parts over time, as seconds of undisturbed work of
all groups, with the blows."""

from __future__ import annotations

import argparse

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 420, 60, 50, 40
COLOURS = {"survive": "#2ca02c", "tutti": "#1f77b4", "torchft": "#ff7f0e"}


def curve(result: dict, groups: int) -> "list[tuple[float, float]]":
    rate, done, points = result["group_samples_per_s"] * groups, 0.0, [(0.0, 0.0)]
    for row in result["rows"]:
        at = float(row["seconds"])
        if row["what"] == "step" and at >= 0:
            points.append((at, done / rate))
            done += float(row["samples"])
            points.append((at, done / rate))
    return points


def due(result: dict, groups: int, end: float) -> "list[tuple[float, float]]":
    """What the groups that live would do undisturbed: one does not from a blow until it takes part again."""
    rows, changes = result["rows"], []
    for number, row in enumerate(rows):
        if row["what"] in ("step", "again"):
            continue
        struck, later = row["members"], rows[number + 1 :]
        again = next((float(r["seconds"]) for r in later if r["what"] == "again" and r["members"] == struck), end)
        back = next((float(r["seconds"]) for r in later if r["what"] == "step" and float(r["seconds"]) >= again
                     and struck in r["members"].split()), end)
        changes += [(float(row["seconds"]), -1), (back, 1)]
    points, done, last, alive = [(0.0, 0.0)], 0.0, 0.0, groups
    for at, change in sorted([*changes, (end, 0)]):
        done += (at - last) * alive / groups
        last, alive = at, alive + change
        points.append((at, done))
    return points


def plot(results: "dict[str, dict]", chosen: argparse.Namespace) -> str:
    end = chosen.calm + chosen.seconds
    bottom, right = HEIGHT - BOTTOM, WIDTH - 20

    def x(seconds: float) -> float:
        return LEFT + min(seconds, end) / end * (right - LEFT)

    def y(done: float) -> float:
        return bottom - min(done / end, 1.02) * (bottom - TOP)

    out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' font-family='sans-serif' "
           "font-size='12'>", "<rect width='100%' height='100%' fill='white'/>",
           f"<text x='{LEFT}' y='20' font-size='15'>{chosen.way}, {chosen.groups} groups: samples in seconds of "
           f"undisturbed work; {chosen.kinds} every {chosen.every:g} s (seed {chosen.seed})</text>",
           f"<text x='{LEFT}' y='38' fill='#555'>dashed: what the groups that live would do undisturbed; red: blows"
           "</text>"]
    tick = 10 if end <= 100 else 30
    for second in range(0, int(end) + 1, tick):
        out.append(f"<line x1='{LEFT}' y1='{y(second):.1f}' x2='{right}' y2='{y(second):.1f}' stroke='#eee'/>")
        out.append(f"<text x='{LEFT - 6}' y='{y(second) + 4:.1f}' text-anchor='end'>{second}</text>")
        out.append(f"<text x='{x(second):.1f}' y='{bottom + 18}' text-anchor='middle'>{second} s</text>")
    first = next(iter(results.values()))
    points = " ".join(f"{x(at):.1f},{y(done):.1f}" for at, done in due(first, chosen.groups, end))
    out.append(f"<polyline fill='none' stroke='#999' stroke-dasharray='6 4' points='{points}'/>")
    for row in first["rows"]:
        if row["what"] not in ("step", "again"):
            at = x(float(row["seconds"]))
            out.append(f"<line x1='{at:.1f}' y1='{TOP}' x2='{at:.1f}' y2='{bottom}' stroke='#d62728' "
                       "stroke-dasharray='3 2'/>")
            out.append(f"<text x='{at + 2:.1f}' y='{TOP + 10}' fill='#d62728' font-size='10'>{row['what']} "
                       f"{row['members']}</text>")
    for number, (parts, result) in enumerate(results.items()):
        points = " ".join(f"{x(at):.1f},{y(done):.1f}" for at, done in curve(result, chosen.groups) if at <= end)
        out.append(f"<polyline fill='none' stroke='{COLOURS[parts]}' stroke-width='2' points='{points}'/>")
        out.append(f"<text x='{LEFT + 20}' y='{TOP + 30 + 18 * number}' fill='{COLOURS[parts]}'>{parts}: "
                   f"{result['goodput_samples']:.3f} of the samples, stall {result['stall_median_s']:.2f} s</text>")
    return "\n".join([*out, "</svg>", ""])
