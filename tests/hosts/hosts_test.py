# SPDX-License-Identifier: BSD-3-Clause
"""The library across hosts that are network namespaces: hosts_test.py FOLDER [CLASS[.TEST] ...]; FOLDER has the
programs hosts_job, hosts_windows and hosts_switch. Times are from an event to the sentence that a rank says of it, on
one clock."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402

FOLDER = "."
STRANGER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stranger.py")


def slack():
    """Seconds beyond what is promised: none where the CPUs are ours."""
    return 0.0 if os.getloadavg()[0] < 2 * os.cpu_count() else 3.0


class Case(unittest.TestCase):
    def net(self, n, plain=False):
        net = hosts.Hosts(n, switch=os.path.join(FOLDER, "hosts_switch"), plain=plain)
        self.addCleanup(net.close)
        return net

    def job(self, net, a_host, *words, env=None, without=()):
        return net.ranks(a_host, [os.path.join(FOLDER, "hosts_job"), *words], env=env, without=without)

    def until(self, ranks, word, seconds):
        """Waits until each has said this; returns the rests of the lines."""
        end, pattern = time.monotonic() + seconds, re.compile(rf"^{word} (.*)\n", re.MULTILINE)
        found = {}
        while len(found) < len(ranks):
            for rank in ranks:
                match = pattern.search(rank.text())
                if match:
                    found[rank.number] = match.group(1)
            if len(found) < len(ranks) and time.monotonic() > end:
                self.fail(f"not all said '{word}' within {seconds} s:\n" + self.said(ranks))
            time.sleep(0.05)
        return [found[rank.number] for rank in ranks]

    def said(self, ranks):
        return "".join(f"-- rank {r.number} on host h{r.host} ({r.process.poll()})\n{r.text()[-1500:]}" for r in ranks)

    def ends_well(self, net, ranks, seconds=120):
        statuses = net.wait(ranks, seconds)
        self.assertEqual(statuses, [0] * len(ranks), self.said(ranks))

    def failures(self, ranks, event, within, rank, host, words):
        """Each says in time that this rank on that host is the culprit, in these words; None: any of them."""
        late = []
        for r, line in zip(ranks, self.until(ranks, "failed", within + 30)):
            at, status, text = line.split(" ", 2)
            late.append(float(at) - event)
            self.assertIn(status, ("TUTTI_ERR_PEER_DEAD", "TUTTI_ERR_TIMEOUT"), self.said(ranks))
            self.assertRegex(text, words)
            who = rank if rank is not None else "[0-9]+"
            self.assertRegex(text, rf"rank {who} on host {host} died", self.said(ranks))
        print(f"{self.id()}: told within {max(late):.3f} s on {len(ranks)} ranks; {text}", file=sys.stderr)
        self.assertLess(max(late), within + slack(), self.said(ranks))

    def goes_on(self, net, ranks, n):
        for line in self.until(ranks, "shrunk", 60):
            self.assertEqual(line.split()[1], str(n), self.said(ranks))
        self.ends_well(net, ranks, 30)


class Plain(Case):
    """Links that are as the kernel's."""

    def test_two_hosts(self):
        net = self.net(2, plain=True)
        self.ends_well(net, self.job(net, 2, "all"))

    def test_three_hosts_ragged(self):
        net = self.net(3, plain=True)
        self.ends_well(net, self.job(net, [1, 3, 2], "all"))

    def test_four_hosts_of_one(self):
        net = self.net(4, plain=True)
        self.ends_well(net, self.job(net, 1, "all"))


    def test_names_that_are_alike(self):
        """Namespaces are hosts by themselves; where their names are the same, sentences have the address, too."""
        net = self.net(2, plain=True)
        ranks = self.job(net, 2, "all", "fail", env={"TUTTI_HOST": ""})
        self.until(ranks, "looping", 40)
        os.kill(ranks[2].process.pid, signal.SIGKILL)
        for line in self.until(ranks[:2], "failed", 20):
            self.assertRegex(line, r"rank 2 on host [^ ]+ \(10\.77\.0\.2\) died", self.said(ranks))


