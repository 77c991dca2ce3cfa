# SPDX-License-Identifier: BSD-3-Clause
"""What programs that measure peer after peer have in common: the head of a run, and the way from measuring to the
page."""

from __future__ import annotations

import argparse
import platform
import shlex
import signal
import sys
from datetime import date
from typing import Callable

from . import results

PLACES = ("--build", "--tutti", "--openmpi", "--oneccl", "--python", "--out", "--docs")  # options that name some


def machine(n_cpus: int) -> dict:
    facts = {"cpu": platform.machine(), "vendor": "", "n_cpus": n_cpus}
    keys = {"model name": "cpu", "vendor_id": "vendor"}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in keys:
                    facts[keys[key.strip()]] = value.strip()
                if not line.strip():
                    break
    except OSError:
        pass
    return facts


def command_of(script: str, arguments: list[str]) -> str:
    """Without what only names places on this machine."""
    kept: list[str] = []
    for i, word in enumerate(arguments):
        if word.split("=")[0] in PLACES or (i and arguments[i - 1] in PLACES):
            continue
        kept.append(word)
    return shlex.join([script, *kept])


def head_of(script: str, chosen: argparse.Namespace, programs: dict, missing: dict, fresh: bool = False) -> dict:
    return {
        "machine": machine(len(chosen.cpus)),
        "date": date.today().isoformat(),
        "kernel": "Linux " + ".".join(platform.release().split(".")[:2]),
        "command": command_of(script, sys.argv[1:]),
        "peers": {name: program.version for name, program in programs.items()},
        "missing": missing,
        "operations": chosen.ops,
        "fresh": fresh,
    }


def run(chosen: argparse.Namespace, measure: Callable, section: Callable, write_docs: Callable) -> int:
    """Measures unless a report was asked for, tells what is there; the exit status."""
    if not chosen.report:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended, too
        try:
            measure(chosen)
        except KeyboardInterrupt:
            print("\ninterrupted; what was measured follows", file=sys.stderr)
    found = results.load(chosen.report or [chosen.out])
    print(section(found), end="")
    if chosen.write:
        write_docs(found, chosen.docs)
    return 1 if any(row["peer"] == results.SUBJECT for row in found.wrong) else 0
