# SPDX-License-Identifier: BSD-3-Clause
# timeout: 180
"""tutti_torch.comms.hooks: what the flight recorder holds, and what PyTorch's own analyzer makes of it when a rank does
not come; the log of calls, line by line; NaN found before they travel; children of a split; and that none of it is seen
by calls of communicators that have no hook."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import unittest
from datetime import timedelta
from typing import Any, Dict, List

FOLDER = tempfile.mkdtemp(prefix="tutti-hooks-")
os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = os.path.join(FOLDER, "trace_")

import torch

import ranks
from comms_support import new_comm, on_threads
from ranks import raises
from tutti_torch.comms import ReduceOp
from tutti_torch.comms.hooks import FlightRecorderHook, NanCheckHook, clog

SUM = ReduceOp.SUM


def some_calls(comm: Any) -> None:
    """Calls with each kind of arguments, on 2 ranks."""
    n, peer = comm.get_size(), 1 - comm.get_rank()
    comm.all_reduce(torch.ones(3, 5), SUM, async_op=False)
    comm.all_gather([torch.empty(4) for _ in range(n)], torch.ones(4), async_op=True).wait()
    comm.reduce_scatter_single(torch.empty(2), torch.ones(2 * n), ReduceOp.MAX, async_op=False)
    splits = [1, 1] if peer else [3, 3]
    comm.all_to_all_v_single(torch.empty(sum(splits)), torch.ones(4), splits, [1, 3], async_op=False)
    if peer:
        comm.send(torch.ones(7), peer, async_op=False)
    else:
        comm.recv(torch.ones(7), peer, async_op=False)
    batch = comm.batch_op_create()
    batch.send(torch.ones(2), peer)
    batch.recv(torch.ones(2), peer)
    batch.issue(False)
    comm.barrier(async_op=False)


# ---- the flight recorder ----


def recorded(rank: int, n: int, store: Any) -> Dict[str, Any]:
    comm = new_comm(rank, n, store, "recorded")
    recorder = FlightRecorderHook(max_entries=100, isolated=True)
    assert not recorder.is_enabled() and recorder.size() == 0
    last_two = FlightRecorderHook(max_entries=2, isolated=True)
    for one in (recorder, last_two):
        one.register_with_comm(comm)
    assert recorder.is_enabled()
    some_calls(comm)
    kept = json.loads(last_two.dump_json())["entries"]
    assert [entry["profiling_name"] for entry in kept] == ["nccl:coalesced", "nccl:barrier"], kept
    found = {"json": recorder.dump_json(), "path": recorder.dump_file(rank), "size": len(recorder)}
    recorder.reset()
    assert recorder.size() == 0 and json.loads(recorder.dump_json())["entries"] == []
    child = comm.split([rank], f"child{rank}")
    child.all_reduce(torch.ones(1), SUM, async_op=False)
    found["after"] = recorder.dump_json()
    child.finalize()
    comm.finalize()
    return found


def late(rank: int, n: int, store: Any) -> str:
    """Rank 1 never comes to the third call: the other's abort hook writes the file."""
    comm = new_comm(
        rank, n, store, "late", timeout=timedelta(seconds=2), abort_process_on_timeout_or_error=False
    )
    recorder = FlightRecorderHook(isolated=True)
    recorder.register_with_comm(comm)
    comm.all_reduce(torch.ones(4), SUM, async_op=False)
    comm.broadcast(torch.ones(4), 0, async_op=False)
    if rank == 1:
        recorder.dump_file(rank)
        ranks.settle(True, lambda: os.path.exists(os.path.join(FOLDER, "trace_0")))
        return ""
    with raises(RuntimeError, "all_reduce"):
        comm.all_reduce(torch.ones(4), SUM, async_op=False)
    active = json.loads(recorder.dump_json(include_completed=False))["entries"]
    assert [entry["profiling_name"] for entry in active] == ["nccl:all_reduce"] and active[0]["state"] != "completed"
    return os.path.join(FOLDER, "trace_0")


