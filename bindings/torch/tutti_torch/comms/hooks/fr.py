# SPDX-License-Identifier: BSD-3-Clause
"""The flight recorder: FlightRecorderHook."""

import tutti_torch  # noqa: F401  the compiled part is checked before it is loaded

from ..._C.hooks import FlightRecorderHook

__all__ = ["FlightRecorderHook"]
FlightRecorderHook.__module__ = __name__
