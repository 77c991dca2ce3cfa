# SPDX-License-Identifier: BSD-3-Clause
"""Several hosts on one machine, as network namespaces: see README.md.

Nothing here is left behind: namespaces have the number of this process in their names, and `close` ends every process
that was started in them. All waits end.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77  # what ctest takes for "skipped"


class Unavailable(Exception):
    """Hosts can not be made here; the text says why."""


def or_skip(main):
    """Runs it; where there can be no hosts the program ends as skipped, and says why."""
    try:
        main()
        print("ok")
    except Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(SKIP)


def _ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    if check and done.returncode != 0:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done


def has_netem():
    """Whether the kernel can shape a link, tried on a namespace of its own."""
    name = f"tutti{os.getpid()}netem"
    _ip("netns", "add", name)
    try:
        done = subprocess.run(
            ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
            capture_output=True, timeout=20)
        return done.returncode == 0
    finally:
        _ip("netns", "del", name, check=False)


class _Switch:
    """switch.c: its input takes the settings."""

    def __init__(self, names, program):
        if not os.path.exists("/dev/net/tun"):
            raise Unavailable("the kernel has neither netem nor /dev/net/tun")
        self.process = subprocess.Popen([program, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            raise Unavailable(f"the switch does not start: {self.process.stderr.read().strip()}")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        answer = self.process.stdout.readline().strip()
        assert answer == "ok", f"{line}: {answer}"

    def link(self, a, b, settings):
        self.say(f"link {a} {b} " + " ".join(f"{k}={v}" for k, v in settings.items()))

    def host(self, a, settings):
        self.say(f"host {a} " + " ".join(f"{k}={v}" for k, v in settings.items()))

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class _Bridge:
    """veth and a bridge in a namespace of its own; netem at each host's end, one class for each peer."""

    def __init__(self, names):
        self.name, self.names = f"tutti{os.getpid()}bridge", names
        self.settings = {}
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.name, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            _ip("-n", self.name, "link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self.name, "link", "set", f"v{i}", "master", "br0", "up")
            _ip("-n", name, "link", "set", "eth0", "address", f"02:00:00:00:00:{i + 1:02x}")

    def _tc(self, host, *words):
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "tc", *words], capture_output=True, text=True,
                              timeout=20)
        assert done.returncode == 0, f"tc {' '.join(words)}: {done.stderr}"

    def _shape(self, host):
        n = len(self.names)
        self._tc(host, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "prio", "bands", str(n + 1),
                 "priomap", *["0"] * 16)
        for peer in range(n):
            s = self.settings.get((host, peer), {})
            words = ["delay", f"{s.get('delay_us', 0)}us", f"{s.get('jitter_us', 0)}us"]
            words += ["loss", f"{100 if s.get('cut') else 100 * s.get('loss', 0)}%"]
            words += ["duplicate", f"{100 * s.get('duplicate', 0)}%"]
            if s.get("rate_mbit"):
                words += ["rate", f"{s['rate_mbit']}mbit"]
            self._tc(host, "qdisc", "replace", "dev", "eth0", "parent", f"1:{peer + 2}", "netem", *words)
            self._tc(host, "filter", "replace", "dev", "eth0", "parent", "1:", "protocol", "ip", "prio", str(peer + 1),
                     "u32", "match", "ip", "dst", f"10.77.0.{peer + 1}/32", "flowid", f"1:{peer + 2}")

    def link(self, a, b, settings):
        hosts = range(len(self.names))
        for i in hosts if a == "*" else [a]:
            for j in hosts if b == "*" else [b]:
                self.settings.setdefault((i, j), {}).update(settings)
            self._shape(i)

    def host(self, a, settings):
        self.link(a, "*", settings)

    def close(self):
        _ip("netns", "del", self.name, check=False)


class Rank:
    def __init__(self, number, host, process, output):
        self.number, self.host, self.process, self.output = number, host, process, output

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as f:
            return f.read()


# Waits beside the test, as nobody's child, and removes what is left if the test ends without a word, however it ends.
GUARD = """
exec 3<&0
(read -r over <&3 || {
    folder=$1; shift
    for name; do for pid in $(ip netns pids "$name"); do kill -9 "$pid"; done; ip netns del "$name"; done
    rm -rf "$folder"
}) >/dev/null 2>&1 &
"""


