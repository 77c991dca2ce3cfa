# SPDX-License-Identifier: BSD-3-Clause
"""How a group that is behind gets the state of one that is not."""

from .transport import CheckpointTransport

__all__ = ["CheckpointTransport"]
