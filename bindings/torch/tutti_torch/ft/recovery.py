# SPDX-License-Identifier: BSD-3-Clause
"""How a group that is behind gets the state of one that is not, while that one goes on."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .checkpointing.plain import NotPlain
from .utils import get_stream_context, new_stream, record_event

SOON = 0.5  # seconds for further sources after the first one


class HalfWritten(RuntimeError):
    """This group has no state to go on with."""


class Recovery:
    """A manager's. A state is received on the thread of the quorum, and on a stream of its own. The own state is given
    to others by the thread that trains (or autograd's, while that one waits for backward): before the forward pass
    where start_quorum waits, else at the step's first allreduce or its should_commit, when the forward pass is over."""

    def __init__(self, manager: Any, client_of: Callable[[str], Any]) -> None:
        self._manager, self._client_of = manager, client_of
        self.several = getattr(manager._checkpoint_transport, "several_sources", False)
        self.half_written = False  # a transfer into the model's own tensors did not come to its end
        self._stream = new_stream()
        self._event: Optional[torch.Event] = None
        self._lock = threading.Lock()
        self._wanted: Optional[Tuple[List[int], int]] = None  # the ranks that need this one's state, and of which step

    def run(self, quorum: Any) -> None:
        """Notes that others need this rank's state, or gets one from the group that the quorum names, which waits in
        the manager until it can be loaded. Errors void the step; but a state that can never travel is raised."""
        if quorum.recover_dst_replica_ranks or (self.several and getattr(quorum, "offers", False)):
            self.offer(list(quorum.recover_dst_replica_ranks), quorum.max_step)
        if quorum.heal:
            self._manager._healing = True
        self._guarded((lambda: self._receive(quorum)) if quorum.heal else self.check_whole)

    def offer(self, targets: List[int], step: int) -> None:
        """Notes that these need this rank's state."""
        self._wanted = targets, step

    def fetch(self, source: int, metadata: str, step: int) -> None:
        """As run(), from this one, or several."""
        self._guarded(lambda: self._take_state(source, metadata, step))

    def check_whole(self) -> None:
        """There is a state to go on with."""
        if self.half_written:
            raise HalfWritten("this group's state was partly overwritten by a transfer that failed, and no other group "
                              "has a whole one: start it anew, from a checkpoint")

    def _guarded(self, action: Callable[[], None]) -> None:
        manager = self._manager
        with get_stream_context(self._stream):
            try:
                action()
            except (NotPlain, HalfWritten):
                raise
            except Exception as error:
                manager._logger.exception("recovery failed")
                manager.report_error(error)
            self._event = record_event()

    def give(self) -> None:
        """Offers this rank's state, if somebody needs it in this step. A state that can not travel is told to the
        groups that need it, and this one goes on."""
        with self._lock:
            manager, wanted = self._manager, self._wanted
            if wanted is None or not manager._is_state_dict_read_allowed:  # it is changing: at the next call
                return
            self._wanted, (targets, step) = None, wanted
            manager._logger.info(f"offers its state to {targets or 'those who read from several'}")
            try:
                manager._checkpoint_transport.send_checkpoint(
                    dst_ranks=targets,
                    step=step,
                    state_dict=manager._manager_state_dict(),
                    timeout=manager._timeout,
                )
            except NotPlain as error:
                manager._logger.error(f"no group can catch up with this one: {error}")
                refuse = getattr(manager._checkpoint_transport, "refuse", None)  # not torchft's
                if refuse is not None:
                    refuse(targets, step, str(error))
            except Exception as error:
                manager._logger.exception("this rank's state could not be given to others")
                manager.report_error(error)

    def _receive(self, quorum: Any) -> None:
        source = quorum.recover_src_replica_rank
        if source is None:
            raise RuntimeError("the quorum names no group to recover from")
        self._take_state(source, self._metadata_of(quorum), quorum.max_step)

    def _take_state(self, source: int, metadata: str, step: int) -> None:
        manager = self._manager
        manager._logger.info(f"takes the state of step {step} from {source}: {metadata}")
        transport = manager._checkpoint_transport
        self.half_written = self.half_written or bool(getattr(transport, "in_place", False))
        pending = transport.recv_checkpoint(
            src_rank=source, metadata=metadata, step=step, timeout=manager._timeout)
        self.half_written = False
        manager.load_state_dict(pending["torchft"])
        manager._pending_state_dict = pending
        manager._step = step  # all ranks of this group recover from one step, which the transport sees to

    def _metadata_of(self, quorum: Any) -> str:
        """Where the state is: of the source that the quorum names; and of the others that have the same one, where the
        transport reads from several, and their managers answer soon."""
        addresses = list(getattr(quorum, "recover_src_manager_addresses", [])) if self.several else []
        if len(addresses) < 2:
            return self._ask(quorum.recover_src_manager_address)
        return ",".join(first_answers([partial(self._ask, address) for address in addresses],
                                      self._manager._timeout.total_seconds(), SOON))

    def _ask(self, address: str) -> str:
        client = self._client_of(address)
        return client._checkpoint_metadata(self._manager._group_rank, timeout=self._manager._timeout)

    def wait(self) -> None:
        """Until what was copied on the stream is there."""
        event, self._event = self._event, None
        if event is not None:
            event.synchronize()


def first_answers(calls: List[Callable[[], str]], limit: float, soon: float) -> List[str]:
    """What they return, in their order, side by side: of those that come soon after the first one. Raises what the
    first of them raised when none returns."""
    changed = threading.Condition()
    answers: Dict[int, str] = {}
    errors: Dict[int, Exception] = {}

    def run(number: int) -> None:
        try:
            answer = calls[number]()
        except Exception as error:
            with changed:
                errors[number] = error
                changed.notify_all()
        else:
            with changed:
                answers[number] = answer
                changed.notify_all()

    for number in range(len(calls)):
        threading.Thread(target=run, args=(number,), name="tutti_ft_ask", daemon=True).start()
    with changed:
        changed.wait_for(lambda: answers or len(errors) == len(calls), limit)
        until = time.monotonic() + soon
        changed.wait_for(lambda: len(answers) + len(errors) == len(calls), max(0.0, until - time.monotonic()))
        if not answers:
            raise errors[min(errors)] if errors else TimeoutError("timed out: no manager said where the state is")
        return [answers[number] for number in sorted(answers)]
