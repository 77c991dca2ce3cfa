# SPDX-License-Identifier: BSD-3-Clause
# short: Programs.test_ddp
"""One program, one word changed (examples/torch/train_device.py): on CPUs, and on the device that TUTTI_TEST_CUDA or
TUTTI_TEST_XPU names a player of (device/played.py). It does not name tutti: its devices' default does."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "torch" / "train_device.py"
PLAYED = ROOT / "tests" / "torch" / "device" / "played.py"
TUTTI = Path(os.environ.get("TUTTI_BUILD", ROOT / "build")) / "bin" / "tutti"
DEVICE = next((kind for kind in ("cuda", "xpu") if f"TUTTI_TEST_{kind.upper()}" in os.environ), "cpu")


class Programs(unittest.TestCase):
    def train(self, spread: str) -> None:
        player = [] if DEVICE == "cpu" else [PLAYED, DEVICE]
        program = [PROGRAM, "--device", DEVICE, "--spread", spread, "--epochs", "2"]
        ended = subprocess.run(
            [TUTTI, "run", "-n", "2", "--timeout", "240s", "--", sys.executable, *player, *program],
            env={**os.environ, "TUTTI_TORCH_DEFAULT": f"cpu,{DEVICE}", "TUTTI_EXAMPLE_BACKEND": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertRegex(ended.stdout, rf"2 ranks on {DEVICE}, {spread}, backend tutti\naccuracy 9\d\.\d %")

    def test_ddp(self) -> None:
        self.train("ddp")

    @unittest.skipIf(DEVICE == "cuda", "only a PyTorch with CUDA resizes the storage of its tensors")
    def test_fsdp2(self) -> None:
        self.train("fsdp2")


if __name__ == "__main__":
    unittest.main()
