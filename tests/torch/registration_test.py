# SPDX-License-Identifier: BSD-3-Clause
# timeout: 900
# short: StandIn Ranks.test_by_name Ranks.test_beside_another Ranks.test_by_file Programs.test_programs_that_name_tutti
"""How programs come to tutti: by its name, by a default of devices, in the place of gloo; every way to initialise,
again and again in one process, and with nothing left behind; and what the rest of torch.distributed says of the
groups."""

from __future__ import annotations

import inspect
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, Iterator, List
from unittest import mock

import ranks  # first: it says how many threads torch starts
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tutti_torch import _C, registration

LONG = timedelta(seconds=60)
ROOT = Path(__file__).resolve().parents[2]


def free_port(test: unittest.TestCase) -> int:
    """One that nobody listens on. Until the test ends nobody gets it but who asks for it, as servers do."""
    holder = socket.socket()
    test.addCleanup(holder.close)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1]


def check_group(group: Any = None, name: str = "tutti") -> None:
    """That the backend of this name serves the group's CPU tensors, with right results."""
    assert ranks.backend_of(group).name() == name, ranks.backend_of(group).name()
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    sent = torch.arange(7.0) * (rank + 1)
    dist.all_reduce(sent, group=group)
    assert torch.equal(sent, torch.arange(7.0) * (n * (n + 1) // 2)), sent
    gathered: List[Any] = [None] * n
    dist.all_gather_object(gathered, ("from", rank), group=group)
    assert gathered == [("from", i) for i in range(n)], gathered


# ---- names ----


def by_name(rank: int, n: int, store: dist.Store) -> None:
    for backend in ("tutti", "TUTTI", "cpu:tutti", "cpu:tutti,cuda:tutti", "cpu:tutti,cuda:gloo"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as "No backend of type 0 found", when the group is destroyed
            dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=rank, world_size=n)
            assert dist.get_backend() == backend.lower(), dist.get_backend()
            assert dist.is_backend_available("tutti")
            check_group()
            group = dist.group.WORLD
            assert not group._has_hooks()
            group._get_sequence_number_for_group()
            assert str(dist.Backend("TUTTI")) == dist.Backend.TUTTI == "tutti"
            dist.destroy_process_group()
            assert not dist.is_initialized()


def all_devices(rank: int, n: int, store: dist.Store) -> None:
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
    group = dist.group.WORLD
    types = {device.type for device in group._device_types}
    assert types >= {"cpu", "cuda", "xpu"}, types
    backends = [group._get_backend(device) for device in group._device_types]  # wrappers, one as long as it is held
    assert all(backend is backends[0] for backend in backends)
    dist.destroy_process_group()


def named_accelerator(rank: int, n: int, store: dist.Store) -> None:
    """A type that gets its name after the backend was registered."""
    torch.utils.rename_privateuse1_backend("abacus")
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
    assert torch.device("abacus") in dist.group.WORLD._device_types
    assert "abacus" not in dist.Backend.default_device_backend_map
    dist.destroy_process_group()


def beside_another(rank: int, n: int, store: dist.Store) -> None:
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n)
    check_group(name="gloo")
    group = dist.new_group(backend="tutti")
    assert dist.get_backend(group) == "tutti" and dist.get_backend() == "gloo"
    check_group(group)
    parts = [dist.new_group([i], backend="tutti") for i in range(n)]
    check_group(parts[rank])
    dist.destroy_process_group(group)
    check_group(name="gloo")
    dist.destroy_process_group()


def with_options(rank: int, n: int, store: dist.Store) -> None:
    """Options of this backend, and such as programs make for others; the group's timeout is its own either way."""
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
    for options in (_C.Backend.Options(), dist.ProcessGroupGloo._Options(), None):
        group = dist.new_group(pg_options=options, timeout=timedelta(seconds=17))
        assert ranks.backend_of(group).options._timeout == timedelta(seconds=17)
        check_group(group)
    assert ranks.backend_of().options._timeout == LONG
    dist.destroy_process_group()


# ---- bound devices, debugging ----


@contextmanager
def accelerator_of(kind: str) -> Iterator[None]:
    """What init_process_group asks of a machine before it takes a device_id."""
    device = torch.device(kind)
    with mock.patch.object(torch.accelerator, "current_accelerator", lambda *_, **__: device):
        with mock.patch.object(torch.accelerator, "device_count", lambda: 8):
            yield


def bound_to_a_device(rank: int, n: int, store: dist.Store) -> None:
    with accelerator_of("cuda"):
        mine = torch.device("cuda", rank)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=n, device_id=mine)
        world = dist.group.WORLD
        assert world.bound_device_id == mine
        world._get_backend(mine).eager_connect_single_device(mine)
        check_group()
        halves = [dist.new_group([0]), dist.new_group(list(range(1, n)))]  # those outside take part in no split
        check_group(halves[0] if rank == 0 else halves[1])
        dist.destroy_process_group()


