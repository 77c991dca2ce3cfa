# SPDX-License-Identifier: BSD-3-Clause
"""What all examples of this folder share: the start under a launcher, and the comparison of what the ranks got together
with what one process computes alone. An example is a file with a table CASES of functions that take a Job; each runs by
itself under `tutti run -n 2 -- python examples/torch/ddp.py` (or torchrun), and the tests run them all, on tutti and on
gloo, and compare the two. TUTTI_EXAMPLE_BACKEND names another backend than tutti; empty, it names none."""

from __future__ import annotations

import os
import warnings
from typing import Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch
import torch.distributed as dist

# Newer versions of PyTorch would rather have names that older ones do not know.
warnings.filterwarnings("ignore", "`torch.distributed.*` is deprecated", FutureWarning)

Tensors = Union[torch.Tensor, Iterable[torch.Tensor]]


class Job:
    """One rank's place among the others, and the list of what was compared."""

    def __init__(self, rank: int, world: int, show: bool = False):
        self.rank, self.world, self.show = rank, world, show
        self.results: Dict[str, List[torch.Tensor]] = {}
        self.tolerances: Dict[str, float] = {}  # between backends, where the order of additions differs

    def check(
        self, name: str, got: Tensors, want: Tensors, tolerance: float = 0.0, between: Optional[float] = None
    ) -> None:
        """Raises unless what the ranks got is what one process wants: bit for bit, or within a tolerance that is
        relative to the greatest value wanted of each tensor (where that is below 1, absolute). `between` is the
        tolerance between two backends, if that is another."""
        got, want = copies(got), copies(want)
        assert len(got) == len(want) > 0, f"{name}: {len(got)} tensors, {len(want)} wanted"
        worst = max(distance(*pair) for pair in zip(got, want))
        if not worst <= tolerance:  # so that NaN fails
            raise AssertionError(f"{name}: rank {self.rank} is off by {worst:.3g}, allowed is {tolerance:.3g}")
        self.record(name, got, tolerance if between is None else between)
        if self.show and self.rank == 0:
            how = "bit for bit" if worst == 0 else f"within {worst:.1e} (allowed: {tolerance:.0e})"
            print(f"  {name}: {len(got)} tensor{'s' * (len(got) > 1)} as wanted, {how}", flush=True)

    def record(self, name: str, got: Tensors, tolerance: float = 0.0) -> None:
        """Keeps what one process can not compute alone, to be compared between backends."""
        assert name not in self.results, f"{name} was there before"
        self.results[name], self.tolerances[name] = copies(got), tolerance


def copies(tensors: Tensors) -> List[torch.Tensor]:
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    return [tensor.detach().clone() for tensor in tensors]


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """0 only if equal in type, shape and every bit that matters; otherwise the greatest difference, in units of the
    greatest value wanted (or of 1)."""
    kinds = [f"{t.dtype} {tuple(t.shape)}" for t in (got, want)]
    assert kinds[0] == kinds[1], f"{kinds[0]}, not {kinds[1]}"
    if torch.equal(got, want):
        return 0.0
    got, want = got.double(), want.double()
    return float((got - want).abs().max() / want.abs().max().clamp(min=1))


def random(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers that depend on nothing but the seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def share(whole: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """This rank's rows of a global batch."""
    return whole.chunk(world)[rank]


def start() -> Tuple[int, int]:
    """Joins the other ranks of the launcher; without a launcher, a world of one."""
    backend = os.environ.get("TUTTI_EXAMPLE_BACKEND", "tutti")
    if backend == "tutti":
        try:
            import tutti_torch  # noqa: F401  (registers the backend)
        except ModuleNotFoundError:
            raise SystemExit("there is no package tutti_torch: `pip install .` in the clone, or ./dev setup --torch")
    alone = "RANK" not in os.environ
    place = dict(store=dist.HashStore(), rank=0, world_size=1) if alone else {}
    dist.init_process_group(backend or None, **place)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    return rank, world


def main(cases: Dict[str, Callable[[Job], None]]) -> None:
    """Runs the cases one after another, each from the same seed."""
    rank, world = start()
    if rank == 0:
        name = dist.group.WORLD._get_backend(torch.device("cpu")).name()
        print(f"{world} ranks, backend {dist.get_backend()}, which is {name}", flush=True)
    for name, case in cases.items():
        if rank == 0:
            print(f"{name}:", flush=True)
        torch.manual_seed(1)
        case(Job(rank, world, show=True))
    dist.barrier()
    dist.destroy_process_group()
