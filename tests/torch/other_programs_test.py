# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 1800
"""Programs of others, unchanged, with one variable as the only difference (TUTTI_TORCH_REPLACE; on GPUs also with the
library that `tutti run --as-nccl` preloads): accelerate's own test scripts, small programs of accelerate, Lightning,
transformers and DeepSpeed (other_programs.py). What they learn on two ranks is what they learn with gloo, or on GPUs
with NVIDIA's nccl, bit for bit, for two values have but one sum. What is not installed is skipped."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List, Tuple

import torch

PROGRAM = Path(__file__).resolve().parent / "other_programs.py"
TUTTI = Path(os.environ.get("TUTTI_BUILD", PROGRAM.parents[2] / "build")) / "bin" / "tutti"
GPUS = torch.cuda.device_count() > 1
USUAL = "nccl" if GPUS else "gloo"


def needs(*packages: str):
    there = any(importlib.util.find_spec(package) for package in packages)
    return unittest.skipUnless(there, f"{packages[0]} is not installed here (pip install {packages[0]})")


def torchrun(program: List[str], replaced: str, preload: bool = False, **more: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if preload:
        launcher, more = [str(TUTTI), "run", "--as-nccl", "--", *launcher], {"NCCL_DEBUG": "VERSION", **more}
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


def said(name: str, *arguments: str, replaced: str = "", preload: bool = False, **more: str) -> Tuple[str, str, str]:
    """The name that a program sees, the backend that it has, what it learnt: the same on both ranks."""
    text = torchrun([str(PROGRAM), name, *arguments], replaced, preload, **more)
    lines = [tuple(line.split("said ")[1].split()) for line in text.splitlines() if "said " in line]
    assert len(lines) == 2 and len(set(lines)) == 1, text
    assert ("by tutti" in text) == preload, text
    return lines[0]


class Unchanged(unittest.TestCase):
    def compare(self, name: str, *arguments: str, **more: str) -> None:
        """By their default; with nccl named, where they take that on CPUs."""
        shown, backend, learnt = said(name, **more)
        self.assertEqual(backend, USUAL)
        self.assertEqual(said(name, replaced=USUAL, **more), (shown, "tutti", learnt))
        own = {**more, "TUTTI_TORCH_DDP": "1"}  # and gradients in buckets of ours
        self.assertEqual(said(name, replaced=USUAL, **own), (shown, "tutti", learnt))
        if GPUS:
            self.assertEqual(said(name, preload=True, **more), (shown, "nccl", learnt))
        elif arguments:
            self.assertEqual(said(name, *arguments, replaced="nccl", **more), ("nccl", "tutti", learnt))

    @needs("accelerate")
    def test_accelerate(self) -> None:
        self.compare("accelerate")
        self.compare("fsdp2")

    @needs("lightning", "pytorch_lightning")
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
    def test_scripts_of_accelerate(self) -> None:
        """Its own: operations among processes; gradients that are summed now and then; training that is compared with
        one process; on GPUs also hooks of DDP and files of FSDP's parts."""
        import accelerate.test_utils

        scripts = Path(accelerate.test_utils.__file__).parent / "scripts"
        names = ["test_ops", "test_sync", "test_script"]
        if GPUS:
            names += ["test_ddp_comm_hook", "test_merge_weights"]
        for name in names:
            for own in "01":
                more = {"ACCELERATE_USE_CPU": str(not GPUS), "TUTTI_LOG": "info", "TUTTI_TORCH_DDP": own}
                text = torchrun([str(scripts / f"{name}.py")], USUAL, **more)
                self.assertIn('"torch": rank 1 of 2', text)  # tutti's log, of its communicator


if __name__ == "__main__":
    unittest.main()
