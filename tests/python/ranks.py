# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for tests: processes, or threads of this one, each with its communicator. What one raises is told with its
rank, and a rank that does not end is ended, by its process id."""

import os
import signal
import sys
import threading
import time
import traceback
import unittest

import tutti

LIMIT = float(os.environ.get("LIMIT", 60))  # seconds; ranks that are well take a few


def _rank(function, rank, size, address, config):
    config = {name: value(rank) if callable(value) else value for name, value in config.items()}
    with tutti.Comm(rank, size, store=address, timeout=30, **config) as comm:
        function(comm)


def _process(function, rank, size, address, config, pipe):
    """What a forked rank does; it never returns."""
    code = 0
    try:
        _rank(function, rank, size, address, config)
    except BaseException:  # pylint: disable=broad-except
        os.write(pipe, f"rank {rank}: {traceback.format_exc()}".encode())
        code = 1
    sys.stdout.flush()
    os._exit(code)


def _reap(pids, deadline):
    """Exit codes by process; those that do not end in time are killed."""
    codes = {}
    while len(codes) < len(pids):
        for pid in pids - codes.keys():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return codes


def processes(size, function, died=(), **config):
    """Runs function(comm) on `size` processes; all must end well, but those that are expected to die by a signal."""
    with tutti.StoreServer() as server:
        reader, writer = os.pipe()
        ranks = {}
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _process(function, rank, size, server.address, config, writer)
            ranks[pid] = rank
        os.close(writer)
        codes = _reap(ranks.keys(), time.monotonic() + LIMIT)
        with os.fdopen(reader) as file:
            said = file.read()
    bad = [f"rank {ranks[pid]} ended with {code}" for pid, code in codes.items()
           if (code >= 0 if ranks[pid] in died else code != 0)]
    if bad:
        raise AssertionError("; ".join(bad) + "\n" + said)


def threads(size, function, **config):
    """The same with threads of this process: a context is a rank's, so that many live in one. What of the configuration
    differs between ranks is a function of the rank."""
    raised = []

    def run(rank, address):
        try:
            _rank(function, rank, size, address, config)
        except BaseException:  # pylint: disable=broad-except
            raised.append(f"rank {rank}: {traceback.format_exc()}")

    with tutti.StoreServer() as server:
        ranks = [threading.Thread(target=run, args=(rank, server.address), daemon=True) for rank in range(size)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(LIMIT)
        alive = [number for number, rank in enumerate(ranks) if rank.is_alive()]
    if raised or alive:
        raise AssertionError(f"ranks {alive} do not end; " + "\n".join(raised))


def main():
    """Runs the tests of a file."""
    unittest.main(module="__main__", verbosity=2 if "-v" in sys.argv else 1)
