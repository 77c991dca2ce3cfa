# SPDX-License-Identifier: BSD-3-Clause
"""Communicators by oneCCL, on CPU tensors: "tutti:oneccl", between processes, with the stand-in for its library."""

import os
import tempfile
import unittest

import torch
import torch.distributed as dist
from comms_support import CPU, Process

import tutti_torch.comms as tc

STANDIN = os.path.join(os.environ.get("TUTTI_BUILD", "build"), "lib", "libccl_standin.so")


def member(path: str, rank: int, fails: bool) -> None:
    if fails:
        os.environ["TUTTI_STANDIN_ONECCL_FAILS"] = "0:4"  # the first one is of the creation
    hints = {"rank": str(rank), "size": "2"}
    comm = tc.new_comm("tutti:oneccl", CPU, "by_oneccl", store=dist.FileStore(path, 2), hints=hints)
    assert comm.get_backend() == "tutti:oneccl"
    tensor = torch.full((1000,), rank + 1.0)
    comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
    assert tensor.eq(3).all()
    gathered = torch.zeros(2000)
    comm.all_gather_single(gathered, tensor, False)
    assert gathered.eq(3).all()
    try:
        comm.all_reduce(tensor, tc.ReduceOp.SUM, False)
        assert not fails
    except RuntimeError as error:
        assert fails and "the stand-in refuses call 4" in str(error), error
        return
    comm.all_reduce(tensor, tc.ReduceOp.MAX, False)  # which oneCCL does wrong
    comm.barrier(False)
    comm.finalize()


@unittest.skipUnless(os.path.exists(STANDIN), "the stand-in was not built")
class ByOneccl(unittest.TestCase):
    def setUp(self) -> None:
        os.environ["TUTTI_ONECCL_LIBRARY"] = STANDIN

    def tearDown(self) -> None:
        del os.environ["TUTTI_ONECCL_LIBRARY"]

    def test_calls_go_by_it(self) -> None:
        self.assertIn("tutti:oneccl", tc.built_backends())
        for fails in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "store")
                processes = [Process(member, path, rank, fails) for rank in range(2)]
                self.assertEqual([process.ended(60) for process in processes], [0, 0])


if __name__ == "__main__":
    unittest.main()
