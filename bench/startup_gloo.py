# SPDX-License-Identifier: BSD-3-Clause
"""What starting takes with torch's TCPStore and Gloo: startup_gloo.py RANKS, beside tests/hosts/startup.c.

Forked processes, which have loaded torch before, make a group, all_reduce, make groups of ten and all_reduce in those.
Prints how long each step took until the last rank was through, and what a rank holds beside what it held before.
"""

import datetime
import multiprocessing
import os
import sys
import time

import torch
from torch import distributed

STEPS = ("communicator made", "first all_reduce", "groups of 10", "all_reduce in the groups")


def own_kib():
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def sockets():
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))


def run(rank, n, told, begin):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="lo")
    told.put(rank)
    begin.wait()
    before, times = own_kib(), []
    distributed.init_process_group("gloo", rank=rank, world_size=n, timeout=datetime.timedelta(seconds=300))
    times.append(time.monotonic())
    x = torch.ones(1)
    distributed.all_reduce(x)
    assert x.item() == n
    times.append(time.monotonic())
    groups = [distributed.new_group(list(range(first, min(first + 10, n)))) for first in range(0, n, 10)]
    times.append(time.monotonic())
    distributed.all_reduce(x, group=groups[rank // 10])
    times.append(time.monotonic())
    distributed.barrier()
    told.put((times, own_kib() - before, sockets()))
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    n = int(sys.argv[1])
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    told, begin = fork.Queue(), fork.Event()
    ranks = [fork.Process(target=run, args=(rank, n, told, begin)) for rank in range(n)]
    for rank in ranks:
        rank.start()
    for _ in ranks:
        told.get(timeout=300)
    last = time.monotonic()
    begin.set()
    rows = [told.get(timeout=600) for _ in ranks]
    for rank in ranks:
        rank.join(60)
    for step, name in enumerate(STEPS):
        through = max(times[step] for times, _, _ in rows)
        print(f"{name:26} {through - last:8.3f} s after that")
        last = through
    for name, column in (("memory, own", 1), ("sockets", 2)):
        values = sorted(row[column] for row in rows)
        print(f"{name:26} median {values[n // 2]}, most {values[-1]}")


if __name__ == "__main__":
    main()
