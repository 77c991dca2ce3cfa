# SPDX-License-Identifier: BSD-3-Clause
"""A U-Net that labels the pixels of events seen by three wire planes, shaped as CosmicTagger's configuration "a21":
8,510,547 parameters in 178 tensors. The planes go through the same layers, as images of one batch; only at the deepest
level, where an image is smallest, they are put side by side, so that the network can tell what belongs together.

Written from the description of the network (C. Adams et al., "Neutral pion and cosmic tagging", JINST 2020, and its
configuration): depth 6, 8 filters at first and 8 more at each level, two 3x3 convolutions a level on either side, five
5x5 convolutions of 256 filters at the deepest, max pooling, interpolation, sums across; batch norm and bias
everywhere."""

from dataclasses import dataclass

import torch
from torch import nn

PLANES = 3
CLASSES = ("background", "cosmic", "neutrino")


@dataclass(frozen=True)
class Shape:
    depth: int = 6
    filters: int = 8  # at the first level, and how many more each level has
    blocks: int = 2  # convolutions of a level, on the way down and on the way up
    deepest_blocks: int = 5
    deepest_kernel: int = 5
    bottleneck: int = 256


A21 = Shape()
SMALL = Shape(depth=3, filters=6, deepest_blocks=2, deepest_kernel=3, bottleneck=48)


def convolution(inputs, outputs, kernel):
    """The one building block: a convolution that keeps the size, batch norm, leaky ReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.LeakyReLU())


def series(filters, n, kernel):
    return nn.Sequential(*(convolution(filters, filters, kernel) for _ in range(n)))


class Level(nn.Module):
    """What a level does around the next deeper one: down(x) goes in there, up(what comes out, x) goes back."""

    def __init__(self, filters, deeper, blocks):
        super().__init__()
        self.down_blocks = series(filters, blocks, 3)
        self.narrow = nn.Sequential(nn.MaxPool2d(2), convolution(filters, deeper, 1))
        self.widen = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), convolution(deeper, filters, 1))
        self.up_blocks = series(filters, blocks, 3)

    def down(self, x):
        return self.narrow(self.down_blocks(x))

    def up(self, deeper, x):
        return self.up_blocks(self.widen(deeper) + x)


class Deepest(nn.Module):
    """All planes of an event together."""

    def __init__(self, filters, shape):
        super().__init__()
        self.layers = nn.Sequential(
            convolution(PLANES * filters, shape.bottleneck, 1),
            series(shape.bottleneck, shape.deepest_blocks, shape.deepest_kernel),
            convolution(shape.bottleneck, PLANES * filters, 1))

    def forward(self, x):
        together = x.view(x.shape[0] // PLANES, PLANES * x.shape[1], *x.shape[2:])
        return self.layers(together).view(x.shape)


class Tagger(nn.Module):
    """(events, planes, height, width) of charge to (events, classes, planes, height, width) of scores."""

    def __init__(self, shape=A21):
        super().__init__()
        widths = [shape.filters * (i + 1) for i in range(shape.depth + 1)]
        self.first = convolution(1, widths[0], 5)
        self.levels = nn.ModuleList(Level(a, b, shape.blocks) for a, b in zip(widths, widths[1:]))
        self.deepest = Deepest(widths[-1], shape)
        self.last = nn.Conv2d(widths[0], len(CLASSES), 1)

    def forward(self, charge):
        x, inputs = self.first(charge.flatten(0, 1).unsqueeze(1)), []
        for level in self.levels:
            inputs.append(x)
            x = level.down(x)
        x = self.deepest(x)
        for level in reversed(self.levels):
            x = level.up(x, inputs.pop())
        return self.last(x).unflatten(0, charge.shape[:2]).transpose(1, 2)


def loss_of(scores, labels):
    """Cross entropy in which a pixel weighs the less the more of its class the event has, by the square root: nearly
    all of an event is background."""
    counts = torch.stack([(labels == c).flatten(1).sum(1) for c in range(len(CLASSES))], 1).clamp(min=1)
    weights = counts.rsqrt().gather(1, labels.flatten(1)).view(labels.shape)
    return (nn.functional.cross_entropy(scores, labels, reduction="none") * weights).sum() / weights.sum()
