# SPDX-License-Identifier: BSD-3-Clause
# label: long
"""PyTorch's distributed_test on "xpu", which it reads wherever it says "cuda": all pass that the player of the device
(device/tuttixpu.py) can play, and no fewer than are written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PLAYED, SUITE = os.path.join(HERE, "device", "played.py"), os.path.join(HERE, "pytorch", "suite.py")
AT_LEAST = 190

# Left out, by name: not the collectives' matter.
WITHOUT = {
    r"SyncBatchNorm|sync_bn|test_ddp_uneven_inputs$": "operators that only the devices' own libraries have",
    r"test_sparse_all_reduce_sum_cuda$": "sparse tensors, too",
    r"test_static_graph_multi_forward$": "properties of a device",
    r"test_ddp_apply_optim_in_backward$": "a large network, for which a player is too slow",
    r"test_average_parameters$|monitored_barrier_allreduce_hang": "the test names NCCL",
}


@unittest.skipUnless("TUTTI_TEST_XPU" in os.environ, "needs a player of the device")
class TwoRanks(unittest.TestCase):
    def test_all_that_can_be_played(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "found.json")
            command = [sys.executable, PLAYED, "xpu", SUITE, "--device", "xpu", "--json", out]
            command += [word for name in WITHOUT for word in ("--without", name)]
            subprocess.run([*command, "--log", os.path.join(folder, "log")])
            with open(out) as file:
                found = json.load(file)["tests"]
        failed = {name: reason for name, (outcome, reason) in found.items() if outcome == "failed"}
        self.assertEqual(failed, {})
        self.assertGreaterEqual(sum(outcome == "passed" for outcome, _ in found.values()), AT_LEAST)


if __name__ == "__main__":
    unittest.main()
