# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# short: Programs.test_lists Programs.test_restarts
"""Programs that name nccl, gloo or both run on tutti where TUTTI_TORCH_REPLACE says so (replaced_program.py): started
by torchrun, again after a failure, by spawn; and on a device that a stand-in plays, where TUTTI_TEST_CUDA names it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List

FOLDER = Path(__file__).resolve().parent
PLAYED = [str(FOLDER / "device" / "played.py"), "cuda"] if "TUTTI_TEST_CUDA" in os.environ else []

SPAWNED = """
import os, sys, tempfile
import torch, torch.distributed as dist, torch.multiprocessing as mp

def rank(i, n, file):
    dist.init_process_group("nccl", init_method="file://" + file, rank=i, world_size=n)
    one = torch.ones(2)
    dist.all_reduce(one)
    assert one.tolist() == [n] * 2 and dist.group.WORLD._get_backend(torch.device("cpu")).name() == "tutti"
    dist.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank, (2, folder + "/meet"), nprocs=2)
"""


class Programs(unittest.TestCase):
    def end_of(self, command: List[str], replaced: str, **more: str) -> str:
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "TUTTI_TORCH_REPLACE": replaced, **more}
        ended = subprocess.run(command, env=variables, text=True, timeout=300, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
        self.assertEqual(ended.returncode, 0, ended.stdout)
        return ended.stdout

    def torchrun(self, replaced: str, *backend: str, options: List[str] = [], **more: str) -> List[List[str]]:
        """What the two ranks said."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
        text = self.end_of([*launcher, *PLAYED, str(FOLDER / "replaced_program.py"), *backend], replaced, **more)
        return [line.split("said ")[1].split()[1:] for line in text.splitlines() if "said " in line]

    def test_lists(self) -> None:
        said = self.torchrun("nccl,gloo", "cpu:gloo,cuda:nccl")
        name = "nccl" if PLAYED else "gloo"
        self.assertEqual(said, [["cpu:gloo,cuda:nccl", name, "cpu:gloo,cuda:nccl", "tutti"]] * 2)

    def test_nccl(self) -> None:
        self.assertEqual(self.torchrun("NCCL , gloo", "nccl"), [["nccl", "nccl", "cuda:nccl", "tutti"]] * 2)

    def test_no_name(self) -> None:
        name, device = ("nccl", "cuda") if PLAYED else ("gloo", "cpu")
        said = self.torchrun("gloo,nccl,xccl")
        self.assertEqual(said, [["undefined", name, f"{device}:{name}", "tutti"]] * 2)

    @unittest.skipIf(PLAYED, "gloo keeps the device's tensors, which that of a build for CPUs does not take")
    def test_restarts(self) -> None:
        """The ranks that meet again are new processes, and say the same."""
        said = self.torchrun("gloo,nccl", "gloo", options=["--max-restarts", "1"], FAILS="1")
        self.assertEqual([words[1:] for words in said], [["gloo", "cpu:gloo,cuda:gloo", "tutti"]] * 4)

    @unittest.skipIf(PLAYED, "the processes that spawn starts know nothing of the stand-in")
    def test_spawn(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "program.py"
            file.write_text(SPAWNED)
            self.end_of([sys.executable, str(file)], "nccl")


if __name__ == "__main__":
    unittest.main()
