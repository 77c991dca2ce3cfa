# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 900
"""Digits, learned by three groups through 20 kills (examples/torch/train_ft.py): to the accuracy without them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "torch" / "train_ft.py"
TUTTI = os.path.join(os.environ.get("TUTTI_BUILD", "build"), "bin", "tutti")


class Digits(unittest.TestCase):
    def test_through_twenty_kills(self) -> None:
        with tempfile.NamedTemporaryFile() as report:
            done = subprocess.run(
                [TUTTI, "chaos", "--groups", "3", "--calm", "2s", "--every", "9s", "--for", "600s", "--pause", "200ms",
                 "--json", report.name, "--", sys.executable, str(EXAMPLE), "--steps", "20000", "--pace", "0.008"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800)
            self.assertEqual(done.returncode, 0, done.stdout[-4000:])
            told = json.load(report)
        print(told, file=sys.stderr)
        accuracies = [float(a) for a in re.findall(r"^accuracy ([0-9.]+) %$", done.stdout, re.MULTILINE)]
        self.assertGreaterEqual(told["kill"], 20, told)
        self.assertEqual(told["ended"], 0, done.stdout[-4000:])
        self.assertTrue(accuracies and min(accuracies) >= 97.0, accuracies)


if __name__ == "__main__":
    unittest.main()
