# SPDX-License-Identifier: BSD-3-Clause
"""What of tutti_torch.ft lies between a model and its manager: gradients of DDP and of sharded models, optimizers,
buckets, samplers, futures with deadlines, a parameter server."""

from __future__ import annotations

import os
import threading
import unittest
from datetime import timedelta
from typing import List, Optional
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Work
from torch.distributed.fsdp import fully_shard

import ranks
from tutti_torch.ft import futures, hsdp
from tutti_torch.ft.buckets import packed, reduce_packed
from tutti_torch.ft.data import DistributedSampler
from tutti_torch.ft.ddp import DistributedDataParallel, PureDistributedDataParallel
from tutti_torch.ft.managed_work import _ManagedWork
from tutti_torch.ft.optim import OptimizerWrapper
from tutti_torch.ft.parameter_server import ParameterServer
from tutti_torch.ft.process_group import ProcessGroup, ProcessGroupTutti
from tutti_torch.ft.work import _DummyWork


class Later(Work):
    """A call that is over when somebody says so, or waits for it."""

    def __init__(self, error: Optional[Exception] = None, by_wait: bool = False) -> None:
        super().__init__()
        self.by_wait = by_wait
        self.future: torch.futures.Future = torch.futures.Future()
        self.error = error

    def end(self) -> None:
        self.future.set_exception(self.error) if self.error else self.future.set_result(None)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        if self.by_wait and not self.future.done():
            self.end()
        self.future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        return self.future


class Halving:
    """A manager whose reductions halve the tensor, when they are over."""

    def __init__(self, error: Optional[Exception] = None) -> None:
        self.error = error
        self.works: List[Later] = []
        self.errors: List[Exception] = []

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False) -> Work:
        self.works.append(Later(self.error, by_wait=True))
        return _ManagedWork(self, self.works[-1], tensor, finish=lambda: tensor.div_(2))

    def report_error(self, error: Exception) -> None:
        self.errors.append(error)


def gradients(model: torch.nn.Module) -> List[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters()]


def plain_gradients(model: torch.nn.Module, x: torch.Tensor) -> List[torch.Tensor]:
    model(x).square().mean().backward()
    found = [grad.clone() for grad in gradients(model)]
    model.zero_grad()
    return found


class Gradients(unittest.TestCase):
    def test_they_are_reduced_and_waited_for(self) -> None:
        """Also where the reductions of the pass before had been left, by an error in the model."""
        for wrap in (DistributedDataParallel, PureDistributedDataParallel):
            model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)), torch.randn(2, 3)
            expected, manager = plain_gradients(model, x), Halving()
            wrapped = wrap(manager, model)
            for _ in range(2):
                wrapped(x).square().mean().backward()
                for grad, plain in zip(gradients(model), expected):
                    torch.testing.assert_close(grad, plain / 2)
                wrapped.zero_grad()
            self.assertGreaterEqual(len(manager.works), 2)

    def test_backward_does_not_wait(self) -> None:
        """For one reduction before it starts the next: all have begun before the first is over."""
        model = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(4)))
        manager, seen = Halving(), []
        wait = Later.wait

        def counted(work: Later, timeout: Optional[timedelta] = None) -> bool:
            seen.append(len(manager.works))
            return wait(work, timeout)

        with mock.patch.object(Later, "wait", counted):
            parallel = DistributedDataParallel(manager, model, bucket_cap_mb=0.1)
            parallel(torch.randn(2, 200)).sum().backward()
        self.assertGreater(len(manager.works), 2)
        self.assertEqual(set(seen), {len(manager.works)})

    def test_an_error_is_the_managers(self) -> None:
        manager = Halving(RuntimeError("a member died"))
        parallel = DistributedDataParallel(manager, torch.nn.Linear(3, 4))
        parallel(torch.rand(2, 3)).mean().backward()
        self.assertIn("a member died", str(manager.errors[0]))

    def test_sharded_models(self) -> None:
        dist.init_process_group("tutti", rank=0, world_size=1, store=dist.HashStore())
        try:
            model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)), torch.randn(2, 3)
            expected = plain_gradients(model, x)
            with ranks.raises(ValueError, "apply fully_shard first"):
                hsdp.replicate(model, Halving())
            mesh = hsdp.ft_init_device_mesh("cpu", (2, 1), ("replicate", "shard"), replicate_dim=0)
            self.assertEqual(mesh.mesh_dim_names, ("shard",))
            fully_shard(model[0], mesh=mesh)
            fully_shard(model, mesh=mesh)
            hsdp.replicate(model, Halving())
            model(x).square().mean().backward()
            for grad, plain in zip(gradients(model), expected):
                torch.testing.assert_close(grad.to_local(), plain / 2)
        finally:
            dist.destroy_process_group()