def shared(rank: int, n: int, store: Any) -> List[int]:
    """The recorder of the process: one for all hooks that are not isolated."""
    comms = [new_comm(rank, n, store, f"shared{i}") for i in range(2)]
    recorders = [FlightRecorderHook() for _ in comms]
    for recorder, comm in zip(recorders, comms):
        recorder.register_with_comm(comm)
        comm.barrier(async_op=False)
    sizes = [recorder.size() for recorder in recorders]
    for comm in comms:
        comm.finalize()
    return sizes


def load(path: str) -> Dict[str, Any]:
    with open(path, "rb") as file:
        return pickle.load(file)


class FlightRecorder(unittest.TestCase):
    def setUp(self) -> None:
        for name in os.listdir(FOLDER):
            os.remove(os.path.join(FOLDER, name))

    def test_what_is_recorded(self) -> None:
        for rank, found in enumerate(ranks.run(recorded, 2, backend=None)):
            trace = json.loads(found["json"])
            self.assertEqual(trace["version"], "2.10")
            self.assertEqual(trace["pg_config"]["recorded"], {"name": "recorded", "desc": "tutti", "ranks": "[0, 1]"})
            message = "nccl:send 0->1" if rank == 0 else "nccl:recv 1<-0"
            names = ["all_reduce", "all_gather", "_reduce_scatter_base", "all_to_all"]
            batch = [f"nccl:send {rank}->{1 - rank}", f"nccl:recv {rank}<-{1 - rank}", "nccl:coalesced"]
            expected = [*(f"nccl:{name}" for name in names), message, *batch, "nccl:barrier"]
            entries = trace["entries"]
            self.assertEqual([entry["profiling_name"] for entry in entries], expected)
            self.assertEqual(found["size"], len(expected))
            self.assertEqual({entry["state"] for entry in entries}, {"completed"})
            self.assertEqual([entry["record_id"] for entry in entries], list(range(len(entries))))
            self.assertEqual([entry["is_p2p"] for entry in entries], [False] * 4 + [True] * 3 + [False] * 2)
            self.assertEqual(entries[0]["input_sizes"], [[3, 5]])
            self.assertEqual((entries[1]["input_sizes"], entries[1]["output_sizes"]), ([[4]], [[2, 4]]))
            self.assertEqual(entries[0]["input_dtypes"], ["Float"])
            self.assertEqual(entries[0]["process_group"], ["recorded", "tutti"])
            self.assertEqual(entries[0]["timeout_ms"], 60000)
            self.assertEqual(load(found["path"])["entries"][0]["profiling_name"], "nccl:all_reduce")
            after = json.loads(found["after"])
            self.assertEqual([entry["process_group"][0] for entry in after["entries"]], ["recorded", f"child{rank}"])
            self.assertEqual([entry["record_id"] for entry in after["entries"]], [0, 1])
            self.assertEqual(after["pg_config"][f"child{rank}"]["ranks"], f"[{rank}]")

    def test_a_rank_that_does_not_come(self) -> None:
        path = ranks.run(late, 2, backend=None)[0]
        last = load(path)["entries"][-1]
        self.assertEqual((last["profiling_name"], last["state"]), ("nccl:all_reduce", "started"))
        printed = ranks.fr_trace(FOLDER)
        self.assertIn("missing ranks: {1}", printed)
        self.assertIn("nccl:all_reduce", printed)
        self.assertNotIn("MISMATCH", printed)

    def test_one_for_the_process(self) -> None:
        self.assertEqual(ranks.run(shared, 2, backend=None), [[2, 2]] * 2)


# ---- the log of calls ----


