# SPDX-License-Identifier: BSD-3-Clause
# timeout: 300
"""The flight recorder: what it holds of a healthy run, what it writes when a communicator fails, and what PyTorch's own
fr_trace makes of that; and that the profiler sees the same calls."""

import json
import os
import pickle
import shutil
import sys
import tempfile
import unittest
from datetime import timedelta

FOLDER = tempfile.mkdtemp(prefix="tutti-recorder-")
os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(FOLDER, "trace_")
os.environ["TORCH_FR_BUFFER_SIZE"] = "64"

import torch
import torch.distributed as dist

import ranks
import tutti_torch


def calls(rank: int, size: int) -> None:
    """Some of each kind, in a known order."""
    dist.all_reduce(torch.ones(3, 5))
    dist.all_gather_into_tensor(torch.empty(4 * size, dtype=torch.int64), torch.ones(4, dtype=torch.int64))
    if rank == 0:
        dist.send(torch.ones(7), 1)
    elif rank == 1:
        dist.recv(torch.ones(7), 0)
    right, left = (rank + 1) % size, (rank - 1) % size
    both = [dist.P2POp(dist.isend, torch.ones(2), right), dist.P2POp(dist.irecv, torch.ones(2), left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    dist.barrier()


def healthy(rank: int, size: int) -> bytes:
    calls(rank, size)
    return tutti_torch.dump_flight_recorder()


def overflowing(rank: int, size: int) -> bytes:
    for n in range(100):
        dist.all_reduce(torch.ones(n + 1))
    return tutti_torch.dump_flight_recorder()


def mismatched(rank: int, size: int) -> str:
    dist.all_reduce(torch.ones(4))
    try:
        dist.all_reduce(torch.ones(8 if rank == 1 else 4))
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("the ranks called with different sizes, and nobody said so")


def asked(rank: int, size: int) -> dict:
    """While the process goes on, by a word to its pipe; twice."""
    os.environ["TORCH_FR_DEBUG_INFO_PIPE_FILE"] = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
    for n in (1, 2):
        dist.all_reduce(torch.ones(4))
        with open(path + ".pipe", "w") as pipe:
            pipe.write("1\n")
        ranks.settle(True, lambda: os.path.exists(path))
        with open(path, "rb") as file:
            assert len(pickle.load(file)["entries"]) == n
        os.remove(path)
    return pickle.loads(tutti_torch._C.flight_recorder(include_collectives=False))


def late(rank: int, size: int) -> str:
    """Rank 1 never comes to the second call."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    dist.all_reduce(torch.ones(4), group=group)
    if rank == 1:
        with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1", "wb") as file:
            file.write(tutti_torch.dump_flight_recorder())
        return ""
    try:
        dist.all_reduce(torch.ones(4), group=group)
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("one rank never came, and nobody said so")


class FlightRecorder(unittest.TestCase):
    def setUp(self) -> None:
        for name in os.listdir(FOLDER):
            os.remove(os.path.join(FOLDER, name))

    def test_healthy_run(self) -> None:
        for rank, dump in enumerate(ranks.run(healthy, 2)):
            trace = pickle.loads(dump)
            entries = trace["entries"]
            p2p = ["nccl:send 0->1"] if rank == 0 else ["nccl:recv 1<-0"]
            self.assertEqual(
                [entry["profiling_name"] for entry in entries],
                ["nccl:all_reduce", "nccl:_all_gather_base", *p2p]
                + [f"nccl:send {rank}->{1 - rank}", f"nccl:recv {rank}<-{1 - rank}", "nccl:coalesced", "nccl:barrier"],
            )
            self.assertEqual({entry["state"] for entry in entries}, {"completed"})
            self.assertTrue(all(entry["retired"] for entry in entries))
            self.assertEqual([entry["record_id"] for entry in entries], list(range(7)))
            self.assertEqual(entries[0]["input_sizes"], [[3, 5]])
            self.assertEqual(entries[1]["output_sizes"], [[8]])
            self.assertEqual(entries[1]["input_dtypes"], ["Long"])
            self.assertEqual([entry["is_p2p"] for entry in entries], [False, False, True, True, True, False, False])
            self.assertEqual(entries[0]["collective_seq_id"], 1)
            self.assertEqual(entries[-1]["collective_seq_id"], 3)
            for entry in entries:
                self.assertLessEqual(entry["time_created_ns"], entry["time_discovered_started_ns"])
                self.assertLessEqual(entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"])
            self.assertEqual(entries[-2]["op_id"], entries[-3]["op_id"])  # it stands for the two before it
            message = entries[2]
            self.assertEqual((message["input_sizes"], message["output_sizes"]), ([[7]], [[7]]))
            (group,) = trace["pg_config"].values()
            self.assertEqual(group["ranks"], "[0, 1]")
            (state,) = trace["pg_status"].values()
            self.assertEqual(set(state.values()), {3})
        self.assertEqual(os.listdir(FOLDER), [], "a healthy run writes nothing")

    def test_the_last_calls_are_kept(self) -> None:
        for dump in ranks.run(overflowing, 2):
            entries = pickle.loads(dump)["entries"]
            self.assertEqual([entry["input_sizes"] for entry in entries], [[[n + 1]] for n in range(36, 100)])

    def test_written_when_asked(self) -> None:
        for trace in ranks.run(asked, 2):
            self.assertNotIn("entries", trace)
            self.assertEqual([state["last_completed_collective"] for state in trace["pg_status"].values()], [2])

    def test_mismatch_is_dumped_and_understood(self) -> None:
        for sentence in ranks.run(mismatched, 2):
            self.assertIn("all_reduce", sentence)
        self.assertEqual(sorted(os.listdir(FOLDER)), ["trace_0", "trace_1"])
        for rank in range(2):
            last = pickle.load(open(os.path.join(FOLDER, f"trace_{rank}"), "rb"))["entries"][-1]
            self.assertEqual((last["state"], last["retired"]), ("started", True))
        printed = ranks.fr_trace(FOLDER)
        self.assertIn("SIZE_OR_SYNTAX_MISMATCH", printed)

    def test_missing_rank_is_dumped_and_understood(self) -> None:
        sentences = ranks.run(late, 2)
        self.assertIn("rank 1", sentences[0])
        printed = ranks.fr_trace(FOLDER)
        self.assertIn("missing ranks: {1}", printed)


def profiled(rank: int, size: int) -> list:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 5))
        dist.all_gather_into_tensor(torch.empty(4 * size), torch.ones(4))
    path = os.path.join(FOLDER, f"profile_{rank}.json")
    profiler.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    return [event for event in events if event.get("name", "").startswith(("tutti:", "record_param_comms"))]


class Profiler(unittest.TestCase):
    def test_calls_are_described(self) -> None:
        for events in ranks.run(profiled, 2):
            described = [event["args"] for event in events if event["name"] == "record_param_comms"]
            self.assertEqual([d["Collective name"] for d in described], ["all_reduce", "all_gather_into_tensor"])
            self.assertEqual([d["In msg nelems"] for d in described], [15, 4])
            self.assertEqual([d["Out msg nelems"] for d in described], [15, 8])
            self.assertEqual({d["dtype"] for d in described}, {"Float"})
            self.assertEqual({d["Group size"] for d in described}, {2})
            self.assertEqual([int(d["Seq"]) for d in described], [1, 2])
            spans = [event["name"] for event in events if event["name"].startswith("tutti:")]
            self.assertEqual(spans, ["tutti:all_reduce", "tutti:all_gather_into_tensor"])


if __name__ == "__main__":
    try:
        unittest.main(argv=[sys.argv[0], "-v"], exit=False).result.wasSuccessful() or sys.exit(1)
    finally:
        shutil.rmtree(FOLDER)
