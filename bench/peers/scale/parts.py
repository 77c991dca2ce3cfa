# SPDX-License-Identifier: BSD-3-Clause
"""The parts of bench/gpu_scale.sh: each starts programs that end when its time is up, and reads what they wrote. `out`
has few files, of use by themselves; logs, pictures and records go to `rest`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import cpu_peers
import gpu_peers

from .. import pages, results
from ..programs import ROOT
from ..report import training_lines
from .programs import GRACE_S, TIME_IS_UP, Program, finish, run, start

BENCH = ROOT / "bench"
LAST_CELL_S = 20.0  # for the one that is begun when a program's time is up, and for closing
SKIPPED = 77  # what a test ends with that finds no device
CPU_RANKS = (64, 32, 16, 4)
OPEN_MPI = "openmpi,openmpi_sm"  # as it comes, and with its own way for one host


class Unavailable(Exception):
    """A part can not run here; the text says why."""


def path_of(*folders: Path) -> str:
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass
class Scene:
    """Where parts run, and what they know of one another."""

    out: Path
    build: Path
    machine: dict
    source: str  # the build has to be of it
    up_to: int | None = None
    openmpi: Path | None = None
    until: float = 0.0  # when the part has to be over, by time.monotonic
    running: list[Program] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    @property
    def rest(self) -> Path:
        return self.build / "rest"

    @property
    def library(self) -> Path:
        return self.build / "lib" / "libtutti.so"

    def need_gpu(self) -> int:
        if self.machine["n_gpus"] < 1:
            raise Unavailable("no CUDA device")
        return self.machine["n_gpus"]

    def need_build(self) -> None:
        """One that ended well, and of the sources that are here now."""
        built = self.built()
        if not self.library.exists() or not built:
            raise Unavailable(f"there is no build in {self.build}, or it did not end well")
        if built.get("source") != self.source:
            raise Unavailable(f"the build in {self.build} is of other sources: {built.get('source')}")

    def built(self) -> dict:
        """What the last build has told; nothing if it did not end well."""
        try:
            return json.loads((self.build / "built.json").read_text())
        except (OSError, ValueError):
            return {}

    def need_torch(self) -> dict:
        """Variables for programs that call the library by ctypes, beside PyTorch."""
        self.need_build()
        if not importlib.util.find_spec("torch"):
            raise Unavailable(f"no PyTorch in {sys.executable}; TUTTI_PYTHON can name a Python that has it")
        return {"PYTHONPATH": path_of(BENCH)}

    def need_package(self) -> dict:
        """Variables with which Python finds the PyTorch package."""
        self.need_build()
        built = self.built()
        if not built.get("torch"):
            raise Unavailable(f"no PyTorch package: {built.get('without_torch')}; TUTTI_PYTHON can name a Python")
        return {"PYTHONPATH": path_of(self.build / "python", BENCH)}


def lines_of(path: Path) -> list[dict]:
    """The last one may be half written."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def together(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def ended(why: str, **found) -> dict:
    return {"status": "failed" if why else "ok", "why": why, **found}


# ---- build ----


def build(scene: Scene) -> dict:
    (scene.build / "built.json").unlink(missing_ok=True)  # also when what follows can not even begin
    why = run(scene, "build", [sys.executable, "-m", "peers.scale.build", scene.build])
    return ended(why, **(scene.built() if not why else {}))


# ---- the contract suite ----


def stages(n: int) -> list[list[list[int]]]:
    """The devices of each run, 1 to 4 of them; runs of a stage share none, so that they go at once."""
    counts = list(range(1, min(n, 4) + 1))
    found = []
    while counts:
        most, first = counts.pop(), 0
        stage = [list(range(most))]
        first = most
        while fits := [k for k in counts if k <= n - first]:
            counts.remove(fits[-1])
            stage.append(list(range(first, first + fits[-1])))
            first += fits[-1]
        found.append(stage)
    return found[::-1]