class Links(Case):
    """Links that are bad, but not so bad that a host is taken for dead."""

    def test_delay(self):
        net = self.net(2)
        net.link(delay_us=50000)
        self.ends_well(net, self.job(net, 1, "loop=5"))

    def test_loss(self):
        net = self.net(2)
        net.link(loss=0.01)
        self.ends_well(net, self.job(net, 2, "all"))

    def test_duplicates(self):
        net = self.net(3)
        net.link(duplicate=0.05, jitter_us=200)
        self.ends_well(net, self.job(net, 1, "all"))

    def test_slow_host(self):
        net = self.net(3)
        net.rate(2, rate_mbit=200)
        self.ends_well(net, self.job(net, 1, "all"))

    def test_down_and_up(self):
        net = self.net(3)
        ranks = self.job(net, 1, "loop=8")
        self.until(ranks, "looping", 30)
        for host in range(3):
            net.link(host, "*", cut=1)
            time.sleep(1.5)
            net.link(host, "*", cut=0)
            time.sleep(0.5)
        self.ends_well(net, ranks)

    def test_interface_down_and_up(self):
        net = self.net(2)
        ranks = self.job(net, 2, "loop=6")
        self.until(ranks, "looping", 30)
        net.down(1)
        time.sleep(2)
        net.up(1)
        self.ends_well(net, ranks)

    def test_stopped_for_a_while(self):
        net = self.net(3)
        ranks = self.job(net, 2, "loop=6")
        self.until(ranks, "looping", 30)
        net.signal(1, signal.SIGSTOP)
        time.sleep(3)
        net.signal(1, signal.SIGCONT)
        self.ends_well(net, ranks)


class Deaths(Case):
    """Who is gone is told to all, in time and by name; the others go on."""

    def looping(self, net, a_host, word="fail"):
        ranks = self.job(net, a_host, word)
        self.until(ranks, "looping", 40)
        time.sleep(0.5)
        return ranks

    def on(self, ranks, *gone):
        return [r for r in ranks if r.host not in gone]

    def test_killed_process(self):
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2)
        event = time.monotonic()
        os.kill(ranks[3].process.pid, signal.SIGKILL)
        rest = [r for r in ranks if r.number != 3]
        self.failures(rest, event, 0.5, 3, "h1", "connection closed by peer")
        self.goes_on(net, rest, 5)

    def test_killed_speaker(self):
        """The process that links its host with the others."""
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2)
        event = time.monotonic()
        os.kill(ranks[2].process.pid, signal.SIGKILL)
        rest = [r for r in ranks if r.number != 2]
        self.failures(rest, event, 0.5, 2, "h1", "connection closed by peer")
        self.goes_on(net, rest, 5)

    def test_messages(self):
        """Ranks that wait for a message, and ranks that compute."""
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2, "recv")
        event = time.monotonic()
        os.kill(ranks[5].process.pid, signal.SIGKILL)
        self.failures(ranks[:5], event, 0.5, 5, "h2", "connection closed by peer.*recv from rank 5 on host h2")
        self.goes_on(net, ranks[:5], 5)

    def test_killed_first_rank(self):
        net = self.net(2, plain=True)
        ranks = self.looping(net, 2)
        event = time.monotonic()
        os.kill(ranks[0].process.pid, signal.SIGKILL)
        self.failures(ranks[1:], event, 0.5, 0, "h0", "connection closed by peer")
        self.goes_on(net, ranks[1:], 3)

    def vanished(self, host, a_host=2, n=3):
        net = self.net(n)
        ranks = self.looping(net, a_host)
        event = time.monotonic()
        net.vanish(host)
        rest = self.on(ranks, host)
        self.failures(rest, event, 5.9, None, f"h{host}", "connection closed by peer")
        self.goes_on(net, rest, len(rest))

    def test_vanished(self):
        self.vanished(2)

    def test_vanished_root(self):
        self.vanished(0)

    def test_vanished_one_of_two(self):
        self.vanished(1, n=2)

    def test_partition_one_way(self):
        """What host 2 sends is lost; it still hears the others."""
        net = self.net(3)
        ranks = self.looping(net, 1)
        event = time.monotonic()
        net.cut(2, 0)
        net.cut(2, 1)
        rest = self.on(ranks, 2)
        self.failures(rest, event, 5.9, 2, "h2", "connection closed by peer")
        self.goes_on(net, rest, 2)
        self.failures(self.on(ranks, 0, 1), event, 10.9, None, "h[01]", "connection closed by peer")

    def test_stopped_for_long(self):
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2)
        event = time.monotonic()
        net.signal(1, signal.SIGSTOP)
        rest = self.on(ranks, 1)
        self.failures(rest, event, 5.9, None, "h1", "connection closed by peer")
        self.goes_on(net, rest, 4)
        event = time.monotonic()
        net.signal(1, signal.SIGCONT)
        self.failures(self.on(ranks, 0, 2), event, 5.9, None, "h[02]", "connection closed by peer")


    def test_two_hosts_vanish(self):
        net = self.net(4)
        ranks = self.looping(net, 1)
        event = time.monotonic()
        net.vanish(0)
        net.vanish(1)  # who would be the next to link all others
        rest = self.on(ranks, 0, 1)
        self.failures(rest, event, 5.9, None, "h[01]", "connection closed by peer")
        self.goes_on(net, rest, 2)
        shrunk = max(float(line.split()[0]) for line in self.until(rest, "shrunk", 1))
        self.assertLess(shrunk - event, 12 + slack())

    def test_deadline(self):
        """A deadline that passes before a host is told dead names the host that is waited for."""
        net = self.net(2)
        ranks = self.job(net, 1, "fail", env={"JOB_TIMEOUT": "2"})
        self.until(ranks, "looping", 40)
        net.cut(1, 0)
        net.cut(0, 1)
        for rank, line in zip(ranks, self.until(ranks, "failed", 15)):
            self.assertRegex(line, f"TUTTI_ERR_TIMEOUT .* timed out after 2000 ms.* rank {1 - rank.host} on host "
                                   f"h{1 - rank.host}", self.said(ranks))


