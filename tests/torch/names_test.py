# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch refuses by name works on groups that tutti serves, and importing tutti_torch changes nothing for groups
that it does not serve. One rank is enough for that: what the calls do among several is in the other tests."""

import os
import subprocess
import sys
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
import tutti_torch  # noqa: F401
from torch.distributed import distributed_c10d as c10d

CPU = torch.device("cpu")
SHORT = timedelta(seconds=7)


class Group:
    """The world of one rank, while the block runs."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __enter__(self) -> dist.ProcessGroup:
        dist.init_process_group(self.backend, store=dist.HashStore(), rank=0, world_size=1)
        return c10d._get_default_group()

    def __exit__(self, *_) -> None:
        dist.destroy_process_group()


class ServedByTutti(unittest.TestCase):
    def test_monitored_barrier(self) -> None:
        with Group("tutti") as group:
            dist.monitored_barrier()
            dist.monitored_barrier(group, timeout=SHORT, wait_all_ranks=True)
            with self.assertRaises(dist.DistBackendError):
                dist.monitored_barrier(timeout=timedelta(seconds=0))
            with self.assertRaises(TypeError):
                dist.monitored_barrier(timeout="soon")

    def test_name_in_the_log_of_ddp(self) -> None:
        with Group("tutti"):
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            self.assertEqual(model._get_ddp_logging_data()["backend_name"], "tutti")


IN_PLACE_OF_GLOO = """
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
group = c10d._get_default_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
names = [group.name(), group._get_backend_name(), dist.get_backend(), model._get_ddp_logging_data()["backend_name"]]
assert names == ["gloo"] * 4, names
assert group._get_backend(torch.device("cpu")).name() == "tutti"
before = group._get_sequence_number_for_group()
dist.all_reduce(torch.ones(1))
assert group._get_sequence_number_for_group() == before + 1
dist.monitored_barrier()
dist.destroy_process_group()
"""


class InPlaceOfGloo(unittest.TestCase):
    def test_names_are_those_of_gloo(self) -> None:
        environment = {**os.environ, "TUTTI_TORCH_REPLACE": "gloo"}
        command = [sys.executable, "-c", IN_PLACE_OF_GLOO]
        ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)


class ServedByOthers(unittest.TestCase):
    def test_groups_of_one_backend_by_device(self) -> None:
        for backend in ("cpu:gloo", "cpu:gloo,cuda:gloo"):
            with self.subTest(backend), Group(backend) as group:
                self.assertEqual(group.name(), "gloo")
                dist.all_reduce(torch.ones(1))
                self.assertEqual(group._get_sequence_number_for_group(), 1)
                self.assertFalse(group._has_hooks())

    def test_gloo_keeps_its_own_answers(self) -> None:
        with Group("gloo") as group:
            dist.monitored_barrier()
            c10d._set_pg_timeout(SHORT)
            self.assertEqual(group._get_backend(CPU).options._timeout, SHORT)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            self.assertEqual(model._get_ddp_logging_data()["backend_name"], "gloo")

    def test_others_are_still_refused(self) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
        try:
            with self.assertRaises((ValueError, RuntimeError)):
                dist.monitored_barrier()
            with self.assertRaises(RuntimeError):
                c10d._get_default_group()._get_sequence_number_for_group()
        finally:
            dist.destroy_process_group()


class ObjectOriented(unittest.TestCase):
    """torch.distributed._dist2."""

    def setUp(self) -> None:
        try:
            from torch.distributed import _dist2
        except ImportError:
            self.skipTest("this torch has no torch.distributed._dist2")
        self.dist2 = _dist2

    def test_group(self) -> None:
        group = self.dist2._BACKENDS["tutti"](dist.HashStore(), 0, 1, SHORT, CPU)
        tensor = torch.arange(4.0)
        group.allreduce(tensor, timeout=SHORT).wait()
        self.assertTrue(torch.equal(tensor, torch.arange(4.0)))
        self.assertEqual(group._get_backend(CPU).options._timeout, SHORT)
        part = group.split_group([0], timeout=2 * SHORT, group_name="part")
        self.assertEqual((part.size(), part.group_name), (1, "part"))
        self.assertEqual(part._get_backend(CPU).options._timeout, 2 * SHORT)
        part.shutdown()
        group.shutdown()

    def test_unknown_option(self) -> None:
        with self.assertRaisesRegex(KeyError, "speed"):
            self.dist2._BACKENDS["tutti"](dist.HashStore(), 0, 1, SHORT, CPU, speed=2)


if __name__ == "__main__":
    unittest.main()
