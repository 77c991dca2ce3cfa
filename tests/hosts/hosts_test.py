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
SERVE = """
import ctypes, sys, time
tutti = ctypes.CDLL(sys.argv[1])
assert tutti.tutti_store_server_open(b"10.77.0.1", 4700, b"sesame", ctypes.byref(ctypes.c_void_p())) == 0
time.sleep(600)
"""


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

    def begun(self, ranks):
        self.until(ranks, "looping", 40)
        time.sleep(0.5)
        return ranks

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

    def killed(self, net, ranks, victim, words="connection closed by peer"):
        """The others hear of it in time, and go on."""
        event = time.monotonic()
        os.kill(ranks[victim].process.pid, signal.SIGKILL)
        rest = [r for r in ranks if r.number != victim]
        self.failures(rest, event, 0.5, victim, f"h{ranks[victim].host}", words)
        self.goes_on(net, rest, len(rest))

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

    def test_nothing_is_left(self):
        """A test that is killed leaves no namespace, process or folder."""
        script = ("import hosts, time; net = hosts.Hosts(2, plain=True); process = net.start(1, ['sleep', '100']); "
                  "print(net.folder, process.pid, *net.names, flush=True); time.sleep(100)")
        test = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                                cwd=os.path.dirname(os.path.abspath(__file__)))
        folder, pid, *names = test.stdout.readline().split()
        test.kill()
        test.wait()
        test.stdout.close()
        left = [folder, f"/proc/{pid}", *(f"/run/netns/{name}" for name in names)]
        end = time.monotonic() + 30
        while any(os.path.exists(path) for path in left):
            self.assertLess(time.monotonic(), end, left)
            time.sleep(0.1)

    def test_names_that_are_alike(self):
        """Namespaces are hosts by themselves; where their names are the same, sentences have the address, too."""
        net = self.net(2, plain=True)
        ranks = self.begun(self.job(net, 2, "all", "fail", env={"TUTTI_HOST": ""}))
        os.kill(ranks[2].process.pid, signal.SIGKILL)
        for line in self.until(ranks[:2], "failed", 20):
            self.assertRegex(line, r"rank 2 on host [^ ]+ \(10\.77\.0\.2\) died", self.said(ranks))


class Paths(Case):
    """Several links between two hosts, and several sockets."""

    def two_links(self, rates):
        net = self.net(2, plain=True)
        for host in (0, 1):
            net.shape(host, "eth0", rates[0])
        net.join(0, 1, "eth1", 1, (rates[1], rates[1]))
        return net

    def shares(self, rates, env):
        """Each link carries large messages, which are compared with what they should be, the quick one more by far."""
        net = self.two_links(rates)
        before = [net.carried(0, name) for name in ("eth0", "eth1")]
        self.ends_well(net, self.job(net, 1, "large=8", env={"TUTTI_INTERFACE": "eth0,eth1", **env}))
        carried = [net.carried(0, name) - b for name, b in zip(("eth0", "eth1"), before)]
        quick, slow = (by for _, by in sorted(zip(rates, carried), reverse=True))
        self.assertGreater(slow, 0.05 * quick)
        self.assertGreater(quick, 2 * slow)

    def test_links_of_different_rates(self):
        self.shares((1000, 200), {})

    def test_encrypted_links_of_different_rates(self):
        self.shares((1000, 200), {"TUTTI_ENCRYPT": "1", "TUTTI_SOCKETS": "2"})

    def test_the_slow_one_is_named_first(self):
        self.shares((200, 1000), {})

    def test_four_sockets_of_one_link(self):
        net = self.net(2, plain=True)
        ranks = self.job(net, 2, "all", "large=4", env={"TUTTI_SOCKETS": "4", "TUTTI_LOG": "info"})
        self.ends_well(net, ranks)
        self.assertIn("use 4 sockets more, over 1 interfaces", self.said(ranks))

    def test_a_link_that_leads_nowhere(self):
        """Messages go by the others."""
        net = self.net(2, plain=True)
        net.join(0, 1, "eth1", 1)
        hosts._ip("-n", net.names[1], "addr", "flush", "dev", "eth1")
        hosts._ip("-n", net.names[1], "addr", "add", "10.99.0.2/24", "dev", "eth1")
        self.ends_well(net, self.job(net, 1, "large=4", env={"TUTTI_INTERFACE": "eth0,eth1"}))

    def test_a_link_that_is_cut(self):
        """What was written to it is lost: after host_timeout the call fails on both sides, and the first one that fails
        names the link; the other may hear of its end first."""
        net = self.two_links((1000, 200))
        env = {"TUTTI_INTERFACE": "eth0,eth1", "TUTTI_HOST_TIMEOUT": "2s"}
        ranks = self.begun(self.job(net, 1, "large=1000", env=env))
        hosts._ip("-n", net.names[1], "link", "set", "eth1", "down")
        self.assertEqual(net.wait(ranks, 40), [1, 1], self.said(ranks))
        link = (r"connection closed by peer: the socket from 10\.78\.0\.[12] to 10\.78\.0\.[12], by which "
                r"member [01] reaches member [01], broke: Connection timed out")
        texts = [rank.text() for rank in ranks]
        self.assertTrue(any(re.search(link, text) for text in texts), texts)
        self.assertTrue(all("wrong " in text and "connection closed by peer" in text for text in texts), texts)


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
        ranks = self.begun(self.job(net, 1, "loop=8"))
        for host in range(3):
            net.link(host, "*", cut=1)
            time.sleep(1.5)
            net.link(host, "*", cut=0)
            time.sleep(0.5)
        self.ends_well(net, ranks)

    def test_interface_down_and_up(self):
        net = self.net(2)
        ranks = self.begun(self.job(net, 2, "loop=6"))
        net.down(1)
        time.sleep(2)
        net.up(1)
        self.ends_well(net, ranks)

    def test_stopped_for_a_while(self):
        net = self.net(3)
        ranks = self.begun(self.job(net, 2, "loop=6"))
        net.signal(1, signal.SIGSTOP)
        time.sleep(3)
        net.signal(1, signal.SIGCONT)
        self.ends_well(net, ranks)


