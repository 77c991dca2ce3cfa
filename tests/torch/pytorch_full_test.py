# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 3600
"""PyTorch's distributed_test on tutti and on gloo with 2, 3 and 4 ranks: what passes with gloo passes with tutti, and
the page that shows both, docs/compatibility.md, is true."""

import os
import subprocess
import sys
import unittest

COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch", "compare.py")


class AllSizes(unittest.TestCase):
    def test_tutti_passes_what_gloo_passes(self) -> None:
        self.assertEqual(subprocess.run([sys.executable, COMPARE, "--check"]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
