# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of one peer, alive from the start of a world to its end: processes that sleep in a read of their socket
until they are told to measure a point. Peers can thus be measured in turn, within seconds."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .programs import Program

CONTROL_BYTES = 1 << 20
START_SECONDS = 90.0


class Lost(Exception):
    """The ranks are gone, or did not answer in time."""


class Ranks:
    def __init__(self, program: Program, n: int, cpus: list[int], pinned: bool, log: Path) -> None:
        self.n, self.log = n, log
        self.processes: list[subprocess.Popen] = []
        self.sockets: dict[int, socket.socket] = {}
        self.pids: list[int] = []
        self.control = os.memfd_create("peers")
        os.ftruncate(self.control, CONTROL_BYTES)
        self.folder = tempfile.TemporaryDirectory(prefix="cpu_peers_")
        try:
            self._start(program, cpus, pinned)
        except BaseException:
            self.stop(0)
            raise

    def _start(self, program: Program, cpus: list[int], pinned: bool) -> None:
        path = os.path.join(self.folder.name, "socket")
        env = {
            **os.environ,
            **program.env,
            "PEERS_SOCKET": path,
            "PEERS_FOLDER": self.folder.name,
            "PEERS_CONTROL": f"/proc/{os.getpid()}/fd/{self.control}",
            "PEERS_CPUS": ",".join(map(str, cpus)),
            "PEERS_PINNED": str(int(pinned)),
            "PEERS_SIZE": str(self.n),
        }
        with socket.socket(socket.AF_UNIX) as server, open(self.log, "ab") as log:
            server.bind(path)
            server.listen(self.n)
            server.settimeout(0.2)
            if program.launcher:
                commands = [([*program.launcher(self.n, len(cpus)), *program.command], env)]
            else:
                of_rank = [{**env, "PEERS_RANK": str(r), **program.rank_env(r, self.n)} for r in range(self.n)]
                commands = [([*program.rank_prefix(r), *program.command], e) for r, e in enumerate(of_rank)]
            for command, environment in commands:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        cwd=self.folder.name,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        preexec_fn=os.setpgrp,  # not a session each: between sessions the scheduler gives no turns
                    )
                )
            self._gather(server)

    def _gather(self, server: socket.socket) -> None:
        until = time.monotonic() + START_SECONDS
        while len(self.sockets) < self.n:
            try:
                connection, _ = server.accept()
            except socket.timeout:
                if time.monotonic() > until or any(p.poll() is not None for p in self.processes):
                    raise Lost(f"did not start: {self.last_words()}") from None
                continue
            connection.settimeout(START_SECONDS)
            _, rank, pid = connection.makefile("r").readline().split()
            self.sockets[int(rank)] = connection
            self.pids.append(int(pid))

    def point(self, line: str, limit: float) -> dict:
        """What rank 0 answers. The ranks end themselves at the limit."""
        for connection in self.sockets.values():
            connection.sendall(line.encode() + b"\n")
        text, until = b"", time.monotonic() + limit + 5
        while not text.endswith(b"\n"):
            ready, _, _ = select.select(list(self.sockets.values()), [], [], max(0.0, until - time.monotonic()))
            for connection in ready:
                got = connection.recv(4096)
                if not got:
                    ready = []
                text += got
            if not ready:
                raise Lost(self.last_words() if time.monotonic() < until else f"no answer within {limit:.0f} s")
        return json.loads(text)

    def last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip(" -*")]
        return lines[-1][:200] if lines else "no word"

    def stop(self, seconds: float = 10.0) -> None:
        """Closed sockets tell the ranks to end; who does not in this time is ended."""
        for connection in self.sockets.values():
            connection.close()
        until = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
        for pid in self.pids:
            end_process(pid, self.folder.name)
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(self.control)
        self.folder.cleanup()


def end_process(pid: int, folder: str) -> None:
    """Ends a rank that a launcher left behind, if the number is still that of a rank of this folder."""
    try:
        if f"PEERS_FOLDER={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
