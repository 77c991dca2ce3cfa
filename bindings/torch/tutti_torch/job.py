# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of a training step for `tutti sched job`, which tells its efficiency on more nodes than there are:
recorded while a model trains (`record_job`), or read from the traces that PyTorch's own profilers wrote of one step
(`from_traces`, `python -m tutti_torch.job`). Times are those of one rank, so train without a wrapper that
communicates."""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
from torch.optim import optimizer as optimizers


class Clock:
    """Marks on the device's own time line: events where the model is on a GPU, else the host's clock."""

    def __init__(self, device):
        self.module = torch.get_device_module(device) if device.type != "cpu" else None

    def mark(self):
        if self.module is None:
            return time.perf_counter()
        event = self.module.Event(enable_timing=True)
        event.record()
        return event

    def finish(self):
        if self.module is not None:
            self.module.synchronize()

    def seconds(self, begin, end):
        return end - begin if self.module is None else begin.elapsed_time(end) / 1e3


class Step:
    """Marks of one step: passes, gradients by parameter, optimizer, modules that have parameters."""

    def __init__(self, begin):
        self.begin, self.backward, self.end = begin, None, None
        self.ready, self.modules = {}, {}
        self.optimizer = None


class Recorder:
    """What `record_job` yields: steps as they were, and the text of the job."""

    def __init__(self, model):
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise ValueError("record_job: the model has no parameter that is trained")
        self.clock = Clock(next(iter(self.parameters.values())).device)
        self.steps, self.handles, self.owners = [], [], {}
        self.add_hooks(model)

    def add_hooks(self, model):
        names = {id(p): name for name, p in self.parameters.items()}
        for module in model.modules():
            own = [names[id(p)] for p in module.parameters(recurse=False) if id(p) in names]
            if own and module is not model:
                self.owners[module] = own[0]
                self.handles += [module.register_forward_pre_hook(self.module_begins),
                                 module.register_forward_hook(self.module_ends)]
        self.handles += [model.register_forward_pre_hook(self.step_begins),
                         model.register_forward_hook(self.forward_ends)]
        for name, parameter in self.parameters.items():
            hook = lambda _, name=name: self.gradient_ready(name)  # noqa: E731
            self.handles.append(parameter.register_post_accumulate_grad_hook(hook))
        self.handles += [optimizers.register_optimizer_step_pre_hook(self.optimizer_begins),
                         optimizers.register_optimizer_step_post_hook(self.optimizer_ends)]

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.clock.finish()

    # ---- hooks ----

    def step_begins(self, *_):
        if torch.is_grad_enabled():
            self.steps.append(Step(self.clock.mark()))

    def module_begins(self, module, _):
        if self.steps and torch.is_grad_enabled():
            self.steps[-1].modules.setdefault(self.owners[module], []).append([self.clock.mark(), None])

    def module_ends(self, module, *_):
        if self.steps and torch.is_grad_enabled():
            self.steps[-1].modules[self.owners[module]][-1][1] = self.clock.mark()

    def forward_ends(self, _, inputs, outputs):
        """The backward pass begins where the gradient of an output is there."""
        if not torch.is_grad_enabled():
            return
        for tensor in torch.utils._pytree.tree_leaves(outputs):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(self.backward_begins)

    def backward_begins(self, _):
        step = self.steps[-1]
        if step.backward is None:
            step.backward = self.clock.mark()
            torch.autograd.Variable._execution_engine.queue_callback(self.backward_ends)

    def backward_ends(self):
        self.steps[-1].end = self.clock.mark()

    def gradient_ready(self, name):
        if self.steps:
            self.steps[-1].ready[name] = self.clock.mark()

    def optimizer_begins(self, *_):
        if self.steps:
            self.steps[-1].optimizer = [self.clock.mark(), None]

    def optimizer_ends(self, *_):
        if self.steps and self.steps[-1].optimizer:
            self.steps[-1].optimizer[1] = self.clock.mark()

    # ---- the job ----

    def medians(self, warm_up):
        """Complete steps after the first ones, and the median of a time in them."""
        done = [s for s in self.steps if s.backward is not None and s.end is not None][warm_up:]
        if not done:
            raise RuntimeError(f"record_job: no complete step (forward, backward) after {warm_up} to warm up")

        def median(function):
            values = [value for step in done if (value := function(step)) is not None]
            return max(statistics.median(values), 0) if values else 0.0

        return done, median

    def text(self, warm_up=1, **keys):
        """The description; keys of `tutti sched job --keys` that it shall have, too."""
        done, median = self.medians(warm_up)
        span = self.clock.seconds
        tensors = []
        for name, parameter in self.parameters.items():
            ready = median(lambda s, n=name: span(s.backward, s.ready[n]) if n in s.ready else None)
            forward = median(lambda s, n=name: sum(span(*m) for m in s.modules[n] if m[1]) if n in s.modules else None)
            tensors.append((name, parameter.numel() * parameter.element_size(), ready, forward))
        forward = median(lambda s: span(s.begin, s.backward)) - sum(t[3] for t in tensors)
        ends = [s.optimizer[1] if s.optimizer and s.optimizer[1] else s.end for s in done]
        times = {
            "forward": max(forward, 0),
            "backward": max(median(lambda s: span(s.backward, s.end)), max(t[2] for t in tensors)),
            "optimizer": median(lambda s: span(*s.optimizer) if s.optimizer and s.optimizer[1] else None),
        }
        steps = [span(s.begin, end) for s, end in zip(done, ends)]
        return write_job(tensors, times, keys, steps)


def write_job(tensors, times, keys, steps=()):
    """tensors: (name, bytes, ready, forward), seconds, as the forward pass takes them."""
    lines = ["# A training step of one rank, for `tutti sched job`."]
    lines += [f"{key} = {seconds * 1e3:.6f}ms" for key, seconds in times.items()]
    lines += [f"{key} = {value}" for key, value in keys.items()]
    lines += ["[tensors]"]
    for name, n_bytes, ready, forward in tensors:
        also = f" forward={forward * 1e3:.6f}ms" if forward > 0 else ""
        lines.append(f"{name.replace(' ', '_').replace('#', '_')} bytes={n_bytes} ready={ready * 1e3:.6f}ms{also}")
    if steps:
        lines += ["[steps] # what `noise = trace` draws from"] + [f"{seconds * 1e3:.6f}ms" for seconds in steps]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def record_job(model, path=None, *, warm_up=1, **keys):
    """Records the steps (forward, backward, optimizer) that `model` makes within, and writes their medians to `path` as
    a job. Times are taken when gradients have been accumulated, in stream order on GPUs. keys: further keys of the job,
    such as nodes="1,64,2048"; the first `warm_up` steps are left out. Yields the Recorder, whose text() is the same."""
    recorder = Recorder(model)
    try:
        yield recorder
    finally:
        recorder.close()
    if path is not None:
        with open(path, "w") as file:
            file.write(recorder.text(warm_up, **keys))


# ---- PyTorch's traces ----

GRADIENT = "torch::autograd::AccumulateGrad"
BACKWARD = "autograd::engine::evaluate_function: "
OPTIMIZER = "Optimizer.step#"


class Timeline:
    """When what an operation of the host began is over: its own end, or that of the last kernel until then."""

    def __init__(self, events):
        self.events = {e["args"]["Record function id"]: e for e in events
                       if e.get("ph") == "X" and "Record function id" in e.get("args", {})}
        kernels = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
                   and e.get("args", {}).get("External id") and "nccl" not in e["name"].lower()]
        self.kernels = sorted((int(e["args"]["External id"]), e["ts"], e["ts"] + e["dur"]) for e in kernels)

    def begin(self, number):
        first = [ts for external, ts, _ in self.kernels if external >= number]
        return min(first) if first else self.events[number]["ts"]

    def end(self, number, first):
        """Microseconds; of kernels from `first` on."""
        until = [end for external, _, end in self.kernels if first <= external <= number]
        return max(until) if until else self.events[number]["ts"] + self.events[number]["dur"]


def last_step(nodes):
    """Nodes after the last optimizer step but one, by number: what came first is another step."""
    steps = [n["rf_id"] for n in nodes if n["name"].startswith(OPTIMIZER)]
    after = steps[-2] if len(steps) > 1 else -1
    return [n for n in nodes if n["rf_id"] > after]


def from_traces(execution_trace, kineto_trace, **keys):
    """The text of a job. execution_trace: JSON of ExecutionTraceObserver (what gradients there are), kineto_trace: that
    of profile.export_chrome_trace for the same steps (when they were ready), both as parsed. ValueError with a
    sentence."""
    nodes = []
    for node in execution_trace.get("nodes", []):
        numbers = [a["value"] for a in node.get("attrs", []) if a.get("name") == "rf_id"]
        if numbers and numbers[0] > 0:
            nodes.append({**node, "rf_id": numbers[0]})
    nodes = last_step(sorted(nodes, key=lambda n: n["rf_id"]))
    timeline = Timeline(kineto_trace.get("traceEvents", []))
    gradients = [n for n in nodes if n["name"] == GRADIENT]
    if not gradients:
        raise ValueError(f"the execution trace has no node {GRADIENT}: observe a step with its backward pass")
    missing = [n["rf_id"] for n in gradients if n["rf_id"] not in timeline.events]
    if missing:
        raise ValueError(f"the Kineto trace has no event with Record function id {missing[0]}: are both of one run?")
    first = next(n["rf_id"] for n in nodes if not n["name"].startswith("Optimizer.") and n["rf_id"] in timeline.events)
    backward = next(n["rf_id"] for n in nodes if n["name"].startswith(BACKWARD) and n["rf_id"] in timeline.events)
    begins = timeline.begin(backward)
    tensors = []
    for i, node in enumerate(gradients):
        value = node["inputs"]["values"][0]
        shape = "x".join(str(n) for n in node["inputs"]["shapes"][0]) or "scalar"
        ready = (timeline.end(node["rf_id"], first) - begins) / 1e6
        tensors.append((f"gradient{i}_{shape}", int(value[3]) * int(value[4]), max(ready, 0), 0))
    last = max(n["rf_id"] for n in nodes if n["name"].startswith(BACKWARD) and n["rf_id"] in timeline.events)
    times = {"forward": (begins - timeline.begin(first)) / 1e6,
             "backward": max(max(t[2] for t in tensors), (timeline.end(last, first) - begins) / 1e6)}
    optimizer = [n["rf_id"] for n in nodes if n["name"].startswith(OPTIMIZER) and n["rf_id"] in timeline.events]
    if optimizer:
        inside = [n["rf_id"] for n in nodes if n["rf_id"] >= optimizer[-1]]
        times["optimizer"] = (timeline.end(max(i for i in inside if i in timeline.events), optimizer[-1])
                              - timeline.begin(optimizer[-1])) / 1e6
        event = timeline.events[optimizer[-1]]
        if not timeline.kernels:
            times["optimizer"] = event["dur"] / 1e6
    return write_job(tensors[::-1], times, keys)


def main():
    parser = argparse.ArgumentParser(prog="python -m tutti_torch.job", description=__doc__.split(":")[0])
    parser.add_argument("execution_trace", help="JSON of torch.profiler.ExecutionTraceObserver")
    parser.add_argument("kineto_trace", help="JSON of profile.export_chrome_trace, of the same run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key that the job shall have")
    args = parser.parse_args()
    try:
        keys = dict(item.split("=", 1) for item in args.set)
        with open(args.execution_trace) as trace, open(args.kineto_trace) as kineto:
            sys.stdout.write(from_traces(json.load(trace), json.load(kineto), **keys))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        sys.exit(f"tutti_torch.job: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
