# SPDX-License-Identifier: BSD-3-Clause
"""What can be hung on communicators: a flight recorder, a log of calls, a check for NaN. Each has
register_with_comm(comm), and sees the calls of the communicators that are split from it, too.

    from tutti_torch.comms.hooks import FlightRecorderHook, NanCheckHook, clog

    recorder = FlightRecorderHook()
    recorder.register_with_comm(comm)"""

from .clog import clog
from .fr import FlightRecorderHook
from .nan_check import NanCheckHook

__all__ = ["FlightRecorderHook", "NanCheckHook", "clog"]
