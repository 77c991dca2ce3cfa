# SPDX-License-Identifier: BSD-3-Clause
"""The members of a job whose steps survive the death of groups (docs/no_lost_step.md): a communicator whose calls do,
and a thread that asks for quorums beside training. Where a quorum has new members, it meets with them in a
communicator of its own. With each vote, a small all_reduce, ranks say which of those they have ready; when all have the
same one, all take it before the next step.

What is decided is decided in calls of all members, so all know the same. Where groups have several ranks, each is in a
communicator with those of its number in the other groups; the ranks of a group then tell one another what they heard,
and all ranks of all groups decide the same."""

from __future__ import annotations

import atexit
import hashlib
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch.distributed import PrefixStore, ReduceOp
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions

from .. import _C
from .meeting import ReconfigureOptions

if TYPE_CHECKING:
    from .manager import Manager
    from .process_group import Members

EVERY = timedelta(milliseconds=250)  # between questions for a quorum: so soon newcomers are heard of
MORE = timedelta(milliseconds=1)  # a pause between questions is so much longer for each group
MEET = timedelta(seconds=10)  # all hear of a quorum at one time
MEETINGS = 8  # at a time
TOLD = 512  # bytes that each member says of itself when all take a communicator
SOURCES = 4  # that one newcomer reads its state from


class Lost(RuntimeError):
    """The rest of this group is gone."""


class NotTaken(RuntimeError):
    """The communicator that was to be taken is of no use: this rank asks again."""


@dataclass
class Candidate:
    """A communicator that can be taken."""

    members: "Members"
    quorum_id: int
    handles: List[str]
    number: int  # what number_of makes of the quorum


def number_of(quorum: Any) -> int:
    """The same at all ranks of all groups: made of the quorum and its groups, for a lighthouse that begins anew may
    give the quorum's number again."""
    names = "\n".join([str(quorum.quorum_id), *quorum.replica_ids])
    return 1 + int.from_bytes(hashlib.sha256(names.encode()).digest()[:7], "big")


@dataclass
class Vote:
    """What all ranks of all groups know when it is over."""

    error: bool  # some rank had one
    left: bool  # this group is out: one of its ranks could not go on
    alive: List[int] = field(default_factory=list)


@dataclass
class Told:
    """What the members of a communicator said when they took it, by number: their step, and where their state is."""

    quorum_id: int
    said: Dict[int, Tuple[int, str]]

    @property
    def max_step(self) -> int:
        return max(0, *(step for step, _ in self.said.values()))

    def behind(self, init_sync: bool) -> List[int]:
        """Those who need a state; at step 0 all take that of one, if asked to."""
        up = [rank for rank, (step, _) in sorted(self.said.items()) if step == self.max_step]
        if self.max_step == 0 and init_sync:
            up = up[:1]
        return [rank for rank in sorted(self.said) if up and rank not in up]

    def sources(self, behind: List[int], shift: int, several: bool) -> List[int]:
        """Those whose state they read."""
        up = [rank for rank in sorted(self.said) if rank not in behind]
        shift %= len(up)
        return (up[shift:] + up[:shift])[: SOURCES if several else 1]


