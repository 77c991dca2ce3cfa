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

_DOCS = {
    "FailureNotification": "A group that the lighthouse gave up: replica_id.",
    "FailureStream": "An iterator of FailureNotification, from LighthouseClient.failures(); close() ends it.",
    "LighthouseClient": """Asks a lighthouse: quorum() joins as a group and waits for the others, heartbeat() says that
a group lives. addr may be a list with commas.""",
    "LighthouseServer": """Decides which replica groups take part in a step. min_replicas: a quorum has at least
so many; join_timeout_ms: so long it waits for groups that live and have not asked; quorum_tick_ms: how often it looks;
heartbeat_timeout_ms: silence after which a group counts as dead. address() is for the groups, shutdown() ends it.""",
    "ManagerClient": """Asks the manager of its own group, which rank 0 runs: the quorum, the votes, where a state is.
addr: ManagerServer.address(). connect_timeout: so long it is dialled.""",
    "ManagerServer": """Speaks for a replica group: collects the requests of its world_size ranks, asks the lighthouse,
and counts votes. replica_id: unlike any other group's; bind: "host:port", port 0 is any; store_addr: where the members
of the next quorum may meet; heartbeat_interval: how often the lighthouse hears of the group.""",
    "Quorum": "Those who take part: quorum_id, participants (a list of QuorumMember), created.",
    "QuorumMember": "A replica group as the lighthouse knows it, and the data that it joined with.",
    "QuorumResult": """A rank's place in a quorum: its number among the groups, which group it recovers from, which ones
recover from it, and the step that all are to reach.""",
    "Timestamp": "Seconds and nanoseconds since 1970.",
}
__all__ = sorted(_DOCS)

for _name, _doc in _DOCS.items():
    globals()[_name] = getattr(_ft, _name)
    globals()[_name].__module__ = __name__
    globals()[_name].__doc__ = _doc
