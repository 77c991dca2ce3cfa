# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch across hosts that are network namespaces: torch_test.py FOLDER. DDP and FSDP2 learn what one process learns,
and a host that dies is an exception that names it. With the argument `rank` it is one of the ranks."""

import os
import re
import signal
import sys
import time
import unittest
from datetime import timedelta

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = "."
MASTER_PORT = "29511"

# ---- a rank ----


def learn(dist, torch):
    """The gradients of both are those of one process."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
    from peers import models, training

    world = training.World(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), models.SIZES["cpu"]["small"])
    for name in ("ddp", "fsdp2"):
        way = training.WAYS[name]
        trained = way.wrap(dist.group.WORLD, world)
        for step, gradients in enumerate(training.gradients_alone(way, world)):
            trained.model.zero_grad()
            trained.learn(training.batch_of(way, world, step))
            distance = training.apart(trained.model, gradients)
            assert distance < training.APART, f"{name}: gradients are {distance:.2g} apart"
        print("learned", name)


def others(dist, torch):
    """Objects, uneven splits, messages and groups of their own."""
    rank, n = dist.get_rank(), dist.get_world_size()
    found = [None] * n
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert found == [{"rank": r, "text": "x" * r} for r in range(n)], found
    sends = torch.arange(n * (n + 1) // 2, dtype=torch.int64) + 100 * rank  # r + 1 elements for rank r
    got = torch.zeros(n * (rank + 1), dtype=torch.int64)
    dist.all_to_all_single(got, sends, [rank + 1] * n, [r + 1 for r in range(n)])
    first = rank * (rank + 1) // 2
    assert got.tolist() == [100 * r + first + i for r in range(n) for i in range(rank + 1)], got
    message = torch.full((70000,), float(rank))
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, message, (rank + 1) % n),
                                    dist.P2POp(dist.irecv, back := torch.zeros(70000), (rank - 1) % n)])
    for work in works:
        work.wait()
    assert bool((back == float((rank - 1) % n)).all())
    groups = [dist.new_group(list(range(k, n, 2))) for k in range(2)]
    total = torch.ones(1000) * rank
    dist.all_reduce(total, group=groups[rank % 2])
    assert bool((total == float(sum(range(rank % 2, n, 2)))).all())
    print("did others")


def wait_for_death(dist, torch):
    print("waiting", flush=True)
    try:
        for _ in range(100000):
            dist.all_reduce(torch.ones(1000))
            time.sleep(0.002)
    except dist.DistBackendError as error:
        print(f"failed {time.monotonic():.3f} {error}", flush=True)
        os._exit(0)  # the store of rank 0 may be gone with its host
    raise AssertionError("nothing failed")


def rank_main(words):
    import torch
    import torch.distributed as dist
    import tutti_torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("tutti", timeout=timedelta(seconds=60))
    for word in words:
        {"learn": learn, "others": others, "death": wait_for_death}[word](dist, torch)
    dist.destroy_process_group()
    print("done", flush=True)


# ---- the tests ----


class Torch(unittest.TestCase):
    def run_on(self, net, a_host, *words, env=None):
        counts = [a_host] * net.n
        variables = {"MASTER_ADDR": net.address(0), "MASTER_PORT": MASTER_PORT, "OMP_NUM_THREADS": "1",
                     "GLOO_SOCKET_IFNAME": "eth0", **(env or {})}
        ranks = net.ranks(counts, ["sh", "-c", 'RANK=$TUTTI_RANK WORLD_SIZE=$TUTTI_WORLD_SIZE '
                                   'LOCAL_RANK=$TUTTI_LOCAL_RANK LOCAL_WORLD_SIZE=$TUTTI_LOCAL_WORLD_SIZE; '
                                   'export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE; '
                                   'unset TUTTI_RANK TUTTI_WORLD_SIZE TUTTI_STORE TUTTI_JOB; exec "$@"', "sh",
                                   sys.executable, os.path.abspath(__file__), "rank", *words], env=variables)
        return ranks

    def net(self, n):
        net = hosts.Hosts(n, switch=os.path.join(FOLDER, "hosts_switch"), plain=True)
        self.addCleanup(net.close)
        return net

    def said(self, ranks):
        return "".join(f"-- rank {r.number} on h{r.host} ({r.process.poll()})\n{r.text()[-2000:]}" for r in ranks)

    def test_learns_with_a_secret(self):
        net = self.net(2)
        ranks = self.run_on(net, 2, "learn", "others")
        self.assertEqual(net.wait(ranks, 150), [0] * 4, self.said(ranks))

    def test_learns_on_a_trusted_network(self):
        net = self.net(2)
        ranks = self.run_on(net, 1, "learn", env={"TUTTI_SECRET": "", "TUTTI_TRUST_NETWORK": "1"})
        self.assertEqual(net.wait(ranks, 150), [0] * 2, self.said(ranks))

    def test_torchrun(self):
        net = self.net(2)
        static = ["--master-addr", net.address(0), "--master-port", MASTER_PORT, "--node-rank", "{0}"]
        # torchrun finds out by names who serves its store, which the hosts of this machine share
        elastic = ["--rdzv-backend", "c10d", "--rdzv-id", "tutti", "--rdzv-endpoint", f"{net.address(0)}:29512",
                   "--rdzv-conf", "is_host={1}", "--local-addr", "10.77.0.{2}"]
        for how in (static, elastic):
            agents = []
            for host in range(net.n):
                words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
                         *[word.format(host, int(host == 0), host + 1) for word in how], os.path.abspath(__file__),
                         "rank", "learn", "others"]
                output = os.path.join(net.folder, f"torchrun{host}.txt")
                variables = {"TUTTI_SECRET": "sesame", "TUTTI_HOST": f"h{host}", "OMP_NUM_THREADS": "1"}
                agents.append(hosts.Rank(host, host, net.start(host, words, variables, output), output))
            self.assertEqual(net.wait(agents, 150), [0] * 2, self.said(agents))
            self.assertEqual(sum(a.text().count("done") for a in agents), 4, self.said(agents))

    def test_host_dies(self):
        net = self.net(2)
        ranks = self.run_on(net, 2, "death")
        until = time.monotonic() + 60
        while not all("waiting" in r.text() for r in ranks) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(1)
        event = time.monotonic()
        net.signal(1, signal.SIGKILL)
        self.assertEqual(net.wait(ranks[:2], 60), [0, 0], self.said(ranks))
        for rank in ranks[:2]:
            at, text = re.search(r"^failed ([0-9.]+) (.*)", rank.text(), re.MULTILINE).groups()
            self.assertRegex(text, "[Cc]onnection closed by peer: rank [23] on host h1 died")
            self.assertLess(float(at) - event, 5)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank_main(sys.argv[2:])
        sys.exit(0)
    sys.path.insert(0, HERE)
    import hosts

    FOLDER = sys.argv.pop(1)

    def main():
        with hosts.Hosts(2, plain=True):
            pass
        unittest.main()

    hosts.or_skip(main)
