# SPDX-License-Identifier: BSD-3-Clause
"""Events like those of a liquid argon detector at the surface, made up by seed: cosmic muons that cross all of it, and
in half of the events one neutrino interaction, with tracks and a shower from one vertex. Points in space are seen by
three planes of wires at 0 and +-60 degrees: the columns are wires, the rows the drift time, which all planes share.
Most pixels are empty. Labels: 0 background, 1 cosmic, 2 neutrino (where both are, neutrino)."""

import math

import torch

ANGLES = (0.0, math.radians(60), math.radians(-60))


def line(start, direction, length, step):
    """Points every `step` from start on."""
    distance = torch.arange(0, length, step)
    return start + distance[:, None] * direction


def unit(vector):
    return vector / vector.norm()


def cosmic(generator):
    """A muon from the top of the unit cube to its bottom, mostly downwards, with a few delta rays."""
    start = torch.rand(3, generator=generator) * torch.tensor([1.4, 0.0, 1.0]) + torch.tensor([-0.2, 1.0, 0.0])
    tilt = torch.randn(3, generator=generator) * torch.tensor([0.6, 0.0, 0.6])
    points = [line(start, unit(tilt - torch.tensor([0.0, 1.0, 0.0])), 1.8, 0.004)]
    for _ in range(int(torch.randint(0, 4, (1,), generator=generator))):
        at = points[0][int(torch.randint(0, len(points[0]), (1,), generator=generator))]
        points.append(line(at, unit(torch.randn(3, generator=generator)), 0.04, 0.004))
    return torch.cat(points)


def shower(start, direction, generator):
    """A cone of points, densest near its begin."""
    n = int(torch.randint(150, 400, (1,), generator=generator))
    depth = 0.35 * torch.rand(n, 1, generator=generator) ** 1.5
    return start + depth * direction + depth * 0.18 * torch.randn(n, 3, generator=generator)


def neutrino(generator):
    """Two to four tracks and a shower that go forward (along x) from a vertex within."""
    vertex = 0.2 + 0.5 * torch.rand(3, generator=generator)
    points = []
    for i in range(int(torch.randint(3, 6, (1,), generator=generator))):
        direction = unit(torch.randn(3, generator=generator) * 0.6 + torch.tensor([1.0, 0.0, 0.0]))
        length = float(0.1 + 0.4 * torch.rand(1, generator=generator))
        track = line(vertex, direction, length, 0.004)
        points.append(shower(vertex + 0.03 * direction, direction, generator) if i == 0 else track)
    return torch.cat(points)


def project(points, charge, label, labels):
    """Adds the charge of points to each plane, and labels their pixels."""
    planes, height, width = charge.shape
    points = points[((points >= 0) & (points < 1)).all(1)]
    row = (points[:, 0] * height).long()
    for plane, angle in enumerate(ANGLES[:planes]):
        wire = (points[:, 2] - 0.5) * math.cos(angle) + (points[:, 1] - 0.5) * math.sin(angle)
        column = ((wire / 1.5 + 0.5) * width).long().clamp(0, width - 1)
        charge[plane].index_put_((row, column), torch.ones(len(points)), accumulate=True)
        labels[plane, row, column] = label


def event(seed, height=64, width=96):
    """(planes, height, width) of charge and of labels; the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    charge = torch.zeros(len(ANGLES), height, width)
    labels = torch.zeros(len(ANGLES), height, width, dtype=torch.long)
    for _ in range(int(torch.randint(1, 5, (1,), generator=generator))):
        project(cosmic(generator), charge, 1, labels)
    if torch.rand(1, generator=generator) < 0.5:
        project(neutrino(generator), charge, 2, labels)
    hit = charge > 0
    charge += hit * 0.2 * torch.randn(charge.shape, generator=generator)
    return charge.clamp(min=0) / 4, labels


def batch(seeds, height=64, width=96):
    charge, labels = zip(*(event(seed, height, width) for seed in seeds))
    return torch.stack(charge), torch.stack(labels)