class Gone(Case):
    def looping(self, net, a_host, word="fail", env=None):
        return self.begun(self.job(net, a_host, word, env=env))

    def part(self, net, side, other):
        for a in side:
            for b in other:
                net.cut(a, b)
                net.cut(b, a)

    def on(self, ranks, *gone):
        return [r for r in ranks if r.host not in gone]

    def vanished(self, host, a_host=2, n=3):
        net = self.net(n)
        ranks = self.looping(net, a_host)
        event = time.monotonic()
        net.vanish(host)
        rest = self.on(ranks, host)
        self.failures(rest, event, 5.9, None, f"h{host}", "connection closed by peer")
        self.goes_on(net, rest, len(rest))


class Deaths(Gone):
    """A death is told to all, in time and by name; the others go on."""

    def test_killed_process(self):
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2)
        self.killed(net, ranks, 3)

    def test_killed_speaker(self):
        """The process that links its host with the others."""
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2)
        self.killed(net, ranks, 2)

    def test_messages(self):
        """Ranks that wait for a message, and ranks that compute."""
        net = self.net(3, plain=True)
        ranks = self.looping(net, 2, "recv")
        self.killed(net, ranks, 5, "connection closed by peer.*recv from rank 5 on host h2")

    def test_killed_first_rank(self):
        net = self.net(2, plain=True)
        ranks = self.looping(net, 2)
        self.killed(net, ranks, 0)

    def test_vanished(self):
        self.vanished(2)

    def test_deadline(self):
        """A deadline that passes before a host is told dead names the host that is waited for."""
        net = self.net(2)
        ranks = self.begun(self.job(net, 1, "fail", env={"JOB_TIMEOUT": "2"}))
        self.part(net, (0,), (1,))
        for rank, line in zip(ranks, self.until(ranks, "failed", 15)):
            self.assertRegex(line, f"TUTTI_ERR_TIMEOUT .* timed out after 2000 ms.* rank {1 - rank.host} on host "
                                   f"h{1 - rank.host}", self.said(ranks))


class Silence(Gone):
    """Hosts that are not heard any more, in more ways than one."""

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
        self.failures(self.on(ranks, 0, 2), event, 5.9, None, "h[0-2]", "connection closed by peer")

    def test_two_hosts_vanish(self):
        net = self.net(4)
        ranks = self.looping(net, 1)
        event = time.monotonic()
        net.vanish(0)
        net.vanish(1)  # the next host that would link all others
        rest = self.on(ranks, 0, 1)
        self.failures(rest, event, 5.9, None, "h[01]", "connection closed by peer")
        self.goes_on(net, rest, 2)
        shrunk = max(float(line.split()[0]) for line in self.until(rest, "shrunk", 1))
        self.assertLess(shrunk - event, 12 + slack())