def logged(rank: int, n: int, store: Any) -> Dict[str, List[str]]:
    def lines(path: str) -> List[str]:
        with open(path) as file:
            return [line for line in file.read().splitlines() if line]

    paths = [os.path.join(FOLDER, f"clog{i}_{rank}") for i in range(2)]
    full, brief = clog(paths[0], ["ALL"], verbose=["buffers"]), clog(output=paths[1], events=[])
    first = lines(paths[0])
    comm = new_comm(rank, n, store, "lo|gged")
    full.register_with_comm(comm)
    brief.register_with_comm(comm)
    with raises(RuntimeError, "already"):
        brief.register_with_comm(comm)
    some_calls(comm)
    tensor = torch.ones(3, 5)
    for _ in range(2):
        comm.all_reduce(tensor, SUM, async_op=True).wait()
    child = comm.split([rank], "child")
    child.barrier(async_op=True)
    live = lines(paths[1])
    child.finalize()
    comm.finalize()
    return {"first": first, "live": live, "full": lines(paths[0]), "brief": lines(paths[1])}


def many_lines(rank: int, n: int, store: Any) -> None:
    """Over several pieces of the file, which is cut to its lines at the end."""
    comm = new_comm(rank, n, store, "many_lines")
    path = os.path.join(FOLDER, f"many_{rank}")
    log = clog(path, ["ALL"])
    log.register_with_comm(comm)
    for _ in range(10000):
        comm.barrier(async_op=False)
    comm.finalize()
    del log, comm
    with open(path) as file:
        lines = file.read().split("\n")
    kept = [line for line in lines if line]
    assert lines[-1] == "" and len(lines) - len(kept) < 40, "empty lines are those at the ends of pieces"
    events = [line for line in kept if line.startswith("C1|") and "|sig|" not in line]
    assert len(events) == 30000 and os.path.getsize(path) < 1.1 * sum(len(line) + 1 for line in kept)
    ids = [int(line.split("work_id=")[1].split("|")[0]) for line in events if "|Q|" in line]
    assert ids == list(range(1, 10001))


class Log(unittest.TestCase):
    def test_lines(self) -> None:
        for rank, found in enumerate(ranks.run(logged, 2, backend=None)):
            self.assertEqual(len(found["first"]), 1)
            self.assertRegex(found["first"][0], r"^V\|1\|base_timestamp=\d{10}\.\d{3}$")
            self.assertEqual(found["brief"][1], f"new_comm|comm=lo_gged|rank={rank}|world_size=2")
            self.assertEqual(found["live"], found["brief"][: len(found["live"])])
            splits = "in_splits=1,3|out_splits=" + ("1,1" if rank == 0 else "3,3")
            message = f"send|in_count=7|out_count=0|dtype=f32|peer={1 - rank}"
            if rank == 1:
                message = "recv|in_count=0|out_count=7|dtype=f32|peer=0"
            signatures = [
                "all_reduce|in_count=15|out_count=15|dtype=f32|red_op=sum|async_op=f",
                "all_gather|in_count=4|out_counts=4,4|dtype=f32|async_op=t",
                "reduce_scatter_single|in_count=4|out_count=2|dtype=f32|red_op=max|async_op=f",
                f"all_to_all_v_single|{splits}|dtype=f32|async_op=f",
                f"{message}|async_op=f",
                "batch_op_issue|num_ops=2|async_op=f",
                "barrier|async_op=f",
                "all_reduce|in_count=15|out_count=15|dtype=f32|red_op=sum|async_op=t",
            ]
            self.check_brief(found["brief"], signatures)
            self.check_full(found["full"], signatures)

    def check_brief(self, lines: List[str], signatures: List[str]) -> None:
        """Each signature once, before its first call; one line a call."""
        said = [re.sub(r"\+\d+\.\d{3}$", "+", line) for line in lines[2:]]
        expected = []
        for kind, signature in enumerate(signatures, 1):
            expected += [f"C{kind}|sig|{signature}|comm=lo_gged", f"C{kind}|Q|work_id={kind}|+"]
        expected += ["C8|Q|work_id=9|+", "split|parent=lo_gged|child=child|ranks=" + lines[1].split("rank=")[1][0]]
        expected += ["C9|sig|barrier|async_op=t|comm=child", "C9|Q|work_id=10|+"]
        self.assertEqual(said, expected)

    def check_full(self, lines: List[str], signatures: List[str]) -> None:
        calls = [line for line in lines if line.startswith("C") and "|sig|" not in line]
        events = [re.sub(r"\|\+\d+\.\d{3}$", "", line) for line in calls]
        for kind, signature in enumerate(signatures, 1):
            own = [event.split("|")[1] for event in events if event.startswith(f"C{kind}|")]
            expected = ["Q", "S", "E"] + (["W"] if "async_op=t" in signature else [])
            self.assertEqual(sorted(own), sorted(expected * (2 if kind == 8 else 1)))
            self.assertEqual(own[:2], ["Q", "S"])
        buffers = [line for line in lines if "|sig|" in line and "barrier" not in line and "batch" not in line]
        self.assertTrue(all(re.search(r"\|(buf|in|out)=0x[0-9a-f]+", line) for line in buffers))
        leaked = [line for line in lines if line.startswith("WARN")]
        self.assertEqual(len(leaked), 1, leaked)
        self.assertRegex(leaked[0], r"^WARN\|comm=.*\|leaked work_id=\d+\|corr_id=\d+\|pending_events=W$")

    def test_many_lines(self) -> None:
        ranks.run(many_lines, 2, backend=None)

    def test_words(self) -> None:
        with raises(ValueError, "events has 'SOME'", "LIFECYCLE and ALL"):
            clog(os.path.join(FOLDER, "x"), ["SOME"])
        with raises(RuntimeError, "can not be written"):
            clog(os.path.join(FOLDER, "no", "folder"), [])


