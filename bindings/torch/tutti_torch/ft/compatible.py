# SPDX-License-Identifier: BSD-3-Clause
"""Our groups where torchft asks for its own: a program that has imported torchft gets ones that are both."""

from __future__ import annotations

import functools
import sys
from typing import Any


@functools.lru_cache(maxsize=None)
def _both(cls: type, theirs: type) -> type:
    return type(cls.__name__, (cls, theirs), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})


def with_torchft(cls: Any) -> Any:
    """The class, as a subclass of torchft's ProcessGroup, too, if torchft is loaded."""
    module = sys.modules.get("torchft.process_group")
    theirs = getattr(module, "ProcessGroup", None)
    if theirs is None or issubclass(cls, theirs):
        return cls
    return _both(cls, theirs)
