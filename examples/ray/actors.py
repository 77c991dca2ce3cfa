# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of tutti in actors of Ray: python3 actors.py [RANKS]

Each actor is a rank. The first one serves the store where the ranks meet, at its node's address; the driver passes its
address on, with a secret that it makes for the job. The ranks fit a line by gradient descent, each on its own points.
Half way one of them is killed: the others are told at once, a new one takes its place, and all go on from the last step
that they had in common, under a new name."""

import secrets
import sys

import numpy
import ray

STEPS, RATE = 400, 0.1


@ray.remote(num_cpus=0.25)  # 1, or num_gpus=1, in earnest
class Rank:
    def __init__(self, rank, size, secret):
        self.rank, self.size, self.secret, self.comm = rank, size, secret, None
        points = numpy.random.default_rng(rank).uniform(-1, 1, 1000)
        self.rows = numpy.stack([points, numpy.ones_like(points)], axis=1)
        self.values = 3 * points + 2

    def serve(self):
        """By the first rank: where all meet."""
        import tutti

        host = ray.util.get_node_ip_address()
        self.server = tutti.StoreServer(host, 0, self.secret)
        return f"tcp://{host}:{self.server.port}"

    def join(self, store, name):
        """Returns when all have come. A name stands for one set of ranks."""
        import tutti

        if self.comm:
            self.comm.close()
        self.comm = tutti.Comm(self.rank, self.size, store=store, name=name, secret=self.secret, timeout=60)

    def train(self, weights, first, last):
        """From a step to another one; returns the weights, and the step that was reached."""
        import tutti

        weights = numpy.array(weights)
        for step in range(first, last):
            gradient = self.rows.T @ (self.rows @ weights - self.values) / len(self.values)
            try:
                self.comm.all_reduce(gradient, op=tutti.Op.AVG)
            except tutti.Error as why:  # a rank is gone: what was reduced in part is not used
                return weights, step, str(why)
            weights -= RATE * gradient
        return weights, last, ""


def main():
    size, secret = int(sys.argv[1]) if len(sys.argv) > 1 else 4, secrets.token_hex(32)
    ranks = [Rank.remote(rank, size, secret) for rank in range(size)]
    store = ray.get(ranks[0].serve.remote())

    def join(name):
        ray.get([rank.join.remote(store, name) for rank in ranks])

    join("first")
    done = ray.get([rank.train.remote(numpy.zeros(2), 0, STEPS // 2) for rank in ranks])
    weights, step = done[0][0], done[0][1]

    running = [rank.train.remote(weights, step, 1 << 40) for rank in ranks]
    ray.kill(ranks[-1])
    done = ray.get(running[:-1])
    print(f"rank 0 was told: {done[0][2]}")
    # Some may have taken one step more than others, none two: a step needs all of them.
    weights, step, _ = min(done, key=lambda one: one[1])

    ranks[-1] = Rank.remote(size - 1, size, secret)
    join("second")
    done = ray.get([rank.train.remote(weights, step, step + STEPS) for rank in ranks])
    for weights, _, _ in done:
        assert numpy.allclose(weights, [3, 2], atol=1e-3) and numpy.array_equal(weights, done[0][0]), done
    print(f"{size} ranks found {weights[0]:.3f} x + {weights[1]:.3f}")


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": {"RAY_DEDUP_LOGS": "0"}})
    main()
    ray.shutdown()
