# SPDX-License-Identifier: BSD-3-Clause
"""States over the process group itself, as messages: the same stream as over HTTP, in order. No pickle."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Deque, List, Optional, Tuple, TypeVar, Union

import torch
import torch.distributed as dist

from ..utils import is_dtensor
from .plain import NotPlain, check_plain
from .stream import PIECE, PREFIX, DamagedError, Incoming, Snapshot, parse_header
from .transport import CheckpointTransport

T = TypeVar("T")
logger = logging.getLogger(__name__)

TAG_SIZES, TAG_HEADER, TAG_PAYLOAD, TAG_CRC, TAG_DONE = 1, 2, 3, 4, 5
REFUSED = -1  # bytes of the payload: there is none, and the header is a sentence
REASON_MAX = 1 << 14
AHEAD = 4  # pieces that are received while one is looked at


class PGTransport(CheckpointTransport[T]):
    """`device`: where a received state is put; bytes travel from and to the host's memory. `state_dict`: returns the
    state into whose tensors a received one is written where they fit. `background`: sending goes on while
    send_checkpoint has returned, so that a manager's step does not wait for it."""

    def __init__(
        self,
        pg: dist.ProcessGroup,
        timeout: timedelta,
        device: Union[torch.device, str],
        state_dict: Optional[Callable[[], T]] = None,
        allow_pickle: bool = False,
        background: bool = False,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> None:
        self._pg, self._timeout, self._device = pg, timeout, torch.device(device)
        self._state_dict, self._allow_pickle, self._progress = state_dict, allow_pickle, progress
        self.background = background
        self._sending: Optional[threading.Thread] = None
        self._spare: Optional[torch.Tensor] = None  # memory of a snapshot that was sent
        self._out_of_step: Optional[Tuple[object, Exception]] = None  # among which members, and why

    @property
    def in_place(self) -> bool:
        return self._state_dict is not None

    def metadata(self) -> str:
        return "<n/a>"

    def check_state(self, state_dict: T) -> None:
        check_plain(state_dict, self._allow_pickle)

    def refuse(self, dst_ranks: List[int], step: int, why: str) -> None:
        text = torch.frombuffer(bytearray(why.encode()[:REASON_MAX]), dtype=torch.uint8)
        sizes = torch.tensor([step, text.numel(), REFUSED], dtype=torch.int64)
        deadline = time.monotonic() + self._seconds(None)
        works = [self._pg.send([part], rank, tag) for rank in dst_ranks
                 for part, tag in ((sizes, TAG_SIZES), (text, TAG_HEADER))]
        for work in works:
            wait(work, deadline)

    # ---- sending ----

    def send_checkpoint(
        self, dst_ranks: List[int], step: int, state_dict: T, timeout: Optional[timedelta] = None
    ) -> None:
        deadline = time.monotonic() + self._seconds(timeout)
        self._finish_sending()
        self._check_in_step()
        memory, self._spare = self._spare, None
        snapshot = Snapshot(state_dict, self._allow_pickle, memory, step, crcs_beside=True)
        if not self.background:
            return self._send(dst_ranks, step, snapshot, deadline)
        self._sending = threading.Thread(target=self._send_quietly, args=(dst_ranks, step, snapshot, deadline),
                                         name="tutti_ft_send", daemon=True)
        self._sending.start()

    def _seconds(self, timeout: Optional[timedelta]) -> float:
        """None: the transport's; 0: until the group's own deadline."""
        given = self._timeout if timeout is None else timeout
        return given.total_seconds() or math.inf

    def _members(self) -> object:
        """Another object after each reconfiguration."""
        return getattr(self._pg, "_pg", self._pg)

    def _check_in_step(self) -> None:
        """A message of a transfer that failed may still be on its way, and would be taken for the next one's."""
        if self._out_of_step is not None and self._out_of_step[0] is self._members():
            raise RuntimeError("the group's messages are out of step until it is reconfigured: a transfer failed: "
                               f"{self._out_of_step[1]}") from self._out_of_step[1]

    def _finish_sending(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.join()

    def _send_quietly(self, *args: Any) -> None:
        try:
            self._send(*args)
        except Exception as error:  # the receiver's is one, too, and it tries again
            logger.warning("the state was not sent: %s", error)

    def _send(self, dst_ranks: List[int], step: int, snapshot: Snapshot, deadline: float) -> None:
        members = self._members()
        try:
            self._send_parts(dst_ranks, step, snapshot, deadline)
            self._spare = snapshot.payload
        except Exception as error:
            self._out_of_step = (members, error)
            raise

    def _send_parts(self, dst_ranks: List[int], step: int, snapshot: Snapshot, deadline: float) -> None:
        begun = time.monotonic()
        header = torch.frombuffer(bytearray(snapshot.header), dtype=torch.uint8)
        sizes = torch.tensor([step, header.numel(), snapshot.payload.numel()], dtype=torch.int64)
        works: Deque[Any] = deque()

        def send(part: torch.Tensor, tag: int) -> None:  # to all receivers side by side
            works.extend(self._pg.send([part], rank, tag) for rank in dst_ranks)
            while len(works) > 2 * AHEAD * len(dst_ranks):
                wait(works.popleft(), deadline)

        send(sizes, TAG_SIZES)
        send(header, TAG_HEADER)
        for number, piece in enumerate(snapshot.pieces()):
            send(piece, TAG_PAYLOAD)
            send(torch.tensor([snapshot.crc(number)]), TAG_CRC)  # while the piece is on its way
        done = [torch.zeros(1, dtype=torch.int64) for _ in dst_ranks]  # a small message is sent before it has arrived
        works.extend(self._pg.recv([word], rank, TAG_DONE) for word, rank in zip(done, dst_ranks))
        for work in works:
            wait(work, deadline)
        logger.info("sent %d MiB of step %d to %s in %.2f s", snapshot.payload.numel() >> 20, step, dst_ranks,
                    time.monotonic() - begun)

    # ---- receiving ----

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: Optional[timedelta] = None) -> T:
        self._check_in_step()
        members = self._members()
        try:
            return self._placed(self._receive_state(src_rank, step, time.monotonic() + self._seconds(timeout)))
        except Exception as error:
            self._out_of_step = (members, error)
            raise

    def _receive_state(self, src_rank: int, step: int, deadline: float) -> Any:
        begun = time.monotonic()
        sizes = torch.zeros(3, dtype=torch.int64)
        wait(self._pg.recv([sizes], src_rank, TAG_SIZES), deadline)
        got, n_header, n_payload = sizes.tolist()
        if n_payload == REFUSED and 0 < n_header <= REASON_MAX:
            text = torch.empty(n_header, dtype=torch.uint8)
            wait(self._pg.recv([text], src_rank, TAG_HEADER), deadline)
            raise NotPlain("the state of the group that this one is to catch up with can not travel: "
                           + text.numpy().tobytes().decode(errors="replace"))
        if got != step:
            raise RuntimeError(f"rank {src_rank} sends the state of step {got}, not {step}")
        if not PREFIX.size <= n_header < 1 << 31:
            raise DamagedError(f"rank {src_rank} announces a header of {n_header} bytes")
        header = torch.empty(n_header, dtype=torch.uint8)
        wait(self._pg.recv([header], src_rank, TAG_HEADER), deadline)
        header_bytes = header.numpy().tobytes()
        if parse_header(header_bytes)[0] != n_payload:
            raise DamagedError(f"rank {src_rank} announces {n_payload} bytes, and its header another number")
        incoming = Incoming(header_bytes, self._allow_pickle, self._state_dict and self._state_dict(),
                            crcs_beside=True)
        if incoming.step != step:
            raise DamagedError(f"rank {src_rank} sends a state of step {incoming.step}, not {step}")
        self._receive(incoming, src_rank, deadline)
        wait(self._pg.send([torch.tensor([step])], src_rank, TAG_DONE), deadline)
        took = time.monotonic() - begun
        logger.info("got %d MiB of step %d in %.2f s (%.2f GB/s)", n_payload >> 20, step, took,
                    n_payload / took / 1e9)
        return incoming.state()

    def _receive(self, incoming: Incoming, src_rank: int, deadline: float) -> None:
        flying: Deque[Tuple[int, torch.Tensor, bool, torch.Tensor, List[Any]]] = deque()

        def finish(number: int, data: torch.Tensor, elsewhere: bool, crc: torch.Tensor, works: List[Any]) -> None:
            for work in works:
                wait(work, deadline)
            incoming.check(number, data, int(crc))
            if elsewhere:
                incoming.store(number, data)
            if self._progress is not None:
                self._progress(incoming.range_of(number)[1], incoming.n_bytes)

        for piece in range(incoming.n_pieces):
            own = incoming.memory_of(piece)
            first, end = incoming.range_of(piece)
            data = torch.empty(end - first, dtype=torch.uint8) if own is None else own
            crc = torch.zeros(1, dtype=torch.int64)
            works = [self._pg.recv([data], src_rank, TAG_PAYLOAD), self._pg.recv([crc], src_rank, TAG_CRC)]
            flying.append((piece, data, own is None, crc, works))
            if len(flying) > AHEAD:
                finish(*flying.popleft())
        while flying:
            finish(*flying.popleft())

    def _placed(self, state: Any) -> Any:
        if self._device.type == "cpu" or self._state_dict is not None:
            return state

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if is_dtensor(tensor) else tensor.to(self._device)

        return torch.utils._pytree.tree_map_only(torch.Tensor, moved, state)

    def shutdown(self, wait: bool = True) -> None:
        if wait:
            self._finish_sending()


def wait(work: Any, deadline: float) -> None:
    """At the latest until the deadline."""
    rest = deadline - time.monotonic()
    if rest == math.inf:
        work.wait()
        return
    if rest <= 0:
        raise TimeoutError("timed out: the state was not transferred in time")
    work.wait(timedelta(seconds=rest))
