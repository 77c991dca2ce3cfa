# SPDX-License-Identifier: BSD-3-Clause
"""Collective communications for Python: the library tutti, over anything that shows its memory::

    import array, tutti

    with tutti.Comm() as world:                      # the ranks that tutti run, torchrun, mpirun or srun started
        x = array.array("d", [world.rank])
        world.all_reduce(x)                          # or NumPy, JAX, CuPy, PyTorch
        print(x[0])

Collectives of one's own (@tutti.algorithm) need only Python: tutti.tracer."""

# pylint: disable=redefined-builtin,wildcard-import
from .tracer import NEEDS, Chunk, Rank, Unsupported, algorithm, data, input, scratch

try:
    from ._tutti import *
    from ._tutti import __version__
except ModuleNotFoundError as missing:
    if missing.name != "tutti._tutti":
        raise

    def __getattr__(name):
        raise AttributeError(f"tutti has no {name} here: this is only its part for algorithms, without the C module; "
                             "docs/python.md says how to install it")
