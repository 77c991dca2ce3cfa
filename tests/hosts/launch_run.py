# SPDX-License-Identifier: BSD-3-Clause
"""tutti run --hosts, over `ip netns exec` as the remote shell: ranks on several hosts, their output, ends, signals, and
that nothing is left on any host when launcher, remote shell or agent are killed.

launch_run.py TUTTI HELLO
"""

import os
import signal
import subprocess
import sys
import time

import hosts

TUTTI, HELLO = sys.argv[1:3]
SHELL = "ip netns exec"


def command(net, *words):
    return ["ip", "netns", "exec", net.names[0], TUTTI, "run", "--remote-shell", SHELL, *words]


def run(net, *words, text=None):
    return subprocess.run(command(net, *words), input=text, stdin=None if text else subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)


def expect(what, got, wanted):
    assert got == wanted, f"{what}: {got!r}, expected {wanted!r}"


def until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def nobody(net, sleeping):
    """No process with this word in its command line is left in any namespace."""
    def left():
        found = []
        for host in range(net.n):
            for pid in net.pids(host):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        if sleeping.encode() in f.read():
                            found.append(pid)
                except OSError:
                    pass
        return found
    until(f"processes are left: {left()}", lambda: not left())


def outcomes(net, b, c):
    done = run(net, "--hosts", f"{b}:2,{c}:2", HELLO)
    expect(f"hello ({done.stderr})", (done.returncode, sorted(done.stdout.splitlines())),
           (0, [f"rank {r} of 4: the sum is 10" for r in range(4)]))
    done = run(net, "--hosts", f"{b}:2,{c}:1", "--tag-output", "--env", "A=x y", "sh", "-c",
               "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR $A")
    expect("variables", sorted(done.stdout.splitlines()),
           ["[0] 0 3 0 2 0 2 10.77.0.2 x y", "[1] 1 3 1 2 0 2 10.77.0.2 x y", "[2] 2 3 0 1 1 2 10.77.0.2 x y"])
    done = run(net, "--hosts", f"{b},{c}", "-n", "4", "sh", "-c", "test $RANK = 2 && exit 7; exec sleep 20")
    expect("exit status", done.returncode, 7)
    assert f"on {c}) ended with exit status 7; ending the others" in done.stderr, done.stderr
    done = run(net, "--hosts", f"{b}:1,{c}:1", "--keep-going", "sh", "-c",
               "test $RANK = 0 && kill -9 $$; sleep 1; echo on")
    expect("keep going", (done.returncode, done.stdout), (137, "on\n"))
    done = run(net, "--hosts", f"{b}:1,{c}:1", "--timeout", "1s", "sleep", "30")
    expect("timeout", done.returncode, 124)
    done = run(net, "--hosts", f"{b}:1,{c}:1", "nosuchprogram")
    expect("no program", done.returncode, 127)
    assert f"tutti run on {b}: there is no program 'nosuchprogram'" in done.stderr, done.stderr
    done = run(net, "--hosts", f"{b}:1,nosuchhost:1", "sleep", "30")
    assert done.returncode != 0 and "host nosuchhost can not be reached" in done.stderr, done.stderr
    assert "(ip netns exec nosuchhost)" in done.stderr, done.stderr
    assert "Cannot open network namespace" in done.stderr, done.stderr
    done = run(net, "--hosts", f"{b}:1,{c}:1", "--interface", "nosuch0", "true")
    assert done.returncode == 1 and "eth0" in done.stderr, done.stderr
    text = "line\n" * 20000
    done = run(net, "--hosts", f"{b}:1,{c}:1", "cat", text=text)
    expect("input", (done.returncode, done.stdout == text), (0, True))
    path = os.path.join(net.folder, "hosts.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"# two hosts\n{b} slots=2\n{c}:1  # and another\n")
    done = run(net, "--hostfile", path, "sh", "-c", "echo $TUTTI_RANK")
    expect("hostfile", sorted(done.stdout.split()), ["0", "1", "2"])
    done = run(net, "--hosts", f"{b}:1,{c}:1", "sh", "-c",
               "printenv TUTTI_SECRET | (read -r secret; cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | "
               "while read -r word; do test \"$word\" = \"$secret\" && echo found; done; echo ${#secret})")
    expect("the secret is on no command line", done.stdout.split(), ["64", "64"])


def here(net, b):
    """This machine among the hosts needs no remote shell, by which its address means nothing."""
    a = net.address(0)
    done = run(net, "--hosts", f"{a}:2,{b}:2", HELLO)
    expect(f"hello here and there ({done.stderr})", (done.returncode, sorted(done.stdout.splitlines())),
           (0, [f"rank {r} of 4: the sum is 10" for r in range(4)]))
    done = run(net, "--hosts", f"{a}:1,{b}:1", "sh", "-c", "echo $RANK $GROUP_RANK $MASTER_ADDR")
    expect("variables here and there", sorted(done.stdout.splitlines()), [f"0 0 {a}", f"1 1 {a}"])
    done = subprocess.run(["ip", "netns", "exec", net.names[0], TUTTI, "run", "--hosts", f"localhost:1,{a}:1", HELLO],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    expect(f"no sshd ({done.stderr})", (done.returncode, sorted(done.stdout.splitlines())),
           (0, [f"rank {r} of 2: the sum is 3" for r in range(2)]))


def started(net, b, c, marker, script="echo up; trap '' HUP; sleep {0} & wait; sleep {0}"):
    process = subprocess.Popen(command(net, "--hosts", f"{b}:2,{c}:2", "--grace", "1s", "sh", "-c",
                                       script.format(marker)),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    net.processes.append(process)
    for _ in range(4):
        expect("a rank's first line", process.stdout.readline(), "up\n")
    return process


def agents(net, host):
    """Guard, supervisor."""
    found = []
    for pid in net.pids(host):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            if b"--agent" in f.read().split(b"\0"):
                found.append(pid)
    return sorted(found)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def ends(net, b, c):
    process = started(net, b, c, "7711.1", "trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done # {0}")
    process.send_signal(signal.SIGTERM)
    expect("SIGTERM", process.wait(20), 3)
    nobody(net, "7711.1")

    process = started(net, b, c, "7711.2")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    nobody(net, "7711.2")

    for i, what in enumerate(("guard", "supervisor", "both")):
        process = started(net, b, c, f"7712.{i}")
        supervisor = children(process.pid)[0]
        for pid in [process.pid] * (what != "supervisor") + [supervisor] * (what != "guard"):
            os.kill(pid, signal.SIGKILL)
        process.wait(20)
        nobody(net, f"7712.{i}")

    # Over `ip netns exec` the remote shell becomes the agent.
    for i, what in enumerate(("guard", "supervisor", "both")):
        process = started(net, b, c, f"7713.{i}")
        guard, supervisor = agents(net, 2)[:2]
        for pid in [guard] * (what != "supervisor") + [supervisor] * (what != "guard"):
            os.kill(pid, signal.SIGKILL)
        _, text = process.communicate(timeout=30)
        assert process.returncode != 0 and f"host {c} is lost" in text, (what, process.returncode, text)
        nobody(net, f"7713.{i}")


def main():
    with hosts.Hosts(3, plain=True) as net:
        outcomes(net, *net.names[1:])
        here(net, net.names[1])
        ends(net, *net.names[1:])


hosts.or_skip(main)