class Survival:
    """A manager's."""

    def __init__(self, manager: "Manager") -> None:
        self._manager, self._pg = manager, manager._pg
        self._changed = threading.Condition()
        self._ready: Optional[Candidate] = None
        self._voted: Optional[Candidate] = None  # while a vote says that it is ready
        self._next: Optional[Candidate] = None  # all voted for it
        self._taken: Optional[Candidate] = None
        self._size = 0  # members of the last one taken, the dead included
        self._failures = 0  # communicators in a row that were not made or not kept; a quorum then makes new ones
        self._heard = 0  # the number of the last one that is made, or need not be
        self._meetings = 0  # under way
        self._why = "the other groups have not asked"  # there is no quorum
        self._stops = False
        self.alive: List[int] = []  # as all know since the last vote
        self._inside = self._meet_inside()
        self._thread = threading.Thread(target=self._follow, name="tutti_ft_quorum", daemon=True)
        self._met: List[threading.Thread] = []

    def _meet_inside(self) -> Optional[_C.Backend]:
        m = self._manager
        if m._group_world_size == 1:
            return None
        options = _C.Backend.Options(m._timeouts.connect)
        options.seat = self._pg._seat
        store = PrefixStore("tutti_ft_inside", m._store)
        return _C.Backend(store, m._group_rank, m._group_world_size, options)

    # ---- quorums, beside training ----

    def start(self) -> None:
        if not self._thread.ident:
            self._thread.start()
            atexit.register(self.end)

    def stop(self) -> None:
        with self._changed:
            self._stops = True
            self._changed.notify_all()
            gone = [c for c in (self._ready, self._next, self._taken) if c is not None]
            self._ready = self._next = self._taken = None
        for candidate in gone:
            candidate.members.leave()
        if self._inside is not None:
            self._inside.shutdown()

    def end(self) -> None:
        """Stops, and waits for its threads, whose calls have deadlines: Python ends the process by SIGABRT where a
        thread is in the library when the interpreter ends."""
        self.stop()
        seconds = (self._manager._timeouts.quorum + MEET).total_seconds()
        for thread in [self._thread, *self._met]:
            if thread.ident and thread is not threading.current_thread():
                thread.join(seconds)
        atexit.unregister(self.end)

    def _follow(self) -> None:
        while not self._stops:
            try:
                self._hear(self._ask())
            except Exception as error:
                self._complain(str(error))
            with self._changed:
                pause = EVERY.total_seconds() + self._size * MORE.total_seconds()
                self._changed.wait_for(lambda: self._stops, pause)

    def _complain(self, why: str) -> None:
        if why != self._why and not self._stops:
            self._manager._logger.warning(f"no new quorum; those who are there go on: {why}")
        with self._changed:
            self._why = why

    def _ask(self) -> Any:
        m = self._manager
        return m._client._quorum(
            group_rank=m._group_rank, step=m._step, checkpoint_metadata=m._checkpoint_transport.metadata(),
            shrink_only=False, timeout=m._timeouts.quorum, init_sync=m._init_sync, commit_failures=self._failures,
            reconfigure_handle=self._pg.get_reconfigure_handle())

    def _hear(self, quorum: Any) -> None:
        """Meets its members, unless all of them are in a communicator that is there."""
        handles = quorum.reconfigure_handles
        if len(handles) != quorum.replica_world_size or not all(handles):
            raise RuntimeError("a group's manager knows no handles: survive=True needs tutti's in all groups")
        with self._changed:
            serves = [self._holds(candidate, handles) for candidate in (self._taken or self._next, self._ready)]
            number = number_of(quorum)
            if number == self._heard:
                return
            served = any(serves) and not quorum.commit_failures
            if served and serves[0]:
                self._heard = number
                self._drop_ready()
            if served:
                return
            if self._meetings >= MEETINGS:
                raise RuntimeError(f"{MEETINGS} meetings are under way, of quorums whose members do not come")
            self._heard = number
            self._meetings += 1
        thread = threading.Thread(target=self._meet, args=(quorum, number), name="tutti_ft_meet", daemon=True)
        self._met = [one for one in self._met if one.is_alive()] + [thread]
        thread.start()

    def _meet(self, quorum: Any, number: int) -> None:
        """On a thread of its own: when members of this quorum do not come, the next one is heard of meanwhile."""
        opts = ReconfigureOptions()
        opts.uuid, opts.handles = quorum.quorum_id, quorum.reconfigure_handles
        opts.timeout = min(MEET, self._manager._timeout)
        candidate: Optional[Candidate] = None
        try:
            members = self._pg.meet(opts)
            candidate = Candidate(members, quorum.quorum_id, opts.handles, number)
        except Exception as error:
            self._complain(str(error))
        with self._changed:
            self._meetings -= 1
            wanted = self._heard == number and not self._stops
            if wanted and candidate is not None:
                self._drop_ready()
                self._failures, self._ready = 0, candidate
                self._changed.notify_all()
            elif wanted:
                self._failures += 1
        if candidate is not None and not wanted:
            candidate.members.leave()

    @staticmethod
    def _holds(candidate: Optional[Candidate], handles: List[str]) -> bool:
        return candidate is not None and set(handles) <= set(candidate.handles)

    def _drop_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None and ready is not self._voted:
            ready.members.leave()

    # ---- the communicator in use ----

    @property
    def has_members(self) -> bool:
        return self._taken is not None

    @property
    def has_next(self) -> bool:
        return self._next is not None

    @property
    def rank(self) -> int:
        return self._taken.members.rank if self._taken is not None else -1

    def wait_ready(self, seconds: float) -> bool:
        """Whether one is there within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ready is not None, max(0.0, seconds))

    def no_quorum(self, limit: timedelta) -> TimeoutError:
        return TimeoutError(f"timed out: there is no quorum within {limit}: {self._why}")

    def leave(self) -> None:
        """This rank can not go on: the others do without it, and it asks to be taken in again."""
        with self._changed:
            taken, self._taken = self._taken, None
            self._failures += 1
            self.alive = []
        if taken is not None:
            taken.members.leave()

    def take(self, step: int) -> Told:
        """What all voted for, or a newcomer has met, is the communicator in use from now on; all its members do this
        now. step: how far this rank is; -1: it has no state to go on with."""
        with self._changed:
            before, candidate = self._taken, self._next or self._ready
            if candidate is self._ready:
                self._ready = None
            self._next, self._taken = None, candidate
        self._size = candidate.members.size
        self._pg.take(candidate.members)
        try:
            said = self._tell(candidate, step)
            if before is None and len(said) < candidate.members.size:
                raise NotTaken(f"{candidate.members.size - len(said)} groups died before this one joined them")
        except RuntimeError as error:
            self.leave()
            raise NotTaken(str(error)) from error
        finally:  # nobody is in a call of the one before any more
            if before is not None:
                before.members.leave()
        self.alive = sorted(said)
        return Told(candidate.quorum_id, said)

    def _tell(self, candidate: Candidate, step: int) -> Dict[int, Tuple[int, str]]:
        metadata = self._manager._checkpoint_transport.metadata().encode()
        if len(metadata) > TOLD - 16:
            raise ValueError(f"where the state is takes {len(metadata)} bytes, but {TOLD - 16} can be told")
        mine = torch.zeros(TOLD // 8, dtype=torch.int64)
        mine[0], mine[1] = step, len(metadata)
        mine[2:].view(torch.uint8)[: len(metadata)] = torch.tensor(list(metadata), dtype=torch.uint8)
        table = torch.zeros(candidate.members.size, TOLD // 8, dtype=torch.int64)
        backend = candidate.members.backend
        work = backend._allgather_base(table.view(-1), mine, AllgatherOptions())
        work.wait()
        rows = {rank: table[rank] for rank in backend._contributors(work)}
        return {rank: (int(row[0]), bytes(row[2:].view(torch.uint8)[: int(row[1])].tolist()).decode())
                for rank, row in rows.items()}

    # ---- votes ----

    def vote(self, error: bool, leaves: bool = False) -> Vote:
        """A call of all members: whether some rank had an error, and whether all have the same communicator ready.
        leaves: this rank is in no call any more."""
        with self._changed:
            voted = self._voted = None if self._next is not None else self._ready
        number = voted.number if voted is not None else 0
        told = torch.tensor([int(error), -number, number, int(leaves)], dtype=torch.int64)
        alive = self._hear_others(told)
        if self._inside is not None:
            alive = self._hear_inside(told, alive)
        error, lowest, highest, left = bool(told[0]), -int(told[1]), int(told[2]), bool(told[3])
        with self._changed:
            self._voted = None
            if voted is not None and lowest == highest and not left:
                self._next = voted
                if self._ready is voted:
                    self._ready = None
            elif voted is not None and self._ready is not voted:
                voted.members.leave()  # which waited for the vote
        if not left:
            self.alive = alive
        return Vote(error, left, alive)

    def _hear_others(self, told: torch.Tensor) -> List[int]:
        if told[3] or self._taken is None:
            told[3] = 1
            return []
        try:
            mine = told.clone()
            alive = reduce_max(self._taken.members.backend, mine)
            told.copy_(mine)
            told[3] = 0
            return alive
        except Exception as failed:
            self._manager.report_error(failed)
            told[3] = 1
            return []

    def _hear_inside(self, told: torch.Tensor, alive: List[int]) -> List[int]:
        gone = torch.ones(self._size, dtype=torch.int64)
        gone[alive] = 0
        both = torch.cat([told, gone])
        self._reduce_inside(both)
        told.copy_(both[: len(told)])
        return [rank for rank in alive if not both[len(told) + rank]]

    def lost_among(self, ranks: Sequence[int], contributors: Sequence[int]) -> List[int]:
        """Those that are not among the contributors to a call, here or at other ranks of this group."""
        lost = [rank for rank in ranks if rank not in contributors]
        if self._inside is None or not ranks:
            return lost
        flags = torch.tensor([int(rank in lost) for rank in ranks], dtype=torch.int64)
        self._reduce_inside(flags)
        return [rank for rank, flag in zip(ranks, flags.tolist()) if flag]

    def _reduce_inside(self, tensor: torch.Tensor) -> None:
        try:
            reduce_max(self._inside, tensor)
        except Exception as failed:
            self.leave()
            raise Lost(f"this group is lost as a whole, to be started anew: {failed}") from failed


def reduce_max(backend: _C.Backend, tensor: torch.Tensor) -> List[int]:
    """Among all members; whose numbers are in it."""
    opts = AllreduceOptions()
    opts.reduceOp = ReduceOp.MAX
    work = backend.allreduce([tensor], opts)
    work.wait()
    return backend._contributors(work)