class Windows(Case):
    """One-sided calls: in place on a host, by messages between hosts, and both in one window."""

    def windows(self, net, a_host, *words):
        return net.ranks(a_host, [os.path.join(FOLDER, "hosts_windows"), *words])

    def test_two_hosts(self):
        net = self.net(2, plain=True)
        self.ends_well(net, self.windows(net, 3, "ring"))

    def test_far_links(self):
        net = self.net(2)
        net.link(delay_us=50000, loss=0.01)
        self.ends_well(net, self.windows(net, 1, "ring"), 250)

    def test_bad_links(self):
        net = self.net(3)
        net.link(loss=0.01, duplicate=0.02, jitter_us=200)
        self.ends_well(net, self.windows(net, [1, 2, 1], "ring"))

    def test_killed(self):
        """Ranks that wait for its signal, and ranks that put at it, on its host and on others."""
        net = self.net(2, plain=True)
        ranks = self.windows(net, 2, "fail")
        self.until(ranks, "looping", 40)
        time.sleep(0.5)
        event = time.monotonic()
        os.kill(ranks[3].process.pid, signal.SIGKILL)
        self.failures(ranks[:3], event, 0.5, 3, "h1", "connection closed by peer.*(wait_signal|put|flush)")
        self.goes_on(net, ranks[:3], 3)

    def test_vanished(self):
        net = self.net(3)
        ranks = self.windows(net, 2, "fail")
        self.until(ranks, "looping", 40)
        time.sleep(0.5)
        event = time.monotonic()
        net.vanish(2)
        self.failures(ranks[:4], event, 5.9, None, "h2", "connection closed by peer")
        self.goes_on(net, ranks[:4], 4)

    def test_partition_one_way(self):
        """What host 2 sends is lost: who puts there, and who waits for its signal, is told."""
        net = self.net(3)
        ranks = self.windows(net, 1, "fail")
        self.until(ranks, "looping", 40)
        time.sleep(0.5)
        event = time.monotonic()
        net.cut(2, 0)
        net.cut(2, 1)
        self.failures(ranks[:2], event, 5.9, 2, "h2", "connection closed by peer")
        self.goes_on(net, ranks[:2], 2)


