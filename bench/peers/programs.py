# SPDX-License-Identifier: BSD-3-Clause
"""The peers of bench/cpu_peers.py: what each is called, how its program is made (the harness of collectives.c and one
file that calls the library), how its ranks are started, and, where something is missing, how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable

from .launch import MPI_ENVIRONMENT

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "harness"
ROOT = HERE.parent.parent
HARNESS = ("collectives", "control", "cases")
C_FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-O3", "-g", "-fPIC"]
CPP_FLAGS = ["-std=c++17", "-D_GNU_SOURCE", "-O3", "-g", "-fPIC"]
ONECCL_WHEEL = "oneccl-devel==2021.13.1"  # the last one with a shared library for CPUs alone
ONECCL_LIBRARY = Path("lib", "ccl", "cpu", "lib")
ONECCL_C = "2022.2.0"  # with the C interface, which tutti's back end takes; what is wanted of its wheels, and where to
ONECCL_C_FILES = {
    f"oneccl=={ONECCL_C}": {name: name for name in ("libccl.so.2", "libccl_legacy_cpu.so")},
    f"oneccl-cpu=={ONECCL_C}": {"libccl.so.1": "ccl/cpu/lib/libccl.so.1"},
}


class Missing(Exception):
    """A peer can not be had here; the text says what is missing and how to get it."""


@dataclass
class Program:
    """How the ranks of a peer are started: one process that starts them all, or one a rank."""

    command: list[str]
    version: str
    launcher: Callable[[int, int], list[str]] | None = None  # number of ranks, of CPUs
    env: dict[str, str] = field(default_factory=dict)
    rank_env: Callable[[int, int], dict[str, str]] = lambda rank, n: {}
    rank_prefix: Callable[[int], list[str]] = lambda rank: []  # how a process comes to where the rank is


@dataclass(frozen=True)
class Peer:
    name: str
    letter: str  # in tables
    title: str
    make: Callable[[Kit], Program]


def by_name(*peers: Peer) -> dict[str, Peer]:
    return {peer.name: peer for peer in peers}


@dataclass
class Kit:
    """Where things are built, and what the command line says about where they come from."""

    folder: Path
    tutti: Path | None = None  # a build of tutti; None: one is made
    openmpi: Path | None = None  # an unpacked tree
    oneccl: Path | None = None
    python: str | None = None  # with torch
    install: bool = False

    def build(self, output: str, sources: list[Path], command: list[str], missing: str) -> Path:
        """Runs the command, which makes `output`, unless it is newer than the sources; without a compiler what is there
        already is taken."""
        path = self.folder / output
        made = path.exists() and all(path.stat().st_mtime >= s.stat().st_mtime for s in sources)
        if made or (path.exists() and not shutil.which(command[0])):
            return path
        if not shutil.which(command[0]):
            raise Missing(f"{command[0]} is missing; {missing}")
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"{first_error(done.stderr)}; {missing}")
        return path

    def harness(self, *more: str) -> list[str]:
        """The objects that all programs share."""
        headers, objects = [SOURCES / "collectives.h"], []
        for name in (*HARNESS, *more):
            source = SOURCES / f"{name}.c"
            command = ["cc", *C_FLAGS, "-c", str(source)]
            objects.append(self.build(f"harness/{name}.o", [source, *headers], command, "a C compiler is needed"))
        return [str(o) for o in objects]

    def link(self, output: str, source: str, compiler: list[str], libraries: list[str], missing: str) -> Path:
        path, objects = SOURCES / source, self.harness("main")
        flags = CPP_FLAGS if source.endswith(".cpp") else C_FLAGS
        command = [compiler[0], *flags, *compiler[1:], f"-I{SOURCES}", f"-I{ROOT}", str(path), *objects, *libraries]
        return self.build(output, [path, SOURCES / "collectives.h", *map(Path, objects)], command, missing)


def first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower() or "undefined" in line] or text.splitlines()
    return re.sub(r"^.*?(fatal )?error: ", "", lines[0])[:160] if lines else "the compiler failed"


def output_of(command: list[str], env: dict[str, str] | None = None) -> str:
    """What it prints; nothing when it can not be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env={**os.environ, **(env or {})})
        return done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def unpack(kit: Kit, target: Path, requirement: str, place: Callable[[str], str | None]) -> None:
    """Unpacks what PyPI has into a folder of the benchmark's own; nothing is installed. place: where in it a file of
    the wheel goes; None: nowhere."""
    wheels = kit.folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), requirement]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"pip can not get {requirement}: {first_error(done.stderr)}")
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                if not (name := place(item.filename)):
                    continue
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(item))
                if path.parent.name == "bin":
                    path.chmod(0o755)
    shutil.rmtree(wheels)


def version_in(text: str, pattern: str = r"(\d+\.\d+(?:\.\d+)?)") -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""


