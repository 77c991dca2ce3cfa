# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""Steps that survive (Manager(survive=True)): groups are processes of their own, one of which is killed in the middle of
a step. The others commit that very step, with what a simulation of the same contributors in one process gives; the group
that is started again takes part soon, with the same weights as all."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import unittest
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

import programs

try:
    import tutti_torch.ft.coordination  # noqa: F401
except ImportError:
    sys.exit(77)  # a build without it

from tutti_torch.ft import Manager, Optimizer, ProcessGroupTutti, PureDistributedDataParallel
from tutti_torch.ft.coordination import LighthouseServer
from tutti_torch.ft.local_sgd import DiLoCo, LocalSGD

GROUPS = 3
RATE = 0.05
TIMEOUT = timedelta(seconds=60)
KILLED = -signal.SIGKILL


def model_of() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()


def loss_of(model: Any, step: int, group: int) -> torch.Tensor:
    """On the samples of this group in this step."""
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(1000 * step + group)).double()
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def weights_of(model: torch.nn.Module) -> List[str]:
    return [value.hex() for parameter in model.parameters() for value in parameter.detach().reshape(-1).tolist()]


# ---- a group ----


class Group:
    """Of one rank."""

    def __init__(self, number: int, address: str, folder: str, least: int = 1, asynchronous: bool = True) -> None:
        torch.set_num_threads(1)
        self.number, self.folder = number, folder
        self.model = model_of()
        self.plain = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupTutti(), load_state_dict=self.load, survive=True, min_replica_size=least, timeout=TIMEOUT,
            state_dict=lambda: {"model": self.model.state_dict(), "optimizer": self.plain.state_dict()},
            use_async_quorum=asynchronous, rank=0, world_size=1, store_addr="127.0.0.1", store_port=self.store.port,
            lighthouse_addr=address, hostname="127.0.0.1", replica_id=f"group_{number}")
        self.calls: List[Any] = []
        made = self.manager._surviving.made
        self.manager._surviving.made = lambda work: (made(work), self.calls.append(work))

    def load(self, state: Dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.plain.load_state_dict(state["optimizer"])

    def contributors(self) -> List[List[int]]:
        """Of the calls of the step."""
        backend, calls, self.calls = self.manager._pg._backend, self.calls, []
        return [backend._contributors(call) for call in calls]

    def note(self, **what: Any) -> None:
        with open(os.path.join(self.folder, f"group_{self.number}"), "a") as file:
            file.write(json.dumps({"at": time.monotonic(), **what}) + "\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def trains(number: int, address: str, folder: str, steps: int, dies_at: int, least: int = 1) -> None:
    """Until it was in so many steps of all groups after the first `steps`. It dies in backward of step `dies_at`, when
    the calls on some gradients have begun."""
    group = Group(number, address, folder, least)
    manager, model = group.manager, group.model
    optimizer, parallel = Optimizer(manager, group.plain), PureDistributedDataParallel(manager, model)
    n_full = 0
    while manager.current_step() < steps or n_full < 4:
        step = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(parallel, step, number)
        if step == dies_at:
            list(model.parameters())[1].register_hook(lambda _: die())
        loss.backward()
        optimizer.step()
        n_full += step >= steps and manager.num_participants() == GROUPS
        group.note(step=manager.current_step() - 1, counts=manager.current_step() > step, loss=loss.item(), weights=weights_of(model),
                   n=manager.num_participants(), calls=group.contributors())
        time.sleep(0.02)
    manager.shutdown()


# ---- the tests ----


class Job:
    """Groups that were started, and what they noted."""

    def __init__(self, function: Callable, **lighthouse: int) -> None:
        self.function, self.folder = function, programs.server.new_folder()
        self.lighthouse = LighthouseServer(bind="127.0.0.1:0", **{
            "min_replicas": GROUPS, "join_timeout_ms": 200, "heartbeat_timeout_ms": 2000, **lighthouse})
        self.running: List[programs.Program] = []

    def start(self, number: int, *args: Any) -> programs.Program:
        program = programs.server.start(self.function, number, self.lighthouse.address(), self.folder, *args)
        self.running.append(program)
        return program

    def end(self) -> None:
        self.lighthouse.shutdown()

    def said(self) -> str:
        return "\n".join(f"{program.args[0]}: {program.output()}" for program in self.running)

    def notes(self, number: int) -> List[Dict[str, Any]]:
        with open(os.path.join(self.folder, f"group_{number}")) as file:
            return [json.loads(line) for line in file]


def simulate(steps: int, who: Callable[[int], List[List[int]]]) -> List[List[torch.Tensor]]:
    """The weights after each step, when to the i-th gradient of step s, from the last one on, who(s)[i] contribute."""
    model, after = model_of(), []
    for step in range(steps):
        of_groups = [torch.autograd.grad(loss_of(model, step, group), list(model.parameters()))
                     for group in range(GROUPS)]
        with torch.no_grad():
            for i, parameter in enumerate(model.parameters()):
                contributors = who(step)[len(of_groups[0]) - 1 - i]
                gradient = torch.stack([of_groups[group][i] for group in contributors]).mean(0)
                parameter.sub_(RATE * gradient)
        after.append([parameter.detach().clone() for parameter in model.parameters()])
    return after


def close(self: unittest.TestCase, weights: List[str], expected: List[torch.Tensor]) -> None:
    got = torch.tensor([float.fromhex(value) for value in weights], dtype=torch.float64)
    torch.testing.assert_close(got, torch.cat([e.reshape(-1) for e in expected]), rtol=1e-11, atol=1e-12)


class Survive(unittest.TestCase):
    def test_a_group_dies_in_backward_and_comes_back(self) -> None:
        job = Job(trains)
        self.addCleanup(job.end)
        dies_at, steps = 5, 12
        ranks = [job.start(number, steps, dies_at if number == 2 else -1) for number in range(GROUPS)]
        self.assertEqual(ranks[2].status(), KILLED, job.said())
        job.start(2, steps, -1)
        for program in job.running:
            self.assertEqual(program.status(), KILLED if program is ranks[2] else 0, job.said())
        first, second, back = job.notes(0), job.notes(1), job.notes(2)[dies_at:]
        self.assertTrue(all(note["counts"] for note in first + second), job.said())
        self.assertEqual([note["step"] for note in first], list(range(len(first))))
        for one, other in zip(first, second):
            self.assertEqual((one["weights"], one["calls"]), (other["weights"], other["calls"]))
        self.assertEqual([note["n"] for note in first[: dies_at + 1]], [1] + [GROUPS] * (dies_at - 1) + [GROUPS - 1])
        self.assertEqual(first[dies_at]["calls"][-1], [0, 1])
        for note in back:
            self.assertEqual(note["weights"], first[note["step"]]["weights"])

        def who(step: int) -> List[List[int]]:
            calls = first[step]["calls"]
            if step == 0:  # the others get the state of the first
                return [[0]] * len(calls)
            return calls if first[step]["n"] == GROUPS or step == dies_at else [[0, 1]] * len(calls)

        after = simulate(len(first), who)
        for note in first:
            close(self, note["weights"], after[note["step"]])


if __name__ == "__main__":
    programs.main(unittest.main)
