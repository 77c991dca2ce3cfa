# SPDX-License-Identifier: BSD-3-Clause
"""torchrun starts a program that is not Python on two hosts, which sets nothing but the secret; and MASTER_ADDR and
MASTER_PORT by hand. Where something is missing all of it is told at once, on every rank.

launch_torchrun.py HELLO [PYTHON]: the one that has torch; without it torchrun is left out.
"""

import os
import re
import sys

import hosts

HELLO, PYTHON = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
PORT = "29511"
SECRET = {"TUTTI_SECRET": "sesame"}
DONE = [f"rank {r} of 4: the sum is 10" for r in range(4)]
WHOLE = "TUTTI_TIMEOUT_CREATE"


def clean():
    mine = ("TUTTI_", "SLURM_", "PMI", "OMPI_")
    return {k: "" for k in os.environ if k.startswith(mine)}


def ended(net, started, seconds):
    """Exit statuses and all that was printed; the deadline of the ranks is longer than this waits."""
    statuses = net.wait(started, seconds)
    return statuses, "".join(s.text() for s in started)


def torchrun(net, how, env, program=(HELLO,), restarts=0):
    """A node of two ranks on each host."""
    agents = []
    for host in range(net.n):
        # torchrun finds out by names who serves its store, which the hosts of this machine share
        words = {"static": ["--master-addr", net.address(0), "--master-port", PORT, "--node-rank", str(host)],
                 "c10d": ["--rdzv-backend", "c10d", "--rdzv-id", "tutti", "--rdzv-endpoint", f"{net.address(0)}:{PORT}",
                          "--rdzv-conf", f"is_host={int(host == 0)}", "--local-addr", net.address(host)]}[how]
        output = os.path.join(net.folder, f"torchrun-{how}-{len(os.listdir(net.folder))}.txt")
        argv = [PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
                "--max-restarts", str(restarts), *words, "--no-python", *program]
        variables = {**clean(), "TUTTI_HOST": f"h{host}", "OMP_NUM_THREADS": "1", WHOLE: "200s", **env}
        agents.append(hosts.Rank(host, host, net.start(host, argv, variables, output), output))
    return ended(net, agents, 100)


def by_hand(net, variables, env):
    """Four ranks, two on each host; variables: of launchers, with the rank {0}, that on its host {1}, the host {2}."""
    ranks = []
    for rank in range(4):
        mine = {k: v.format(rank, rank % 2, rank // 2) for k, v in variables.items()}
        output = os.path.join(net.folder, f"hand-{len(os.listdir(net.folder))}.txt")
        mine = {**clean(), "TUTTI_HOST": f"h{rank // 2}", WHOLE: "200s", **mine, **env}
        ranks.append(hosts.Rank(rank, rank // 2, net.start(rank // 2, [HELLO], mine, output), output))
    return ended(net, ranks, 60)


def works(what, outcome, n):
    statuses, text = outcome
    lines = sorted(line for line in text.splitlines() if re.match("rank . of", line))
    assert (statuses, lines) == ([0] * n, DONE), (what, statuses, text)


def tells(what, outcome, *words, least=4):
    statuses, text = outcome
    assert all(statuses) and None not in statuses, (what, statuses, text)
    said = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(said) >= least, (what, text)


def main():
    with hosts.Hosts(2, plain=True) as net:
        sizes = {"RANK": "{0}", "WORLD_SIZE": "4"}
        local = {"LOCAL_RANK": "{1}", "LOCAL_WORLD_SIZE": "2"}
        master = {"MASTER_ADDR": net.address(0), "MASTER_PORT": PORT}
        slurm = {"SLURM_PROCID": "{0}", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "{1}", "SLURM_NODEID": "{2}",
                 "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}
        works("by hand", by_hand(net, {**sizes, **local, **master}, SECRET), 4)
        works("by hand, nobody says how many are here", by_hand(net, {**sizes, **master}, SECRET), 4)
        works("by hand, IPv6", by_hand(net, {**sizes, **local, **master, "MASTER_ADDR": "fd77::1"}, SECRET), 4)
        works("srun", by_hand(net, {**slurm, **master}, SECRET), 4)
        works("a trusted network", by_hand(net, {**sizes, **local, **master}, {"TUTTI_TRUST_NETWORK": "1"}), 4)
        tells("srun --mpi=none", by_hand(net, slurm, {}), "Slurm started 2 of 4 ranks on this host", "TUTTI_STORE",
              "MASTER_PORT", "srun --mpi=pmix", "TUTTI_SECRET")
        tells("no secret", by_hand(net, {**sizes, **local, **master}, {}), "on host h0 and on host h1",
              "hosts do not talk without the job's secret", "TUTTI_SECRET_FILE", "TUTTI_TRUST_NETWORK=1")
        statuses, text = by_hand(net, slurm, SECRET)
        assert all(statuses) and "TUTTI_STORE" in text and "secret" not in text, (statuses, text)
        if not PYTHON:
            return
        for how in ("static", "c10d"):
            works(f"torchrun, {how}", torchrun(net, how, SECRET), 2)
        # The first gang fails when it is done; some of it may be ended before it prints.
        again = ("sh", "-c", f"{HELLO} | sed s/of/$TORCHELASTIC_RESTART_COUNT/; test $TORCHELASTIC_RESTART_COUNT = 1")
        statuses, text = torchrun(net, "c10d", SECRET, again, 1)
        lines = sorted(line for line in text.splitlines() if re.match("rank . 1 4", line))
        assert (statuses, lines) == ([0, 0], [f"rank {r} 1 4: the sum is 10" for r in range(4)]), (statuses, text)
        # When one rank has failed torchrun ends those beside it, which may not have said it yet.
        tells("torchrun without a secret", torchrun(net, "static", {}), "on host h0", "on host h1",
              "hosts do not talk without the job's secret", "TUTTI_SECRET_FILE", "TUTTI_TRUST_NETWORK=1", least=2)


hosts.or_skip(main)
