# SPDX-License-Identifier: BSD-3-Clause
"""Distributed checkpoints: every rank writes its parts of model and optimizer, and training resumes from them bit for
bit, also on another mesh, or in one process; and asynchronously, by a thread or a process, while training goes on."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from typing import Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh

import fsdp2
from example import Job, copies, main


@contextlib.contextmanager
def folder(job: Job) -> Iterator[str]:
    """A folder that all ranks see, until all are done with it."""
    path = [tempfile.mkdtemp(prefix="checkpoint-") if job.rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    try:
        yield path[0]
        dist.barrier()
    finally:
        if job.rank == 0:
            shutil.rmtree(path[0], ignore_errors=True)


class Training:
    """A model under FSDP2, and its optimizer."""

    def __init__(self, job: Job, **options):
        self.job, self.model = job, fsdp2.shard(**options)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def run(self, steps: range) -> None:
        for step in steps:
            fsdp2.loss_of(self.model, step, self.job.rank, self.job.world).backward()
            fsdp2.step_of(self.model, self.optimizer)

    def spoil(self) -> None:
        """So that what is loaded is seen to be loaded."""
        for parameter in self.model.parameters():
            nn.init.constant_(parameter, 7)

    def state(self) -> Dict:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load(self, path: str) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=path)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def whole(self) -> List[torch.Tensor]:
        return copies(p.full_tensor() for p in self.model.parameters())


def other_mesh(job: Job):
    """Replicas and parts, where the one that saved had parts only."""
    replicas = 2 if job.world % 2 == 0 else 1
    return init_device_mesh("cpu", (replicas, job.world // replicas), mesh_dim_names=("replicate", "shard"))


# ---- the cases ----
def resume(job: Job) -> None:
    """Train, save, train on; load into a new model, train on: the same, bit for bit, and what one process gets."""
    with folder(job) as path:
        first = Training(job)
        first.run(range(1))
        dcp.save(first.state(), checkpoint_id=path)
        first.run(range(1, fsdp2.STEPS))
        second = Training(job)
        second.spoil()
        second.load(path)
        second.run(range(1, fsdp2.STEPS))
        job.check("resumed", second.whole(), first.whole(), between=fsdp2.ROUNDING)
        job.check("resumed, and one process", second.whole(), fsdp2.alone(job.world), fsdp2.ROUNDING)


def reshard(job: Job) -> None:
    """What parts of one size saved, parts of another load; and so does a process that knows of no others."""
    with folder(job) as path:
        saved = Training(job)
        saved.run(range(2))
        dcp.save(saved.state(), checkpoint_id=path)
        other = Training(job, mesh=other_mesh(job))
        other.spoil()
        other.load(path)
        job.check("on another mesh", other.whole(), saved.whole(), between=fsdp2.ROUNDING)
        moments = [[o.state[p]["exp_avg"].full_tensor() for p in m.parameters()]
                   for m, o in ((t.model, t.optimizer) for t in (other, saved))]
        job.check("on another mesh: the optimizer", *moments, between=fsdp2.ROUNDING)
        single = fsdp2.net()
        state = {"model": {name: torch.zeros_like(p) for name, p in single.state_dict().items()}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it works alone, as it was told
            dcp.load(state, checkpoint_id=path, no_dist=True)
        single.load_state_dict(state["model"])
        job.check("in one process", single.parameters(), saved.whole(), between=fsdp2.ROUNDING)


def whole_state(job: Job) -> None:
    """Rank 0 gets all of it in plain tensors; from rank 0, all get their parts."""
    saved, other = Training(job), Training(job)
    saved.run(range(1))
    state = get_model_state_dict(saved.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(state) == (job.rank == 0), "only rank 0 holds it"
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other.model, state, options=options)
    job.check("from rank 0", other.whole(), saved.whole(), between=fsdp2.ROUNDING)


def save_meanwhile(job: Job, **options) -> Tuple[List[torch.Tensor], ...]:
    """Saves while training goes on. Returns what was saved, what should have been, and what training came to."""
    with folder(job) as path:
        training, other = Training(job), Training(job)
        training.run(range(1))
        want = training.whole()
        saving = dcp.async_save(training.state(), checkpoint_id=path, **options)
        training.run(range(1, fsdp2.STEPS))
        saving.result()
        other.load(path)
        return other.whole(), want, training.whole()


def by_thread(job: Job) -> None:
    """The thread's collectives have a group of their own: those of training go on beside them."""
    group = dist.new_group(backend=dist.get_backend())
    loaded, want, trained = save_meanwhile(job, process_group=group)
    job.check("saved by a thread", loaded, want, between=fsdp2.ROUNDING)
    job.check("trained meanwhile", trained, fsdp2.alone(job.world), fsdp2.ROUNDING)


def by_process(job: Job) -> None:
    """The process of each rank makes a world of its own, with gloo: which is tutti under TUTTI_TORCH_REPLACE=gloo."""
    loaded, want, _ = save_meanwhile(job, async_checkpointer_type=AsyncCheckpointerType.PROCESS)
    job.check("saved by a process", loaded, want, between=fsdp2.ROUNDING)


CASES = {
    "resume": resume,
    "reshard": reshard,
    "full state": whole_state,
    "async_save, thread": by_thread,
    "async_save, process": by_process,
}

if __name__ == "__main__":
    main(CASES)
