# SPDX-License-Identifier: BSD-3-Clause
"""The log of calls: clog."""

import tutti_torch  # noqa: F401  the compiled part is checked before it is loaded

from ..._C.hooks import clog

__all__ = ["clog"]
clog.__module__ = __name__
