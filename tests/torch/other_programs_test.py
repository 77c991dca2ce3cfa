# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 1800
"""Programs of others, unchanged, with TUTTI_TORCH_REPLACE as the only difference: accelerate's own test scripts, small
programs of Lightning, transformers and DeepSpeed (other_programs.py). What they learn on two ranks is what they learn
with gloo, bit for bit, for two values have but one sum. What is not installed is skipped."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List, Tuple

PROGRAM = Path(__file__).resolve().parent / "other_programs.py"


def needs(package: str):
    there = importlib.util.find_spec(package) is not None
    return unittest.skipUnless(there, f"{package} is not installed here (pip install {package})")


def torchrun(program: List[str], replaced: str, **more: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    folder = str(Path(sys.executable).parent)  # DeepSpeed looks for ninja
    variables = {"OMP_NUM_THREADS": "1", "TUTTI_TORCH_REPLACE": replaced, "PATH": f"{folder}:{os.environ['PATH']}"}
    with tempfile.TemporaryFile("w+") as output:
        ended = subprocess.run([*launcher, *program], env={**os.environ, **variables, **more}, stdout=output,
                               stderr=subprocess.STDOUT, timeout=600)  # fmt: skip
        output.seek(0)
        text = output.read()
    if ended.returncode:
        raise AssertionError(f"{program} with {replaced!r} replaced ended with {ended.returncode}:\n{text}")
    return text


def said(name: str, *arguments: str, replaced: str = "", **more: str) -> Tuple[str, str, str]:
    """The name that a program sees, the backend that it has, what it learnt: the same on both ranks."""
    text = torchrun([str(PROGRAM), name, *arguments], replaced, **more)
    lines = [tuple(line.split("said ")[1].split()) for line in text.splitlines() if "said " in line]
    assert len(lines) == 2 and len(set(lines)) == 1, text
    return lines[0]


class Unchanged(unittest.TestCase):
    def compare(self, name: str, *arguments: str, **more: str) -> None:
        """By their default, which is gloo on CPUs; with nccl named, where they take that on CPUs."""
        shown, backend, learnt = said(name, **more)
        self.assertEqual((shown, backend), ("gloo", "gloo"))
        self.assertEqual(said(name, replaced="gloo", **more), ("gloo", "tutti", learnt))
        if arguments:
            self.assertEqual(said(name, *arguments, replaced="nccl", **more), ("nccl", "tutti", learnt))

    @needs("lightning")
    def test_lightning(self) -> None:
        self.compare("lightning", "nccl")

    @needs("transformers")
    @needs("accelerate")
    def test_trainer(self) -> None:
        self.compare("trainer")

    @needs("transformers")
    @needs("accelerate")
    def test_generate(self) -> None:
        self.compare("generate")

    @needs("deepspeed")
    def test_deepspeed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.compare("deepspeed", "nccl", "3", DS_ACCELERATOR="cpu", TORCH_EXTENSIONS_DIR=folder)

    @needs("accelerate")
    def test_accelerate(self) -> None:
        """Its own scripts: operations among processes; gradients that are summed now and then."""
        import accelerate.test_utils

        scripts = Path(accelerate.test_utils.__file__).parent / "scripts"
        for script in ("test_ops.py", "test_sync.py"):
            text = torchrun([str(scripts / script)], "gloo", ACCELERATE_USE_CPU="true", TUTTI_LOG="info")
            self.assertIn('"torch": rank 1 of 2', text)  # tutti's log, of its communicator


if __name__ == "__main__":
    unittest.main()
