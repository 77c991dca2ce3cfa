# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of one job: forks of this process, which has torch in memory already; or, when MPI is among the
peers, processes of mpiexec, since MPI's ranks must be its own. Rank 0 leaves its result in a file."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import wait
from typing import Callable

MPI_ENVIRONMENT = {  # more ranks than CPUs are meant, also for the administrator; threads of a rank run anywhere
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


def mpi_is_installed() -> bool:
    return importlib.util.find_spec("mpi4py") is not None


def rank_of_mpi() -> tuple[int, int]:
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()


def run_rank(body: Callable[[int, int, str], dict], rank: int, n: int, folder: str) -> None:
    result = body(rank, n, os.path.join(folder, "store"))
    if rank == 0:
        with open(os.path.join(folder, "result.json"), "w") as file:
            json.dump(result, file)


def forked(body: Callable[[int, int, str], dict], rank: int, n: int, folder: str) -> None:
    try:
        run_rank(body, rank, n, folder)
        code = 0
    except BaseException:  # the process ends here, whatever it was
        print(f"rank {rank}:\n{traceback.format_exc()}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def by_fork(body: Callable[[int, int, str], dict], n: int, folder: str, limit: float) -> None:
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=forked, args=(body, r, n, folder), daemon=True) for r in range(n)]
    until, running, failed = time.monotonic() + limit, [], []
    try:
        for rank in ranks:
            rank.start()
            running.append(rank)
        while running and time.monotonic() < until and not any(r.exitcode for r in ranks):
            wait([r.sentinel for r in running], timeout=1)
            running = [r for r in running if r.is_alive()]
        failed = [i for i, r in enumerate(ranks) if r.exitcode]
    finally:
        for rank in running:
            rank.kill()
            rank.join()
    if failed:
        raise SystemExit(f"rank {failed[0]} of {n} failed")
    if running:
        raise SystemExit(f"{n} ranks did not end within {limit:.0f} s")


def by_mpiexec(arguments: list[str], n: int, folder: str, limit: float) -> None:
    command = ["mpiexec", "-n", str(n), sys.executable, *arguments, "--inside", folder]
    subprocess.run(command, check=True, timeout=limit, env={**MPI_ENVIRONMENT, **os.environ})


def launch(body, n: int, limit: float, mpi_arguments: list[str] | None) -> dict:
    """The result of rank 0. mpi_arguments: how to start a rank under mpiexec; None: forks."""
    folder = tempfile.mkdtemp(prefix="torch_peers_")
    try:
        if mpi_arguments is None:
            by_fork(body, n, folder, limit)
        else:
            by_mpiexec(mpi_arguments, n, folder, limit)
        with open(os.path.join(folder, "result.json")) as file:
            return json.load(file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
