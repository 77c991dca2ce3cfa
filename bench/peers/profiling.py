# SPDX-License-Identifier: BSD-3-Clause
"""Where a training step on a GPU spends its time, from torch.profiler's events: computation, communication, how much of
that nothing hides, and when the GPU has nothing to do, since the host launches no faster."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Callable, Iterable

# Kernels of tutti and of NCCL.
COMMUNICATION = ("nccl", "tiles_", "sentinel", "lines_", "direct_", "mapped_", "meet", "gate", "messages_", "batch_")
COMMUNICATION += ("fold_",)


@dataclass(frozen=True)
class Event:
    """A kernel or a copy, or a call of the host; microseconds."""

    name: str
    begin: float
    end: float
    on_gpu: bool


@dataclass(frozen=True)
class Shares:
    """Microseconds of one step, but for the launches."""

    step: float
    computing: float
    communicating: float
    exposed: float  # communication beside which nothing is computed
    idle: float  # neither
    calls: float  # the host's time in the backend's calls
    launches: int


def is_communication(event: Event) -> bool:
    name = event.name.lower()
    return name.startswith(COMMUNICATION) or "nccldevkernel" in name


def union(events: Iterable[Event]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for event in sorted(events, key=lambda e: e.begin):
        if found and event.begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], event.end))
        else:
            found.append((event.begin, event.end))
    return found


def length(spans: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in spans)


def shares_of(events: list[Event], n_steps: int) -> Shares:
    gpu = [e for e in events if e.on_gpu]
    begin, end = min(e.begin for e in events), max(e.end for e in events)
    computing = length(union(e for e in gpu if not is_communication(e)))
    communicating = length(union(e for e in gpu if is_communication(e)))
    busy = length(union(gpu))
    calls = length(union(e for e in events if not e.on_gpu and e.name.startswith("c10d::")))
    times = (end - begin, computing, communicating, busy - computing, end - begin - busy, calls)
    return Shares(*(time / n_steps for time in times), len(gpu) // n_steps)


def events_of(profile) -> list[Event]:
    from torch.autograd import DeviceType

    found = []
    for e in profile.events():
        on_gpu = e.device_type == DeviceType.CUDA
        if on_gpu and getattr(e, "is_user_annotation", False):
            continue
        found.append(Event(e.name, e.time_range.start, e.time_range.end, on_gpu))
    return found


def profiled(clock, step: Callable[[], None], rank: int, path: str, n_steps: int = 3) -> dict:
    """The first rank's shares; path.RANK.json gets the trace."""
    from torch.profiler import ProfilerActivity, profile

    os.makedirs(os.path.dirname(path), exist_ok=True)
    clock.meet()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(n_steps):
            step()
        step.settle()
    found.export_chrome_trace(f"{path.replace(' ', '_').replace(',', '')}.{rank}.json")
    return asdict(shares_of(events_of(found), n_steps))
