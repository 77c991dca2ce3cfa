# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_scale.sh: its parts one after another, each within a share of the time, so that none starves a later one;
what a part does not use goes to those that follow. Results are written after each part."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from datetime import date
from pathlib import Path

import gpu_peers

from ..arguments import names, seconds, size
from ..programs import ROOT
from ..report import cpu_name, table, training_lines
from .build import source
from .parts import PARTS, Scene, Unavailable
from .programs import end_all

RESERVE_S = 5.0  # for the last words
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESULTS, SUMMARY, REST = "results.json", "summary.md", "rest.tar.gz"
OLD = "old"  # where in --out the files of the run before are
END_BYTES = 2 << 20  # kept of a file in the archive: a log may have any size
# The driver, without PyTorch: what the library itself would find. A child asks, since a driver does not survive a fork.
PROBE = """
import ctypes, json, os
cuda, n, name = ctypes.CDLL(os.environ.get("TUTTI_CUDA_DRIVER") or "libcuda.so.1"), ctypes.c_int(), None
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value:
    text = ctypes.create_string_buffer(100)
    cuda.cuDeviceGetName(text, 100, 0)
    name = text.value.decode()
print(json.dumps([n.value, name]))
"""
# In seconds of the usual eight minutes.
SHARES = {"build": 130, "contract": 150, "peers": 100, "training": 45, "cpu": 60, "tune": 20}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/gpu_scale.sh", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "build-scale" / "results", metavar="DIR", help="where results are written")
    add("--seconds", type=seconds, default=480, help="for everything (default 480)")
    add("--parts", type=names(SHARES), default=list(SHARES), metavar="LIST", help=",".join(SHARES))
    add("--gpus", type=int, help="how many to use; 0: none (default: all there are)")
    add("--build", type=Path, default=ROOT / "build-scale", metavar="DIR", help="where things are built")
    add("--up-to", type=size, metavar="SIZE", help="leaves out the larger sizes of the comparison on GPUs")
    add("--openmpi", type=Path, metavar="DIR", help="an unpacked Open MPI")
    add("--report", action="store_true", help="measure nothing, tell what --out holds")
    chosen = parser.parse_args()
    chosen.out, chosen.build = chosen.out.resolve(), chosen.build.resolve()
    chosen.parts = [name for name in SHARES if name in chosen.parts]
    return chosen


def machine(wanted: int | None) -> dict:
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60)
        there, name = json.loads(done.stdout) if done.returncode == 0 else (0, None)
    except subprocess.TimeoutExpired:
        there, name = 0, None
    return {
        "gpu": name,
        "n_gpus": there if wanted is None else max(0, min(wanted, there)),
        "gpus_there": there,
        "cpu": cpu_name(),
        "n_cpus": len(os.sched_getaffinity(0)),
        "kernel": "Linux " + ".".join(platform.release().split(".")[:2]),
    }


# ---- telling ----


def part_row(name: str, part: dict | None) -> list[str]:
    if not part:
        return [name, "not begun", "", ""]
    told = part.get("why") or part.get("told") or part.get("without_torch") or ""
    return [name, part["status"], f"{part['seconds']:.0f} of {part['limit_s']:.0f}", told.replace("|", "/")]


def summary(results: dict) -> str:
    """What became of each part."""
    machine, parts = results["machine"], results["parts"]
    gpus = f"{machine['n_gpus']} x {machine['gpu']}" if machine["n_gpus"] else "no CUDA device"
    lines = [f"# {gpus}; {machine['cpu']}, {machine['n_cpus']} CPUs; {machine['kernel']}", ""]
    lines += [f"{results['date']}, {results['source']}.", ""]
    lines += table(["part", "", "seconds", ""], [part_row(n, parts.get(n)) for n in results["asked"]], "---")
    if runs := parts.get("contract", {}).get("runs"):
        rows = [[k, run["outcome"], f"{run['seconds']:.0f}", run["told"]] for k, run in runs.items()]
        lines += ["## The contract suite, worlds of 1, 2, 3, 4 and 8 ranks", "", *table(["GPUs", "", "s", ""], rows)]
    if found := parts.get("peers", {}).get("lines"):
        us = parts["peers"].get("c_us")
        lines += ["## Against the other libraries on GPUs", "", *gpu_peers.report(found), ""]
        lines += [f"Call by call from C, 1 KiB all_reduce: {us:.1f} us.", ""] if us else []
    if world := parts.get("training", {}).get("world"):
        lines += ["## Training", "", *training_lines(world, ["tutti", "nccl"])]
    if constants := parts.get("tune", {}).get("constants"):
        lines += ["## What the choice of methods rests on", ""]
        lines += table(["constant", ""], [[name, f"{value:.1f}"] for name, value in constants.items()])
        lines += [f"In {parts['tune']['file']}: the option gpu_tuning names it, or gpu_methods.c gets a row."]
    return "\n".join(lines).rstrip("\n") + "\n"