def default_of_the_bound_device(rank: int, n: int, store: dist.Store) -> None:
    with accelerator_of("xpu"), mock.patch.dict(dist.Backend.default_device_backend_map, xpu="tutti"):
        mine = torch.device("xpu", rank)
        dist.init_process_group(store=store, rank=rank, world_size=n, device_id=mine)
        assert dist.get_backend() == "tutti"
        check_group()
        dist.destroy_process_group()


def debugged(rank: int, n: int, store: dist.Store) -> None:
    for level in (dist.DebugLevel.INFO, dist.DebugLevel.DETAIL):
        dist.set_debug_level(level)
        prefixed = dist.PrefixStore(level.name, store)
        dist.init_process_group("tutti", store=prefixed, rank=rank, world_size=n, timeout=LONG)
        backend = ranks.backend_of()
        assert hasattr(backend, "wrapped_pg") == (level == dist.DebugLevel.DETAIL)
        assert getattr(backend, "wrapped_pg", backend).name() == "tutti"
        one = torch.ones(3)
        dist.all_reduce(one)
        assert one.tolist() == [n] * 3
        dist.broadcast(one, 0)
        dist.barrier()
        dist.monitored_barrier(timeout=LONG)
        group = dist.new_group()
        dist.all_gather_object([None] * n, rank, group=group)
        if level == dist.DebugLevel.DETAIL:
            with ranks.raises(RuntimeError, "running collective"):
                dist.all_reduce(torch.ones(2 + rank))
        dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.OFF)


# ---- ways to initialise, again and again ----


def footprint() -> Dict[str, int]:
    """What a group may use, of this process."""
    with open("/proc/self/maps") as maps:
        shared = sum("memfd:" in line or "/dev/shm" in line or "tutti-" in line for line in maps)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": ranks.threads(),
        "shared memory": shared,
        "python threads": threading.active_count(),
    }


def once(me: int, n: int, init_method: str, **given: int) -> None:
    dist.init_process_group("tutti", init_method=init_method, timeout=LONG, **given)
    assert (dist.get_rank(), dist.get_world_size()) == (me, n)
    check_group()
    groups = [dist.new_group(list(range(n))), dist.new_group([0])]
    dist.all_reduce(torch.ones(5), group=groups[0], async_op=True).wait()
    dist.all_reduce(torch.ones(5), async_op=True)  # nobody waits for it
    dist.destroy_process_group()


def wait_for_all(n: int, store: dist.Store) -> None:
    last = (store.add("rounds", 1) - 1) // n * n + n
    while store.add("rounds", 0) < last:
        time.sleep(0.005)


def often(me: int, n: int, store: dist.Store, init_method: str, **given: int) -> None:
    """All rounds but the first leave the process as they found it. A store's server that goes with the group of its
    rank has to be gone before the others look for the next one."""
    once(me, n, init_method, **given)
    wait_for_all(n, store)
    before = footprint()
    for _ in range(6):
        once(me, n, init_method, **given)
        wait_for_all(n, store)
    ranks.settle(before, footprint)


def by_file(rank: int, n: int, store: dist.Store, folder: str) -> None:
    often(rank, n, store, f"file://{folder}/meet", rank=rank, world_size=n)


def by_tcp(rank: int, n: int, store: dist.Store, port: int) -> None:
    often(rank, n, store, f"tcp://127.0.0.1:{port}", rank=rank, world_size=n)


def by_environment(rank: int, n: int, store: dist.Store, port: int, agent: bool) -> None:
    """agent: the store's server is another process, which outlives the groups; torchrun's way."""
    named = {"RANK": str(rank), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with mock.patch.dict(os.environ, named, TORCHELASTIC_USE_AGENT_STORE=str(agent)):
        often(rank, n, store, "env://")


def by_one_store(rank: int, n: int, store: dist.Store) -> None:
    """The same keys each time."""
    for _ in range(5):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=n, timeout=LONG)
        check_group()
        dist.destroy_process_group()


# ---- whole programs, with the variables ----

