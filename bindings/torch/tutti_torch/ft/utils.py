# SPDX-License-Identifier: BSD-3-Clause
"""Streams of whatever accelerator is there, or of none; what a tensor is."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, ContextManager, Optional

import torch


def current_stream() -> Optional[torch.Stream]:
    return torch.accelerator.current_stream() if torch.accelerator.is_available() else None


def new_stream() -> Optional[torch.Stream]:
    return torch.Stream() if torch.accelerator.is_available() else None


def get_stream_context(stream: Optional[torch.Stream]) -> ContextManager:
    """Within it, the stream is the current one."""
    return contextlib.nullcontext() if stream is None else stream


def record_event() -> Optional[torch.Event]:
    """After what is on the current stream."""
    stream = current_stream()
    return None if stream is None else stream.record_event()


def synchronize() -> None:
    """Until the current stream's work is done."""
    stream = current_stream()
    if stream is not None:
        stream.synchronize()


def is_dtensor(value: Any) -> bool:
    """Imports nothing: what DTensors need takes a second, by which a group that comes back would be later, and where
    nobody has imported it there is none."""
    return isinstance(value, getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ()))
