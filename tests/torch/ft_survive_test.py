# SPDX-License-Identifier: BSD-3-Clause
# timeout: 600
# short: Survive.test_a_group_dies_in_backward_and_comes_back Survive.test_a_batch_stays_whole Survive.test_local_sgd
# short: Survive.test_a_rank_of_a_sharded_group_dies
"""Steps that survive (Manager(survive=True)): groups are processes of their own, one of which is killed in the middle
of a step. The others commit that very step, with what a simulation of the same contributors in one process gives; the
group that is started again takes part soon, with the same weights as all."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import unittest
from datetime import timedelta
from typing import Any, Callable, Dict, List
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import programs
import ranks

try:
    import tutti_torch.ft.coordination  # noqa: F401
except ImportError:
    sys.exit(77)  # a build without it

from tutti_torch.ft import DistributedDataParallel, GlobalBatch, Manager, Optimizer, ProcessGroupTutti
from tutti_torch.ft import PureDistributedDataParallel, WorldSizeMode, hsdp
from tutti_torch.ft.checkpointing.pg_transport import PGTransport
from tutti_torch.ft.coordination import LighthouseServer
from tutti_torch.ft.local_sgd import DiLoCo, LocalSGD
from tutti_torch.ft.surviving_steps import SurvivingSteps

GROUPS = 3
RATE = 0.05
BATCH = 14  # not a multiple of the groups
TIMEOUT = timedelta(seconds=60)
KILLED = -signal.SIGKILL


def model_of() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()


def samples(step: int, n: int, group: int = 0) -> torch.Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(1000 * step + group)).double()


def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x.sum(1, keepdim=True)).square().sum() / 8


def values_of(tensors: Any) -> List[str]:
    return [value.hex() for tensor in tensors for value in tensor.detach().reshape(-1).tolist()]


# ---- a group ----


class Group:
    """Has one rank, unless told otherwise."""

    def __init__(self, number: int, address: str, folder: str, **options: Any) -> None:
        torch.set_num_threads(1)
        self.number, self.folder = number, folder
        self.model = model_of()
        self.plain = torch.optim.SGD(self.model.parameters(), lr=RATE)
        if "store_port" not in options:
            self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            options["store_port"] = self.store.port
        self.manager = Manager(**{
            "pg": ProcessGroupTutti(), "load_state_dict": self.load, "survive": True, "min_replica_size": 1,
            "state_dict": lambda: {"model": self.model.state_dict(), "optimizer": self.plain.state_dict()},
            "timeout": TIMEOUT, "rank": 0, "world_size": 1, "store_addr": "127.0.0.1", "lighthouse_addr": address,
            "hostname": "127.0.0.1", "replica_id": f"group_{number}", **options})
        self.calls: List[Any] = []
        made = self.manager._surviving.made
        self.manager._surviving.made = lambda work: (made(work), self.calls.append(work))

    def load(self, state: Dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.plain.load_state_dict(state["optimizer"])

    def contributors(self) -> List[List[int]]:
        """To each call of the step."""
        backend, calls, self.calls = self.manager._pg._backend, self.calls, []
        return [backend._contributors(call) for call in calls]

    def note(self, before: int, **what: Any) -> None:
        """On a step that began with so many committed. The step is the newest one: this group may have caught up."""
        step, n = self.manager.current_step(), self.manager.num_participants()
        with open(os.path.join(self.folder, f"group_{self.number}"), "a") as file:
            file.write(json.dumps({"step": step - 1, "counts": step > before, "n": n, **what}) + "\n")


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def gate(folder: str) -> str:
    return os.path.join(folder, "may_die")


def trains(number: int, address: str, folder: str, dies: bool, n_last: int, least: int = 1) -> None:
    """Until n_last groups were in 4 steps that counted after one in which a group was missing. It dies in backward,
    when the calls on some gradients have begun, in a step after the fourth, when the test allows it."""
    group = Group(number, address, folder, min_replica_size=least)
    manager, model = group.manager, group.model
    optimizer, parallel = Optimizer(manager, group.plain), PureDistributedDataParallel(manager, model)
    n_steps, was_missing = 0, False
    while n_steps < 4:
        step = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(parallel, samples(step, 8, number))
        if dies and step > 4 and os.path.exists(gate(folder)):
            group.note(step, dies=True)
            list(model.parameters())[1].register_hook(die)
        loss.backward()
        optimizer.step()
        counts, n = manager.current_step() > step, manager.num_participants()
        was_missing |= manager.current_step() > 1 and n < GROUPS
        n_steps += was_missing and counts and n == n_last
        group.note(step, weights=values_of(model.parameters()), calls=group.contributors())
        time.sleep(0.02)
    manager.shutdown()


def has_spares(number: int, address: str, folder: str) -> None:
    """Two groups contribute, one is ready to take a place. The first one dies in the sixth step."""
    group = Group(number, address, folder, min_replica_size=2, world_size_mode=WorldSizeMode.FIXED_WITH_SPARES)
    manager, model = group.manager, group.model
    optimizer, parallel = Optimizer(manager, group.plain), PureDistributedDataParallel(manager, model)
    while manager.current_step() < 9:
        step = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(parallel, samples(step, 8, number))
        if number == 0 and step == 5:
            list(model.parameters())[1].register_hook(die)
        loss.backward()
        optimizer.step()
        group.note(step, weights=values_of(model.parameters()), gives=manager.is_participating())
    manager.shutdown()


def shares_a_batch(number: int, address: str, folder: str, dies_at: int) -> None:
    group = Group(number, address, folder)
    manager, model = group.manager, group.model
    optimizer, parallel = Optimizer(manager, group.plain), DistributedDataParallel(manager, model, bucket_cap_mb=0.0005)
    batch = GlobalBatch(manager, model, BATCH)
    while manager.current_step() < dies_at + 3:
        step = manager.current_step()
        optimizer.zero_grad()
        taken = []
        for rows in batch:
            taken.append(rows.tolist())
            loss = loss_of(parallel, samples(step, BATCH)[rows])
            if number == GROUPS - 1 and step == dies_at:
                list(model.parameters())[1].register_hook(die)
            loss.backward()
        optimizer.step()
        group.note(step, weights=values_of(model.parameters()), taken=taken)
    manager.shutdown()


def syncs(number: int, address: str, folder: str, outer: bool) -> None:
    """Every second step; in the fourth sync the last group dies between two calls."""
    group = Group(number, address, folder, use_async_quorum=not outer)
    manager, model = group.manager, group.model
    if outer:
        wrapper: Any = DiLoCo(manager, [model], group.plain, torch.optim.SGD(model.parameters(), lr=1.0), sync_every=2)
    else:
        wrapper = LocalSGD(manager, model, group.plain, sync_every=2)
    allreduce = manager.allreduce

    def call(tensor: torch.Tensor, *given: Any, **options: Any) -> Any:
        if number == GROUPS - 1 and manager.current_step() == 3 and len(group.calls) == 1:
            group.note(3, local=local[:])
            die()
        return allreduce(tensor, *given, **options)

    manager.allreduce = call
    local: List[str] = []
    group.plain.register_step_post_hook(lambda *_: local.__setitem__(slice(None), values_of(model.parameters())))
    with wrapper:  # its hooks come after that one
        for step in range(12):
            before = manager.current_step()
            group.plain.zero_grad()
            loss_of(model, samples(step, 8, number)).backward()
            group.plain.step()
            if step % 2:
                group.note(before, local=local[:], weights=values_of(model.parameters()), calls=group.contributors())
    manager.shutdown()


def shards(number: int, address: str, folder: str, rank: int) -> None:
    """A rank of a group of two. In the fourth step rank 1 of the last group dies."""
    path = os.path.join(folder, f"port_{number}")
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        with open(path + ".new", "w") as file:
            file.write(str(store.port))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    port = int(open(path).read())
    meeting = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("tutti", store=dist.PrefixStore("world", meeting), rank=rank, world_size=2)
    group = Group(number, address, os.path.join(folder, str(rank)), rank=rank, world_size=2, store_port=port)
    manager, model = group.manager, group.model
    mesh = hsdp.ft_init_device_mesh("cpu", (2,), ("shard",))
    fully_shard(model, mesh=mesh)
    hsdp.replicate(model, manager)
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=RATE))
    while manager.current_step() < 7:
        step = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(model, samples(step, 8, number))
        if number == 1 and rank == 1 and step == 3:
            die()
        loss.backward()
        optimizer.step()
        whole = [parameter.full_tensor() for parameter in model.parameters()]
        group.note(step, calls=group.contributors(), weights=values_of(whole))
    manager.shutdown()


def fails(number: int, address: str, folder: str) -> None:
    """Group 1 gives up in the forward pass of step 4; group 0 finds a NaN after backward of step 8."""
    group = Group(number, address, folder)
    manager, model = group.manager, group.model
    optimizer, parallel = Optimizer(manager, group.plain), PureDistributedDataParallel(manager, model)
    n_steps, was_missing, told = 0, False, False
    while n_steps < 6:
        step = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(parallel, samples(step, 8, number))
        gives_up = number == 1 and step == 4 and not was_missing
        if gives_up:
            manager.report_error(ValueError("the forward pass failed"))
        else:
            loss.backward()
        if number == 0 and was_missing and n_steps == 3 and not told:
            told = True
            manager.report_error(ValueError("a gradient is not a number"))
        optimizer.step()
        counts, n = manager.current_step() > step, manager.num_participants()
        was_missing |= gives_up or (manager.current_step() > 1 and n < GROUPS)
        n_steps += was_missing and counts and n == GROUPS
        group.note(step, weights=values_of(model.parameters()))
        time.sleep(0.02)
    manager.shutdown()


# ---- the tests ----


class Job:
    """Groups that were started, and what they noted."""

    def __init__(self, function: Callable, groups: int = GROUPS) -> None:
        self.function, self.folder = function, programs.server.new_folder()
        self.lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=groups, join_timeout_ms=200,
                                           heartbeat_timeout_ms=2000)
        self.running: List[programs.Program] = []

    def start(self, number: int, *args: Any) -> programs.Program:
        program = programs.server.start(self.function, number, self.lighthouse.address(), self.folder, *args)
        self.running.append(program)
        return program

    def end(self) -> None:
        self.lighthouse.shutdown()

    def allow(self, after: int = 6) -> None:
        """Its victim may die, after so many steps."""
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.folder, "group_0")) or len(self.notes(0)) < after:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        open(gate(self.folder), "w").close()

    def said(self) -> str:
        return "\n".join(f"{program.args[0]}: {program.output()}" for program in self.running
                         if os.path.exists(program.output_file))

    def notes(self, number: int, folder: str = "") -> List[Dict[str, Any]]:
        with open(os.path.join(self.folder, folder, f"group_{number}")) as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]


def gradients(model: Any, x: torch.Tensor) -> List[torch.Tensor]:
    return list(torch.autograd.grad(loss_of(model, x), list(model.parameters())))


def simulate(steps: int, who: Callable[[int], List[List[int]]]) -> List[List[torch.Tensor]]:
    """The weights after each step, when to the i-th gradient of step s, from the last one on, who(s)[i] contribute."""
    model, after = model_of(), []
    for step in range(steps):
        of_groups = [gradients(model, samples(step, 8, group)) for group in range(GROUPS)]
        with torch.no_grad():
            for i, parameter in enumerate(model.parameters()):
                contributors = who(step)[len(of_groups[0]) - 1 - i]
                parameter.sub_(RATE * torch.stack([of_groups[group][i] for group in contributors]).mean(0))
        after.append([parameter.detach().clone() for parameter in model.parameters()])
    return after


def tensor_of(values: List[str]) -> torch.Tensor:
    return torch.tensor([float.fromhex(value) for value in values], dtype=torch.float64)


def close(values: List[str], expected: torch.Tensor) -> None:
    torch.testing.assert_close(tensor_of(values), expected, rtol=1e-11, atol=1e-12)


class Survive(unittest.TestCase):
    def job(self, *given: Any) -> Job:
        job = Job(*given)
        self.addCleanup(job.end)
        return job

    def finish(self, job: Job, *killed: programs.Program) -> None:
        for program in job.running:
            self.assertEqual(program.status(120), KILLED if program in killed else 0, job.said())

    def test_a_group_dies_in_backward_and_comes_back(self) -> None:
        job = self.job(trains)
        groups = [job.start(number, number == 2, GROUPS) for number in range(GROUPS)]
        job.allow()
        self.assertEqual(groups[2].status(), KILLED, job.said())
        died_at = job.notes(2)[-1]["step"] + 1  # during this step
        n_before = len(job.notes(2))
        job.start(2, False, GROUPS)
        self.finish(job, groups[2])
        first, second, back = job.notes(0), job.notes(1), job.notes(2)[n_before:]
        self.assertTrue(all(note["counts"] for note in first + second), job.said())
        self.assertEqual([note["step"] for note in first], list(range(len(first))))
        self.assertEqual(first, second)
        self.assertEqual([note["n"] for note in first[: died_at + 1]],
                         [1] + [GROUPS] * (died_at - 1) + [GROUPS - 1])  # at first, all get the state of one
        self.assertEqual(first[died_at]["calls"][-1], [0, 1])
        for note in back:
            self.assertEqual(note["weights"], first[note["step"]]["weights"])

        def who(step: int) -> List[List[int]]:
            calls, n = first[step]["calls"], first[step]["n"]
            return calls if n == GROUPS or step == died_at else [list(range(n))] * len(calls)

        for note, after in zip(first, simulate(len(first), who)):
            close(note["weights"], torch.cat([tensor.reshape(-1) for tensor in after]))

    def test_the_lighthouse_is_away(self) -> None:
        job = self.job(trains)
        groups = [job.start(number, number == 1, GROUPS - 1) for number in range(GROUPS)]
        job.allow(4)
        job.lighthouse.shutdown()
        self.finish(job, groups[1])
        self.assertTrue(all(note["counts"] for note in job.notes(0) + job.notes(2)), job.said())
        self.assertEqual(job.notes(0), job.notes(2))

    def test_fewer_than_enough_wait(self) -> None:
        job = self.job(trains)
        groups = [job.start(number, number == 0, GROUPS, GROUPS) for number in range(GROUPS)]
        while not os.path.exists(os.path.join(job.folder, "group_0")):
            time.sleep(0.02)
        job.allow()
        self.assertEqual(groups[0].status(), KILLED, job.said())
        job.start(0, False, GROUPS, GROUPS)
        self.finish(job, groups[0])
        for number in (1, 2):
            self.assertTrue(any(not note["counts"] and note["n"] == GROUPS - 1 for note in job.notes(number)))
            self.assertIn("groups left: 2, of at least 3; no step counts until others have come",
                          groups[number].output())
        self.assertEqual(job.notes(1), job.notes(2))

    def test_a_spare_takes_the_place(self) -> None:
        job = self.job(has_spares)
        groups = [job.start(number) for number in range(GROUPS)]
        self.finish(job, groups[0])
        one, spare = job.notes(1)[1:], job.notes(2)[1:]  # in the first step all get the state of one
        self.assertTrue(all(note["counts"] for note in one + spare), job.said())
        self.assertEqual([note["n"] for note in one], [2, 2, 2, 2, 2, 1, 2, 2, 2])
        self.assertEqual([note["gives"] for note in spare], [False] * 6 + [True] * 3)
        self.assertEqual([note["weights"] for note in one], [note["weights"] for note in spare])

    def test_a_batch_stays_whole(self) -> None:
        """The step with the loss, and those after it, to the bit as with two groups that took all from the start."""
        job, dies_at = self.job(shares_a_batch), 4
        groups = [job.start(number, dies_at) for number in range(GROUPS)]
        self.finish(job, groups[2])
        notes = job.notes(0), job.notes(1)
        self.assertEqual([note["weights"] for note in notes[0]], [note["weights"] for note in notes[1]])
        for step in (dies_at, dies_at + 1):
            taken = [rows for note in (notes[0][step], notes[1][step]) for part in note["taken"] for rows in part]
            self.assertEqual(sorted(taken), list(range(BATCH)), f"step {step}")
        self.assertEqual([len(notes[0][step]["taken"]) for step in (dies_at, dies_at + 1)], [2, 1])
        model, at = model_of(), 0
        values = tensor_of(notes[0][dies_at - 1]["weights"])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(values[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()
        for step in range(dies_at, dies_at + 3):
            x, sums = samples(step, BATCH), []
            for of_group in notes:
                rounds = [gradients(model, x[rows]) for rows in of_group[step]["taken"]]
                sums.append([sum(parts[1:], parts[0]) for parts in zip(*rounds)])
            with torch.no_grad():
                for parameter, one, other in zip(model.parameters(), *sums):
                    parameter.add_(one + other, alpha=-RATE)
            self.assertEqual(notes[0][step]["weights"], values_of(model.parameters()), f"step {step}")

    def check_syncs(self, outer: bool) -> None:
        job = self.job(syncs)
        groups = [job.start(number, outer) for number in range(GROUPS)]
        self.finish(job, groups[2])
        notes = job.notes(0), job.notes(1)
        self.assertTrue(all(note["counts"] for note in notes[0] + notes[1]), job.said())
        self.assertEqual([note["weights"] for note in notes[0]], [note["weights"] for note in notes[1]])
        self.assertEqual(notes[0][3]["calls"][-1], [0, 1])
        sizes = [parameter.numel() for parameter in model_of().parameters()]
        for sync, note in enumerate(notes[0][1:], 1):  # in the first one all get the state of one
            of_groups = [group[sync] for group in (*notes, job.notes(2)) if sync < len(group)]
            parts = [tensor_of(one["local"]).split(sizes) for one in of_groups]
            means = [torch.stack([parts[group][i] for group in note["calls"][i]]).mean(0) for i in range(len(sizes))]
            close(note["weights"], torch.cat(means))

    def test_local_sgd(self) -> None:
        self.check_syncs(outer=False)

    def test_diloco(self) -> None:
        self.check_syncs(outer=True)

    def test_a_rank_of_a_sharded_group_dies(self) -> None:
        """Its group is lost as a whole; the ranks of the other one finish the step."""
        job = self.job(shards, 2)
        for rank in range(2):
            os.mkdir(os.path.join(job.folder, str(rank)))
        started = [job.start(number, rank) for number in range(2) for rank in range(2)]
        for number, code in ((0, 0), (1, 0), (2, 1), (3, KILLED)):
            self.assertEqual(started[number].status(120), code, job.said())
        for rank in range(2):
            notes = job.notes(0, str(rank))
            self.assertTrue(all(note["counts"] for note in notes), job.said())
            self.assertEqual([note["n"] for note in notes], [1, 2, 2, 1, 1, 1, 1])
            parts = simulate(7, lambda step: [[0, 1] if step in (1, 2) else [0]] * 4)
            for note, after in zip(notes, parts):
                close(note["weights"], torch.cat([tensor.reshape(-1) for tensor in after]))

    def test_what_is_beyond_calls(self) -> None:
        """A group whose forward pass failed leaves the others to it, and comes back; a NaN that one finds after its
        calls makes the step void for all."""
        job = self.job(fails)
        for number in range(GROUPS):
            job.start(number)
        self.finish(job)
        notes = [job.notes(number) for number in range(GROUPS)]
        void = [[note["step"] + 1 for note in of_group if not note["counts"]] for of_group in notes]
        self.assertEqual(void[0], void[2])
        self.assertEqual(len(void[0]), 1)
        self.assertEqual(void[1], [4, *void[0]])
        for note in notes[1]:
            if note["counts"]:
                same = next(other for other in notes[0] if other["counts"] and other["step"] == note["step"])
                self.assertEqual(note["weights"], same["weights"])


    def test_what_is_refused(self) -> None:
        manager = mock.Mock(_pg=mock.Mock(), _surviving=None)
        with ranks.raises(ValueError, "survive=True", "ProcessGroupTutti has calls that survive"):
            SurvivingSteps(manager)
        manager._pg = ProcessGroupTutti()
        manager._checkpoint_transport = PGTransport(manager._pg, TIMEOUT, "cpu")
        with ranks.raises(ValueError, "states do not travel over the process group", "HTTPTransport"):
            SurvivingSteps(manager)
        with ranks.raises(ValueError, "the manager is one with survive=True"):
            GlobalBatch(manager, model_of(), 8)
        manager._surviving = mock.Mock()
        with ranks.raises(ValueError, "size is 0"):
            GlobalBatch(manager, model_of(), 0)


if __name__ == "__main__":
    programs.main(unittest.main)
