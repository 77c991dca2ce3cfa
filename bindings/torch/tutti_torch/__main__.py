# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tutti_torch`: what this installation is, what it does by default, and what is missing."""

import os
import platform
import sys
from importlib.metadata import entry_points

import torch
import torch.distributed as dist

import tutti_torch
from tutti_torch import _C, build_info
from tutti_torch_autoload import VARIABLES


def devices() -> str:
    """The kinds of device whose tensors this process could hand to the backend."""
    served = dist.Backend.backend_capability.get("tutti", [])
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    here = ["cpu"] + ([accelerator.type] if accelerator else [])
    return ", ".join(f"{name} ({'here' if name in here else 'not here'})" for name in served)


def defaults() -> str:
    """Where programs that name no backend, or gloo, get tutti."""
    table = dist.Backend.default_device_backend_map
    return ", ".join(f"{device}: {name}" for device, name in sorted(table.items()))


def missing() -> list:
    """What this installation lacks, each with how to get it."""
    found = []
    if build_info()["torch"] != torch.__version__:
        found.append("it fits this torch, but was built against another of the same minor version: `pip install .` in "
                     "the clone of tutti makes it exact")
    group = "torch.backends"
    points = entry_points(group=group) if sys.version_info >= (3, 10) else entry_points().get(group, [])
    if not any(point.value.startswith("tutti_torch") for point in points):
        found.append(f"the package is not installed, only found: {' and '.join(VARIABLES)} say nothing to programs "
                     "that do not import it")
    elif os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        found.append("TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends by itself")
    return found


def main() -> None:
    info = build_info()
    rows = [
        ("tutti_torch", f"{tutti_torch.__version__} in {os.path.dirname(tutti_torch.__file__)}"),
        ("torch", f"{torch.__version__}; built against {info['torch']}"),
        ("Python", f"{platform.python_version()}; built with {info['python']}"),
        ("libtutti", f"{_C.tutti_version()} in {info['library']}"),
        ("devices", devices()),
        ("defaults", defaults()),
        *((name, os.environ.get(name, "(not set)")) for name in VARIABLES),
    ]
    for name, value in rows:
        print(f"{name:<20} {value}")
    print(f"{'missing':<20} {'; '.join(missing()) or 'nothing'}")


if __name__ == "__main__":
    main()