PROGRAM = """
import os, sys, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

loaded = "tutti_torch" in sys.modules
asked = sys.argv[1] if len(sys.argv) > 1 else None
if asked == "mesh":
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    groups = [mesh.get_group()]
else:
    dist.init_process_group(asked)
    groups = [dist.group.WORLD, dist.new_group(), dist.new_group(backend="gloo")]
rank, n = dist.get_rank(), dist.get_world_size()
for group in groups:
    one = torch.ones(3)
    dist.all_reduce(one, group=group)
    assert one.tolist() == [n] * 3
    dist.barrier(group=group)
if asked == "gloo":
    assert dist.is_gloo_available()
    from datetime import timedelta
    dist.monitored_barrier(groups[2], timeout=timedelta(seconds=30))
    if rank == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.2))
        except RuntimeError as error:
            assert "Rank 1 failed to pass monitoredBarrier" in str(error), error
        else:
            raise AssertionError("rank 1 was not missed")
    object = [rank]
    dist.broadcast_object_list(object, src=1, group=groups[1])
    assert object == [1]
backends = [group._get_backend(torch.device("cpu")) for group in groups]
names = [getattr(backend, "wrapped_pg", backend).name() for backend in backends]
words = ["said", rank, n, loaded, dist.get_backend(), groups[0].name(), *names]
sys.stdout.write(" ".join(map(str, words)) + "\\n")  # one write, so that lines of two ranks stay whole
sys.stdout.flush()
if asked == "gloo" and not loaded:
    os._exit(0)  # gloo itself may abort at its end, after a barrier that somebody missed
dist.destroy_process_group()
"""


class Programs(unittest.TestCase):
    """Started by torchrun and by `tutti run`, in an environment with the variables."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "program.py").write_text(PROGRAM)

    def run_with(self, launcher: List[str], *args: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_TORCH_")}
        environment = {**inherited, "OMP_NUM_THREADS": "1", **variables}
        command = [*launcher, str(self.folder / "program.py"), *args]
        return subprocess.run(command, env=environment, text=True, timeout=180, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def said(self, launcher: List[str], *args: str, **variables: str) -> List[List[str]]:
        """The words of each rank, by rank."""
        done = self.run_with(launcher, *args, **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line.split("said ")[1].split() for line in done.stdout.splitlines() if "said " in line]
        self.assertEqual(len(lines), 2, done.stdout)
        return sorted(lines)

    def torchrun(self) -> List[str]:
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                str(free_port(self))]

    def tutti_run(self) -> List[str]:
        build = os.environ.get("TUTTI_BUILD", str(ROOT / "build"))
        tutti = shutil.which("tutti", path=os.path.join(build, "bin"))
        if tutti is None:
            self.skipTest(f"no command tutti in {build}/bin")
        return [tutti, "run", "-n", "2", sys.executable]

    def test_programs_that_name_tutti(self) -> None:
        said = self.said(self.torchrun(), "cpu:tutti,cuda:tutti")  # and do not import the package
        self.assertEqual([words[2:6] for words in said], [["False", "cpu:tutti,cuda:tutti", "custom", "tutti"]] * 2)
        said = self.said(self.tutti_run(), "tutti")
        self.assertEqual([words[2:] for words in said], [["False", "tutti", "custom", "tutti", "tutti", "gloo"]] * 2)

    def test_programs_that_name_nothing(self) -> None:
        said = self.said(self.torchrun(), TUTTI_TORCH_DEFAULT="cpu,cuda,xpu")
        self.assertEqual([words[4:5] + words[6:] for words in said], [["custom", "tutti", "gloo"]] * 2)
        said = self.said(self.tutti_run(), "mesh", TUTTI_TORCH_DEFAULT="cpu")
        self.assertEqual([words[-1] for words in said], ["tutti", "tutti"])

    def test_programs_that_name_gloo(self) -> None:
        said = self.said(self.tutti_run(), "gloo", TUTTI_TORCH_REPLACE="gloo")
        self.assertEqual([words[2:] for words in said], [["True", "gloo", "gloo", "tutti", "tutti", "tutti"]] * 2)
        said = self.said(self.torchrun(), "gloo", TUTTI_TORCH_REPLACE="gloo", TORCH_DISTRIBUTED_DEBUG="DETAIL")
        self.assertEqual([words[-3:] for words in said], [["tutti"] * 3] * 2)
        said = self.said(self.torchrun(), "gloo")  # the same program without it
        self.assertEqual([words[-3:] for words in said], [["gloo"] * 3] * 2)

    def test_values_that_mean_nothing(self) -> None:
        for variables, words in (
            ({"TUTTI_TORCH_DEFAULT": "cpu,gpu"}, "'gpu' is no device type"),
            ({"TUTTI_TORCH_REPLACE": "gloo,mpi"}, "can not stand in for 'mpi', only for 'gloo', 'nccl', 'xccl'"),
        ):
            done = self.run_with([sys.executable], **variables)
            self.assertNotEqual(done.returncode, 0)
            name, value = next(iter(variables.items()))
            self.assertRegex(done.stderr, f"^{name}={value}: .*{words}.*\n$")  # one line and no other


# ---- in the place of gloo, beside CUDA ----


def there(*kinds: str) -> Any:
    return mock.patch.object(registration, "is_there", lambda device: device in ("cpu", *kinds))


class StandIn(unittest.TestCase):
    """Which backend serves which device."""

    def test_names(self) -> None:
        gloo, asked = ["gloo"], registration.backends_asked
        with there():
            self.assertEqual(registration.stand_in(asked("gloo"), gloo), {"cpu": "tutti"})
            self.assertEqual(registration.stand_in(asked("undefined"), gloo), {"cpu": "tutti"})
            self.assertEqual(registration.stand_in(asked("tutti"), gloo), asked("tutti"))
            self.assertEqual(registration.stand_in(asked("gloo"), []), asked("gloo"))
        with there("cuda"):
            self.assertEqual(registration.stand_in(asked("gloo"), gloo), {"cpu": "tutti", "cuda": "gloo"})
            mixed = registration.stand_in(asked("cpu:gloo,cuda:nccl"), gloo)
            self.assertEqual(mixed, {"cpu": "tutti", "cuda": "nccl"})
            self.assertEqual(registration.stand_in(asked("cuda:gloo"), gloo), {"cuda": "gloo"})
            self.assertEqual(registration.stand_in(asked("nccl"), ["nccl"]), {"cuda": "tutti"})
            both = registration.stand_in(asked("cpu:gloo,cuda:nccl"), ["nccl", "gloo"])
            self.assertEqual(both, {"cpu": "tutti", "cuda": "tutti"})
            one = registration.stand_in(asked("cpu:gloo,cuda:nccl"), ["nccl"])
            self.assertEqual(one, {"cpu": "gloo", "cuda": "tutti"})
            self.assertEqual(registration.stand_in(asked("xccl"), ["nccl"]), asked("xccl"))
        with there("xpu"):
            self.assertEqual(registration.stand_in(asked("xccl"), ["xccl"]), {"xpu": "tutti"})
        with there():
            self.assertEqual(registration.stand_in(asked("nccl"), ["nccl"]), {"cuda": "tutti", "cpu": "tutti"})

    def test_defaults_are_left_alone(self) -> None:
        """Being registered makes tutti nobody's default."""
        if not os.environ.get("TUTTI_TORCH_DEFAULT"):
            self.assertNotIn("tutti", dist.Backend.default_device_backend_map.values())

    def test_ends_of_old_versions(self) -> None:
        """Before 2.8 a group has no call that ends it; PyTorch's function for nccl is made to end ours as well."""
        ended: List[str] = []
        ours = mock.Mock(shutdown=lambda: ended.append("ours"), abort=lambda: ended.append("aborted"))
        with mock.patch.object(registration.patches, "tutti_backends", lambda group: [ours]):
            registration.reaching_tutti(lambda group: ended.append("nccl"), "shutdown")(None)
            registration.reaching_tutti(lambda group: None, "abort")(None)
        self.assertEqual(ended, ["nccl", "ours", "aborted"])


