# SPDX-License-Identifier: BSD-3-Clause
# short: Some
"""PyTorch's distributed_test with two ranks on tutti: nothing fails, nothing is skipped but for want of a device, of
ranks or by PyTorch itself, and no fewer tests pass than docs/compatibility.md says. The short test runs some of each
kind. All numbers of ranks, and gloo beside tutti, are in pytorch_full_test.py."""

import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch"))
import compare  # noqa: E402
import lifts  # noqa: E402

CAUSES = ("needs ", "switched off by PyTorch", "an option of NCCL")


SOME = (
    "test_DistributedDataParallelCPU", "test_all_gather", "test_all_gather_coalesced_simple",
    "test_all_gather_object_subgroup", "test_all_reduce_coalesced_sum", "test_all_reduce_sum_async",
    "test_all_to_all_single_unequal_split", "test_barrier", "test_batch_isend_irecv_gloo", "test_broadcast_full_group",
    "test_gather_checks", "test_get_future", "test_irecv", "test_monitored_barrier_gloo_rank_0_timeout",
    "test_reduce_sum_twice", "test_scatter_object_list", "test_send_recv_any_source_torch_profiler",
    "test_send_recv_with_tag", "test_sparse_all_reduce_sum", "test_static_graph_api_cpu",
)  # fmt: skip


class Some(unittest.TestCase):
    def test_nothing_fails(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = compare.measure("tutti", 2, folder, SOME)["tests"]
        self.assertEqual({name: outcome for name, (outcome, _) in found.items()}, dict.fromkeys(SOME, "passed"))


class TwoRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = compare.measure("tutti", 2, folder)
        cls.tests, cls.lifted = found["tests"], found["lifted"]

    def those(self, outcome: str) -> dict:
        return {name: reason for name, (became, reason) in self.tests.items() if became == outcome}

    def test_nothing_fails(self) -> None:
        self.assertEqual(self.those("failed"), {})

    def test_skips_have_a_cause(self) -> None:
        causes = {name: compare.why(reason) for name, reason in self.those("skipped").items()}
        self.assertEqual({name: cause for name, cause in causes.items() if not cause.startswith(CAUSES)}, {})

    def test_as_many_pass_as_the_page_says(self) -> None:
        with open(compare.PAGE) as file:
            said = re.search(r"^\| 2 \| tutti \| (\d+) \|", file.read(), re.M)
        self.assertGreaterEqual(len(self.those("passed")), int(said.group(1)))

    def test_every_lifted_skip_is_one_of_the_suite(self) -> None:
        self.assertEqual(set(self.lifted.values()), {what for _, what in lifts.LIFTED})


if __name__ == "__main__":
    unittest.main()
