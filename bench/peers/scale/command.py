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
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from . import report as scale_report
from ..arguments import seconds, size
from ..programs import ROOT
from ..report import cpu_name
from .parts import PARTS, Scene, Unavailable
from .programs import end_all
from .source import source

RESERVE_S = 5.0  # for the last words
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESULTS = "results.json"
REST = "rest.tar.gz"
OLD = "old"  # where in --out that of the run before is
END_BYTES = 2 << 20  # of a file in there: a log may be of any size
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


@dataclass(frozen=True)
class Share:
    """What of the time a part gets, in seconds of the usual eight minutes."""

    name: str
    weight: float


SHARES = (
    Share("build", 130),
    Share("contract", 150),
    Share("peers", 100),
    Share("training", 45),
    Share("cpu", 60),
    Share("tune", 20),
)


def limit_of(name: str, chosen: list[str], left: float) -> float:
    """Seconds that a part may take when `left` are left for it and all chosen ones after it."""
    weights = {share.name: share.weight for share in SHARES}
    later = chosen[chosen.index(name) :]
    return max(0.0, left) * weights[name] / sum(weights[part] for part in later)


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    known = [share.name for share in SHARES]

    def parts(text: str) -> list[str]:
        for name in (asked := [name for name in text.split(",") if name]):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return [name for name in known if name in asked]

    def size_text(text: str) -> str:
        size(text)
        return text

    def from_0(text: str) -> int:
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text} is no number of GPUs")
        return int(text)

    parser = argparse.ArgumentParser(prog="bench/gpu_scale.sh", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "build-scale" / "results", metavar="DIR", help="where results are written")
    add("--seconds", type=seconds, default=480, help="for everything (default 480)")
    add("--parts", type=parts, default=known, metavar="LIST", help=",".join(known))
    add("--gpus", type=from_0, help="how many to use; 0: none (default: all there are)")
    add("--build", type=Path, default=ROOT / "build-scale", metavar="DIR", help="where things are built")
    add("--up-to", type=size_text, metavar="SIZE", help="leaves out the larger sizes of the comparison on GPUs")
    add("--openmpi", type=Path, metavar="DIR", help="an unpacked Open MPI")
    add("--report", action="store_true", help="measure nothing, tell what --out holds")
    chosen = parser.parse_args(arguments)
    chosen.out, chosen.build = chosen.out.resolve(), chosen.build.resolve()
    return chosen


# ---- the machine ----


def gpus() -> tuple[int, str | None]:
    """How many devices the driver shows, and the name of the first."""
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return 0, None
    return tuple(json.loads(done.stdout)) if done.returncode == 0 else (0, None)


def machine(wanted: int | None) -> dict:
    there, name = gpus()
    n = there if wanted is None else min(wanted, there)
    return {
        "gpu": name,
        "n_gpus": n,
        "gpus_there": there,
        "cpu": cpu_name(),
        "n_cpus": len(os.sched_getaffinity(0)),
        "kernel": "Linux " + ".".join(platform.release().split(".")[:2]),
    }


# ---- parts ----


def keep(results: dict, out: Path) -> None:
    """At once, so that a reader and a later run never see half of it."""
    draft = out / (RESULTS + ".new")
    draft.write_text(json.dumps(results, indent=1))
    draft.replace(out / RESULTS)
    (out / "summary.md").write_text("\n".join(scale_report.summary(results)) + "\n")


def kept(out: Path) -> dict:
    """By an earlier run; what is not there, or no whole, is told."""
    path = out / RESULTS
    try:
        results = json.loads(path.read_text())
        scale_report.summary(results)
    except OSError as error:
        sys.exit(f"gpu_scale: {path}: {error.strerror}; no part has ended there")
    except (ValueError, KeyError, TypeError, AttributeError):
        sys.exit(f"gpu_scale: {path} is broken")
    lines = out / "gpu.jsonl"
    last = (lines.read_text(errors="replace").splitlines() if lines.exists() else [])[-1:]
    if last and not is_json(last[0]):
        print(f"gpu_scale: the last line of {lines} is half written: its run was ended there.", file=sys.stderr)
    return results


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def put_away(out: Path) -> None:
    """What an earlier run has left, which would stand beside the new results as if it were of them."""
    old = out / OLD
    names = (RESULTS, REST, "summary.md", "gpu.md", "gpu.jsonl")
    found = [path for path in [*map(out.joinpath, names), *out.glob("*.tune")] if path.exists()]
    if found:
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir()
    for path in found:
        path.replace(old / path.name)


def pack(rest: Path, out: Path) -> None:
    """Many files as one, of each the end."""
    draft = out / (REST + ".new")
    with tarfile.open(draft, "w:gz") as archive:
        for path in sorted(rest.iterdir()) if rest.exists() else []:
            size = path.stat().st_size
            with open(path, "rb") as file:
                file.seek(max(0, size - END_BYTES))
                content = file.read(END_BYTES)
            member = tarfile.TarInfo(f"rest/{path.name}")
            member.size, member.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(member, io.BytesIO(content))
    draft.replace(out / REST)


def run_part(name: str, scene: Scene, limit: float) -> dict:
    """What a part came to: {"status": ok, failed or unavailable, "why", "seconds", "limit_s", ...}."""
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
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"gpu_scale: {chosen.out} can not be made: {error.strerror}")
    put_away(chosen.out)
    sources = source()
    results: dict = {"machine": machine(chosen.gpus), "date": date.today().isoformat(), **sources}
    results |= {"seconds": chosen.seconds, "asked": chosen.parts, "parts": {}}
    scene = Scene(chosen.out, chosen.build, results["machine"], results["parts"], source=sources)
    scene.up_to, scene.openmpi = chosen.up_to, chosen.openmpi
    shutil.rmtree(scene.rest, ignore_errors=True)
    for name in chosen.parts:
        limit = limit_of(name, chosen.parts, until - time.monotonic())
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
    results = kept(chosen.out) if chosen.report else run(chosen)
    print("\n".join(scale_report.summary(results)))
    return 0 if all(part["status"] == "ok" for part in results["parts"].values()) and results["parts"] else 1


if __name__ == "__main__":
    sys.exit(main())