class Sides(Gone):
    """Both sides of a cut, and a host whose first rank alone is stopped: all are told, and go on, in one round."""

    def parted(self, n, other):
        """Each side goes on by itself, and is whole host_timeout and a second after the cut."""
        net = self.net(n)
        ranks = self.looping(net, 1)
        side = [host for host in range(n) if host not in other]
        event = time.monotonic()
        self.part(net, side, other)
        late = 0.0
        for on in (self.on(ranks, *other), self.on(ranks, *side)):
            for line in self.until(on, "shrunk", 60):
                late = max(late, float(line.split()[0]) - event)
                self.assertEqual(line.split()[1], str(len(on)), self.said(ranks))
        self.ends_well(net, ranks, 30)
        print(f"{self.id()}: {other} of {n} cut off: all go on after {late:.3f} s", file=sys.stderr)
        self.assertLess(late, 6 + slack(), self.said(ranks))

    def test_alone(self):
        self.parted(6, (5,))

    def test_halves(self):
        self.parted(6, (3, 4, 5))

    def test_every_other(self):
        self.parted(6, (1, 3, 5))

    def stopped(self, first):
        """That rank alone, which speaks for its host."""
        net = self.net(3, plain=True)
        ranks = self.looping(net, 3)
        event = time.monotonic()
        os.kill(ranks[first].process.pid, signal.SIGSTOP)
        rest = [r for r in ranks if r.number != first]
        self.failures(rest, event, 5.9, first, f"h{first // 3}", "connection closed by peer")
        self.goes_on(net, rest, len(rest))
        event = time.monotonic()
        os.kill(ranks[first].process.pid, signal.SIGCONT)
        self.failures([ranks[first]], event, 5.9, None, "h[0-2]", "connection closed by peer")

    def test_stopped_first_rank(self):
        self.stopped(3)

    def test_stopped_rank_0(self):
        self.stopped(0)


class Quorum(Gone):
    """Option quorum: of the sides of a cut one shrinks, and the other ends with a sentence."""

    ENV = {"TUTTI_QUORUM": "1"}

    def one_side(self, a_host, side, other, env=None, says="the side of the majority goes on"):
        net = self.net(len(a_host))
        env = {**self.ENV, **(env or {})}
        if "TUTTI_ARBITER" in env:
            net.start(0, [sys.executable, "-c", SERVE, os.path.join(FOLDER, "..", "lib", "libtutti.so")])
        ranks = self.looping(net, a_host, env=env)
        self.part(net, side, other)
        on, off = self.on(ranks, *other), self.on(ranks, *side)
        for line in self.until(on, "shrunk", 60):
            self.assertEqual(line.split()[1], str(len(on)), self.said(ranks))
        for line in self.until(off, "alone", 60):
            self.assertRegex(line, f"comm_shrink: rank . is cut off: it reaches {len(off)} of the {len(ranks)} members "
                                   f"that may live .*{says}: this rank must end", self.said(ranks))
        self.ends_well(net, ranks)

    def test_majority(self):
        self.one_side([1, 1, 1, 1, 1], (2, 3, 4), (0, 1))

    def test_halves(self):
        self.one_side([2, 2], (0,), (1,), says="the side of the lowest rank goes on")

    def test_arbiter(self):
        """The store is on the first host: it goes on, though it is one of three."""
        self.one_side([1, 1, 1], (0,), (1, 2), {"TUTTI_ARBITER": "1", "TUTTI_STORE": "tcp://10.77.0.1:4700"},
                      "the store.* (can not be asked|does not let its side go on)")

    def test_proved_deaths_count_for_no_side(self):
        """Four of five processes are killed at once: the last one is not cut off."""
        net = self.net(2, plain=True)
        ranks = self.looping(net, [1, 4], env=self.ENV)
        for rank in self.on(ranks, 0):
            os.kill(rank.process.pid, signal.SIGKILL)
        self.goes_on(net, self.on(ranks, 1), 1)


