# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""Jobs from PyTorch: a recorded step and one read from PyTorch's traces say what the model is and when its gradients
are ready, `tutti sched job` takes both, and makes the buckets that DDP makes."""

import json
import os
import random
import subprocess
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

import tutti_torch  # noqa: F401  (registers the backend)
from tutti_torch import job

TUTTI = os.path.join(os.environ.get("TUTTI_BUILD", "build"), "bin", "tutti")
SLEEP = 0.02


class Slow(torch.autograd.Function):
    """Takes SLEEP in the backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(SLEEP)
        return gradient


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = torch.nn.Linear(4, 8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)
        self.frozen = torch.nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x):
        return self.third(Slow.apply(self.second(Slow.apply(self.first(x)))))


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(5, 4)).sum().backward()
    optimizer.step()


def tensors_of(text):
    """{name: (bytes, ready in seconds)}, in the file's order."""
    lines = text[text.index("[tensors]\n") + 10:].split("[steps]")[0].splitlines()
    rows = [line.split() for line in lines]
    return {row[0]: (int(row[1][6:]), float(row[2][6:-2]) / 1e3) for row in rows}


def efficiency(text, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".job") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([TUTTI, "sched", "job", file.name, "--json", *options], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Recorded(unittest.TestCase):
    def test_record(self):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with job.record_job(model) as recorder:
            for _ in range(4):
                step(model, optimizer)
            with torch.no_grad():
                model(torch.ones(5, 4))
        text = recorder.text(nodes="1,2", noise="trace")
        tensors = tensors_of(text)
        self.assertEqual({n: t[0] for n, t in tensors.items()},
                         {n: 4 * p.numel() for n, p in model.named_parameters() if p.requires_grad})
        ready = [tensors[f"{layer}.weight"][1] for layer in ("third", "second", "first")]
        self.assertGreaterEqual(ready[1], ready[0] + SLEEP * 0.99)
        self.assertGreaterEqual(ready[2], ready[1] + SLEEP * 0.99)
        answer = efficiency(text)
        self.assertEqual((answer["tensors"], len(answer["runs"][0]["weak"])), (6, 2))
        self.assertEqual(text.count("\n", text.index("[steps]")), 4)  # three steps, the first one warmed up
        self.assertFalse(model._forward_hooks or model.first._forward_hooks)

    def test_nothing_recorded(self):
        with job.record_job(Model()) as recorder:
            pass
        with self.assertRaisesRegex(RuntimeError, "no complete step"):
            recorder.text()
        with self.assertRaisesRegex(ValueError, "no parameter"):
            with job.record_job(torch.nn.ReLU()):
                pass


class Traced(unittest.TestCase):
    def traces(self, n_steps, wrap=lambda model: model):
        model = wrap(Model())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step(model, optimizer)
        with tempfile.TemporaryDirectory() as folder:
            nodes, events = os.path.join(folder, "nodes.json"), os.path.join(folder, "events.json")
            observer = ExecutionTraceObserver().register_callback(nodes)
            with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
                for _ in range(n_steps):
                    step(model, optimizer)
            profiler.export_chrome_trace(events)
            with open(nodes) as one, open(events) as other:
                return model, json.load(one), json.load(other)

    def test_traces(self):
        for n_steps in (1, 3):
            model, nodes, events = self.traces(n_steps)
            text = job.from_traces(nodes, events, nodes="1,2")
            tensors = tensors_of(text)
            # A layer's weight and bias are ready together; layers come in order.
            layers = (model.first, model.second, model.third)
            sizes = [t[0] for t in tensors.values()]
            for i, layer in enumerate(layers):
                self.assertEqual(sorted(sizes[2 * i:2 * i + 2]), sorted(4 * p.numel() for p in layer.parameters()))
            ready = [t[1] for t in tensors.values()]
            self.assertGreaterEqual(ready[2], ready[4] + SLEEP * 0.99)
            self.assertGreaterEqual(ready[0], ready[2] + SLEEP * 0.99)
            self.assertEqual(efficiency(text)["tensors"], 6)

    def test_ddp(self):
        """DDP's own calls in the traces are none of the step's gradients."""
        dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
        model, nodes, events = self.traces(2, torch.nn.parallel.DistributedDataParallel)
        dist.destroy_process_group()
        sizes = [t[0] for t in tensors_of(job.from_traces(nodes, events)).values()]
        self.assertEqual(sorted(sizes), sorted(4 * p.numel() for p in model.parameters() if p.requires_grad))

    def test_kernels(self):
        """On a GPU a gradient is ready when the last kernel until then is over, whatever the host did meanwhile."""

        def node(number, name, values=()):
            return {"name": name, "attrs": [{"name": "rf_id", "value": number}],
                    "inputs": {"values": list(values), "shapes": [[10]] * len(values)}}

        def op(number, ts, dur):
            return {"ph": "X", "ts": ts, "dur": dur, "name": "op", "args": {"Record function id": number}}

        def kernel(number, ts, dur, name="k"):
            return {"ph": "X", "cat": "kernel", "ts": ts, "dur": dur, "name": name, "args": {"External id": number}}

        gradient = [[1, 2, 0, 10, 4, "cuda:0"]]
        nodes = [node(1, "aten::conv2d"),
                 node(2, job.BACKWARD + "ConvolutionBackward0"), node(3, job.GRADIENT, gradient),
                 node(4, job.BACKWARD + "ConvolutionBackward0"), node(5, job.GRADIENT, gradient)]
        events = [op(i, 10 * i, 5) for i in range(1, 6)]
        events += [kernel(1, 100, 900), kernel(2, 1000, 2000), kernel(2, 1000, 99999, "ncclAllReduce"),
                   kernel(4, 3000, 500)]
        text = job.from_traces({"nodes": nodes}, {"traceEvents": events})
        self.assertEqual([t[1] for t in tensors_of(text).values()], [0.0025, 0.002])
        self.assertIn("forward = 0.900000ms", text)
        self.assertIn("backward = 2.500000ms", text)

    def test_refused(self):
        _, nodes, events = self.traces(1)
        with self.assertRaisesRegex(ValueError, "no event with Record function id"):
            job.from_traces(nodes, {"traceEvents": []})
        with self.assertRaisesRegex(ValueError, "no node torch::autograd::AccumulateGrad"):
            job.from_traces({"nodes": []}, events)


class Buckets(unittest.TestCase):
    def test_buckets_of_ddp(self):
        chance = random.Random(1)
        for _ in range(8):
            sizes = [4 * chance.choice((chance.randint(1, 1000), chance.randint(1, 4 << 20))) for _ in range(60)]
            tensors = [torch.empty(n // 4, device="meta") for n in sizes]
            buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [1 << 20, 25 << 20])
            rows = [(f"t{i}", n, i / 1e3, 0) for i, n in enumerate(sizes)]
            answer = efficiency(job.write_job(rows, {}, {"nodes": "2"}))
            self.assertEqual(answer["runs"][0]["weak"][0]["calls"], len(buckets))


if __name__ == "__main__":
    unittest.main()
