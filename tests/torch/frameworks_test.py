# SPDX-License-Identifier: BSD-3-Clause
# timeout: 1800
# short: On2Ranks.test_ddp On2Ranks.test_dtensor
"""The framework examples (examples/torch), all of them in one set of forked processes of each size: every case runs on
gloo, then on tutti, each in a world of its own. The case itself compares with one process, this test compares the two
backends with one another."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
import unittest
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more would be processes, of which a fork knows nothing

import ranks
import torch
import torch.distributed as dist

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "examples" / "torch"))
import example  # noqa: E402

EXAMPLES = (
    "ddp", "fsdp2", "fsdp1", "tensor_parallel", "pipeline", "device_mesh", "dtensor", "checkpoint", "zero", "objects",
    "amp", "compile",
)  # fmt: skip

# What gloo can not do, and says so: the result of one process is the only reference there.
NOT_ON_GLOO = {
    ("fsdp2", "set_gradient_divide_factor"): "Cannot use ReduceOp.PREMUL_SUM with Gloo",
    ("zero", "overlap_with_ddp"): "Gloo backend using Overlapping DDP with ZeRO may meet hangs",
}
# Four ranks with a process each of PyTorch besides are too many for small machines.
ON_TWO_RANKS_ONLY = {("checkpoint", "async_save, process")}

Results = Dict[str, Tuple[List[torch.Tensor], float]]


def run_cases(name: str, backend: str, rank: int, n: int, store: dist.Store) -> Results:
    """All cases of an example in one world."""
    results: Results = {}
    store = dist.PrefixStore(f"{name} on {backend}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=n, timeout=timedelta(seconds=200))
    for case, function in importlib.import_module(name).CASES.items():
        if backend == "gloo" and (name, case) in NOT_ON_GLOO or n > 2 and (name, case) in ON_TWO_RANKS_ONLY:
            continue
        torch.manual_seed(1)
        job = example.Job(rank, n)
        try:
            function(job)
        except Exception as error:
            raise AssertionError(f"{name}, case {case!r}, on {backend}: {error}") from error
        results.update({f"{case}: {what}": (job.results[what], job.tolerances[what]) for what in job.results})
    dist.barrier()
    dist.destroy_process_group()
    return results


def compare(name: str, n: int, on_gloo: Results, on_tutti: Results) -> None:
    """Two values have but one sum, so that two ranks get the same bits from both backends; of more, the order of the
    additions is each backend's own."""
    missing = on_gloo.keys() - on_tutti.keys()
    assert on_tutti and not missing, f"{name}: not on tutti: {missing}"
    for what, (want, tolerance) in on_gloo.items():
        allowed = 0.0 if n <= 2 else tolerance
        worst = max(example.distance(*pair) for pair in zip(on_tutti[what][0], want))
        assert worst <= allowed, f"{name}, {what}: tutti and gloo differ by {worst:.3g}, allowed is {allowed:.3g}"


def run_example(rank: int, n: int, store: dist.Store, name: str) -> Tuple[int, int, float, float]:
    begin = time.monotonic()
    on_gloo = run_cases(name, "gloo", rank, n, store)
    middle = time.monotonic()
    on_tutti = run_cases(name, "tutti", rank, n, store)
    compare(name, n, on_gloo, on_tutti)
    for child in multiprocessing.active_children():  # those that save checkpoints serve until the end
        child.terminate()
        child.join()
    return len(on_tutti), len(on_gloo), middle - begin, time.monotonic() - middle


class OnRanks(ranks.OnRanks):
    options: Dict[str, Any] = {"backend": None, "timeout": 400.0}


def method(name: str) -> Callable:
    def test(self: OnRanks) -> None:
        n_tutti, n_both, gloo_s, tutti_s = self.ranks.run(run_example, name)[0]
        spent = f"gloo {gloo_s:.1f} s, tutti {tutti_s:.1f} s"
        print(f"{name}, {self.n} ranks: {n_tutti} results, {n_both} compared; {spent}", flush=True)

    return test


METHODS = {f"test_{name}": method(name) for name in EXAMPLES}
On2Ranks = type("On2Ranks", (OnRanks,), {"n": 2, **METHODS})
On4Ranks = type("On4Ranks", (OnRanks,), {"n": 4, **METHODS})


def setUpModule() -> None:
    for name in EXAMPLES:  # once, before the ranks are forked
        if not sys.argv[1:] or any(name in asked for asked in sys.argv[1:]):
            importlib.import_module(name)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
