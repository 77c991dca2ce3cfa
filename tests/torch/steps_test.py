# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of bench/torch_peers.py: stages are the model; gradients that are wrong are found; and a run of the
small models by tutti, whose gradients all are right. Nothing here says how fast anything is."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"
sys.path.insert(0, str(BENCH))

from peers import models, training  # noqa: E402

SIZE, CPU = models.SIZES["cpu"]["small"], torch.device("cpu")


class Steps(unittest.TestCase):
    def test_stages_are_the_model(self) -> None:
        whole, words = models.make_model(SIZE, CPU), models.words_of(SIZE, [0, 1], CPU)
        for n in (1, 2):
            x = words
            for rank in range(n):
                x = models.stage_of(SIZE, CPU, rank, n)(x)
            self.assertTrue(torch.equal(x, whole(words)))

    def test_wrong_gradients_are_found(self) -> None:
        world = training.World(0, 2, CPU, SIZE)
        for way in training.WAYS.values():
            expected = training.gradients_alone(way, world)[0]
            trained = training.alone(None, world)
            self.assertEqual(training.apart(trained.model, expected), float("inf"))  # none yet
            for rank in range(2 if way.each_its_own else 1):
                trained.learn(models.words_of(SIZE, [rank], CPU))
            for p in trained.model.parameters():
                p.grad /= 2 if way.each_its_own else 1
            self.assertLess(training.apart(trained.model, expected), training.APART / 10)
            trained.model.blocks["1"].up.bias.grad *= 1.01
            self.assertGreater(training.apart(trained.model, expected), training.APART)

    def test_all_steps_of_the_small_models(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/found.json"
            command = [sys.executable, str(BENCH / "torch_peers.py"), "--parts", "training", "--models", "small"]
            command += ["--ranks", "2", "--peers", "tutti", "--seconds", "8", "--json", path]
            subprocess.run(command, check=True, timeout=240)
            found = json.loads(Path(path).read_text())["worlds"]["2"]["training"]
        peers = {"ddp": {"alone", "tutti", "tutti, own buckets"}, "fsdp2": {"alone", "tutti"}}
        self.assertEqual(set(found), {f"{way} small" for way in training.WAYS})
        for kind, row in found.items():
            self.assertEqual(set(row), peers.get(kind.split()[0], {"tutti"}), row)
            self.assertTrue(all(entry["median_us"] > 0 for entry in row.values()), row)


if __name__ == "__main__":
    unittest.main()
