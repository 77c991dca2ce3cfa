# SPDX-License-Identifier: BSD-3-Clause
"""How a group that is behind gets the state of one that is not, while that one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

import torch

from .checkpointing.plain import NotPlain
from .utils import get_stream_context, new_stream, record_event

if TYPE_CHECKING:
    from .manager import Manager


class Recovery:
    """Runs on the thread of the quorum, and on a stream of its own."""

    def __init__(self, manager: "Manager", client_of: Callable[[str], Any]) -> None:
        self._manager, self._client_of = manager, client_of
        self._stream = new_stream()
        self._event: Optional[torch.Event] = None

    def run(self, quorum: Any) -> None:
        """Gives this rank's state to those who need it, or gets it from the one that the quorum names. What it got
        waits in the manager until it can be loaded. Errors void the step; but a state that can not travel would void
        every step, so that one is raised."""
        manager = self._manager
        with get_stream_context(self._stream):
            try:
                if quorum.recover_dst_replica_ranks:
                    self._send(quorum)
                if quorum.heal:
                    manager._healing = True
                    self._receive(quorum)
            except NotPlain:
                raise
            except Exception as error:
                manager._logger.exception("recovery failed")
                manager.report_error(error)
            self._event = record_event()

    def _send(self, quorum: Any) -> None:
        manager = self._manager
        manager._logger.info(f"gives its state to {list(quorum.recover_dst_replica_ranks)}")
        manager._checkpoint_transport.send_checkpoint(
            dst_ranks=list(quorum.recover_dst_replica_ranks),
            step=quorum.max_step,
            state_dict=manager._manager_state_dict(),
            timeout=manager._timeout,
        )

    def _receive(self, quorum: Any) -> None:
        manager, source = self._manager, quorum.recover_src_replica_rank
        if source is None:
            raise RuntimeError("the quorum names no group to recover from")
        client = self._client_of(quorum.recover_src_manager_address)
        metadata = client._checkpoint_metadata(manager._group_rank, timeout=manager._timeout)
        manager._logger.info(f"takes the state of step {quorum.max_step} from {source}: {metadata}")
        pending = manager._checkpoint_transport.recv_checkpoint(
            src_rank=source, metadata=metadata, step=quorum.max_step, timeout=manager._timeout)
        manager.load_state_dict(pending["torchft"])
        manager._pending_state_dict = pending
        manager._step = quorum.max_step

    def wait(self) -> None:
        """Until what was copied on the stream is there."""
        event, self._event = self._event, None
        if event is not None:
            event.synchronize()
