# SPDX-License-Identifier: BSD-3-Clause
"""What programs that measure peer after peer have in common: the head of a run, and the way from measuring to the
page."""

from __future__ import annotations

import argparse
import contextlib
import platform
import shlex
import signal
import sys
from datetime import date
from pathlib import Path
from typing import Callable

from . import pages, results
from .arguments import count, names, size
from .programs import ROOT
from .report import cpu_name

PLACES = ("--build", "--tutti", "--openmpi", "--oneccl", "--python", "--out", "--docs")  # options that name some


def add_options(add: Callable, peers) -> None:
    """The options that the programs have in common."""
    add("--turns", type=count, help="so many turns over all cells at most; the first one is made whole")
    add("--up-to", type=size, metavar="SIZE", help="leaves out the larger ones")
    add("--block", type=float, default=60.0, metavar="MS", help="how long a point's calls are timed (default 60)")
    add("--peers", type=names(peers), default=list(peers), help=",".join(peers))
    add("--cpus", type=lambda t: [int(c) for c in t.split(",")], help="the CPUs to use (default: those allowed)")
    build = {"type": lambda t: Path(t).resolve(), "default": ROOT / "build-peers"}
    add("--build", **build, metavar="DIR", help="where peers are built")
    add("--tutti", type=Path, metavar="DIR", help="a build of tutti (default: one is made)")
    add("--install", action="store_true", help="get what PyPI has into the build folder")
    add("--out", type=Path, metavar="FILE", help="lines of JSON as they come (default: NAME.jsonl in --build)")
    add("--write", action="store_true", help="write the section of docs/performance.md")
    add("--report", type=Path, nargs="+", metavar="FILE", help="measure nothing, tell what these hold")
    add("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help=argparse.SUPPRESS)


def machine(n_cpus: int) -> dict:
    facts = {"cpu": cpu_name(), "vendor": "", "n_cpus": n_cpus}
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        facts["vendor"] = next((line.split(":")[1].strip() for line in file if line.startswith("vendor_id")), "")
    return facts


def command_of(script: str, arguments: list[str]) -> str:
    """Without what only names places on this machine."""
    kept: list[str] = []
    for i, word in enumerate(arguments):
        if word.split("=")[0] in PLACES or (i and arguments[i - 1] in PLACES):
            continue
        kept.append(word)
    return shlex.join([script, *kept])


def head_of(script: str, chosen: argparse.Namespace, programs: dict, missing: dict) -> dict:
    return {
        "machine": machine(len(chosen.cpus)),
        "date": date.today().isoformat(),
        "kernel": "Linux " + ".".join(platform.release().split(".")[:2]),
        "command": command_of(script, sys.argv[1:]),
        "peers": {name: program.version for name, program in programs.items()},
        "missing": missing,
        "operations": chosen.ops,
    }


def run(chosen: argparse.Namespace, measure: Callable, page: pages.Page) -> int:
    """Measures unless a report was asked for, tells what is there; the exit status."""
    if not chosen.report:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended, too
        try:
            measure(chosen)
        except KeyboardInterrupt:
            print("\ninterrupted; what was measured follows", file=sys.stderr)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
    found = results.load(chosen.report or [chosen.out])
    print(pages.section(page, found), end="")
    if chosen.write:
        pages.write_docs(page, found, chosen.docs)
    return 1 if any(row["peer"] == results.SUBJECT for row in found.wrong) else 0