class Works(unittest.TestCase):
    def test_what_hangs_on_a_call_is_done_when_it_is_over(self) -> None:
        """In order, once, and before wait returns."""
        tensor, order = torch.ones(2), []
        work = Later()
        managed = _ManagedWork(Halving(), work, tensor, finish=lambda: tensor.add_(1))
        last = managed.get_future().then(lambda f: order.append(f.value()[0].item()) or "first") \
            .then(lambda f: order.append(f.value()) or "second")
        self.assertFalse(managed.is_completed())
        threading.Thread(target=work.end).start()
        self.assertTrue(managed.wait())
        self.assertEqual((order, last.wait(), managed.is_completed()), ([2.0, "first"], "second", True))

    def test_c_sees_its_future(self) -> None:
        managed = _ManagedWork(Halving(), work := Later(), torch.ones(2))
        collected = torch.futures.collect_all([managed.get_future()])
        self.assertFalse(collected.done())
        work.end()
        self.assertEqual(collected.wait()[0].value().tolist(), [1, 1])

    def test_deadlines(self) -> None:
        never: torch.futures.Future = torch.futures.Future()
        soon = timedelta(milliseconds=20)
        with ranks.raises(TimeoutError, "did not complete within 0:00:00.02"):
            futures.future_timeout(never, soon).wait()
        with ranks.raises(TimeoutError, "did not complete within 0:00:00.02"):
            futures.future_wait(never, soon)
        rung = threading.Event()
        with futures.context_timeout(rung.set, timedelta(seconds=60)):
            pass
        with futures.context_timeout(rung.set, soon):
            self.assertTrue(rung.wait(30))
        done = futures.future_timeout(never, timedelta(seconds=60))
        never.set_result(5)
        self.assertEqual(done.wait(), 5)


class Parts(unittest.TestCase):
    def test_buckets(self) -> None:
        """Each tensor once, whatever its size: also one larger than a bucket, and those of which two do not fit."""
        for sizes, capacity, expected in (((5, 5), 8, [[5], [5]]), ((3, 20, 4, 1), 8, [[3], [20], [4, 1]]),
                                          ((2, 2, 2), 100, [[2, 2, 2]]), ((), 8, [])):
            made = packed([torch.zeros(size, dtype=torch.uint8) for size in sizes], capacity)
            self.assertEqual([[tensor.numel() for tensor in bucket] for bucket in made], expected)
        mixed = packed([torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(1)], 100)
        self.assertEqual([len(bucket) for bucket in mixed], [2, 1])

    def test_what_is_packed_comes_back(self) -> None:
        tensors = [torch.full((size,), float(size)) for size in (3, 40, 1, 7)] + [torch.ones(4, 6).t()]
        for work in reduce_packed(tensors, 64, Halving().allreduce):
            work.wait()
        for tensor, value in zip(tensors, (1.5, 20.0, 0.5, 3.5, 0.5)):
            self.assertTrue(torch.equal(tensor, torch.full_like(tensor, value)), tensor)

    def test_an_optimizer_steps_when_it_counts(self) -> None:
        weight = torch.nn.Parameter(torch.ones(1))
        manager = mock.Mock()
        optimizer = OptimizerWrapper(manager, torch.optim.SGD([weight], lr=1.0))
        for counts, after in ((False, 1.0), (True, 0.0)):
            optimizer.zero_grad()
            weight.grad = torch.ones(1)
            manager.should_commit.return_value = counts
            optimizer.step()
            self.assertEqual(weight.item(), after)
        self.assertEqual(manager.start_quorum.call_count, 2)
        with ranks.raises(ValueError, "closure"):
            optimizer.step(lambda: 1)

    def test_samplers(self) -> None:
        found = [index for group in range(2) for rank in range(3) for index in
                 DistributedSampler(range(60), group, 2, group_rank=rank, num_replicas=3, shuffle=False)]
        self.assertEqual(sorted(found), list(range(60)))
        with ranks.raises(ValueError, "replica_rank is 2, of 2 groups"):
            DistributedSampler(range(60), 2, 2, group_rank=0, num_replicas=3)

    def test_a_parameter_server(self) -> None:
        class Adding(ParameterServer):
            @classmethod
            def new_process_group(cls) -> ProcessGroup:
                return ProcessGroupTutti(timeout=timedelta(seconds=30))

            def forward(self, session_id: str, pg: ProcessGroup) -> None:
                data = torch.zeros(1)
                pg.broadcast_one(data, root=1).wait()
                pg.broadcast_one(data + 23, root=0).wait()

        server = Adding(port=0)
        for value in (12.0, 5.0):
            pg = Adding.new_session(server.address())
            data = torch.full((1,), value)
            pg.broadcast_one(data, root=1).wait()
            pg.broadcast_one(data, root=0).wait()
            self.assertEqual(data.item(), value + 23)
            pg.shutdown()
        server.shutdown()
        with mock.patch.dict(os.environ, {"TUTTI_SECRET": "sesame"}):
            server = Adding(port=0)
            Adding.new_session(server.address()).shutdown()
        with ranks.raises(RuntimeError, "401 who asks has to know the job's secret"):
            Adding.new_session(server.address())
        server.shutdown()

    def test_a_call_that_is_over(self) -> None:
        work = _DummyWork(7)
        self.assertTrue(work.wait() and work.is_completed())
        self.assertEqual(work.get_future().wait(), 7)


if __name__ == "__main__":
    unittest.main()