class Start(Case):
    """The meeting of ranks of several hosts."""

    def refused(self, net, ranks, words, seconds):
        net.wait(ranks, seconds)
        for rank, line in zip(ranks, self.until(ranks, "refused", 1)):
            self.assertRegex(line, words, self.said(ranks))
        print(f"{self.id()}: {line}", file=sys.stderr)

    def test_missing_rank(self):
        net = self.net(2, plain=True)
        ranks = self.job(net, 2, "all", env={"JOB_TIMEOUT": "4"}, without=[3])
        self.refused(net, ranks, "rank 3 did not arrive: timed out after (4000|39..) ms", 20)

    def test_no_such_interface(self):
        net = self.net(2, plain=True)
        ranks = self.job(net, 1, "all", env={"JOB_TIMEOUT": "4", "TUTTI_INTERFACE": "nosuch0"})
        self.refused(net, ranks, r"rank . on host h.: interface=nosuch0: there is no such .*eth0 \(10.77.0.", 10)

    def test_killed_while_meeting(self):
        net = self.net(2, plain=True)
        ranks = self.job(net, 2, "all", env={"JOB_TIMEOUT": "10"}, without=[3])
        time.sleep(2)
        os.kill(ranks[2].process.pid, signal.SIGKILL)
        self.refused(net, ranks[:2], "rank 2 .*died|rank 2 could not join", 5)

    def test_host_vanishes_while_meeting(self):
        """No rank waits longer than its deadline, whichever host had the leader."""
        for host in range(2):
            net = self.net(2)
            ranks = self.job(net, 2, "all", env={"JOB_TIMEOUT": "5"}, without=[3])
            time.sleep(2)
            net.vanish(host)
            self.refused(net, [r for r in ranks if r.host != host], "timed out after|" "connection closed by peer", 25)
            net.close()

    def test_slow_network(self):
        net = self.net(3)
        net.link(delay_us=50000, loss=0.01)
        self.ends_well(net, self.job(net, 2, "loop=2"))

    def test_many(self):
        net = self.net(8, plain=True)
        self.ends_well(net, self.job(net, [2, 1, 3, 1, 2, 1, 4, 2], "loop=2"))


class Trust(Case):
    """Who does not know the secret is refused."""

    def refused(self, env, words, on_last=None):
        net = self.net(2, plain=True)
        program = [os.path.join(FOLDER, "hosts_job"), "all"]
        without = () if on_last is None else (1,)
        ranks = net.ranks(1, program, env={"JOB_TIMEOUT": "6", **env}, without=without)
        if without:
            ranks.append(self.late(net, ranks[0], program, {"JOB_TIMEOUT": "6", **env, **on_last}))
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
        self.refused({"TUTTI_SECRET": ""}, "TUTTI_TRUST_NETWORK")

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

    def test_stranger_at_a_job(self):
        """Floods, garbage, what was heard, and what was heard and changed: the job goes on, the log says who it was."""
        net = self.net(3, plain=True)
        heard = [self.stranger(net, host, "listen") for host in range(2)]
        for path in heard:
            self.written(path, "listens")
        ranks = net.ranks([1, 1], [os.path.join(FOLDER, "hosts_job"), "all", "loop=12"], hosts=[0, 1],
                          env={"TUTTI_LOG": "warn"})
        self.until(ranks, "looping", 60)
        said = [self.stranger(net, 2, "attack", heard[host], net.address(host), *self.ports(net, host))
                for host in range(2)]
        said = [self.written(path, "refused", 100) for path in said]
        self.assertIn("tried", "".join(said))
        self.assertNotIn("admitted", "".join(said))
        self.ends_well(net, ranks)
        self.assertIn("refused a connection from 10.77.0.3", self.said(ranks))

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
        program = [os.path.join(FOLDER, "hosts_job"), "all", "loop=1"]
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
    FOLDER = sys.argv.pop(1)
    try:
        with hosts.Hosts(2, switch=os.path.join(FOLDER, "hosts_switch")):
            pass
    except hosts.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(hosts.SKIP)
    unittest.main()
