# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""The example CosmicTagger: its network is that of configuration a21, parameter for parameter, planes are told apart,
events are what they say, two ranks learn as they should, and its job is that network's."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cosmictagger"
sys.path.insert(1, str(EXAMPLE))
import events  # noqa: E402
import network  # noqa: E402

TUTTI = os.path.join(os.environ.get("TUTTI_BUILD", "build"), "bin", "tutti")


class Network(unittest.TestCase):
    def test_is_a21(self):
        parameters = list(network.Tagger(network.A21).parameters())
        self.assertEqual((sum(p.numel() for p in parameters), len(parameters)), (8510547, 178))
        sizes = sorted((p.numel() for p in parameters), reverse=True)
        self.assertEqual(sizes[:7], [1638400] * 5 + [43008] * 2)  # the deepest level, then its two bottlenecks

    def test_planes(self):
        """Each plane has scores of its own size, and sees the others only at the deepest level."""
        torch.manual_seed(1)
        model = network.Tagger(network.SMALL).eval()
        charge = torch.rand(2, 3, 32, 48)
        scores = model(charge)
        self.assertEqual(scores.shape, (2, 3, 3, 32, 48))
        turned = model(charge[[1, 0]])
        self.assertTrue(torch.allclose(scores[[1, 0]], turned, atol=1e-5))
        model.deepest = torch.nn.Identity()
        other = charge.clone()
        other[:, 1] = 0
        alone, changed = model(charge), model(other)
        self.assertTrue(torch.equal(alone[:, :, [0, 2]], changed[:, :, [0, 2]]))
        self.assertFalse(torch.equal(alone[:, :, 1], changed[:, :, 1]))

    def test_loss(self):
        """Right scores cost nothing, and a class costs as the root of its pixels."""
        labels = torch.zeros(1, 1, 4, 4, dtype=torch.long)
        labels[..., 0, 0] = 1
        right = torch.nn.functional.one_hot(labels, 3).movedim(-1, 1) * 50.0
        self.assertLess(network.loss_of(right, labels), 1e-6)
        flat = torch.zeros(1, 3, 1, 4, 4)
        wrong = flat.clone()
        wrong[:, 0, ..., 0, 0] = 9.0
        three, nine = torch.log(torch.tensor(3.0)), torch.logsumexp(torch.tensor([9.0, 0, 0]), 0)
        root = (15 * 15**-0.5 * three + nine) / (15**0.5 + 1)
        self.assertAlmostEqual(float(network.loss_of(wrong, labels)), float(root), places=5)


class Events(unittest.TestCase):
    def test_events(self):
        charge, labels = events.batch(range(40))
        again, _ = events.batch(range(40))
        self.assertTrue(torch.equal(charge, again))
        self.assertEqual(charge.shape, (40, 3, 64, 96))
        self.assertLess((charge > 0).float().mean(), 0.1)  # sparse
        self.assertTrue(torch.all(labels[charge > 0] > 0))
        with_neutrino = (labels == 2).flatten(1).any(1)
        self.assertTrue(10 < with_neutrino.sum() < 30)
        self.assertTrue(torch.all((labels == 1).flatten(1).any(1)))
        # A vertex is seen by all planes at one drift time: rows of a neutrino agree.
        for event in labels[with_neutrino]:
            rows = [(plane == 2).any(1) for plane in event]
            self.assertGreater((rows[0] & rows[1] & rows[2]).sum(), 0.9 * rows[0].sum())


class Trained(unittest.TestCase):
    def test_two_ranks(self):
        done = subprocess.run(
            [TUTTI, "run", "-n", "2", "--", sys.executable, str(EXAMPLE / "train.py"), "--steps", "20", "--every", "10",
             "--held-out", "16"], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"step +(\d+) of 20 on 2 ranks: loss ([\d.]+), IoU background ([\d.]+), "
                           r"cosmic ([\d.]+), neutrino ([\d.]+)", done.stdout)
        self.assertEqual([line[0] for line in lines], ["10", "20"])
        self.assertLess(float(lines[1][1]), float(lines[0][1]))

    def test_job(self):
        text = (EXAMPLE / "a21.job").read_text()
        rows = {row.split()[0]: int(row.split()[1][6:]) for row in text.split("[tensors]\n")[1].splitlines()}
        model = network.Tagger(network.A21)
        self.assertEqual(rows, {name: 4 * p.numel() for name, p in model.named_parameters()})


if __name__ == "__main__":
    unittest.main()
