# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training with JAX: the step is one compiled function, in which jax.pure_callback averages the gradients
over all ranks by tutti. Every rank has other data and ends with the same parameters, bit for bit.
tutti run -n 2 -- python3 jax_data_parallel.py"""

import sys

try:
    import jax
    import jax.numpy as jnp
    import numpy
except ImportError as error:
    print(f"this example needs JAX: pip install jax ({error})")
    sys.exit(77)

import tutti

STEPS, BATCH, RATE = 200, 64, 0.1
WEIGHTS = jnp.array([2.0, -3.0, 0.5])


def average(world):
    """A function of traced arrays: the mean over all ranks. JAX's arrays never change, so it goes into a new one."""

    def call(x):
        out = numpy.empty(x.shape, x.dtype)
        world.all_reduce(numpy.asarray(x), out, op="avg")
        return out

    return lambda x: jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def main(world):
    mean = average(world)

    def loss(parameters, x, y):
        return jnp.mean((x @ parameters["w"] + parameters["b"] - y) ** 2)

    @jax.jit
    def step(parameters, x, y):
        gradients = jax.grad(loss)(parameters, x, y)
        flat, restore = jax.flatten_util.ravel_pytree(gradients)  # one call for all of them
        return jax.tree.map(lambda p, g: p - RATE * g, parameters, restore(mean(flat)))

    parameters = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    key = jax.random.key(world.rank)
    for _ in range(STEPS):
        key, mine = jax.random.split(key)
        x = jax.random.normal(mine, (BATCH, 3))
        parameters = step(parameters, x, x @ WEIGHTS + 1.0)
    flat = numpy.asarray(jax.flatten_util.ravel_pytree(parameters)[0])
    everyone = numpy.empty((world.size, flat.size), flat.dtype)
    world.all_gather(flat, everyone)
    assert (everyone == flat).all(), "the ranks have different parameters"
    error = float(abs(parameters["w"] - WEIGHTS).max())
    assert error < 1e-3, error
    print(f"rank {world.rank} of {world.size}: weights within {error:.1e}, equal on all ranks")


if __name__ == "__main__":
    import jax.flatten_util

    with tutti.Comm() as world_:
        main(world_)
