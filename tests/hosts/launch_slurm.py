# SPDX-License-Identifier: BSD-3-Clause
"""Slurm on one machine (munged, slurmctld, two slurmd): `tutti run` inside an allocation takes hosts and ranks from it,
and srun as its remote shell; a bare srun needs no store, by PMI2 and by PMIx; examples/slurm/job.sbatch does all of it
as a batch job. Needs slurm-wlm and munge.

launch_slurm.py TUTTI HELLO
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import hosts

TUTTI, HELLO = sys.argv[1:3]
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "slurm", "job.sbatch")
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "salloc")
CONFIG = """ClusterName=tutti
SlurmctldHost=localhost
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
TmpFS={folder}/tmp-%n
NodeName=n[0-1] NodeHostname=localhost Port=[{first}-{last}] CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def ports(n):
    """The first of n ports in a row that are free now."""
    for first in range(17000 + os.getpid() % 4000, 30000, n):
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            pass
    raise hosts.Unavailable("no ports are free")


class Slurm:
    def __init__(self):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        missing = [p for p in NEEDED if not shutil.which(p)]
        if missing or os.geteuid() != 0:
            raise hosts.Unavailable(f"not installed: {' '.join(missing)}" if missing else "Slurm's daemons need root")
        self.processes, self.folder = [], tempfile.mkdtemp(prefix="tutti-slurm-")
        os.chmod(self.folder, 0o755)
        first = ports(3)
        for name in ("state", "spool-n0", "spool-n1", "tmp-n0", "tmp-n1"):
            os.mkdir(os.path.join(self.folder, name))
        self.config = os.path.join(self.folder, "slurm.conf")
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(folder=self.folder, ctld=first, first=first + 1, last=first + 2))
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(key, 0o400)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "SLURM"))}
        self.env["SLURM_CONF"] = self.config
        self.env["PATH"] = os.path.dirname(TUTTI) + ":" + self.env["PATH"]  # job.sbatch
        names = {n: os.path.join(self.folder, f"munge.{n}") for n in ("socket", "pid", "log", "seed")}
        self.start("munged", "-F", "-f", "--key-file", key, "--socket", names["socket"], "--pid-file", names["pid"],
                   "--log-file", names["log"], "--seed-file", names["seed"])
        self.wait(lambda: os.path.exists(names["socket"]), "munged")
        self.start("slurmctld", "-D", "-f", self.config)
        for node in ("n0", "n1"):
            self.start("slurmd", "-D", "-f", self.config, "-N", node)
        self.wait(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2", "the nodes")

    def start(self, *argv):
        with open(os.path.join(self.folder, "daemons.txt"), "ab") as out:
            self.processes.append(subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                                   stderr=subprocess.STDOUT, start_new_session=True))

    def run(self, *argv, seconds=25):
        return subprocess.run(argv, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=seconds)

    def wait(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                with open(os.path.join(self.folder, "daemons.txt"), encoding="utf-8", errors="replace") as f:
                    raise hosts.Unavailable(f"Slurm does not start here: {what}; {f.read()[-500:]}")
            time.sleep(0.2)

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def check(what, done, wanted):
    lines = sorted(line for line in done.stdout.splitlines() if line)
    assert (done.returncode, lines) == (0, wanted), (what, done)


def main():
    slurm = None
    try:
        slurm = Slurm()
        hello = [f"rank {r} of 4: the sum is 10" for r in range(4)]
        # Both nodes are this machine: the first is one host to the ranks, the second two.
        apart = f"TUTTI_HOST=$SLURMD_NODENAME exec {HELLO}"
        ways = [way for way in ("pmi2", "pmix") if way in slurm.run("srun", "--mpi=list").stdout]
        for way in ways:
            for what, program in (("one host", HELLO), ("two hosts", apart)):
                check(f"a bare srun --mpi={way}, {what}",
                      slurm.run("srun", "-Q", "-N", "2", "--ntasks-per-node=2", f"--mpi={way}", "sh", "-c", program),
                      hello)
        done = slurm.run("srun", "-Q", "-N", "2", "--ntasks-per-node=2", "--mpi=none", "sh", "-c", apart)
        assert done.returncode == 1 and "srun --mpi=pmix needs none of these" in done.stdout + done.stderr, done
        for way in ["run", *ways]:
            output = os.path.join(slurm.folder, f"{way}.txt")
            done = slurm.run("sbatch", "-Q", "--wait", "-o", output, "-e", output + ".err", JOB, way, "sh", "-c", apart)
            with open(output, encoding="utf-8") as f:
                done.stdout = f.read()
            check(f"a batch job, {way}", done, hello)
        check("tutti run in an allocation",
              slurm.run("salloc", "-Q", "-N", "2", "--ntasks-per-node=2", TUTTI, "run", HELLO), hello)
        check("tutti run in an allocation of one node",
              slurm.run("salloc", "-Q", "-N", "1", "--ntasks-per-node=4", TUTTI, "run", HELLO), hello)
        check("ranks of nodes",
              slurm.run("salloc", "-Q", "-N", "2", "--ntasks-per-node=1", TUTTI, "run", "--tag-output", "sh", "-c",
                        "echo $GROUP_RANK of $GROUP_WORLD_SIZE"), ["[0] 0 of 2", "[1] 1 of 2"])
        done = slurm.run("salloc", "-Q", "-N", "2", "--ntasks-per-node=1", TUTTI, "run", "sh", "-c",
                         "test $RANK = 1 && exit 7; exec sleep 30")
        assert done.returncode == 7 and "on n1) ended with exit status 7" in done.stderr, done
    finally:
        if slurm:
            slurm.close()


hosts.or_skip(main)
