# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms' API without torchcomms: communicators that are objects, one name and one device each.

    import tutti_torch.comms as torchcomms

    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    comm.finalize()

docs/torchcomms.md has the rest."""

import functools
import importlib
import os
from datetime import timedelta

import tutti_torch  # noqa: F401  the compiled part is checked before it is loaded

from .. import device_memory
from .._C import comms as _comms
from . import known as _known


class Timeout(timedelta):
    """How long a call may take."""


def names() -> list:
    """What is public of the compiled part."""
    return [name for name in dir(_comms) if not name.startswith("_")]


for name in names():
    found = getattr(_comms, name)
    globals()[name] = found
    if isinstance(found, type):
        found.__module__ = __name__

# ---- memory of devices, whose allocators are PyTorch's ----


def of_its_device(of_the_host):
    """What stands before the method: CUDA memory comes from an allocator that torch.cuda.MemPool takes."""

    @functools.wraps(of_the_host)
    def get_mem_allocator(self):
        device = self.get_device()
        if device.type != "cuda":
            return of_the_host(self)
        self.get_backend_impl()._serve_memory(device.index or 0)
        return device_memory.allocator()

    return get_mem_allocator


_comms.TorchComm.get_mem_allocator = of_its_device(_comms.TorchComm.get_mem_allocator)
_comms.TorchComm.mem_allocator = property(_comms.TorchComm.get_mem_allocator)


def get_mem_allocator(backend: str):
    """An allocator of memory that the ranks of the host reach directly: that of the newest communicator."""
    newest = _comms._newest()
    if newest is not None and newest.get_device().type == "cuda":
        return newest.get_mem_allocator()
    return _comms.get_mem_allocator(backend)


class _BackendWrapper:
    """torch.distributed over a communicator: the backend of its ranks, to be registered with a process group."""

    def __new__(cls, comm):
        return comm.get_backend_impl()


_comms._BackendWrapper = _BackendWrapper
_is_backend_registered = _comms._is_backend_registered
_hints = _comms._hints
InitHandle = str

from . import quantized  # noqa: E402,F401  more methods of TorchComm

__all__ = ["InitHandle", "Timeout", *names()]

SUBMODULES = ("device_mesh", "functional", "hooks", "objcol")


def __getattr__(name: str):
    """Submodules are imported when they are asked for."""
    if name in SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


new_comm = _known.noting(new_comm)  # noqa: F821
TorchComm.split = _known.noting(TorchComm.split)  # noqa: F821
TorchComm.reconfigure = _known.changing(TorchComm.reconfigure)  # noqa: F821
TorchComm.new_window = _known.noting_window(TorchComm.new_window, True)  # noqa: F821
TorchCommWindow.tensor_register = _known.noting_window(TorchCommWindow.tensor_register, False)  # noqa: F821
_known.note_reductions(ReduceOp)  # noqa: F821
if os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE") == "1":
    __getattr__("functional").enable()
