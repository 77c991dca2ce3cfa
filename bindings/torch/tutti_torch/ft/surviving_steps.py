# SPDX-License-Identifier: BSD-3-Clause
"""Steps that are not lost when a group dies in them: what a manager with survive=True does in each. The calls of a step
end with what the survivors gave, divided by their number; a vote ends the step. Groups that come are taken in at the
start of a step, and get their state while the others go on: their first step gives zeros (with use_async_quorum), or
waits for the state.

    giving    numbers of the groups that contribute to a step: not those that get their state in it, and no spares"""

from __future__ import annotations

import time
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple

import torch
from torch.distributed import ReduceOp

from .process_group import ProcessGroupTutti
from .survival import EVERY, NotTaken, Survival

if TYPE_CHECKING:
    from .manager import Manager

KEPT = 2  # votes for which a state is offered: who needs it gives its second vote when it has it


class SurvivingSteps:
    """A manager's."""

    def __init__(self, manager: "Manager") -> None:
        if not isinstance(manager._pg, ProcessGroupTutti):
            raise ValueError(f"survive=True: the process group is {manager._pg!r}; ProcessGroupTutti has calls that "
                             "survive the death of a group")
        if getattr(manager._checkpoint_transport, "_pg", None) is manager._pg:
            raise ValueError("survive=True: states do not travel over the process group, which has no messages then; "
                             "HTTPTransport, the default, needs none")
        self._manager = manager
        self._survival = Survival(manager)
        self.giving: List[int] = []
        self._behind: List[int] = []  # they get their state in this step
        self._state: Optional[Future] = None  # that this rank gets
        self._offered = 0  # votes until the own state is offered no more
        self._usual: Optional[int] = None  # calls of a step
        self._broken = False  # a call failed: the communicator is of no use
        self._last: Any = None  # call of this step
        self.rounds: Optional[Any] = None  # a GlobalBatch, within its step

    @property
    def rank(self) -> int:
        """The number of this group."""
        return self._survival.rank

    def stop(self) -> None:
        self._survival.stop()

    def end(self) -> None:
        """Behind the end of the group's manager, which answers what its threads still ask."""
        self._survival.end()

    # ---- the start of a step ----

    def begin(self, allow_heal: bool, timeout: timedelta) -> Future:
        """Done when it is known who gives."""
        survival = self._survival
        self._last, self.rounds = None, None
        survival.start()
        if survival.has_members and not self._manager._use_async_quorum and not survival.has_next:
            self._ask_all()  # the last vote was many steps ago
        if survival.has_members and not survival.has_next:
            self._await_enough(timeout)
        if survival.has_next:
            self._try_to_take(allow_heal)
        elif survival.has_members:
            self._settle(behind=[])
        if not survival.has_members:
            self._broken = False
            return self._manager._executor.submit(self._enter, allow_heal, timeout)
        self._manager._recovery.give()
        done: Future = Future()
        done.set_result(None)
        return done

    def _await_enough(self, timeout: timedelta) -> None:
        """All survivors are in this, and vote in the same order."""
        survival, least = self._survival, self._manager._min_replica_size
        until, told = time.monotonic() + timeout.total_seconds(), False
        while survival.has_members and not survival.has_next and len(survival.alive) < least:
            if not told:
                self._manager._logger.warning(f"groups left: {len(survival.alive)}, of at least {least}; no step "
                                              "counts until others have come")
            told = True
            if time.monotonic() > until:
                raise survival.no_quorum(timeout)
            survival.wait_ready(EVERY.total_seconds())
            self._ask_all()

    def _ask_all(self) -> None:
        """Whether newcomers can be taken in."""
        if self._survival.vote(False).left:
            self._survival.leave()

    def _enter(self, allow_heal: bool, timeout: timedelta) -> None:
        """Joins the others. On the thread of quorums."""
        until = time.monotonic() + timeout.total_seconds()
        while not self._survival.has_members:
            if not self._survival.wait_ready(until - time.monotonic()):
                raise self._survival.no_quorum(timeout)
            self._try_to_take(allow_heal)

    def _try_to_take(self, allow_heal: bool) -> None:
        try:
            self._take(allow_heal)
        except NotTaken as why:
            self._manager._logger.info(f"asks again: {why}")

    def _take(self, allow_heal: bool) -> None:
        manager, survival = self._manager, self._survival
        told = survival.take(-1 if manager._recovery.half_written else manager._step)
        manager._note_quorum(told.quorum_id, len(told.said), survival.rank, told.max_step)
        behind = told.behind(manager._init_sync)
        catches_up = allow_heal and not manager._use_async_quorum  # before the step
        self._settle([] if catches_up else behind)
        if survival.rank not in behind:
            manager._recovery.check_whole()
        if not behind or not allow_heal:
            return
        sources = told.sources(behind, manager._group_rank, manager._recovery.several)
        if survival.rank in sources:
            manager._recovery.offer(behind, told.max_step)
            self._offered = KEPT
        if survival.rank not in behind:
            return
        manager._healing = True
        where = ",".join(told.said[rank][1] for rank in sources)
        fetch = partial(manager._recovery.fetch, sources[0], where, told.max_step)
        if catches_up:
            fetch()
            if manager._pending_state_dict is None:
                survival.leave()
        else:
            self._state = manager._executor.submit(fetch)

    def _settle(self, behind: List[int]) -> None:
        """Those that give in this step."""
        manager, survival = self._manager, self._survival
        self._behind = behind
        self.giving = [rank for rank in survival.alive if rank not in behind]
        if manager._has_spares():
            self.giving = self.giving[: manager._min_replica_size]
        rank = survival.rank
        manager._participating_replica_rank = self.giving.index(rank) if rank in self.giving else None
        manager._participating_replica_world_size = len(self.giving)

    # ---- calls ----

    def reduction(self, tensor: torch.Tensor, op: ReduceOp) -> Tuple[ReduceOp, Optional[Callable[[Any], None]]]:
        """The operation to call, and what to do with the call when it is over."""
        if op != ReduceOp.AVG:
            return op, None
        if self.rounds is not None:
            self.rounds.add(tensor)
            return ReduceOp.SUM, None
        if self.giving == self._survival.alive:
            return op, None  # by whose contributions the library has
        return ReduceOp.SUM, partial(self._divide, tensor)

    def _divide(self, tensor: torch.Tensor, work: Any) -> None:
        tensor.div_(max(1, len(self._gave(work))))

    def _gave(self, work: Any) -> List[int]:
        contributors = self._manager._pg._backend._contributors(work)
        return [rank for rank in self.giving if rank in contributors]

    def made(self, work: Any) -> None:
        self._last = work

    def failed(self, number: int, error: Exception) -> None:
        """A call did, of the step of this number."""
        self._broken = self._broken or number == self._manager._round
        self._manager._report_of_round(number, error)

    def lost(self) -> List[int]:
        """Those whose contributions are not in all results of the step so far; the same list at all ranks. When its
        calls are over."""
        if self._last is None or self._broken or not self._survival.has_members:
            return []
        return self._survival.lost_among(self.giving, self._manager._pg._backend._contributors(self._last))

    # ---- the end of a step ----

    def decide(self, least: int) -> Tuple[bool, bool]:
        """Whether the step counts, at all ranks of all groups, and whether enough gave to it."""
        manager, survival = self._manager, self._survival
        errored = manager._errored is not None
        skipped = errored and manager._n_calls != (self._usual or 0)  # calls that the others made
        behind = errored and manager._healing  # which is no matter of the others'
        vote = survival.vote(errored, leaves=self._broken or skipped or behind)
        n = len([rank for rank in self.giving if rank in vote.alive])
        enough = len([rank for rank in vote.alive if rank not in self._behind]) >= least  # spares among them
        committed = not vote.error and not vote.left and enough and n > 0
        if vote.left or (manager._healing and not self._catch_up()):
            survival.leave()
            self._usual = None
            return False, True
        self._usual = manager._n_calls
        manager._participating_replica_world_size = n
        if self._offered:
            self._offered -= 1
            if not self._offered:
                manager._checkpoint_transport.disallow_checkpoint()
        return committed, enough

    def _catch_up(self) -> bool:
        """The state has come, and is loaded; False: it can not come, and this rank leaves."""
        manager, state = self._manager, self._state
        self._state = None
        if state is not None:
            state.result()  # raises where it can never come
        manager._recovery.wait()
        if manager._pending_state_dict is None:
            return False
        manager._apply_pending_state_dict()
        return True
