# SPDX-License-Identifier: BSD-3-Clause
"""The cost of a call from Python over that from C: an all_reduce of 8 bytes on one rank, in turns in one process, so
that both see the same machine. C is called from a small program that is compiled here and loaded with ctypes.

    PYTHONPATH=build/python python3 bench/python_cost.py [BUILD]

Prints nanoseconds a call: the least of many short rounds, since whatever else runs here only adds."""

import array
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tutti

ROOT = Path(__file__).resolve().parents[1]
CALLS, ROUNDS = 2000, 300
SOURCE = r"""
#include <time.h>
#include <tutti/tutti.h>
static struct tutti_comm *comm;
int cost_open(void)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = 0, config.n_ranks = 1, config.name = "cost";
    return tutti_comm_create(NULL, &config, &comm);
}
double cost_run(int calls)
{
    static double x;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < calls; i++)
        if (tutti_all_reduce(&x, &x, 1, TUTTI_FLOAT64, TUTTI_SUM, comm, NULL, NULL) < 0) return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
}
"""


def compiled(build):
    """The C side, over the library that this process has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "cost.c"), Path(folder, "cost.so")
        source.write_text(SOURCE)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", f"-I{ROOT}/include", str(source),
                        f"-L{build}/lib", "-ltutti", "-o", str(program)], check=True)
        cost = ctypes.CDLL(str(program))
    cost.cost_run.restype = ctypes.c_double
    if cost.cost_open() != 0:
        sys.exit("python_cost: the communicator can not be made")
    return cost


def python_round(call, x):
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call(x)
    return time.perf_counter_ns() - begin


def main(build):
    cost = compiled(build)
    buffers = {"array": array.array("d", [0.0]), "bytearray": memoryview(bytearray(8)).cast("d")}
    try:
        import numpy
        buffers["numpy"] = numpy.zeros(1)
    except ImportError:
        pass
    least = dict.fromkeys(["C", *buffers], float("inf"))
    with tutti.Comm(0, 1, name="python") as comm:
        for _ in range(ROUNDS):
            least["C"] = min(least["C"], cost.cost_run(CALLS) / CALLS)
            for name, x in buffers.items():
                least[name] = min(least[name], python_round(comm.all_reduce, x) / CALLS)
    print(f"C {least['C']:.0f} ns")
    for name in buffers:
        print(f"{name} {least[name]:.0f} ns, {least[name] - least['C']:.0f} ns over C")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build")
