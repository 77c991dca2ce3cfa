# SPDX-License-Identifier: BSD-3-Clause
# label: long
"""The tests that XCCL has of its own, on tutti and "xpu": all pass but those that xccl_suite.py lists, and no fewer
than are written here. They are skipped where nobody says where they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest

import xccl_suite as suite

HERE = os.path.dirname(os.path.abspath(__file__))
PASSED, LEFT_OUT = 69, 28


class Xccl(unittest.TestCase):
    def test_all_that_need_no_hardware(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out, log = os.path.join(folder, "found.json"), os.path.join(folder, "log")
            command = [sys.executable, os.path.join(HERE, "device", "played.py"), "xpu",
                       os.path.join(HERE, "xccl_suite.py"), "--json", out, "--log", log]
            subprocess.run(command)
            with open(out) as file:
                found = json.load(file)
        other = {name: reason for name, (outcome, reason) in found["tests"].items() if outcome != "passed"}
        self.assertEqual(other, {})
        self.assertEqual((len(found["tests"]), len(found["left out"])), (PASSED, LEFT_OUT))


if __name__ == "__main__":
    why = suite.missing() or ("" if "TUTTI_TEST_XPU" in os.environ else "there is no player of the device")
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