def beside_cuda(rank: int, n: int, store: dist.Store) -> None:
    """On a machine with CUDA: gloo for its tensors, tutti for those of the CPU, in one group."""
    create = registration.new_group(inspect.unwrap(c10d._new_process_group_helper), ["gloo"])
    with there("cuda"), mock.patch.object(c10d, "_new_process_group_helper", create):
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n)
        world = dist.group.WORLD
        assert dist.get_backend() == "gloo" and world.name() == "gloo"
        assert dist.get_backend_config() == "cpu:gloo,cuda:gloo", dist.get_backend_config()
        assert ranks.backend_of().name() == "tutti"
        assert isinstance(world._get_backend(torch.device("cuda")), dist.ProcessGroupGloo)
        check_group()
        check_group(dist.new_group(backend="gloo"))
        dist.barrier()
        dist.destroy_process_group()


# ---- all of them on ranks ----


class Ranks(unittest.TestCase):
    def each(self, function: Any, *args: Any, n: int = 2) -> None:
        ranks.run(function, n, *args, backend=None, timeout=120)

    def test_by_name(self) -> None:
        self.each(by_name)

    def test_all_devices(self) -> None:
        self.each(all_devices, n=1)

    def test_named_accelerator(self) -> None:
        self.each(named_accelerator, n=1)

    def test_beside_another(self) -> None:
        self.each(beside_another, n=3)

    def test_with_options(self) -> None:
        self.each(with_options)

    def test_bound_to_a_device(self) -> None:
        self.each(bound_to_a_device, n=3)

    def test_default_of_the_bound_device(self) -> None:
        self.each(default_of_the_bound_device)

    def test_debugged(self) -> None:
        self.each(debugged)

    def test_beside_cuda(self) -> None:
        self.each(beside_cuda)

    def test_by_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.each(by_file, folder)

    def test_by_tcp(self) -> None:
        self.each(by_tcp, free_port(self))

    def test_by_environment(self) -> None:
        self.each(by_environment, free_port(self), False)

    def test_by_environment_with_an_agent(self) -> None:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.each(by_environment, server.port, True)

    def test_by_one_store(self) -> None:
        self.each(by_one_store, n=3)


if __name__ == "__main__":
    unittest.main()