# ---- files ----


def keep(results: dict, out: Path) -> None:
    """At once, so that a reader and a later run never see half of it."""
    draft = out / (RESULTS + ".new")
    draft.write_text(json.dumps(results, indent=1))
    draft.replace(out / RESULTS)
    (out / SUMMARY).write_text(summary(results))


def put_away(out: Path) -> None:
    """What an earlier run has left, which would stand beside the new results as if it were of them."""
    found = [path for path in out.iterdir() if path.is_file()]
    if found:
        shutil.rmtree(out / OLD, ignore_errors=True)
        (out / OLD).mkdir()
    for path in found:
        path.replace(out / OLD / path.name)


def pack(rest: Path, out: Path) -> None:
    """Many files as one, of each the end."""
    draft = out / (REST + ".new")
    with tarfile.open(draft, "w:gz") as archive:
        for path in sorted(rest.iterdir()) if rest.exists() else []:
            content = path.read_bytes()[-END_BYTES:]
            member = tarfile.TarInfo(f"rest/{path.name}")
            member.size, member.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(member, io.BytesIO(content))
    draft.replace(out / REST)


# ---- running ----


def run_part(name: str, scene: Scene, limit: float) -> dict:
    """What a part came to: {"status": ok, partial, failed or unavailable, "why", "seconds", "limit_s", ...}."""
    begun = time.monotonic()
    scene.until = begun + limit
    try:
        found = PARTS[name](scene)
    except Unavailable as reason:
        found = {"status": "unavailable", "why": str(reason)}
    except Exception as error:  # noqa: BLE001  the later parts have their turn, whatever it was
        found = {"status": "failed", "why": f"{type(error).__name__}: {error}"}
    finally:
        end_all(scene)
    return {**found, "seconds": round(time.monotonic() - begun, 1), "limit_s": round(limit, 1)}


def run(chosen: argparse.Namespace) -> dict:
    until = time.monotonic() + chosen.seconds - RESERVE_S
    chosen.out.mkdir(parents=True, exist_ok=True)
    put_away(chosen.out)
    results: dict = {"machine": machine(chosen.gpus), "date": date.today().isoformat(), "source": source()}
    results |= {"seconds": chosen.seconds, "asked": chosen.parts, "parts": {}}
    scene = Scene(chosen.out, chosen.build, results["machine"], results["source"], chosen.up_to, chosen.openmpi)
    shutil.rmtree(scene.rest, ignore_errors=True)
    for i, name in enumerate(chosen.parts):
        share = SHARES[name] / sum(SHARES[later] for later in chosen.parts[i:])
        limit = max(0.0, until - time.monotonic()) * share
        print(f"== {name}: at most {limit:.0f} s", file=sys.stderr, flush=True)
        try:
            part = results["parts"][name] = run_part(name, scene, limit)
        finally:  # also when all is ended from outside
            keep(results, chosen.out)
            pack(scene.rest, chosen.out)
        why = f": {part['why']}" if part.get("why") else ""
        print(f"   {part['status']} after {part['seconds']:.0f} s{why}", file=sys.stderr, flush=True)
    return results


def end_when_told() -> None:
    """With what was started; a second signal does not interrupt that."""

    def end(number: int, _frame) -> None:
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, end)


def main() -> int:
    chosen = options()
    end_when_told()
    try:
        results = json.loads((chosen.out / RESULTS).read_text()) if chosen.report else run(chosen)
    except (OSError, ValueError) as error:
        sys.exit(f"gpu_scale: {chosen.out}: {error}")
    print(summary(results), end="")
    return 0 if results["parts"] and all(part["status"] == "ok" for part in results["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
