# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests that XCCL has of its own (intel/torch-xpu-ops, test/xpu/distributed) on tutti and device "xpu", of
PyTorch with Intel's parts, or played (device/played.py xpu), and tells what came of each. They are in no package:
TUTTI_XCCL_TESTS names the folder, or a checkout. Below is what is not run and why, and what is put in the place of
texts that say what XCCL lacks, or its name. Ranks are forked (the tests start a Python for each)."""

import argparse
import functools
import json
import os
import re
import sys
import tempfile
import types
import unittest
from typing import Dict

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "pytorch"))

import suite  # noqa: E402

PATH = "TUTTI_XCCL_TESTS"
FILES = ("test_c10d_xccl", "test_c10d_ops_xccl")  # the second imports the first

# Not run, by "Class.test", and why.
LEFT_OUT = (
    (r"^SymmetricMemoryTest\.", "symmetric memory of torch-xpu-ops, which is not part of a process group"),
    (r"^MicroPipelineTPXpuTest\.", "kernels compiled for the device, and no process group but a pretended one"),
    (r"_graph_replay$", "graphs of SYCL: tutti refuses calls on a queue that is being recorded (xpu_test.py)"),
    (r"\.test_oom$", "memory and time of a GPU: matrices of 2 GiB"),
)  # fmt: skip

# file, what it says, what is put there; each has to be found.
EDITS = (
    # Names: of the backend, and of calls in the recorder, where PyTorch's tools know NCCL's.
    ("", r'"xccl"', '"xpu:tutti"'),
    ("test_c10d_xccl", r'"xccl:all_reduce_barrier"', '"nccl:barrier"'),
    ("test_c10d_xccl", r'"xccl:', '"nccl:'),
    # PyTorch asks the host's backend for a barrier without a device, unless the group's is its own.
    ("", r"\bpg\.barrier\(\)", "dist.barrier(pg, async_op=True)"),
    # Options of another backend say nothing to tutti.
    ("test_c10d_xccl", r"c10d\.ProcessGroupXCCL\.Options\(\)", 'type("Options", (), {})()'),
    # Operations that are refused there, and that tutti has.
    ("test_c10d_ops_xccl", r"\(c10d\.ReduceOp\.BAND, c10d\.ReduceOp\.BOR, c10d\.ReduceOp\.BXOR\)", "()"),
    # A NaN is an exception, not the end of the process. And the player has 512 MiB in all, which are not 4 GiB, nor
    # 500 times 4 MiB at once.
    ("test_c10d_xccl", r"else -signal\.SIGABRT", "else int(signal.SIGABRT)"),
    ("test_c10d_xccl", r"1024, 1024, 1024\)", "1024, 1024)"),
    ("test_c10d_xccl", r"for _ in range\(500\):", "for _ in range(50):"),
    # It asks for four devices, and uses two.
    ("test_c10d_xccl", r"skip_if_lt_x_gpu\(4\)(?=\n    def test_xccl_barrier\()", "skip_if_lt_x_gpu(2)"),
    ("test_c10d_xccl", r"\.xpu\(2 \* self\.rank\)", ".xpu(self.rank)"),
    # XCCL's recorder does not know when calls begin and end, nor what tensors a batch of messages has.
    ("test_c10d_xccl", r'"2" if timing_enabled else "-1"', '"2"'),
    ("test_c10d_xccl", r'\["state"\], "scheduled"\)', '["state"], "completed")'),
    ("test_c10d_xccl", r'"duration_ms" not in', '"duration_ms" in'),
    ("test_c10d_xccl", r'(\[coalesced_op\]\["input_sizes"\]), \[\]',
     r"\1, op_sizes_per_coalesce if self.rank else [[]]"),
    ("test_c10d_xccl", r'(\[coalesced_op\]\["output_sizes"\]), \[\]',
     r"\1, [[]] if self.rank else op_sizes_per_coalesce"),
    # An all_gather of uneven tensors is one call, not one for each rank.
    ("test_c10d_xccl", r'(len\(t\["entries"\]\)), self\.world_size \+ 1', r"\1, 1"),
    ("test_c10d_xccl", r'for i in range\(self\.world_size\):(?=\s+self\.assertEqual\(t\["entries"\]\[i\]\["profil)',
     "for i in range(0):"),
)  # fmt: skip


def tests_folder() -> str:
    """Where the tests are, "" when nobody said."""
    named = os.environ.get(PATH, "")
    folders = (named, os.path.join(named, "test/xpu/distributed")) if named else ()
    return next((folder for folder in folders if os.path.isfile(os.path.join(folder, f"{FILES[0]}.py"))), "")


def missing() -> str:
    """Why nothing can be run, as a sentence; "" when all is there."""
    if not tests_folder():
        return (f"XCCL's tests are not here: set {PATH} to a checkout of github.com/intel/torch-xpu-ops (tried: of "
                "2026-08)")
    return ""


def edited(name: str, text: str) -> str:
    """LookupError when a text is not where it was, in another version of the tests."""
    for file, pattern, put in EDITS:
        if file in ("", name):
            text, n = re.subn(pattern, put, text)
            if n == 0:
                raise LookupError(f"{name} has no {pattern!r}: xccl_suite.py was written for other tests")
    return text


def load() -> Dict[str, type]:
    """All tests: "Class.test" -> the class."""
    cases = {}
    for name in FILES:
        path = os.path.join(tests_folder(), f"{name}.py")
        with open(path) as file:
            text = edited(name, file.read())
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__ = path
        exec(compile(text, path, "exec"), module.__dict__)
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == name:
                cases.update({f"{case.__name__}.{test}": case for test in unittest.TestLoader().getTestCaseNames(case)})
    return cases


def prepare() -> None:
    """What the tests ask of PyTorch besides a device."""
    import torch.distributed as dist
    import torch.multiprocessing
    from torch.distributed import distributed_c10d as c10d

    import tutti_torch

    suite.stand_in_for_expecttest()
    dist.is_xccl_available = c10d.is_xccl_available = lambda: True
    torch._C._distributed_c10d._dump_xccl_trace = lambda includeCollectives=True: tutti_torch.dump_flight_recorder(
        include_collectives=includeCollectives)
    torch._C._distributed_c10d.get_xccl_version = lambda: f"tutti {tutti_torch.__version__}"
    torch.multiprocessing.set_start_method("fork")
    get_context = torch.multiprocessing.get_context
    torch.multiprocessing.get_context = lambda method=None: get_context("fork")


def left_out(name: str) -> str:
    """Why the test is not run, "" when it is."""
    return next((why for pattern, why in LEFT_OUT if re.search(pattern, name)), "")


class Record(suite.Record):
    def note(self, test, outcome: str, reason: str = "") -> None:
        super().note(test, outcome, reason)
        self.outcomes[".".join(test.id().split(".")[-2:])] = self.outcomes.pop(test.id().rsplit(".", 1)[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="file to write the outcomes to")
    parser.add_argument("--log", default=os.path.join(tempfile.gettempdir(), f"xccl_suite.{os.getpid()}.log"))
    parser.add_argument("names", nargs="*", help="patterns of Class.test; all when none is given")
    arguments = parser.parse_args()
    if missing():
        sys.exit(missing())
    os.environ["TORCH_INCLUDE_STACK_TRACE"] = "1"  # as XCCL's recorder has them always
    prepare()
    cases = load()
    names = [name for name in cases if not left_out(name)
             and (not arguments.names or any(re.search(each, name) for each in arguments.names))]
    outcomes = suite.run(lambda name: cases[name](name.partition(".")[2]), names, arguments.log, Record)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"tests": outcomes, "left out": {name: left_out(name) for name in cases if left_out(name)}}, file)
    return 1 if any(outcome != "passed" for outcome, _ in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
