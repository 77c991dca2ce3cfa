# SPDX-License-Identifier: BSD-3-Clause
"""Peers that are let in, and what a listener reads: trust_test.py FOLDER, as hosts_test.py."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import hosts_test  # noqa: E402

STRANGER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stranger.py")


class Trust(hosts_test.Case):
    """A peer that does not know the secret is refused."""

    def refused(self, env, words, on_last=None):
        net = self.net(2, plain=True)
        program = [os.path.join(hosts_test.FOLDER, "hosts_job"), "all"]
        without = () if on_last is None else (1,)
        ranks = net.ranks(1, program, env={"JOB_TIMEOUT": "3", **env}, without=without)
        if without:
            ranks.append(self.late(net, ranks[0], program, {"JOB_TIMEOUT": "3", **env, **on_last}))
        net.wait(ranks, 30)
        text = self.said(ranks)
        self.assertNotIn("ready", text)
        for rank in ranks:
            self.assertEqual(rank.process.poll(), 1, text)
        for said in [rank.text() for rank in ranks] if on_last is None else [text]:
            self.assertRegex(said, words, text)

    def late(self, net, first, program, env):
        """Rank 1 of 2, of the job of rank 0."""
        job = os.path.basename(first.output).rsplit("-", 1)[0]
        output = first.output.replace("-0.txt", "-1.txt")
        variables = {"TUTTI_RANK": "1", "TUTTI_WORLD_SIZE": "2", "TUTTI_LOCAL_RANK": "0", "TUTTI_LOCAL_WORLD_SIZE": "1",
                     "TUTTI_STORE": f"file://{os.path.join(net.folder, job)}", "TUTTI_JOB": job, "TUTTI_HOST": "h1",
                     **env}
        return hosts.Rank(1, 1, net.start(1, program, variables, output), output)

    def test_no_secret(self):
        """Long before the deadline of the creation."""
        self.refused({"TUTTI_SECRET": "", "JOB_TIMEOUT": "100"}, "TUTTI_TRUST_NETWORK")

    def test_wrong_secret(self):
        self.refused({}, "secret", on_last={"TUTTI_SECRET": "guess"})

    def test_encrypt_needs_a_secret(self):
        self.refused({"TUTTI_SECRET": "", "TUTTI_TRUST_NETWORK": "1", "TUTTI_ENCRYPT": "1"}, "encrypt needs")

    def stranger(self, net, host, *words):
        """stranger.py on this host; returns the file that it writes to."""
        path = os.path.join(net.folder, f"stranger-{words[0]}-{time.monotonic_ns()}")
        net.start(host, [sys.executable, STRANGER, *words, *([path] if words == ("listen",) else [])],
                  output=path if words != ("listen",) else None)
        return path

    def written(self, path, word, seconds=60):
        """Waits for a word in what a stranger writes; returns all of it."""
        end, text = time.monotonic() + seconds, ""
        while word not in text:
            self.assertLess(time.monotonic(), end, f"no '{word}' in {seconds} s")
            time.sleep(0.05)
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    text = file.read()
        return text

    def readable(self, env):
        """What a listener reads of a job."""
        net = self.net(2, plain=True)
        path = self.stranger(net, 0, "listen")
        self.written(path, "listens")
        self.ends_well(net, self.job(net, 1, "loop=2", env=env))
        time.sleep(0.5)
        return self.written(path, "frame")

    def test_who_listens_reads_no_control(self):
        text = self.readable({})
        self.assertNotIn("ping", text)
        self.assertIn("tls", text)
        self.assertIn("goodbye", text)

    def test_who_listens_reads_nothing(self):
        text = self.readable({"TUTTI_ENCRYPT": "1"})
        self.assertNotIn("ping", text)
        self.assertNotIn("goodbye", text)

    def test_who_listens_to_a_trusted_network_reads_all(self):
        text = self.readable({"TUTTI_SECRET": "", "TUTTI_TRUST_NETWORK": "1"})
        self.assertIn("ping", text)
        self.assertNotIn("tls", text)

    def ports(self, net, host):
        done = subprocess.run(["ip", "netns", "exec", net.names[host], "ss", "-Hltn"], capture_output=True, text=True,
                              timeout=20, check=True)
        return [line.split()[3].rsplit(":", 1)[1] for line in done.stdout.splitlines()]

    def test_a_range_of_ports(self):
        """All that listens while a job meets and runs is in the range; one that is too small is told."""
        net = self.net(2, plain=True)
        program = [os.path.join(hosts_test.FOLDER, "hosts_job"), "all"]
        ranks = net.ranks(2, [*program, "loop=4"], env={"TUTTI_PORT_RANGE": "21000-21003", "JOB_TIMEOUT": "60"})
        seen, end = set(), time.monotonic() + 100
        while any(rank.process.poll() is None for rank in ranks):
            self.assertLess(time.monotonic(), end)
            seen.update(port for host in range(2) for port in self.ports(net, host))
        self.ends_well(net, ranks)
        self.assertTrue(seen and seen <= {"21000", "21001", "21002", "21003"}, seen)
        ranks = net.ranks(2, program, env={"TUTTI_PORT_RANGE": "21000", "JOB_TIMEOUT": "5"})
        net.wait(ranks, 60)
        self.assertIn("none of the 1 ports of TUTTI_PORT_RANGE=21000-21000 is free", self.said(ranks))

    def attack(self, env):
        """Floods, garbage, what was heard, and what was heard and changed: the job goes on, the log says who it was."""
        net = self.net(3, plain=True)
        heard = [self.stranger(net, host, "listen") for host in range(2)]
        for path in heard:
            self.written(path, "listens")
        ranks = net.ranks([1, 1], [os.path.join(hosts_test.FOLDER, "hosts_job"), "all", "loop=12"], hosts=[0, 1],
                          env={"TUTTI_LOG": "warn", **env})
        self.until(ranks, "looping", 60)
        said = [self.stranger(net, 2, "attack", heard[host], net.address(host), *self.ports(net, host))
                for host in range(2)]
        said = [self.written(path, "refused", 100) for path in said]
        self.assertIn("tried", "".join(said))
        self.assertNotIn("admitted", "".join(said))
        self.ends_well(net, ranks)
        self.assertIn("refused a connection from 10.77.0.3", self.said(ranks))

    def test_stranger_at_a_job(self):
        self.attack({})

    def test_the_secret_stays_secret(self):
        """In no log, in no file that is left, on no command line."""
        net = self.net(2, plain=True)
        ranks = self.job(net, 1, "loop=3", env={"TUTTI_LOG": "debug"})
        self.until(ranks, "looping", 60)
        for host in range(2):
            for pid in net.pids(host):
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    self.assertNotIn(b"sesame", line.read())
        self.ends_well(net, ranks)
        for folder, _, names in os.walk(net.folder):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.assertNotIn(b"sesame", file.read(), name)

    def test_stranger_at_a_meeting(self):
        """While a rank is late: it gets through all the same."""
        net = self.net(3, plain=True)
        program = [os.path.join(hosts_test.FOLDER, "hosts_job"), "all", "loop=1"]
        ranks = net.ranks([1, 1], program, hosts=[0, 1], without=(1,), env={"TUTTI_LOG": "warn"})
        end = time.monotonic() + 20
        while not (ports := self.ports(net, 0)) and time.monotonic() < end:
            time.sleep(0.1)
        self.written(self.stranger(net, 2, "attack", "/dev/null", net.address(0), *ports), "refused", 100)
        ranks.append(self.late(net, ranks[0], program, {"TUTTI_SECRET": "sesame"}))
        self.ends_well(net, ranks)
        self.assertIn("refused 10.77.0.3 at the meeting of the ranks", self.said(ranks))

    def test_trusted_network(self):
        net = self.net(2, plain=True)
        self.ends_well(net, self.job(net, 1, "loop=1", env={"TUTTI_SECRET": "", "TUTTI_TRUST_NETWORK": "1"}))


if __name__ == "__main__":
    hosts_test.main()
