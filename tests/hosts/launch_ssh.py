# SPDX-License-Identifier: BSD-3-Clause
"""tutti run --hosts over ssh: a server of its own on each host, with keys made for this test.

launch_ssh.py TUTTI HELLO
"""

import os
import shutil
import subprocess
import sys
import time

import hosts

TUTTI, HELLO = sys.argv[1:3]
SERVER = """Port 2222
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
"""
PLACE = "/run/sshd"  # where Debian's sshd wants an empty folder


def serve(net, sshd):
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(net.folder, name)],
                       check=True, stdin=subprocess.DEVNULL, timeout=20)
    config = os.path.join(net.folder, "sshd_config")
    with open(config, "w", encoding="utf-8") as f:
        f.write(SERVER.format(folder=net.folder))
    os.chmod(net.folder, 0o755)
    for host in range(net.n):
        net.start(host, [sshd, "-D", "-e", "-f", config], output=os.path.join(net.folder, f"sshd{host}.txt"))


def said(net):
    texts = []
    for host in range(net.n):
        with open(os.path.join(net.folder, f"sshd{host}.txt"), encoding="utf-8", errors="replace") as f:
            texts.append(f.read()[-500:])
    return texts


def run(net, *words):
    shell = (f"ssh -F none -p 2222 -i {net.folder}/user -o BatchMode=yes -o StrictHostKeyChecking=no "
             f"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5")
    return subprocess.run(["ip", "netns", "exec", net.names[0], TUTTI, "run", "--remote-shell", shell, *words],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def main():
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if not sshd or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        raise hosts.Unavailable("not installed: openssh-server, openssh-client")
    made = os.geteuid() == 0 and not os.path.isdir(PLACE)
    if made:
        os.mkdir(PLACE, 0o755)
    try:
        with hosts.Hosts(3, plain=True) as net:
            serve(net, sshd)
            b, c = net.address(1), net.address(2)
            end = time.monotonic() + 20
            while run(net, "--hosts", f"{b}:1,{c}:1", "true").returncode != 0:
                assert time.monotonic() < end, said(net)
                time.sleep(0.2)
            done = run(net, "--hosts", f"{b}:2,{c}:2", HELLO)
            wanted = [f"rank {r} of 4: the sum is 10" for r in range(4)]
            assert (done.returncode, sorted(done.stdout.splitlines())) == (0, wanted), (done, said(net))
            done = run(net, "--hosts", f"{b}:1,{c}:1", "sh", "-c", "test $RANK = 1 && exit 7; exec sleep 30")
            assert done.returncode == 7, done
    finally:
        if made:
            shutil.rmtree(PLACE, ignore_errors=True)


hosts.or_skip(main)
