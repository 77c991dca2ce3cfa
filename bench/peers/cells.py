# SPDX-License-Identifier: BSD-3-Clause
"""Times of collectives: blocks of back-to-back calls, all peers in turn in every block and in another order each time,
so that what else the machine does falls on all alike. A block's time is that of its slowest rank."""

from __future__ import annotations

import time
from statistics import median
from typing import Callable

import torch
import torch.distributed as dist

from .backends import Case

BLOCKS_LEAST, BLOCKS_MOST = 3, 25
CALLS_MOST = 500


class Clock:
    """Agreement of the ranks on numbers, over a group that is not measured."""

    def __init__(self) -> None:
        self.group = dist.new_group(backend="gloo")

    def most(self, numbers: list[float]) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return tensor.tolist()

    def meet(self) -> None:
        dist.barrier(group=self.group)


def seconds_of(call: Callable[[], object], n: int) -> float:
    """What a call leaves to a device is waited for, once at the end, if it has something to wait with."""
    start = time.perf_counter()
    for _ in range(n):
        call()
    getattr(call, "settle", lambda: None)()
    return time.perf_counter() - start


def calls_in(seconds: float, one: float) -> int:
    return max(1, min(CALLS_MOST, int(seconds / max(one, 1e-9))))


def attempt(clock: Clock, case: Case, peer) -> tuple[Callable[[], object] | None, str]:
    """The call, after it was seen to give the right result on all ranks; else None and the reason."""
    reason = ""
    call = None
    case.fill()
    clock.meet()
    try:
        call = peer.call(case)
        call()
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if clock.most([float(bool(reason))])[0]:
        return None, reason or "another rank could not"
    case.verify()
    return call, ""


def estimate(clock: Clock, calls: dict[str, Callable[[], object]], block: float) -> dict[str, float]:
    """Seconds of one call each: of one, and where that is short of as many as take a while."""
    estimates = dict.fromkeys(calls, block)
    for n in (lambda e: 1, lambda e: calls_in(block / 4, e)):
        counts = {name: n(e) for name, e in estimates.items()}
        for name, call in calls.items():
            clock.meet()
            estimates[name] = seconds_of(call, counts[name]) / counts[name]
        estimates = dict(zip(calls, clock.most(list(estimates.values()))))
        if max(estimates.values()) > block:
            break
    return estimates


def interleave(clock: Clock, calls: dict[str, Callable[[], object]], seconds: float, block: float) -> dict[str, dict]:
    """Measures the calls, which have run before, in turn for about so many seconds, in blocks of about `block`."""
    estimates = estimate(clock, calls, block)
    counts = {name: calls_in(block, e) for name, e in estimates.items()}
    once = sum(counts[name] * e for name, e in estimates.items())
    least = BLOCKS_LEAST if BLOCKS_LEAST * once <= 2 * seconds else 1
    n_blocks = max(least, min(BLOCKS_MOST, int(seconds / once)))
    names, times = list(calls), {name: [] for name in calls}
    for turn in range(n_blocks):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            clock.meet()
            times[name].append(seconds_of(calls[name], counts[name]) / counts[name])
    return {name: summary(clock.most(times[name]), counts[name]) for name in names}


def summary(times: list[float], calls: int) -> dict:
    return {"median_us": median(times) * 1e6, "min_us": min(times) * 1e6, "blocks": len(times), "calls": calls}


def measure_cell(clock: Clock, peers: list, case: Case, seconds: float, block: float) -> dict:
    """{peer: times or reason}; a peer that can not run the call has a reason."""
    calls, reasons = {}, {}
    for peer in peers:
        call, reason = attempt(clock, case, peer)
        if call:
            calls[peer.name] = call
        else:
            reasons[peer.name] = {"reason": reason}
    case.a.zero_()  # sums in place stay finite
    return {**interleave(clock, calls, seconds, block), **reasons} if calls else reasons
