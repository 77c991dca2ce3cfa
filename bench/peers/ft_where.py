# SPDX-License-Identifier: BSD-3-Clause
"""Where the time goes after a blow, from what ft_train.py wrote down: in the survivors, how much longer than usual each
part of a step takes until one is committed; in the group that starts again, how long it takes to take part. And
whether all groups had the same weights after each step."""

from __future__ import annotations

import pathlib
import statistics
from typing import Dict, List, NamedTuple, Optional, Tuple

PHASES = ("quorum", "computing", "reduction", "commit", "between")
ANEW_NS = 5_000_000_000  # a step whose number was done so long ago is another one: all groups were dead meanwhile


class Step(NamedTuple):
    begin: int
    committed: bool
    contributes: bool
    spent: List[float]  # seconds in each of PHASES


class Life(NamedTuple):
    """One process of a group."""

    group: int
    started: int  # its first line
    imported: int
    steps: List[Step]


def read_life(path: pathlib.Path) -> Optional[Life]:
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.count(" ") in (2, 8)]
    if not rows or rows[0][0] != "started":
        return None
    steps, last = [], 0
    for row in rows[1:]:
        if len(row) != 9:  # torn, or of another way to train
            continue
        marks = [int(mark) for mark in row[4:]]
        spent = [(b - a) / 1e9 for a, b in zip(marks, marks[1:])]
        steps.append(Step(marks[0], row[2] == "1", row[3] == "1", [*spent, (marks[0] - last) / 1e9 if last else 0.0]))
        last = marks[-1]
    return Life(int(path.name.split(".")[0]), int(rows[0][1]), int(rows[0][2]), steps)


def end_of(step: Step) -> float:
    return step.begin + 1e9 * sum(step.spent[:-1])


def takes_part(life: Life, at: float) -> bool:
    return any(step.committed and step.contributes and end_of(step) <= at for step in life.steps)


def after(life: Life, blow: float, usual: List[float]) -> Optional[Dict[str, float]]:
    """What a survivor spends beyond the usual from a blow until its next commit."""
    more = dict.fromkeys(PHASES, 0.0)
    void = 0
    for step in life.steps:
        if end_of(step) <= blow:
            continue
        for phase, spent, often in zip(PHASES, step.spent, usual):
            more[phase] += spent - often
        if step.committed:
            return {**more, "void": void}
        void += 1
        more["computing"] += usual[PHASES.index("computing")]  # done in vain
    return None


def median_of(found: "List[Dict[str, float]]") -> "Dict[str, float]":
    return {key: statistics.median(one[key] for one in found) for key in found[0]} if found else {}


class Told(NamedTuple):
    """After a commit of one group."""

    at: int
    bits: int  # a number for those of its weights
    loss: float


def weights(folder: pathlib.Path) -> "Dict[str, float]":
    """How many steps several groups told the weights of, after how many these differ, how often all groups were dead,
    so that steps began anew, and the losses of the first and of the last steps."""
    found: Dict[int, List[Told]] = {}
    for path in folder.glob("[0-9]*.[0-9]*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[0] == "weights" and len(words) == 5:
                found.setdefault(int(words[1]), []).append(Told(int(words[2]), int(words[3]), float(words[4])))
    together: List[List[Told]] = []  # those who did a step at one time
    most = 0
    for told in map(sorted, found.values()):
        before = len(together)
        for i, one in enumerate(told):
            if i == 0 or one.at - told[i - 1].at >= ANEW_NS:
                together.append([])
            together[-1].append(one)
        most = max(most, len(together) - before)
    several = [told for told in together if len(told) > 1]
    by_time = [one.loss for one in sorted(one for told in together for one in told)]
    return {"steps": len(several), "differ": sum(len({one.bits for one in told}) > 1 for told in several),
            "anew": max(0, most - 1), "first_loss": statistics.fmean(by_time[:30] or [0.0]),
            "last_loss": statistics.fmean(by_time[-30:] or [0.0])}


def where(folder: pathlib.Path, report: dict) -> "Dict[str, Dict[str, float]]":
    lives = [life for life in map(read_life, sorted(folder.glob("[0-9]*.[0-9]*"))) if life]
    calm, rows = report["calm_ns"], report["rows"]
    blows = [(calm + 1e9 * float(r["seconds"]), int(r["members"]), r["what"]) for r in rows
             if r["what"] not in ("step", "again")]
    again = [(calm + 1e9 * float(r["seconds"]), int(r["members"])) for r in rows if r["what"] == "again"]
    first = min([at for at, _, _ in blows], default=float("inf"))
    spent = [step.spent for life in lives for step in life.steps if calm < step.begin and end_of(step) < first]
    if not spent:
        return {}
    usual = [statistics.median(column) for column in zip(*spent)]
    losses = []
    for at, struck, _ in blows:
        there = [life for life in lives if life.group != struck and takes_part(life, at)]
        found = [one for one in (after(life, at, usual) for life in there if end_of(life.steps[-1]) > at) if one]
        if found:  # the survivor that lost most
            losses.append(max(found, key=lambda one: sum(one[phase] for phase in PHASES)))
    starts = []
    for at, group in again:
        life = next((life for life in lives if life.group == group and at - 1e8 < life.started < at + 60e9), None)
        joined = next((step for step in life.steps if step.committed and step.contributes), None) if life else None
        if life and joined:
            starts.append({"launch": (life.started - at) / 1e9, "imports": (life.imported - life.started) / 1e9,
                           "model and manager": (life.steps[0].begin - life.imported) / 1e9,
                           "joining": (end_of(joined) - life.steps[0].begin) / 1e9})
    return {"usual": dict(zip(PHASES, usual)), "loss": median_of(losses), "start": median_of(starts)}


def table(of_parts: "Dict[str, Dict[str, Dict[str, float]]]") -> None:
    """Milliseconds, in the median."""
    for part, head in (("usual", "a step, usually"), ("loss", "more than that, from a blow until a survivor commits"),
                       ("start", "a group starts again")):
        shown = {parts: where[part] for parts, where in of_parts.items() if where.get(part)}
        columns = list(dict.fromkeys(name for values in shown.values() for name in values))
        if not columns:
            continue
        print(f"{head} (ms):\n\n| parts | {' | '.join('steps in vain' if c == 'void' else c for c in columns)} |")
        print("|---|" + "--:|" * len(columns))
        for parts, values in shown.items():
            cells = [f"{values[c]:.0f}" if c == "void" else f"{1e3 * values[c]:.1f}" for c in columns]
            print(f"| {parts} | {' | '.join(cells)} |")
        print()
