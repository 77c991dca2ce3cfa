# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# short: DataTest ToleranceTest RunTest.test_demo
"""The demo (examples/torch/train_digits.py): its images and their order are the C example's, its tolerance lies between
rounding and the smallest mistake, and started by `tutti run` it ends well; so do two other examples under the variables
that programs are run with which never heard of tutti."""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torch"
sys.path.insert(0, str(EXAMPLES))

import torch  # noqa: E402

import digits  # noqa: E402
import train_digits  # noqa: E402

TUTTI = Path(os.environ.get("TUTTI_BUILD", ROOT / "build")) / "bin" / "tutti"


class CDigits(ctypes.Structure):
    """struct digits of examples/digits.h."""

    _fields_ = [
        ("n", ctypes.c_size_t),
        ("pixels", ctypes.POINTER(ctypes.c_float)),
        ("labels", ctypes.POINTER(ctypes.c_uint8)),
    ]

    def pixel_rows(self) -> torch.Tensor:
        flat = ctypes.cast(self.pixels, ctypes.POINTER(ctypes.c_float * (self.n * digits.PIXELS))).contents
        return torch.frombuffer(flat, dtype=torch.float32).view(self.n, digits.PIXELS)


def c_example(folder: str) -> ctypes.CDLL:
    """examples/digits_data.c as a library."""
    library = Path(folder) / "digits_data.so"
    source = ROOT / "examples" / "digits_data.c"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-I", ROOT / "include", "-o", library, source], check=True
    )
    return ctypes.CDLL(str(library))


class DataTest(unittest.TestCase):
    def test_images_are_those_of_the_c_example(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library, pair = c_example(folder), (CDigits(), CDigits())
            library.digits_load.restype = ctypes.c_bool
            path = str(digits.FILE).encode()
            self.assertTrue(library.digits_load(path, ctypes.byref(pair[0]), ctypes.byref(pair[1])))
            for ours, theirs, n in zip(digits.load(), pair, (1437, 360)):
                self.assertEqual(theirs.n, n)
                self.assertTrue(torch.equal(ours.pixels, theirs.pixel_rows()))
                self.assertEqual(ours.labels.tolist(), theirs.labels[:n])

    def test_order_of_an_epoch_is_that_of_the_c_example(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = c_example(folder)
            for n, epoch in ((1, 0), (2, 1), (1437, 0), (1437, 19), (1797, 0xFFFFFFFF)):
                order = (ctypes.c_uint32 * n)()
                library.digits_shuffle(order, ctypes.c_size_t(n), ctypes.c_uint32(epoch))
                self.assertEqual(digits.shuffle(n, epoch), list(order))


class InParts(train_digits.Training):
    """Each batch in four parts whose gradients are added, as ranks do it, in their order."""

    def step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: list) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(self.backward(model, batch, part, 4) for part in range(4))
        optimizer.step()
        return loss


class ToleranceTest(unittest.TestCase):
    """What the demo accepts, from runs in one process."""

    def run_alone(self, images: digits.Digits, training=train_digits.Training):
        training = training(argparse.Namespace(epochs=20, batch=64, hidden=64), images, 0, 1)
        model = training.model()
        curve = training.run(model)
        return train_digits.whole_weights(model), curve

    def test_tolerance_lies_between_rounding_and_a_mistake(self) -> None:
        images, _ = digits.load()
        alone, parts = self.run_alone(images), self.run_alone(images, InParts)
        self.assertTrue(train_digits.check_single(*parts, *alone))
        self.assertLess((parts[0] - alone[0]).abs().max().item(), train_digits.TOLERANCE / 5)
        spoiled = digits.Digits(images.pixels.clone(), images.labels.clone())
        spoiled.labels[0] = (spoiled.labels[0] + 1) % 10
        wrong = self.run_alone(spoiled)
        self.assertGreater((wrong[0] - alone[0]).abs().max().item(), train_digits.TOLERANCE * 100)
        self.assertFalse(train_digits.check_single(*wrong, *alone))
        self.assertFalse(train_digits.check_single(alone[0] * float("nan"), alone[1], *alone))


class RunTest(unittest.TestCase):
    def launch(self, ranks: int, *command: str, **environment: str) -> str:
        ended = subprocess.run(
            [TUTTI, "run", "-n", str(ranks), "--timeout", "240s", "--", sys.executable, *command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout)
        return ended.stdout

    def test_demo(self) -> None:
        text = self.launch(4, str(EXAMPLES / "train_digits.py"), "--epochs", "6", "--hidden", "64")
        self.assertEqual(len(re.findall(r"^accuracy 9[5-9]\.\d %$", text, re.M)), 2, text)
        self.assertEqual(len(re.findall(r"bit for bit equal on 4 ranks$", text, re.M)), 2, text)
        self.assertEqual(len(re.findall(r"less than 1e-05: rounding$", text, re.M)), 2, text)
        losses = [float(loss) for loss in re.findall(r"^epoch +\d+ loss (\d\.\d+)", text, re.M)]
        self.assertEqual(len(losses), 12, text)
        self.assertLess(losses[5], losses[0] / 5)
        self.assertIn("backend tutti", text)

    def test_program_that_says_gloo(self) -> None:
        """Also the process that saves a checkpoint asks for gloo, by itself."""
        text = self.launch(
            2, str(EXAMPLES / "checkpoint.py"), TUTTI_TORCH_REPLACE="gloo", TUTTI_EXAMPLE_BACKEND="gloo"
        )
        self.assertIn("2 ranks, backend gloo, which is tutti", text)
        self.assertIn("saved by a process: 20 tensors as wanted, bit for bit", text)

    def test_program_that_names_no_backend(self) -> None:
        text = self.launch(2, str(EXAMPLES / "objects.py"), TUTTI_TORCH_DEFAULT="cpu", TUTTI_EXAMPLE_BACKEND="")
        self.assertIn("which is tutti", text)


if __name__ == "__main__":
    unittest.main()
