# SPDX-License-Identifier: BSD-3-Clause
"""What a list of backend names decides in torchcomms' tests, and what to put in its place in a copy of them: tests for
which tutti has what the names stand for run on tutti, on the device that TEST_DEVICE names. Nothing that is compared
is changed."""

import os
import re

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
LISTED = (r'(SUPPORTED_BACKENDS = \{)"', rf'\1"{NAME}", "')

# file: what tutti has, and the edits, each of which has to find its text.
EDITS = {
    "AbortTest.py": ("abort", (LISTED, *ON_ANY_DEVICE[:3])),
    "AllGatherVTest.py": ("all_gather_v", ((r'\["ncclx", "xccl"\]', f'["ncclx", "xccl", "{NAME}"]'),)),
    "GetInitHandleTest.py": ("get_init_handle", (LISTED,)),
    "MonitoredBarrierTest.py": (
        "monitored_barrier",
        ((r'(os\.environ\.get\("TEST_BACKEND"\)) != "gloo"', rf'\1 not in ("gloo", "{NAME}")'),),
    ),
    "ReconfigureTest.py": (
        "reconfigure",
        (LISTED, (r'self\.backend == "gloo"', f'self.backend in ("gloo", "{NAME}")')),
    ),
    "WaitBlockingTest.py": ("wait_blocking", (LISTED,)),
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
