# SPDX-License-Identifier: BSD-3-Clause
"""Algorithms of one's own, from files in C or Python (docs/write_a_collective.md): for a group, or for some calls."""

import os
import sys
import sysconfig
from datetime import timedelta
from typing import Iterable, Optional, Union

from . import _C


def algorithm(name: str) -> _C.Algorithm:
    """`with tutti_torch.algorithm("./mine.py"):` collectives that this thread calls within, blocking or not, go by that
    algorithm where it has their kind: a file's path, or a name of `tutti sched list`. All ranks say the same."""
    return _C.Algorithm(os.fspath(name))


def options(algorithms: Union[str, Iterable[str]] = (), timeout: Optional[timedelta] = None) -> _C.Backend.Options:
    """Options of a group, for `pg_options`: files of algorithms that its calls use, each for the kinds that it alone
    offers. All ranks name files of the same contents."""
    own = _C.Backend.Options(timeout) if timeout is not None else _C.Backend.Options()
    files = [algorithms] if isinstance(algorithms, (str, os.PathLike)) else algorithms
    own.library = {"algorithms": ",".join(map(os.fspath, files))} if files else {}
    return own


def find_programs() -> None:
    """The library looks for the command that proves algorithms beside itself and on the PATH, and for python3 there. An
    environment's own folder of programs is no part of that where it was not activated."""
    os.environ.setdefault("TUTTI_PYTHON", sys.executable or "python3")
    command = os.path.join(sysconfig.get_path("scripts"), "tutti")
    if os.access(command, os.X_OK):
        os.environ.setdefault("TUTTI_PROVER", command)
