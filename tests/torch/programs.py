# SPDX-License-Identifier: BSD-3-Clause
"""Programs for tests of how processes end: each is a Python that imported torch once, was forked, runs one function as
its main program, and ends like any other, with the interpreter's finalization and its own exit status. A server process
does the forking, before the test has threads or groups."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any, Callable, Dict, List, Optional, Tuple

PR_SET_PDEATHSIG = 1
Task = Tuple[Callable, Tuple[Any, ...]]


class Program:
    """One process, seen from the test. What it prints is in its output."""

    def __init__(self, server: "Server", pid: int, output: str, args: Tuple[Any, ...]) -> None:
        self.server, self.pid, self.output_file, self.args = server, pid, output, args

    def output(self) -> str:
        with open(self.output_file, errors="replace") as file:
            return file.read()

    def status(self, seconds: float = 60.0) -> int:
        """Its exit code, or minus the signal that ended it; AssertionError if it does not end in time."""
        deadline = time.monotonic() + seconds
        while (code := self.server.ask("status", self.pid)) is None:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGUSR1)  # it says where it stands
                time.sleep(1)
                self.kill()
                raise AssertionError(f"process {self.pid} does not end; it said:\n{self.output()}")
            time.sleep(0.01)
        return code

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.server.ask("status", self.pid) is None:
            os.kill(self.pid, number)


class Server:
    """The process that forks the programs, at the other end of a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.folder = tempfile.mkdtemp(prefix="programs.")
        self.n = 0

    def ask(self, *request: Any) -> Any:
        self.pipe.send_bytes(pickle.dumps(request))
        return pickle.loads(self.pipe.recv_bytes())

    def start(self, function: Callable, *args: Any) -> Program:
        """Functions are those of the main module."""
        self.n += 1
        output = os.path.join(self.folder, f"output.{self.n}")
        return Program(self, self.ask("start", (function, args), output), output, args)

    def new_folder(self) -> str:
        return tempfile.mkdtemp(dir=self.folder)

    def start_all(self, function: Callable, n: int, *args: Any) -> List[Program]:
        """function(rank, n, folder, *args) in n programs; folder is an empty one for all of them."""
        folder = self.new_folder()
        return [self.start(function, rank, n, folder, *args) for rank in range(n)]

    def end(self) -> None:
        self.ask("end")
        shutil.rmtree(self.folder)


server: Optional[Server] = None


def reap(statuses: Dict[int, Optional[int]], pid: int) -> Optional[int]:
    if statuses[pid] is None:
        found, status = os.waitpid(pid, os.WNOHANG)
        statuses[pid] = os.waitstatus_to_exitcode(status) if found else None
    return statuses[pid]


def become(output: str) -> None:
    """What a program started by a shell has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def serve(pipe: Connection) -> Optional[Task]:
    """Forks programs until told to end. Returns in them, and then with the task."""
    statuses: Dict[int, Optional[int]] = {}
    while True:
        try:
            what, *given = pickle.loads(pipe.recv_bytes())
        except EOFError:
            what = "end"
        answer: Any = None
        if what == "start":
            task, output = given
            answer = os.fork()
            if answer == 0:
                pipe.close()
                become(output)
                return task
            statuses[answer] = None
        elif what == "status":
            answer = reap(statuses, *given)
        else:
            for pid in statuses:
                if reap(statuses, pid) is None:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            try:
                pipe.send_bytes(pickle.dumps(None))
            except OSError:
                pass
            os._exit(0)
        pipe.send_bytes(pickle.dumps(answer))


def main(test: Callable[[], Any]) -> None:
    """The main function of a test: runs it, and in its programs their functions."""
    global server
    mine, theirs = Pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        mine.close()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        function, args = serve(theirs)
        return function(*args)
    theirs.close()
    server = Server(mine)
    try:
        test()
    finally:
        server.end()
        os.waitpid(pid, 0)