# ---- tutti ----
def build_tutti(kit: Kit) -> Path:
    folder = kit.folder / "tutti"
    if not shutil.which("cmake"):
        if not (folder / "lib" / "libtutti.so").exists():
            raise Missing("cmake is missing, and there is no build of tutti: give one with --tutti")
        return folder
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTUTTI_BUILD_TESTS=OFF", "-DTUTTI_BUILD_EXAMPLES=OFF"]
    jobs = str(len(os.sched_getaffinity(0)))
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(folder), *generator, *options],
        ["cmake", "--build", str(folder), "--target", "tutti", "tutti_command", "-j", jobs],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"tutti can not be built: {first_error(done.stdout + done.stderr)}")
    return folder


def make_tutti(kit: Kit) -> Program:
    folder = (kit.tutti or build_tutti(kit)).resolve()
    libraries = [f"-L{folder / 'lib'}", "-ltutti", f"-Wl,-rpath,{folder / 'lib'}"]
    compiler = ["cc", f"-I{ROOT / 'include'}"]
    program = kit.link("bin/tutti", "tutti.c", compiler, libraries, "tutti must be built first")
    version = output_of(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip()
    return Program(
        [str(program)],
        version if re.fullmatch("[0-9a-f]+", version) else "",
        launcher=lambda n, cpus: [str(folder / "bin" / "tutti"), "run", "-n", str(n), "--"],
        env={"LD_LIBRARY_PATH": str(folder / "lib")},
    )


# ---- MPI ----
def find_mpi(names: tuple[str, ...], mark: str, how: str) -> tuple[str, str, str]:
    """Launcher and compiler of one implementation among those installed, and its version."""
    for name in names:
        told = output_of([name, "--version"]) if shutil.which(name) else ""
        if mark.lower() not in told.lower():
            continue
        return name, re.sub("mpirun|mpiexec", "mpicc", name), version_in(told)
    raise Missing(f"none of {', '.join(names)} is {mark}: {how}")


def openmpi_command(mpirun: str, settings: list[str]) -> Callable[[int, int], list[str]]:
    """As many slots as CPUs: beyond them Open MPI knows that it is oversubscribed, and yields."""

    def command(n: int, n_cpus: int) -> list[str]:
        hosts = ["--host", f"localhost:{n_cpus}", "--oversubscribe", "--bind-to", "none"]
        return [mpirun, *hosts, *settings, "-np", str(n)]

    return command


def make_openmpi(settings: list[str]) -> Callable[[Kit], Program]:
    def make(kit: Kit) -> Program:
        env = {**MPI_ENVIRONMENT, "OMPI_MCA_btl_base_warn_component_unused": "0"}
        how = "apt-get install openmpi-bin libopenmpi-dev, or give an unpacked tree with --openmpi"
        if kit.openmpi:
            tree = kit.openmpi.resolve()
            mpirun, compiler = str(tree / "bin" / "mpirun"), ["cc", f"-I{tree / 'include'}"]
            libraries = [f"-L{tree / 'lib'}", "-lmpi", "-Wl,--allow-shlib-undefined"]
            env.update(OPAL_PREFIX=str(tree), LD_LIBRARY_PATH=str(tree / "lib"))
            version, output = version_in(output_of([mpirun, "--version"], env)), "bin/openmpi-tree"
            if not version:
                raise Missing(f"{mpirun} does not run here")
        else:
            mpirun, wrapper, version = find_mpi(("mpirun.openmpi", "mpirun"), "Open MPI", how)
            compiler, libraries, output = [wrapper], [], "bin/openmpi"
        program = kit.link(output, "mpi.c", compiler, libraries, how)
        return Program([str(program)], version, openmpi_command(mpirun, settings), env)

    return make


def link_mpich(kit: Kit) -> tuple[Path, str, str]:
    """The program, its launcher and the version."""
    how = "apt-get install mpich libmpich-dev"
    names = ("mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra", "mpirun")
    launcher, compiler, version = find_mpi(names, "HYDRA", how)
    compiler = "mpicc.mpich" if shutil.which("mpicc.mpich") else compiler.replace("mpicc.hydra", "mpicc")
    return kit.link("bin/mpich", "mpi.c", [compiler], [], how), launcher, version


def make_mpich(kit: Kit) -> Program:
    program, launcher, version = link_mpich(kit)
    return Program([str(program)], version, lambda n, n_cpus: [launcher, "-bind-to", "none", "-np", str(n)])


# ---- Gloo ----
def make_gloo(kit: Kit) -> Program:
    how = "apt-get install libgloo-dev, or name a build of pytorch/gloo in CPATH and LIBRARY_PATH"
    program = kit.link("bin/gloo", "gloo.cpp", ["c++"], ["-lgloo", "-lpthread"], how)
    paths = [p for p in (os.environ.get("LIBRARY_PATH"), os.environ.get("LD_LIBRARY_PATH")) if p]
    return Program([str(program)], "", env={"LD_LIBRARY_PATH": ":".join(paths)} if paths else {})


def make_gloo_torch(kit: Kit) -> Program:
    say = "import torch, torch.distributed as d; print(torch.__version__, d.is_gloo_available())"
    candidates = [kit.python] if kit.python else [sys.executable, str(ROOT / ".venv" / "bin" / "python")]
    for python in candidates:
        told = output_of([python, "-c", say]).split()
        if told[1:] == ["True"]:
            break
    else:
        raise Missing("no Python with torch: ./dev setup --torch, or --python")
    objects = kit.harness()
    library = kit.build(
        "lib/libharness.so", [Path(o) for o in objects], ["cc", "-shared", *objects], "a C compiler is needed"
    )
    return Program([python, str(HERE / "torch_rank.py"), str(library)], told[0], env={"OMP_NUM_THREADS": "1"})


# ---- oneCCL ----
def unpack_oneccl(name: str) -> str | None:
    inner = re.match(r"[^/]+\.data/data/((include|lib/ccl/cpu)/.+[^/])$", name)
    return inner.group(1) if inner and not name.endswith((".a", ".so.1.0")) else None


def libfabric() -> str:
    """oneCCL opens it at run time, and does not look where the system has it."""
    found = re.search(r"libfabric\.so\.1 .*=> (\S+)", output_of(["ldconfig", "-p"]))
    if not found:
        raise Missing("oneCCL needs libfabric: apt-get install libfabric1")
    return found.group(1)


def make_oneccl(kit: Kit) -> Program:
    root = kit.oneccl or kit.folder / "oneccl"
    if not (root / "include" / "oneapi" / "ccl.hpp").exists():
        if not kit.install or kit.oneccl:
            raise Missing("no oneCCL: --install unpacks PyPI's oneccl-devel, or give a folder with --oneccl")
        unpack(kit, root, ONECCL_WHEEL, unpack_oneccl)
    lib = root.resolve() / (ONECCL_LIBRARY if (root / ONECCL_LIBRARY).exists() else "lib")
    libraries = [f"-L{lib}", "-lccl", f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined", "-lpthread", "-ldl"]
    program = kit.link("bin/oneccl", "ccl.cpp", ["c++", "-isystem", str(root / "include")], libraries, "see --oneccl")
    text = (root / "include" / "oneapi" / "ccl" / "config.h").read_text()
    numbers = [re.search(rf"CCL_{part}_VERSION\s+(\d+)", text) for part in ("MAJOR", "MINOR", "UPDATE")]
    return Program(
        [str(program)],
        ".".join(m.group(1) for m in numbers if m),
        env={**ONECCL_ENV, "CCL_OFI_LIBRARY_PATH": libfabric(), "LD_LIBRARY_PATH": str(lib)},
        rank_env=lambda rank, n: {"CCL_LOCAL_RANK": str(rank), "CCL_LOCAL_SIZE": str(n)},
    )


ONECCL_ENV = {  # shared memory between ranks, and no thread that spins beside each rank
    "CCL_ATL_TRANSPORT": "ofi",
    "FI_PROVIDER": "tcp",
    "CCL_ATL_SHM": "1",
    "CCL_WORKER_OFFLOAD": "0",
    "CCL_PROCESS_LAUNCHER": "none",
    "CCL_KVS_IFACE": "lo",
}


def make_tutti_oneccl(kit: Kit) -> Program:
    """tutti with its back end oneccl; what oneCCL lacks (gather, scan, barrier) goes by tutti's engine."""
    root = kit.folder / "oneccl_c"
    if not (root / "libccl.so.2").exists():
        if not kit.install:
            raise Missing(f"no oneCCL {ONECCL_C}: --install unpacks PyPI's")
        for requirement, files in ONECCL_C_FILES.items():  # which find one another
            unpack(kit, root, requirement, lambda path: files.get(path.partition("/data/lib/")[2]))
    program = make_tutti(kit)
    own = {"TUTTI_BACKENDS": "oneccl", "TUTTI_ONECCL_LIBRARY": str(root.resolve() / "libccl.so.2")}
    env = {**program.env, **ONECCL_ENV, "CCL_OFI_LIBRARY_PATH": libfabric(), **own}
    return replace(program, version=f"{program.version} with oneCCL {ONECCL_C}", env=env)


PEERS = by_name(
    Peer("tutti", "T", "tutti", make_tutti),
    Peer("openmpi", "O", "Open MPI", make_openmpi([])),
    Peer("openmpi_sm", "S", "Open MPI, coll/sm", make_openmpi(["--mca", "coll_sm_priority", "100"])),
    Peer("openmpi_han", "H", "Open MPI, han", make_openmpi(["--mca", "coll_han_priority", "100"])),
    Peer("mpich", "M", "MPICH", make_mpich),
    Peer("gloo", "G", "Gloo", make_gloo),
    Peer("gloo_torch", "g", "Gloo through PyTorch", make_gloo_torch),
    Peer("oneccl", "I", "oneCCL", make_oneccl),
    Peer("tutti_oneccl", "t", "tutti by oneCCL", make_tutti_oneccl),
)


def make_programs(names: list[str], kit: Kit, peers: dict[str, Peer]) -> tuple[dict[str, Program], dict[str, str]]:
    """The programs of those peers that can be had, and of the others why not."""
    programs, missing = {}, {}
    for name in names:
        try:
            programs[name] = peers[name].make(kit)
        except Missing as reason:
            missing[name] = str(reason)
    return programs, missing