def visible(devices: list[int]) -> str:
    """As CUDA_VISIBLE_DEVICES, of those that this process sees."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return ",".join(seen[d] if seen else str(d) for d in devices)


def contract(scene: Scene) -> dict:
    """Worlds of 1, 2, 3, 4 and 8 ranks on each number of devices; by NCCL of no more ranks than devices."""
    n = scene.need_gpu()
    scene.need_build()
    program = scene.build / "test" / "test_cuda_contract"
    if not program.exists():
        raise Unavailable(f"{program.name} is not built")
    planned, runs, nccl = stages(n), {}, scene.built().get("nccl")
    environment = {"TUTTI_NCCL_LIBRARY": nccl} if nccl else {}
    command = ["sh", "-c", '"$0" && TUTTI_GPU=nccl "$0"', program] if nccl else [program]
    for i, stage in enumerate(planned):
        until = time.monotonic() + scene.left / (len(planned) - i)
        begun = time.monotonic()
        started = {
            len(devices): start(
                scene,
                f"contract_{len(devices)}",
                command,
                {**environment, "CUDA_VISIBLE_DEVICES": visible(devices)},
            )
            for devices in stage
        }
        for count, one in started.items():
            status = finish(one, until)
            outcome = {0: "passed", None: TIME_IS_UP, SKIPPED: "skipped"}.get(status, "failed")
            told = "" if status == 0 else one.last_words()
            runs[str(count)] = {"outcome": outcome, "seconds": round(time.monotonic() - begun, 1), "told": told}
    bad = [f"{k} GPUs: {r['outcome']} ({r['told']})" for k, r in runs.items() if r["outcome"] != "passed"]
    return ended("; ".join(bad) or ("" if runs else "nothing was run"), runs=dict(sorted(runs.items())))


# ---- against the other libraries on GPUs ----


def peers(scene: Scene) -> dict:
    n = scene.need_gpu()
    environment = scene.need_package() if scene.built().get("torch") else scene.need_torch()
    path = scene.out / "gpu.jsonl"
    path.unlink(missing_ok=True)
    c_us, failed = c_eager(scene, n)
    arguments = ["-n", n, "--library", scene.library, "--json", path]
    arguments += ["--rounds", 5, "--seconds", max(5.0, scene.left - LAST_CELL_S)]
    arguments += ["--up-to", scene.up_to] if scene.up_to else []
    why = run(scene, "peers", [sys.executable, BENCH / "gpu_peers.py", *arguments], environment)
    lines = lines_of(path)
    (scene.out / "gpu.md").write_text("\n".join(gpu_peers.report(lines)) + "\n")
    wrong = [line for line in lines if line.get("wrong")]
    bad = together(why or (f"wrong results in {len(wrong)} cells" if wrong else ""), failed)
    planned = len(gpu_peers.plan_of(gpu_peers.options([str(word) for word in arguments]))["cells"])
    measured = sum("op" in line for line in lines)
    cells = f"{measured} of {planned} cells" if measured < planned else ""
    status = "failed" if bad or not measured else "partial" if cells else "ok"
    return {"status": status, "why": together(bad, cells), "lines": lines, "c_us": c_us}


def c_eager(scene: Scene, n: int) -> tuple[float | None, str]:
    """Microseconds of a call of 1 KiB from C, call by call, as `tutti bench` has it; or why there are none."""
    command = [scene.build / "bin" / "tutti", "bench", "all_reduce", "-n", n, "--device", "cuda", "--mode", "eager"]
    command += ["-b", 1024, "-e", 1024, "--types", "bfloat16", "--place", "out", "--json"]
    why = run(scene, "eager", command, until=time.monotonic() + min(25.0, scene.left / 4))
    if why:
        return None, f"tutti bench: {why}"
    text = (scene.rest / "eager.log").read_text(errors="replace")
    found = re.search(r'"out_of_place":\{"time_us":([0-9.]+)', text)
    return (float(found.group(1)), "") if found else (None, "tutti bench told no time")


# ---- training ----


def training(scene: Scene) -> dict:
    n = scene.need_gpu()
    environment = scene.need_package()
    path = scene.rest / "training.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, BENCH / "torch_peers.py", "--device", "cuda", "--ranks", n, "--models", "medium"]
    command += ["--json", path]
    why = run(scene, "training", [*command, "--seconds", max(4.0, scene.left - 30)], environment)
    found = json.loads(path.read_text()) if path.exists() else {}
    world = found.get("worlds", {}).get(str(n), {})
    if world:
        (scene.rest / "training.md").write_text("\n".join(training_lines(world, ["tutti", "nccl"])) + "\n")
    bad = [
        f"{kind} on {peer}: {row['reason']}"
        for kind, steps in world.get("training", {}).items()
        for peer, row in steps.items()
        if "reason" in row
    ]
    why = why or "; ".join(bad) or ("" if world else "nothing was measured")
    return ended(why, world=world)


# ---- CPUs ----


@dataclass(frozen=True)
class Job:
    """One run of cpu_peers.py: a world, what is measured in it, and its weight in the time."""

    n: int
    ops: str
    sizes: str
    memory: str
    weight: float


def cpu_jobs(n_cpus: int) -> list[Job]:
    """Small all_reduce first. Private buffers of megabytes are in huge pages, which take less time to be made."""
    worlds = [n for n in CPU_RANKS if n <= n_cpus] or [4, 2]
    small = [Job(n, "all_reduce", "8,512,64K,1M", "pages,mapped", 2.0) for n in worlds]
    large = Job(worlds[0], "all_reduce", "64M", "huge,mapped", 3.0)
    others = "all_gather,reduce_scatter,all_to_all,broadcast,barrier"
    return [small[0], large, *small[1:], Job(worlds[0], others, "8,64K,1M", "pages,mapped", 2.0)]


def cpu(scene: Scene) -> dict:
    scene.need_build()
    jobs, troubles, cut, files = cpu_jobs(scene.machine["n_cpus"]), [], [], []
    for i, job in enumerate(jobs):
        limit = scene.left * job.weight / sum(later.weight for later in jobs[i:])
        name = f"cpu_{i + 1}_{job.n}_ranks"
        path = scene.rest / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        command = [sys.executable, BENCH / "cpu_peers.py", "-n", job.n, "--ops", job.ops, "--sizes", job.sizes]
        command += ["--memory", job.memory, "--block", 20, "--pinning", "yes", "--peers", f"tutti,{OPEN_MPI}"]
        command += ["--tutti", scene.build, "--build", scene.build / "cpu", "--out", path]
        command += ["--openmpi", scene.openmpi] if scene.openmpi else []
        # Ranks take their time to start and to end, and a point is not interrupted.
        command += ["--minutes", f"{max(0.5, 0.5 * limit - GRACE_S) / 60:.3f}"]
        why = run(scene, name, command, until=time.monotonic() + limit)
        measured, lost = of_tutti(lines_of(path))
        files += [path] if lines_of(path) else []
        if why:
            (cut if measured and why.startswith(TIME_IS_UP) else troubles).append(f"{name}: {why}")
        if lost or not measured:
            troubles.append(f"{name}: {lost or 'nothing was measured of tutti'}")
    return tell_cpu(scene, files, troubles, cut)


def of_tutti(lines: list[dict]) -> tuple[int, str]:
    """How many points of its collectives there are, and why the first one that is missing is."""
    rows = [row for row in lines if row.get("peer") == results.SUBJECT and row["operation"] not in results.LIMITS]
    lost = [f"tutti: {row['operation']} {row['reason']}".replace("  ", " ") for row in rows if "reason" in row]
    return sum("us" in row for row in rows), lost[0] if lost else ""


def tell_cpu(scene: Scene, files: list[Path], troubles: list[str], cut: list[str]) -> dict:
    """Runs that were cut short have told what they had."""
    if not files:
        return ended("; ".join(troubles) or "nothing was measured")
    found = results.load(files)
    (scene.rest / "cpu.md").write_text(pages.section(cpu_peers.PAGE, found))
    for name, content in pages.pictures(cpu_peers.PAGE, found).items():
        (scene.rest / name).write_text(content)
    wrong = sum(row["peer"] == results.SUBJECT for row in found.wrong)
    if wrong:
        troubles.append(f"{wrong} results were wrong")
    missing = found.head["missing"]
    told = [f"without Open MPI: {missing['openmpi']}"] if "openmpi" in missing else []
    told += [f"cut short: {', '.join(name.split(':')[0] for name in cut)}"] if cut else []
    return ended("; ".join(troubles), files=[path.name for path in files], told="; ".join(told))


# ---- constants ----


def tune(scene: Scene) -> dict:
    """By the command, which has its own limit of time; the file's name is the one that the library looks for."""
    n = scene.need_gpu()
    if n < 2:
        raise Unavailable("one GPU has no peers")
    scene.need_build()
    name = re.sub("[^a-z0-9]+", "-", scene.machine["gpu"].lower()).strip("-") + f"-{n}.tune"
    path = scene.out / name
    path.unlink(missing_ok=True)
    seconds = int(max(1.0, min(12.0, 0.6 * scene.left)))
    command = [scene.build / "bin" / "tutti", "tune", "--device", "cuda", "-n", n, "-o", path, "--seconds", seconds]
    why = run(scene, "tune", command)
    lines = path.read_text().splitlines() if path.exists() else []
    constants = {k: float(v) for k, v in (line.split() for line in lines if line and not line.startswith("#"))}
    return ended(why or ("" if constants else "there is no file"), constants=constants, file=name)


PARTS: dict[str, Callable[[Scene], dict]] = {
    "build": build,
    "contract": contract,
    "peers": peers,
    "training": training,
    "cpu": cpu,
    "tune": tune,
}