class Hosts:
    """n hosts; a context manager."""

    def __init__(self, n, switch=None, plain=False):
        """switch: the program of switch.c; plain: no shaping is needed, so veth and a bridge in any case."""
        if os.geteuid() != 0:
            raise Unavailable("making network namespaces needs root")
        if not shutil.which("ip"):
            raise Unavailable("there is no program ip (package iproute2)")
        self.n, self.processes = n, []
        self.folder = tempfile.mkdtemp(prefix="tutti-hosts-")
        self.names = [f"tutti{os.getpid()}h{i}" for i in range(n)]
        self.net = None
        shared = [f"tutti{os.getpid()}{what}" for what in ("bridge", "netem")]
        self.guard = subprocess.Popen(["sh", "-c", GUARD, "guard", self.folder, *self.names, *shared],
                                      stdin=subprocess.PIPE, start_new_session=True)
        self.guard.wait(10)
        try:
            for name in self.names:
                _ip("netns", "add", name)
            self.net = _Bridge(self.names) if plain or has_netem() else _Switch(self.names, switch)
            for i, name in enumerate(self.names):
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
                _ip("-n", name, "-6", "addr", "add", f"fd77::{i + 1}/64", "dev", "eth0", "nodad", check=False)
                _ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()

    def address(self, host):
        return f"10.77.0.{host + 1}"

    # ---- links ----

    def link(self, a="*", b="*", **settings):
        """delay_us, jitter_us, loss, duplicate (probabilities), cut (0 or 1), of packets from a to b."""
        self.net.link(a, b, settings)

    def rate(self, host="*", **settings):
        """rate_mbit, of what a host sends and gets."""
        self.net.host(host, settings)

    def cut(self, a, b):
        self.link(a, b, cut=1)

    def down(self, host):
        _ip("-n", self.names[host], "link", "set", "eth0", "down")

    def up(self, host):
        _ip("-n", self.names[host], "link", "set", "eth0", "up")

    # ---- a second network ----

    def join(self, a, b, name, number, rates_mbit=(0, 0)):
        """One more link between two hosts: interface `name` of each, 10.<77 + number>.0.<host + 1>."""
        _ip("-n", self.names[a], "link", "add", name, "type", "veth", "peer", "name", name, "netns", self.names[b])
        for host in (a, b):
            _ip("-n", self.names[host], "addr", "add", f"10.{77 + number}.0.{host + 1}/24", "dev", name)
            _ip("-n", self.names[host], "link", "set", name, "up")
        for host, rate in zip((a, b), rates_mbit):
            if rate:
                self.shape(host, name, rate)

    def shape(self, host, name, rate_mbit):
        """What leaves this host by the interface, by tbf, which each kernel has."""
        words = ["dev", name, "root", "tbf", "rate", f"{rate_mbit}mbit", "burst", "128kb", "limit", "1mb"]
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "tc", "qdisc", "replace", *words],
                              capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            raise Unavailable(f"tc tbf: {done.stderr.strip()}")

    def carried(self, host, name):
        """Bytes that left the host by this interface."""
        done = _ip("-n", self.names[host], "-s", "-j", "link", "show", "dev", name)
        return json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]

    # ---- processes ----

    def start(self, host, argv, env=None, output=None):
        out = open(output, "wb") if output else subprocess.DEVNULL
        process = subprocess.Popen(["ip", "netns", "exec", self.names[host], *argv], env={**os.environ, **(env or {})},
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        if output:
            out.close()
        self.processes.append(process)
        return process

    def ranks(self, a_host, argv, env=None, hosts=None, without=()):
        """Starts a_host ranks (a number, or a list, one for each host) of a job on each host, as a launcher would;
        those of the numbers `without` never come."""
        hosts = list(hosts if hosts is not None else range(self.n))
        counts = a_host if isinstance(a_host, list) else [a_host] * len(hosts)
        job, total, ranks = f"hosts{os.getpid()}-{time.monotonic_ns()}", sum(counts), []
        number = -1
        store = os.path.join(self.folder, job)
        for host, count in zip(hosts, counts):
            for local in range(count):
                number += 1
                if number in without:
                    continue
                variables = {"TUTTI_RANK": str(number), "TUTTI_WORLD_SIZE": str(total), "TUTTI_LOCAL_RANK": str(local),
                             "TUTTI_LOCAL_WORLD_SIZE": str(count), "TUTTI_STORE": f"file://{store}", "TUTTI_JOB": job,
                             "TUTTI_SECRET": "sesame", "TUTTI_HOST": f"h{host}", **(env or {})}
                output = os.path.join(self.folder, f"{job}-{number}.txt")
                ranks.append(Rank(number, host, self.start(host, argv, variables, output), output))
        return ranks

    def wait(self, ranks, seconds):
        """The exit statuses, None of those that did not end in time."""
        until = time.monotonic() + seconds
        for rank in ranks:
            try:
                rank.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        return [rank.process.poll() for rank in ranks]

    def pids(self, host):
        done = _ip("netns", "pids", self.names[host], check=False)
        return [int(pid) for pid in done.stdout.split()]

    def signal(self, host, number):
        for pid in self.pids(host):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def vanish(self, host):
        """Its link goes, and all its processes, so that nobody hears of it any more."""
        self.down(host)
        self.signal(host, signal.SIGKILL)

    def close(self):
        for name in self.names:
            for pid in [int(p) for p in _ip("netns", "pids", name, check=False).stdout.split()]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for process in self.processes:
            process.kill()
            process.wait()
        if self.net:
            self.net.close()
        for name in self.names:
            _ip("netns", "del", name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self.guard.stdin.closed:
            self.guard.stdin.write(b"over\n")
            self.guard.stdin.close()
