# SPDX-License-Identifier: BSD-3-Clause
"""A bare `mpirun ./hello` of Open MPI and `mpiexec ./hello` of MPICH on two hosts: no store, no secret, no variables.

launch_mpi.py openmpi|mpich HELLO
"""

import os
import shutil
import subprocess
import sys

import hosts

WHICH, HELLO = sys.argv[1:3]
PROGRAMS = {"openmpi": ("mpirun.openmpi", "mpirun"), "mpich": ("mpiexec.mpich", "mpiexec.hydra")}

# As a remote shell: options go, the host is a namespace, what follows is a command line.
SHELL = """#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; exec sh -c '$*'"
"""


def command(net, program, shell):
    a, b = net.names
    if WHICH == "openmpi":
        return [program, "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", shell,
                "--host", f"{a}:2,{b}:2", "-n", "4", HELLO]
    return [program, "-launcher", "rsh", "-launcher-exec", shell, "-iface", "eth0", "-hosts", f"{a}:2,{b}:2",
            "-n", "4", HELLO]


def main():
    program = next((p for p in PROGRAMS[WHICH] if shutil.which(p)), None)
    if not program:
        raise hosts.Unavailable(f"{WHICH} is not installed")
    with hosts.Hosts(2, plain=True) as net:
        shell = os.path.join(net.folder, "shell")
        with open(shell, "w", encoding="utf-8") as f:
            f.write(SHELL)
        os.chmod(shell, 0o755)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        done = subprocess.run(["ip", "netns", "exec", net.names[0], "unshare", "--uts", "sh", "-c",
                               f'hostname {net.names[0]}; exec "$@"', "sh", *command(net, program, shell)],
                              env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
        lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
        assert (done.returncode, lines) == (0, [f"rank {r} of 4: the sum is 10" for r in range(4)]), done


hosts.or_skip(main)
