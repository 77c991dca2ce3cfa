# SPDX-License-Identifier: BSD-3-Clause
"""One rank of gpu_peers.py: tutti's calls of one cell are checked against NCCL's result, every library's replay of one
captured call against what follows from the data; then they are captured in graphs and replayed in turns. A graph is
replayed twice in a row and the second replay is timed on the device, since the first one brings the ranks into step. A
round counts as long as it took the slowest rank; how long ranks were at launching it is kept beside, so that a rank
that was held up can be told from calls that are slow. Before each library's part all ranks meet and rank 0 says so: the
last such line names what a run hangs in (runs.py)."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import statistics
import sys
import time
from typing import Callable

import torch
import torch.distributed as dist

from .tutti import Tutti

TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
THROUGH_TORCH = "tutti through torch"
PEERS = ("nccl", "torch")  # as their names begin
MEMORY_OF = {"tutti": "plain", "tutti window": "window", "nccl": "plain", "torch one": "torch", "torch two": "torch"}
OPENING_S, CELL_S = 90, 30  # after which a rank tells where it is, and ends
Calls = dict[str, Callable[[], None]]


class Memory:
    """Two buffers of the largest size, of which cells take the front."""

    def __init__(self, send: torch.Tensor, recv: torch.Tensor) -> None:
        self.send, self.recv = send, recv

    def views(self, op: str, n: int, rank: int, world: int, dtype: torch.dtype, in_place: bool):
        """What goes in and what comes out of n elements as nccl-tests counts them."""
        share = n // world
        send_n = share if op == "all_gather" else n
        recv_n = share if op == "reduce_scatter" else n
        recv = self.recv.view(dtype)[:recv_n]
        if not in_place or op == "all_to_all":
            return self.send.view(dtype)[:send_n], recv
        if op == "all_gather":
            return recv[rank * share : (rank + 1) * share], recv
        if op == "reduce_scatter":
            send = self.send.view(dtype)[:n]
            return send, send[rank * share : (rank + 1) * share]
        return recv, recv


class FromAddress:
    """Memory of the library as a tensor."""

    def __init__(self, address: int, n_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (n_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def must_end(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


def nccl_call(op: str, send: torch.Tensor, recv: torch.Tensor) -> None:
    if op == "all_reduce":
        if send.data_ptr() != recv.data_ptr():  # PyTorch has it in place alone
            recv = send
        dist.all_reduce(recv)
    elif op == "reduce_scatter":
        dist.reduce_scatter_tensor(recv, send)
    elif op == "all_gather":
        dist.all_gather_into_tensor(recv, send)
    elif op == "all_to_all":
        dist.all_to_all_single(recv, send)
    else:
        dist.broadcast(recv, 0)


class Rank:
    def __init__(self, plan: dict) -> None:
        self.plan = plan
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", self.rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=self.device)
        self.cpu = dist.new_group(backend="gloo")
        self.here: list | None = None  # the cell
        self.without: list[str] = plan["banned"].get("", [])  # peers that have failed
        self.memory_of = dict(MEMORY_OF)
        self.bytes = max(plan["sizes"])
        self.stream = torch.cuda.Stream()
        self.tutti = Tutti(plan["library"], self.device.index, self.rank, self.world, plan["options"])
        self.memory = {"plain": self.plain(), "window": self.window()}
        self.unavailable: dict[str, str] = {}
        self.optional("nccl window", self.nccl_window)
        self.optional("torch", self.torch_symmetric)

    def optional(self, name: str, make: Callable[[], Memory]) -> None:
        if name in self.without:
            self.unavailable[name] = "it failed at the opening"
            return
        self.at(name)
        try:
            self.memory[name] = make()
        except Exception as error:  # noqa: BLE001  a peer that this machine lacks is told, not missed
            self.unavailable[name] = f"{type(error).__name__}: {error}".splitlines()[0]

    def plain(self) -> Memory:
        return Memory(*[torch.empty(self.bytes, dtype=torch.uint8, device=self.device) for _ in range(2)])

    def window(self) -> Memory:
        made = [FromAddress(self.tutti.alloc(self.bytes), self.bytes) for _ in range(2)]
        return Memory(*[torch.as_tensor(memory, device=self.device) for memory in made])

    def nccl_window(self) -> Memory:
        backend = dist.group.WORLD._get_backend(self.device)
        self.pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(self.pool):
            memory = self.plain()
        backend.register_mem_pool(self.pool, symm=True)
        return memory

    def torch_symmetric(self) -> Memory:
        import torch.distributed._symmetric_memory as symmetric

        self.group = dist.group.WORLD.group_name
        send = symmetric.empty(self.bytes, dtype=torch.uint8, device=self.device)
        symmetric.rendezvous(send, self.group)
        return Memory(send, send)

    # ---- the calls of a cell ----

    def tutti_call(self, op: str, memory: str, n: int, dtype: str, in_place: bool) -> Callable[[], None]:
        send, recv = self.memory[memory].views(op, n, self.rank, self.world, TYPES[dtype], in_place)
        count = n // self.world if op in ("all_gather", "reduce_scatter", "all_to_all") else n
        s, r = send.data_ptr(), recv.data_ptr()
        method = self.plan.get("method")
        return lambda: self.tutti.call(op, s, r, count, dtype, torch.cuda.current_stream().cuda_stream, method)

    def nccl(self, op: str, memory: str, n: int, dtype: str, in_place: bool) -> Callable[[], None]:
        send, recv = self.memory[memory].views(op, n, self.rank, self.world, TYPES[dtype], in_place)
        return lambda: nccl_call(op, send, recv)

    def calls(self, op: str, n: int, dtype: str, in_place: bool) -> Calls:
        found: Calls = {
            "tutti": self.tutti_call(op, "plain", n, dtype, in_place),
            "tutti window": self.tutti_call(op, "window", n, dtype, in_place),
            "nccl": self.nccl(op, "plain", n, dtype, in_place),
        }
        if "nccl window" in self.memory:
            found["nccl window"] = self.nccl(op, "nccl window", n, dtype, in_place)
        if "torch" in self.memory and op == "all_reduce" and n * TYPES[dtype].itemsize <= 16 << 20:
            send = self.memory["torch"].send.view(TYPES[dtype])[:n]
            ops = torch.ops.symm_mem
            found["torch one"] = lambda: ops.one_shot_all_reduce(send, "sum", self.group)
            found["torch two"] = lambda: ops.two_shot_all_reduce_(send, "sum", self.group)
        return found

    # ---- checking ----

    def values(self, n: int, dtype: str, seed: int, rank: int) -> torch.Tensor:
        """Small integers, whose sums are exact in every type."""
        generator = torch.Generator(device=self.device).manual_seed(seed * 64 + rank)
        return torch.randint(-8, 9, (n,), generator=generator, device=self.device).to(TYPES[dtype])

    def expected(self, op: str, n: int, dtype: str, seed: int) -> torch.Tensor:
        """What follows from the values of all ranks."""
        share, every = n // self.world, [self.values(n, dtype, seed, rank) for rank in range(self.world)]
        own = slice(self.rank * share, (self.rank + 1) * share)
        if op == "broadcast":
            return every[0]
        if op == "all_gather":
            return torch.cat([values[:share] for values in every])
        if op == "all_to_all":
            return torch.cat([values[own] for values in every])
        total = torch.stack(every).sum(0, dtype=TYPES[dtype])
        return total[own] if op == "reduce_scatter" else total

    def give(self, memory: str, values: torch.Tensor, op: str, dtype: str, in_place: bool):
        """The buffers, before the call."""
        send, recv = self.memory[memory].views(op, values.numel(), self.rank, self.world, TYPES[dtype], in_place)
        recv.fill_(99)
        send.copy_(values[: send.numel()])
        if op == "broadcast" and self.rank == 0:
            recv.copy_(values[: recv.numel()])
        return send, recv

    def result(self, who: str, memory: str, values: torch.Tensor, op: str, dtype: str, in_place: bool) -> torch.Tensor:
        n = values.numel()
        send, recv = self.give(memory, values, op, dtype, in_place)
        make = self.nccl if who == "nccl" else self.tutti_call
        make(op, memory, n, dtype, in_place)()
        torch.cuda.synchronize()
        moved = op == "all_reduce" and who == "nccl"  # in place there
        return (send if moved else recv).clone()

    def is_right(self, op: str, memory: str, n: int, dtype: str, in_place: bool, seed: int) -> bool:
        """Bit for bit what NCCL gives."""
        values = self.values(n, dtype, seed, self.rank)
        if "nccl" in self.without:
            expected = self.expected(op, n, dtype, seed)
        else:
            self.at("nccl")
            expected = self.result("nccl", "plain", values, op, dtype, in_place)
        self.at("tutti" if memory == "plain" else "tutti window")
        found = self.result("tutti", memory, values, op, dtype, in_place)
        self.tutti.state()
        return torch.equal(expected, found)

    def replays_right(self, name: str, call: Callable[[], object], op: str, n: int, dtype: str, in_place: bool) -> bool:
        """One captured call, replayed on data that came after the capture."""
        cell, memory = (op, dtype, in_place), self.memory_of.get(name, name)
        values = self.values(n, dtype, n + 1, self.rank)
        self.give(memory, values, *cell)
        graph, made = self.capture(name, call, 1)
        send, recv = self.give(memory, values, *cell)
        torch.cuda.synchronize()
        self.at(name)
        graph.replay()
        torch.cuda.synchronize()
        if name == "torch one":
            recv = made
        elif op == "all_reduce" and name.startswith(PEERS):  # in place there
            recv = send
        return torch.equal(recv, self.expected(op, n, dtype, n + 1))

    # ---- timing ----

    def capture(self, name: str, call: Callable[[], object], times: int) -> tuple[torch.cuda.CUDAGraph, object]:
        """The graph, and what its last call returned."""
        self.at(name)
        with torch.cuda.stream(self.stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(times):
                made = call()
        return graph, made

    def replay(self, name: str, graph: torch.cuda.CUDAGraph, times: int) -> tuple[float, float]:
        """Microseconds of a call, and of the host for both launches."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.at(name)
        with torch.cuda.stream(self.stream):
            begun = time.perf_counter()
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            launching = time.perf_counter() - begun
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / times, launching * 1e6

    def replay_all(self, graphs: dict[str, torch.cuda.CUDAGraph], times: int) -> dict[str, dict[str, float]]:
        """What the rounds of each came to; the same on all ranks."""
        gc.collect()  # not between two replays, where it would hold up this rank, and all others with it
        rounds = [
            [self.replay(name, graph, times) for name, graph in graphs.items()] for _ in range(self.plan["rounds"])
        ]
        slowest = torch.tensor(rounds, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self.cpu)
        found: dict[str, dict[str, float]] = {"us": {}, "least_us": {}, "greatest_us": {}, "launching_us": {}}
        for i, name in enumerate(graphs):
            took = slowest[:, i, 0].tolist()
            found["us"][name] = statistics.median(took)
            found["least_us"][name], found["greatest_us"][name] = min(took), max(took)
            found["launching_us"][name] = slowest[:, i, 1].max().item()
        return found

    def chosen(self, *cell) -> Calls:
        return {name: call for name, call in self.calls(*cell).items() if name not in self.without}

    def cell(self, op: str, size: int, dtype: str, in_place: bool) -> dict:
        self.here = [op, size, dtype, in_place]
        n = size // TYPES[dtype].itemsize // self.world * self.world
        right = [
            self.is_right(op, memory, n, dtype, in_place, seed + size)
            for seed, memory in enumerate(("plain", "window"))
        ]
        calls = self.chosen(op, n, dtype, in_place)
        for name, call in calls.items():
            replayed = self.replays_right(name, call, op, n, dtype, in_place)
            if not name.startswith(PEERS):
                right.append(replayed)
            elif not replayed:
                print(f"gpu_peers: {name} is wrong in a replay of {op} of {size} bytes, {dtype}", file=sys.stderr)
        for memory in self.memory.values():
            memory.send.zero_()
            memory.recv.zero_()
        times = max(1, min(self.plan["calls"], (256 << 20) // max(1, size)))
        graphs = {name: self.capture(name, call, times)[0] for name, call in calls.items()}
        took = self.replay_all(graphs, times)
        self.at("tutti")  # and no longer at the last one's
        self.tutti.state()
        wrong = torch.tensor([right.count(False)], dtype=torch.int64)
        dist.all_reduce(wrong, group=self.cpu)
        line = {"op": op, "bytes": size, "dtype": dtype, "in_place": in_place, "calls": times}
        return {**line, **took, "wrong": int(wrong)}

    def through_torch(self) -> Calls:
        """By PyTorch's own interface, where Python finds the package."""
        try:
            import tutti_torch  # noqa: F401

            group = dist.new_group(backend="tutti")
        except Exception as error:  # noqa: BLE001  told, and not timed
            print(f"gpu_peers: {THROUGH_TORCH}: {error}", file=sys.stderr)
            return {}
        data = torch.zeros(512, dtype=torch.bfloat16, device=self.device)
        return {THROUGH_TORCH: lambda: dist.all_reduce(data, group=group)}

    def eager(self) -> dict:
        """Microseconds of a call of 1 KiB from Python, back to back, the wait at the end included: the median of five
        rounds of 1000 calls."""
        took = {}
        self.at(THROUGH_TORCH)
        for name, call in (self.through_torch() | self.chosen("all_reduce", 512, "bfloat16", False)).items():
            self.at(name)
            call()
            rounds = []
            for _ in range(5):
                torch.cuda.synchronize()
                dist.barrier(group=self.cpu)
                start = time.perf_counter()
                for _ in range(1000):
                    call()
                torch.cuda.synchronize()
                rounds.append((time.perf_counter() - start) * 1e3)
            took[name] = statistics.median(rounds)
        return took

    def run(self) -> None:
        gc.disable()
        gc.freeze()
        must_end(CELL_S)
        self.tell({"machine": torch.cuda.get_device_name(), "ranks": self.world, "unavailable": self.unavailable})
        if self.plan["eager"]:
            self.tell({"eager_us": self.eager()})
        for op, size, dtype, in_place in self.plan["cells"]:
            late = torch.tensor([time.monotonic() > self.plan["until"]], dtype=torch.int64)
            dist.all_reduce(late, group=self.cpu)
            if late.item():
                self.tell({"stopped_after_s": self.plan["seconds"]})
                break
            must_end(CELL_S)
            self.without = [*self.plan["banned"].get("", []), *self.plan["banned"].get(op, [])]
            self.tell(self.cell(op, size, dtype, in_place))
        must_end(CELL_S)
        torch.cuda.synchronize()
        self.tutti.close()
        dist.barrier(group=self.cpu)
        sys.stdout.flush()
        os._exit(0)  # destroying NCCL's group, whose windows are left, would end the process in an exception

    def at(self, library: str) -> None:
        """All are about to call it."""
        dist.barrier(group=self.cpu)
        self.tell({"at": self.here, "library": library})

    def tell(self, line: dict) -> None:
        if self.rank == 0:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    must_end(OPENING_S)
    Rank(json.loads(sys.argv[1])).run()
