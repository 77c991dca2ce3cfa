# SPDX-License-Identifier: BSD-3-Clause
# short: Generation.test_plain Generation.test_missing_sum
"""Tensor-parallel generation (examples/torch/generate.py) gives the tokens of one process on tutti and on gloo, with
either model; where a sum is left out it says so."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "torch" / "generate.py"
TUTTI = Path(os.environ.get("TUTTI_BUILD", ROOT / "build")) / "bin" / "tutti"
SMALL = "--hidden 64 --inner 96 --vocabulary 128 --layers 2 --tokens 12 --prompts 2 --rounds 1".split()
BROKEN = f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); sys.argv[0] = 'generate'; import generate; " \
         "generate.Parts.sum = lambda *_: None; generate.main()"  # fmt: skip


class Generation(unittest.TestCase):
    def generate(self, n: int, *arguments: str, program=(str(PROGRAM),)) -> "subprocess.CompletedProcess[str]":
        command = [str(TUTTI), "run", "-n", str(n), "--timeout", "240s", "--", sys.executable, *program]
        command += [*SMALL, *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check(self, model: str, n: int, *arguments: str) -> None:
        ended = self.generate(n, *arguments)
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertRegex(ended.stdout, rf"{model}.* on {n} ranks, cpu: 24 new tokens, \d\d different")
        for name in ("tutti", "gloo"):
            self.assertRegex(ended.stdout, rf"{name}: the same tokens, \d+\.\d tokens/s")

    def test_plain(self) -> None:
        self.check("Llama in plain PyTorch", 2, "--plain")

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed here")
    def test_transformers(self) -> None:
        self.check("LlamaForCausalLM of transformers", 4)

    def test_missing_sum(self) -> None:
        ended = self.generate(2, "--plain", program=("-c", BROKEN))
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stdout, r"generate: on tutti token \d+ on rank \d is not that of one process")


if __name__ == "__main__":
    unittest.main()
