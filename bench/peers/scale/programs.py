# SPDX-License-Identifier: BSD-3-Clause
"""The programs that the parts of bench/gpu_scale.sh start, each with a log and a deadline. A program ends with all that
it started, in whatever process group that is: a variable in the environment tells whose a process is."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ..programs import ROOT

GRACE_S = 4.0  # between asking a program to end and ending it
KILL_S = 5.0  # what is in a driver may take its time to end
TIME_IS_UP = "its time was up"
numbers = itertools.count()


@dataclass
class Program:
    process: subprocess.Popen
    log: Path
    mark: bytes  # NAME=VALUE in the environment of all that it starts

    def end(self) -> None:
        """With all that it started: asked first, since some tell what they have."""
        try:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGINT)
                self.process.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Again and again, since what is not ended yet may start more."""
        until = time.monotonic() + KILL_S
        while (left := self.family()) and time.monotonic() < until:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
            time.sleep(0.01)
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass

    def family(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # another's, or gone
                continue
        return found

    def last_words(self) -> str:
        """The first complaint of a test; else the last line."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        wrong = [line for line in lines if line.startswith("rank ")]
        return (wrong or lines[-1:] or ["no word"])[0][:300]


def start(scene, name: str, command: list, environment: dict | None = None) -> Program:
    """In a scene (parts.Scene), which knows what is to be ended when all is."""
    scene.rest.mkdir(parents=True, exist_ok=True)
    log = scene.rest / f"{name}.log"
    mark = {f"GPU_SCALE_{os.getpid()}_{next(numbers)}": str(time.time_ns())}
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **(environment or {}), **mark},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=os.setpgrp,  # not a session each: between sessions the scheduler gives no turns
        )
        scene.running.append(Program(process, log, "=".join(*mark.items()).encode()))
    return scene.running[-1]


def finish(program: Program, until: float) -> int | None:
    """Its exit status; None: its time was up."""
    try:
        return program.process.wait(max(0.0, until - GRACE_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        program.end()  # also what it has left behind


def run(scene, name: str, command: list, environment: dict | None = None, until: float | None = None) -> str:
    """What was wrong, "" if nothing was."""
    program = start(scene, name, command, environment)
    status = finish(program, until or scene.until)
    if status == 0:
        return ""
    how = TIME_IS_UP if status is None else f"it ended with {status}"
    return f"{how}: {program.last_words()}"


def end_all(scene) -> None:
    """Whatever interrupted the part."""
    for program in scene.running:
        program.kill()
    scene.running.clear()
