# SPDX-License-Identifier: BSD-3-Clause
"""k-means with NumPy on several processes: each rank has its points, and the centres are made of the sums of all.
tutti run -n 4 -- python3 kmeans.py, or mpirun -n 4 python3 kmeans.py"""

import numpy

import tutti

CLUSTERS, POINTS, ROUNDS = 5, 4000, 20


def points_of(rank):
    """This rank's points, around five places that all ranks share."""
    places = numpy.random.default_rng(1).uniform(-10, 10, (CLUSTERS, 2))
    random = numpy.random.default_rng(100 + rank)
    return places[random.integers(CLUSTERS, size=POINTS)] + random.normal(0, 0.3, (POINTS, 2)), places


def nearest(points, centres):
    return ((points[:, None] - centres) ** 2).sum(2).argmin(1)


def main(world):
    points, places = points_of(world.rank)
    centres = numpy.empty((CLUSTERS, 2))
    if world.rank == 0:  # far from one another: the farthest point from those there are
        chosen = [points[0]]
        while len(chosen) < CLUSTERS:
            distances = ((points[:, None] - numpy.array(chosen)) ** 2).sum(2).min(1)
            chosen.append(points[distances.argmax()])
        centres[:] = chosen
    world.broadcast(centres)
    for _ in range(ROUNDS):
        label = nearest(points, centres)
        sums = numpy.zeros((CLUSTERS, 3))  # sums of x and of y, and how many
        for cluster in range(CLUSTERS):
            mine = points[label == cluster]
            sums[cluster] = [*mine.sum(0), len(mine)]
        world.all_reduce(sums)
        centres = sums[:, :2] / sums[:, 2:]
    error = max(numpy.sqrt(((centres - place) ** 2).sum(1)).min() for place in places)
    same = numpy.array([centres, -centres])
    world.all_reduce(same, op="max")  # the greatest and, negative, the least: equal on all ranks
    assert (same[0] == centres).all() and (same[1] == -centres).all()
    if world.rank == 0:
        print(f"{world.size} ranks, {int(sums[:, 2].sum())} points: the centres are within {error:.2f} of the places")
    assert error < 0.1


if __name__ == "__main__":
    with tutti.Comm() as world_:
        main(world_)
