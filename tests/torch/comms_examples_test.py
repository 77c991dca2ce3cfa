# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
# short: Examples.test_quickstart Examples.test_halo Examples.test_parameter_server
"""The examples of torchcomms' API (examples/torchcomms) end well under `tutti run`, and say what they should."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parents[2]
TUTTI = Path(os.environ.get("TUTTI_BUILD", ROOT / "build")) / "bin" / "tutti"


class Examples(unittest.TestCase):
    def run_example(self, name: str, n: int) -> List[str]:
        command = [str(TUTTI), "run", "-n", str(n), "--", sys.executable, str(ROOT / "examples" / "torchcomms" / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(done.stdout.splitlines())

    def test_quickstart(self) -> None:
        lines = self.run_example("quickstart.py", 3)
        self.assertEqual(len([line for line in lines if line.endswith("of 3: the sum is 6")]), 3, lines)

    def test_fsdp2(self) -> None:
        self.assertIn("holds", self.run_example("fsdp2.py", 2)[-1])

    def test_parameter_server(self) -> None:
        self.assertIn("400 steps of 2 workers", self.run_example("parameter_server.py", 3)[-1])

    def test_halo(self) -> None:
        for n in (1, 2, 3):
            self.assertEqual(len([line for line in self.run_example("halo.py", n) if "100 steps" in line]), n)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
