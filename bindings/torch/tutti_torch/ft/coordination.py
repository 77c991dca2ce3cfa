# SPDX-License-Identifier: BSD-3-Clause
"""Lighthouses and managers: servers and clients, with the names and arguments of torchft's `coordination`.

    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1)
    manager = ManagerServer("group-0:7f3a", lighthouse.address(), "localhost", "[::]:0", "localhost:29500",
                            world_size=1, heartbeat_interval=timedelta(milliseconds=100),
                            connect_timeout=timedelta(seconds=10), quorum_retries=0)
    client = ManagerClient(manager.address(), connect_timeout=timedelta(seconds=10))

Each talks to torchft's own at the other end. Calls release the GIL; a deadline that passes is a TimeoutError, all else
a RuntimeError with a sentence. A lighthouse's address may be a list with commas: when one is lost, the next is asked.
docs/fault_tolerance.md has the rest."""

import tutti_torch  # noqa: F401  the compiled part is checked before it is loaded

from .._C import ft as _ft

__all__ = [
    "FailureNotification",
    "FailureStream",
    "LighthouseClient",
    "LighthouseServer",
    "ManagerClient",
    "ManagerServer",
    "Quorum",
    "QuorumMember",
    "QuorumResult",
    "Timestamp",
]

for _name in __all__:
    globals()[_name] = getattr(_ft, _name)
    globals()[_name].__module__ = __name__
