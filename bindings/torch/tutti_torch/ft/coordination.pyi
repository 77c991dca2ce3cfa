# SPDX-License-Identifier: BSD-3-Clause
from datetime import timedelta
from typing import Any, Dict, List, Optional

class Timestamp:
    seconds: int
    nanos: int
    def __init__(self, seconds: int, nanos: int) -> None: ...

class QuorumMember:
    replica_id: str
    address: str
    store_address: str
    step: int
    world_size: int
    shrink_only: bool
    data: Optional[Dict[str, Any]]
    def __init__(
        self,
        replica_id: str,
        address: str,
        store_address: str,
        step: int,
        world_size: int,
        shrink_only: bool,
        data: Optional[Dict[str, Any]] = None,
    ) -> None: ...

class Quorum:
    quorum_id: int
    participants: List[QuorumMember]
    created: Timestamp
    def __init__(self, quorum_id: int, participants: List[QuorumMember], created: Timestamp) -> None: ...

class QuorumResult:
    quorum_id: int
    replica_rank: int
    replica_world_size: int
    recover_src_manager_address: str
    recover_src_replica_rank: Optional[int]
    recover_dst_replica_ranks: List[int]
    store_address: str
    max_step: int
    max_replica_rank: Optional[int]
    max_world_size: int
    heal: bool
    commit_failures: int
    replica_ids: List[str]
    reconfigure_handles: List[str]
    recover_src_manager_addresses: List[str]
    offers: bool
    def __init__(self) -> None: ...

class LighthouseServer:
    def __init__(
        self,
        bind: str,
        min_replicas: int,
        join_timeout_ms: Optional[int] = None,
        quorum_tick_ms: Optional[int] = None,
        heartbeat_timeout_ms: Optional[int] = None,
    ) -> None: ...
    def address(self) -> str: ...
    def shutdown(self) -> None: ...

class LighthouseClient:
    addr: str
    connect_timeout: timedelta
    def __init__(self, addr: str, connect_timeout: timedelta) -> None: ...
    def quorum(
        self,
        replica_id: str,
        timeout: timedelta,
        address: Optional[str] = None,
        store_address: Optional[str] = None,
        step: Optional[int] = None,
        world_size: Optional[int] = None,
        shrink_only: Optional[bool] = None,
        data: Optional[Dict[str, Any]] = None,
    ) -> Quorum: ...
    def heartbeat(self, replica_id: str, timeout: timedelta = ...) -> None: ...
    def get_config(self, timeout: timedelta = ...) -> Dict[str, str]: ...
    def subscribe_failures(self, timeout: Optional[timedelta] = None) -> FailureStream: ...

class FailureNotification:
    replica_id: str

class FailureStream:
    """Groups that are not heard any more; `timeout` of each is a TimeoutError."""

    def __iter__(self) -> FailureStream: ...
    def __next__(self) -> FailureNotification: ...
    def close(self) -> None: ...

class ManagerServer:
    def __init__(
        self,
        replica_id: str,
        lighthouse_addr: str,
        hostname: str,
        bind: str,
        store_addr: str,
        world_size: int,
        heartbeat_interval: timedelta,
        connect_timeout: timedelta,
        quorum_retries: int,
    ) -> None: ...
    def address(self) -> str: ...
    def shutdown(self) -> None: ...

class ManagerClient:
    def __init__(self, addr: str, connect_timeout: timedelta) -> None: ...
    def _quorum(
        self,
        group_rank: int,
        step: int,
        checkpoint_metadata: str,
        shrink_only: bool,
        timeout: timedelta,
        commit_failures: int,
        reconfigure_handle: str = "",
        init_sync: bool = True,
    ) -> QuorumResult: ...
    def _checkpoint_metadata(self, rank: int, timeout: timedelta) -> str: ...
    def should_commit(self, group_rank: int, step: int, should_commit: bool, timeout: timedelta) -> bool: ...
    def progress(self, group_rank: int, step: int, collective: int = 0) -> bool: ...
    def kill(self, why: str, timeout: timedelta = ...) -> None: ...
