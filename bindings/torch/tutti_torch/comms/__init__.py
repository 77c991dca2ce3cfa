# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms' API without torchcomms: communicators that are objects, one name and one device each.

    import tutti_torch.comms as torchcomms

    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
    comm.finalize()

docs/torchcomms.md has the rest."""

from datetime import timedelta

import tutti_torch  # noqa: F401  the compiled part is checked before it is loaded

from .._C import comms as _comms


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

_is_backend_registered = _comms._is_backend_registered
_hints = _comms._hints
InitHandle = str

__all__ = ["InitHandle", "Timeout", *names()]
