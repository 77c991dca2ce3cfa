# SPDX-License-Identifier: BSD-3-Clause
"""tutti doctor beside jobs that are ill: doctor_test.py FOLDER TUTTI [CLASS[.TEST] ...]. FOLDER has the programs
hosts_job and hosts_switch. The doctor is called on the first host, which reaches the others by the control plane alone.
"""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402

FOLDER, TUTTI = ".", "tutti"
PATIENCE = {"TUTTI_COMPARE_AFTER": "100s", "JOB_TIMEOUT": "200"}  # so that the job itself finds nothing out


class Case(unittest.TestCase):
    def net(self, n, plain=True):
        net = hosts.Hosts(n, switch=os.path.join(FOLDER, "hosts_switch"), plain=plain)
        self.addCleanup(net.close)
        return net

    def job(self, net, a_host, *words, env=None):
        ranks = net.ranks(a_host, [os.path.join(FOLDER, "hosts_job"), *words], env={**PATIENCE, **(env or {})})
        end = time.monotonic() + 60
        while not all("looping" in rank.text() for rank in ranks):
            self.assertLess(time.monotonic(), end, "".join(rank.text() for rank in ranks))
            time.sleep(0.05)
        time.sleep(1)
        return ranks

    def doctor(self, net, *words, host=0):
        command = [*(["ip", "netns", "exec", net.names[host]] if net else []), TUTTI, "doctor", "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertTrue(done.stdout, done.stderr)
        verdict = json.loads(done.stdout.splitlines()[0])
        self.assertEqual(done.returncode, 0 if verdict["verdict"] == "fine" else 1)
        print(f"{self.id()}: {verdict['verdict']}: {verdict['text']}", file=sys.stderr)
        return verdict

    def tells(self, verdict, kind, words, rank=None):
        self.assertEqual(verdict["verdict"], kind, json.dumps(verdict))
        self.assertRegex(verdict["text"], words)
        if rank is not None:
            self.assertEqual(verdict["rank"], rank, verdict["text"])


class Hosts(Case):
    def test_fine(self):
        net = self.net(2)
        self.job(net, 2, "loop=60")
        verdict = self.doctor(net)
        self.tells(verdict, "fine", "nothing is wrong with the 4 ranks: calls on communicator .* went from #")
        self.assertEqual([r["host"] for r in verdict["ranks"]], ["h0", "h0", "h1", "h1"])
        self.assertTrue(all(r["known"] and r["pid"] > 0 and r["process"] for r in verdict["ranks"]))

    def test_hosts_of_one_name(self):
        net = self.net(2)
        self.job(net, 1, "loop=60", env={"TUTTI_HOST": ""})
        name = os.uname().nodename
        for host in (0, 1):
            verdict = self.doctor(net, host=host)
            self.assertEqual([r["host"] for r in verdict["ranks"]], [f"{name} (10.77.0.1)", f"{name} (10.77.0.2)"])

    def test_sockets(self):
        """How many go by which interface: one for control, the first one, and those for what is large."""
        net = self.net(2)
        net.join(0, 1, "eth1", 1)
        self.job(net, 1, "large=4", "loop=60", env={"TUTTI_INTERFACE": "eth0,eth1", "TUTTI_SOCKETS": "3"})
        here, there = self.doctor(net)["ranks"]
        self.assertEqual({(s["interface"], s["from"], s["to"]): s["n"] for s in here["sockets"]},
                         {("eth0", "10.77.0.1", "10.77.0.2"): 5, ("eth1", "10.78.0.1", "10.78.0.2"): 3})
        self.assertEqual(there["sockets"], [])

    def test_missing_call(self):
        net = self.net(2)
        self.job(net, 2, "miss=3")
        for host in (0, 1):
            self.tells(self.doctor(net, host=host), "missing call",
                       r"^rank 3 on host h1 has not called all_reduce #6 .*, which 3 ranks have been waiting in for", 3)

    def test_missing_call_hosts_of_one(self):
        net = self.net(3)
        self.job(net, 1, "miss=1")
        self.tells(self.doctor(net), "missing call", r"^rank 1 on host h1 has not called all_reduce #6 ", 1)

    def test_mismatch(self):
        net = self.net(2)
        self.job(net, 1, "differ=1")  # each waits for the other: no packet tells them
        self.tells(self.doctor(net), "mismatch",
                   r"^rank 1 on host h1 called broadcast\(.*root 0\) as #6 .*, rank 0 on host h0 called .*root 1\)", 1)

    def test_stopped(self):
        net = self.net(2)
        ranks = self.job(net, 2, "loop=60", env={"TUTTI_HOST_TIMEOUT": "60s"})
        os.kill(ranks[3].process.pid, signal.SIGSTOP)  # not the one that speaks for its host
        time.sleep(1)
        self.tells(self.doctor(net), "stopped",
                   r"^rank 3 on host h1 is stopped .*: process [0-9]+; [1-3] ranks? ha.* waited in all_reduce #", 3)

    def test_stopped_speaker(self):
        net = self.net(2)
        ranks = self.job(net, 2, "loop=60", env={"TUTTI_HOST_TIMEOUT": "60s"})
        os.kill(ranks[2].process.pid, signal.SIGSTOP)
        time.sleep(1)
        self.tells(self.doctor(net), "stopped", r"^rank 2 on host h1 is stopped, or does not get to run", 2)
        self.tells(self.doctor(net, host=1), "stopped", r"^rank 2 on host h1 is stopped", 2)

    def test_host_that_is_cut_off(self):
        net = self.net(2)
        self.job(net, 2, "loop=60", env={"TUTTI_HOST_TIMEOUT": "60s"})
        net.down(1)
        time.sleep(1)
        self.tells(self.doctor(net), "unheard", r"^rank 2 on host h1 .*and no connection to its host can be made", 2)

    def test_dead(self):
        net = self.net(3)
        ranks = self.job(net, 2, "miss=0")
        os.kill(ranks[5].process.pid, signal.SIGKILL)
        ranks[5].process.wait()
        time.sleep(1)
        verdict = self.doctor(net, host=1)
        self.tells(verdict, "dead", r"^rank 5 on host h2 died", 5)

    def test_message_that_is_not_sent(self):
        net = self.net(2)
        self.job(net, 1, "recv")
        self.tells(self.doctor(net), "missing message",
                   r"^rank 1 on host h1 has not sent the message with tag 0 that rank 0 on host h0 waits for", 1)

    def test_slow_rank(self):
        net = self.net(2)
        self.job(net, 1, "slow=1")
        self.tells(self.doctor(net, "--watch", "4s"), "slow rank", r"^rank 1 on host h1 is slow: in [0-9]+ of", 1)

    def test_slow_rank_from_everywhere(self):
        """The same verdict on its host and on the other, of a rank that is late by less than an answer takes."""
        for a_host, slow in ((1, 0), (2, 3), (2, 2)):
            net = self.net(2)
            self.job(net, a_host, f"slow={slow}", env={"JOB_SLEEP_MS": "60"})
            for host in (0, 1):
                verdict = self.doctor(net, host=host)
                self.tells(verdict, "slow rank", rf"^rank {slow} on host h{slow // a_host} is slow: in", slow)
                self.assertLess(verdict["seconds"], 1, json.dumps(verdict))
            net.close()

    def test_slow_link(self):
        net = self.net(2, plain=False)
        net.link(delay_us=100000)
        self.job(net, 1, "loop=60")
        self.tells(self.doctor(net, "--watch", "6s"), "slow link", r"^the link between rank . on host h. and rank")

    def test_dumps_of_two_hosts(self):
        net = self.net(2)
        self.job(net, 2, "miss=3")
        files = [os.path.join(net.folder, f"looks.{host}") for host in (0, 1)]
        for host in (0, 1):
            self.doctor(net, "--watch", "1s", "--dump", files[host], host=host)
        net.signal(0, signal.SIGKILL)
        net.signal(1, signal.SIGKILL)
        for dumps in (files, files[:1], files[1:]):
            self.tells(self.doctor(None, *dumps), "missing call", r"^rank 3 on host h1 has not called", 3)


class OneHost(Case):
    """In a namespace of its own, so that no other job is seen; ranks share memory, and short calls pass the engine."""

    def setUp(self):
        self.one = self.net(1)

    def test_fine(self):
        self.job(self.one, 3, "loop=60")
        self.tells(self.doctor(self.one), "fine", "nothing is wrong with the 3 ranks")

    def test_missing_call(self):
        self.job(self.one, 3, "miss=1")
        self.tells(self.doctor(self.one), "missing call",
                   r"^rank 1 has not called all_reduce #6 .*2 ranks have been waiting.*its last call there is .*#5", 1)

    def test_stopped(self):
        ranks = self.job(self.one, 3, "loop=60")
        os.kill(ranks[0].process.pid, signal.SIGSTOP)
        time.sleep(1)
        self.tells(self.doctor(self.one), "stopped", r"^rank 0 is stopped", 0)

    def test_dead(self):
        ranks = self.job(self.one, 3, "miss=0")
        os.kill(ranks[2].process.pid, signal.SIGKILL)
        ranks[2].process.wait()
        time.sleep(1)
        self.tells(self.doctor(self.one), "dead", r"^rank 2 died: its process is gone", 2)

    def test_slow_rank(self):
        self.job(self.one, 2, "slow=1")
        self.tells(self.doctor(self.one, "--watch", "4s"), "slow rank", r"^rank 1 is slow", 1)

    def test_nobody(self):
        done = subprocess.run(["ip", "netns", "exec", self.one.names[0], TUTTI, "doctor"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no ranks of this user", done.stderr)


class Cluster(Case):
    """tutti info --cluster, under tutti run on three hosts of which one has a slow link."""

    def test_links(self):
        net = self.net(3, plain=False)
        net.link(delay_us=2000)
        net.link(0, 2, delay_us=20000)
        svg, names = os.path.join(net.folder, "links.svg"), net.names
        command = [TUTTI, "run", "--remote-shell", "ip netns exec", "--hosts",
                   f"{names[0]}:2,{names[1]}:1,{names[2]}:1", TUTTI, "info", "--cluster", "--json", "--svg", svg]
        done = subprocess.run(["ip", "netns", "exec", names[0], *command], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster = json.loads(done.stdout)
        self.assertEqual(cluster["hosts"], 3)
        self.assertEqual(len({rank["host"] for rank in cluster["ranks"]}), 3)
        self.assertEqual([rank["address"] for rank in cluster["ranks"]],
                         ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.3"])
        print(f"{self.id()}: us {cluster['latency_us']}, GB/s {cluster['gb_s_1MiB']}", file=sys.stderr)
        for a in range(4):
            self.assertIsNone(cluster["latency_us"][a][a])
            for b in range(4):
                if a == b:
                    continue
                latency = cluster["latency_us"][a][b]
                least = 0 if {a, b} == {0, 1} else 2000 if 2 in (a, b) else 10000  # there and back, halved
                self.assertGreater(latency, least)
                self.assertGreater(cluster["gb_s_1MiB"][a][b], 0)
        slow = cluster["latency_us"][0][3]
        self.assertGreater(slow, 2 * cluster["latency_us"][0][2])
        root = xml.etree.ElementTree.parse(svg).getroot()
        titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(len(titles), 2 * 4 * 3)
        self.assertTrue(any(t.startswith(f"rank 0 on host {cluster['ranks'][0]['host']} to rank 3") for t in titles))


if __name__ == "__main__":
    FOLDER, TUTTI = sys.argv[1:3]
    try:
        hosts.Hosts(1, plain=True).close()
    except hosts.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(hosts.SKIP)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