class Majority(Gone):
    """Calls that survive: of the sides of a cut network one goes on, and the other ends with a sentence."""

    CUT_OFF = "is cut off: it reaches . of the . members that may live.*must join anew"

    def cut_between(self, net, side, other, cut=1):
        for a in side:
            for b in other:
                net.link(a, b, cut=cut)
                net.link(b, a, cut=cut)

    def parted(self, a_host, side, other, env=None, says=CUT_OFF):
        """side goes on; the links come back a while after the decision."""
        net = self.net(len(a_host))
        if env:
            net.start(0, [sys.executable, "-c", SERVE, os.path.join(FOLDER, "..", "lib", "libtutti.so")])
        ranks = self.looping(net, a_host, "survive=8", env)
        self.cut_between(net, side, other)
        on, off = self.on(ranks, *other), self.on(ranks, *side)
        for line in self.until(on, "smaller", 60):
            self.assertEqual(line.split()[1], str(len(on)), self.said(ranks))
        for line in self.until(off, "ended", 60):
            self.assertRegex(line, says, self.said(ranks))
        self.cut_between(net, side, other, 0)
        for line in self.until(on, "went", 60):
            self.assertEqual(line.split()[1], str(len(on)), self.said(ranks))
        self.ends_well(net, ranks)

    def test_two_of_three(self):
        self.parted([1, 1, 1], (1, 2), (0,))

    def test_unequal_hosts(self):
        self.parted([2, 3], (1,), (0,))

    def test_halves(self):
        self.parted([2, 2], (0,), (1,))

    def test_arbiter(self):
        """The store is on the first host: it goes on, though it is one of three."""
        says = "is cut off: .*the store.* (can not be asked|does not let its side go on): this rank must join anew"
        self.parted([1, 1, 1], (0,), (1, 2), {"TUTTI_ARBITER": "1", "TUTTI_STORE": "tcp://10.77.0.1:4700"}, says)

    def test_stopped_host(self):
        net = self.net(3, plain=True)
        ranks = self.looping(net, [1, 2, 1], "survive=8")
        net.signal(1, signal.SIGSTOP)
        on, off = self.on(ranks, 1), self.on(ranks, 0, 2)
        for line in self.until(on, "smaller", 60):
            self.assertEqual(line.split()[1], "2", self.said(ranks))
        net.signal(1, signal.SIGCONT)
        for line in self.until(off, "ended", 60):
            self.assertRegex(line, "must join anew", self.said(ranks))
        self.until(on, "went", 60)
        self.ends_well(net, ranks)


class OneSided(Case):
    def windows(self, net, a_host, *words):
        return net.ranks(a_host, [os.path.join(FOLDER, "hosts_windows"), *words])


class Windows(OneSided):
    """One-sided calls: in place on a host, by messages between hosts, and both in one window."""

    def test_two_hosts(self):
        net = self.net(2, plain=True)
        self.ends_well(net, self.windows(net, 3, "ring"))

    def test_killed(self):
        """Ranks that wait for its signal, and ranks that put at it, on its host and on others."""
        net = self.net(2, plain=True)
        ranks = self.begun(self.windows(net, 2, "fail"))
        self.killed(net, ranks, 3, "connection closed by peer.*(wait_signal|put|flush|an answer to its access)")

    def test_vanished(self):
        net = self.net(3)
        ranks = self.begun(self.windows(net, 2, "fail"))
        event = time.monotonic()
        net.vanish(2)
        self.failures(ranks[:4], event, 5.9, None, "h2", "connection closed by peer")
        self.goes_on(net, ranks[:4], 4)


class WindowLinks(OneSided):
    """One-sided calls over links that are bad, or gone one way."""

    def test_far_links(self):
        net = self.net(2)
        net.link(delay_us=50000, loss=0.01)
        self.ends_well(net, self.windows(net, 1, "ring"), 250)

    def test_bad_links(self):
        net = self.net(3)
        net.link(loss=0.01, duplicate=0.02, jitter_us=200)
        self.ends_well(net, self.windows(net, [1, 2, 1], "ring"))

    def test_partition_one_way(self):
        """What host 2 sends is lost: who puts there, and who waits for its signal, is told."""
        net = self.net(3)
        ranks = self.begun(self.windows(net, 1, "fail"))
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


def main():
    global FOLDER
    FOLDER = sys.argv.pop(1)
    try:
        with hosts.Hosts(2, switch=os.path.join(FOLDER, "hosts_switch")):
            pass
    except hosts.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(hosts.SKIP)
    unittest.main()


if __name__ == "__main__":
    main()
