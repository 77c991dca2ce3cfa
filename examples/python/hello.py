# SPDX-License-Identifier: BSD-3-Clause
"""The sum over all ranks: tutti run -n 4 -- python3 hello.py"""

import array

import tutti

with tutti.Comm() as world:
    x = array.array("d", [world.rank + 1])
    world.all_reduce(x)
    print(f"rank {world.rank} of {world.size}: the sum is {x[0]:g}")
