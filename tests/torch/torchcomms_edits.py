# SPDX-License-Identifier: BSD-3-Clause
"""What a list of backend names decides in torchcomms' tests, and what to put in its place in a copy of them: tests for
which tutti has what the names stand for run on tutti, on the device that TEST_DEVICE names. Nothing that is compared
is changed."""

import contextlib
import os
import re

import torch

NAME = "tutti"
# Where a test asks for CUDA because its list has no other backend: the device that was asked for, and no synchronising
# without one.
ON_ANY_DEVICE = (
    (r"if not (torch\.cuda\.is_available\(\)):", r'if os.environ.get("TEST_DEVICE") != "cpu" and not \1:'),
    (r"torch\.cuda\.device_count\(\)", "max(1, torch.cuda.device_count())"),
    (r'torch\.device\(f"cuda:\{device_id\}"\)', 'torch.device(os.environ.get("TEST_DEVICE", f"cuda:{device_id}"))'),
    (r"(\n +)torch\.cuda\.synchronize\(\)", r"\1torch.cuda.is_available() and torch.cuda.synchronize()"),
)
# Tests of one rank, written for the backend that only pretends.
PRETENDED = (
    "hooks and copies of a communicator of one rank",
    ((r'new_comm\("fake"', 'new_comm(__import__("os").environ["TEST_BACKEND"]'),),
)


class Stream:
    def synchronize(self) -> None:
        """What was called on the host is over."""


class OnHost:
    """What these tests ask of torch.cuda, where their tensors are on the host: there is one stream, and any memory will
    do."""

    Stream = Stream

    @staticmethod
    def MemPool(allocator: object) -> object:
        return allocator

    @staticmethod
    def synchronize() -> None:
        pass

    @staticmethod
    def stream(_: object) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    use_mem_pool = stream


def cuda() -> object:
    return OnHost if os.environ.get("TEST_DEVICE") == "cpu" else torch.cuda


def places() -> int:
    """For how many ranks there are devices."""
    on_host = os.environ.get("TEST_DEVICE") == "cpu"
    return int(os.environ["WORLD_SIZE"]) if on_host else torch.accelerator.device_count()


IMPORTED = (r"\nimport torch\n", "\nimport torch\nimport torchcomms_edits\n")
# On both backends. (TPCommTest asks for the same bits of sums whose order differs: on CPUs none has them.)
ON_CPUS = (IMPORTED, (r"torch\.accelerator\.device_count\(\) <", "torchcomms_edits.places() <"))
WITHOUT_DEVICE = (
    r"(\n +)torch\.accelerator\.synchronize\(\)",
    r"\1torch.accelerator.is_available() and torch.accelerator.synchronize()",
)

STREAMS_OF_HOST = (IMPORTED, (r"torch\.cuda\.", "torchcomms_edits.cuda()."))
LISTED = (r'(SUPPORTED_BACKENDS = \{)"', rf'\1"{NAME}", "')

# file: what tutti has, and the edits, each of which has to find its text.
EDITS = {
    "AbortTest.py": ("abort", (LISTED, *ON_ANY_DEVICE[:3])),
    "AllGatherPTest.py": (
        "the persistent all_gather",
        ((r'(os\.getenv\("NCCL_CTRAN_ENABLE"\) != "true")', rf'\1 and os.getenv("TEST_BACKEND") != "{NAME}"'),
         *STREAMS_OF_HOST),
    ),
    "AllGatherVTest.py": ("all_gather_v", ((r'\["ncclx", "xccl"\]', f'["ncclx", "xccl", "{NAME}"]'),)),
    "DPTPCommTest.py": ("parallel models on CPUs", (*ON_CPUS, WITHOUT_DEVICE)),
    "DeviceMeshTest.py": ("parallel models on CPUs", ON_CPUS),
    "GetInitHandleTest.py": ("get_init_handle", (LISTED,)),
    "LazyP2PTest.py": (
        "pairs that connect when they first talk",
        ((r'os\.getenv\("TEST_BACKEND"\) != "nccl"', f'os.getenv("TEST_BACKEND") not in ("nccl", "{NAME}")'),
         (r'get_device\("nccl"', 'get_device(os.environ["TEST_BACKEND"]'),
         (r'"nccl-lazy"', f'"{NAME}" if os.environ["TEST_BACKEND"] == "{NAME}" else "nccl-lazy"')),
    ),
    "LazySetupChannelsTest.py": (
        "pairs that connect when they first talk",
        ((r'(os\.getenv\("TEST_BACKEND"\)) != "ncclx"', rf'\1 not in ("ncclx", "{NAME}")'),),
    ),
    "MonitoredBarrierTest.py": (
        "monitored_barrier",
        ((r'(os\.environ\.get\("TEST_BACKEND"\)) != "gloo"', rf'\1 not in ("gloo", "{NAME}")'),),
    ),
    "ReconfigureTest.py": (
        "reconfigure",
        (LISTED, (r'self\.backend == "gloo"', f'self.backend in ("gloo", "{NAME}")')),
    ),
    "WaitBlockingTest.py": ("wait_blocking", (LISTED,)),
    "WindowRmaTest.py": (
        "windows",
        ((r'if backend == "nccl":', f'if backend in ("nccl", "{NAME}"):'), *STREAMS_OF_HOST),
    ),
    "test_backend_wrapper.py": PRETENDED,
    "test_copy.py": PRETENDED,
    "test_hooks.py": PRETENDED,
    "test_nan_check.py": PRETENDED,
}  # fmt: skip


def apply(path: str) -> None:
    """Edits this file; LookupError when a text is not where it was, in another version of the tests."""
    name = os.path.basename(path)
    with open(path) as file:
        text = file.read()
    for pattern, put in EDITS.get(name, ("", ()))[1]:
        text, n = re.subn(pattern, put, text)
        if n == 0:
            raise LookupError(f"{name} has no {pattern!r}: torchcomms_edits.py was written for other tests")
    with open(path, "w") as file:
        file.write(text)