# ---- NaN ----


def checked(rank: int, n: int, store: Any) -> None:
    comm = new_comm(rank, n, store, "checked")
    hook = NanCheckHook()
    assert not hook.is_enabled()
    hook.register_with_comm(comm)
    assert hook.is_enabled()
    bad = torch.tensor([1.0, float("nan")])
    with raises(RuntimeError, "NaN detected in input tensor", "'all_reduce'", "'checked'"):
        comm.all_reduce(bad, SUM, async_op=False)
    with raises(RuntimeError, "NaN detected in input tensor 1 of 2", "'all_to_all'"):
        comm.all_to_all([torch.empty(2)] * n, [torch.ones(2), bad], async_op=False)
    with raises(RuntimeError, "'send'"):
        comm.send(bad, 1 - rank, async_op=False)
    comm.all_gather_single(torch.full((2 * n,), float("nan")), torch.ones(2), async_op=False)  # what is overwritten
    comm.all_reduce(torch.ones(2, dtype=torch.int64), SUM, async_op=False)
    some_calls(comm)
    child = comm.split(list(range(n)), "checked.child")
    with raises(RuntimeError, "'checked.child'"):
        child.broadcast(bad, 0, async_op=False)
    outputs = new_comm(rank, n, store, "outputs")
    NanCheckHook(check_inputs=False, check_outputs=True).register_with_comm(outputs)
    with raises(RuntimeError, "NaN detected in output tensor", "'all_gather_single'"):
        outputs.all_gather_single(torch.full((2 * n,), float("nan")), torch.ones(2), async_op=False)
    for each in (child, comm, outputs):
        each.finalize()


class NanCheck(unittest.TestCase):
    def test_nan(self) -> None:
        ranks.run(checked, 2, backend=None)


class Threads(unittest.TestCase):
    def test_ranks_that_are_threads(self) -> None:
        """All hooks at once, on two ranks of one process."""

        def body(rank: int, n: int, store: Any) -> int:
            comm = new_comm(rank, n, store, "threads")
            recorder = FlightRecorderHook(isolated=True)
            log = clog(os.path.join(FOLDER, f"threads_{rank}"), ["ALL"])
            for hook in (recorder, log, NanCheckHook()):
                hook.register_with_comm(comm)
            for _ in range(20):
                some_calls(comm)
            comm.finalize()
            return recorder.size()

        self.assertEqual(on_threads(2, body), [180, 180])


if __name__ == "__main__":
    try:
        unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]], exit=False).result.wasSuccessful() or sys.exit(1)
    finally:
        shutil.rmtree(FOLDER)
