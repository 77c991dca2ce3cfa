# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_scale.sh: how parts share the time and end, what is told of made-up lines that are small enough to count by
hand, and that constants are found again in times that were computed from them. Needs no GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import gpu_peers  # noqa: E402
from peers import gpu_fit, gpu_goals, gpu_plots, gpu_tune, results, scale, scale_parts, scale_report  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
HEAD = {"machine": "NVIDIA H200", "ranks": 2, "unavailable": {}}
MACHINE = {"gpu": "NVIDIA H200", "n_gpus": 2, "gpus_there": 2, "cpu": "Test CPU", "n_cpus": 64, "kernel": "Linux 6.1"}


def cell(op: str, size: int, us: dict, dtype: str = "bfloat16", in_place: bool = False, wrong: int = 0) -> dict:
    return {"op": op, "bytes": size, "dtype": dtype, "in_place": in_place, "us": us, "wrong": wrong}


def some_lines() -> list[dict]:
    return [
        HEAD,
        {"eager_us": {"tutti through torch": 11.0, "nccl": 40.0}},
        cell("all_reduce", KIB, {"tutti": 2.0, "tutti window": 2.0, "nccl": 6.0, "nccl window": 4.0, "torch one": 5.0}),
        cell("all_reduce", 4 * MIB, {"tutti": 40.0, "tutti window": 18.0, "nccl": 30.0, "nccl window": 27.0}),
        cell("all_gather", KIB, {"tutti": 2.4, "tutti window": 2.4, "nccl": 4.8, "nccl window": 9.0}),
        cell("broadcast", 1 << 30, {"tutti": 3000.0, "tutti window": 2830.0, "nccl": 3300.0}, in_place=True),
        {"stopped_after_s": 100.0},
    ]


class Shares(unittest.TestCase):
    def test_a_part_never_takes_the_share_of_a_later_one(self) -> None:
        names, weights = [s.name for s in scale.SHARES], {s.name: s.weight for s in scale.SHARES}
        left, total = 475.0, sum(weights.values())
        for name in names:
            limit = scale.limit_of(name, names, left)
            self.assertGreaterEqual(limit, 475.0 * weights[name] / total - 1e-6)
            left -= limit
        self.assertAlmostEqual(left, 0.0)

    def test_what_is_left_goes_on(self) -> None:
        names = ["peers", "cpu"]
        self.assertAlmostEqual(scale.limit_of("cpu", names, 470.0), 470.0)
        self.assertEqual(scale.limit_of("cpu", names, -3.0), 0.0)

    def test_parts_are_taken_in_their_order(self) -> None:
        self.assertEqual(scale.options(["--parts", "cpu,build"]).parts, ["build", "cpu"])
        with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
            scale.options(["--parts", "bild"])


class Options(unittest.TestCase):
    def test_nonsense_is_refused(self) -> None:
        for words in (["--gpus", "-1"], ["--gpus", "two"], ["--up-to", "16X"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                scale.options(words)
        self.assertEqual(scale.options(["--gpus", "0"]).gpus, 0)


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)
        self.scene = scale_parts.Scene(self.out, self.out, MACHINE, {}, until=time.monotonic() + 60)

    def test_what_is_late_is_ended_with_its_children(self) -> None:
        pid = self.out / "pid"
        for group in ("", "setsid "):  # in its process group, and in one of their own
            script = f"trap '' INT; {group}sleep 60 & echo $! > {pid}; echo waiting; wait; wait"
            until = time.monotonic() + scale_parts.GRACE_S + 1
            why = scale_parts.run(self.scene, "late", ["bash", "-c", script], until=until)
            self.assertEqual(why, "its time was up: waiting")
            self.assertFalse(is_alive(int(pid.read_text())))

    def test_what_is_left_behind_is_ended(self) -> None:
        pid = self.out / "pid"
        self.assertEqual(scale_parts.run(self.scene, "left", ["bash", "-c", f"setsid sleep 60 & echo $! > {pid}"]), "")
        self.assertFalse(is_alive(int(pid.read_text())))

    def test_a_signal_ends_all_programs_of_a_part(self) -> None:
        script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "bench")!r})
from peers import scale, scale_parts
def part(scene):
    sleep = ["bash", "-c", "setsid sleep 60 & echo $! > $0.new; mv $0.new $0; wait"]
    both = [scale_parts.start(scene, name, [*sleep, Path({str(self.out)!r}, name)]) for name in ("a", "b")]
    scale_parts.finish(both[0], scene.until)
scale.PARTS["cpu"] = part
sys.argv = ["gpu_scale", "--parts", "cpu", "--gpus", "0", "--out", {str(self.out)!r}, "--build", {str(self.out)!r}]
sys.exit(scale.main())
"""
        for number in (signal.SIGINT, signal.SIGTERM):
            pids = [self.out / name for name in ("a", "b")]
            for path in pids:
                path.unlink(missing_ok=True)
            process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            until = time.monotonic() + 30
            while not all(path.exists() for path in pids) and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(number)
            told, _ = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 128 + number, told)
            self.assertEqual([is_alive(int(path.read_text())) for path in pids], [False, False])

    def test_a_status_is_told_with_the_first_complaint(self) -> None:
        script = "echo 'rank 1: it broke'; echo 'rank 0: peer'; echo '1 FAILED'; exit 3"
        why = scale_parts.run(self.scene, "bad", ["bash", "-c", script])
        self.assertEqual(why, "it ended with 3: rank 1: it broke")
        self.assertEqual(scale_parts.run(self.scene, "good", ["true"]), "")

    def test_lines_of_a_killed_run_are_read(self) -> None:
        path = self.out / "lines"
        path.write_text('{"op": "a"}\n{"op": "b"}\n{"op": ')
        self.assertEqual([line["op"] for line in scale_parts.lines_of(path)], ["a", "b"])
        self.assertEqual(scale_parts.lines_of(self.out / "none"), [])

    def test_a_part_that_breaks_is_told(self) -> None:
        def broken(_scene) -> dict:
            raise ValueError("no such thing")

        with mock.patch.dict(scale.PARTS, {"cpu": broken}):
            found = scale.run_part("cpu", self.scene, 5.0)
        self.assertEqual((found["status"], found["why"]), ("failed", "ValueError: no such thing"))

    def test_devices_of_a_stage_are_apart(self) -> None:
        for n in range(1, 10):
            stages = scale_parts.stages(n)
            for stage in stages:
                used = [device for devices in stage for device in devices]
                self.assertEqual(len(used), len(set(used)))
                self.assertLessEqual(set(used), set(range(n)))
            counts = sorted(len(devices) for stage in stages for devices in stage)
            self.assertEqual(counts, list(range(1, min(n, 4) + 1)))
        self.assertEqual(len(scale_parts.stages(4)), 3)

    def test_worlds_fit_the_cpus(self) -> None:
        jobs = scale_parts.cpu_jobs(64)
        self.assertEqual([job.n for job in jobs], [64, 64, 32, 16, 4, 64])
        self.assertEqual({job.n for job in scale_parts.cpu_jobs(40)}, {32, 16, 4})
        self.assertEqual({job.n for job in scale_parts.cpu_jobs(2)}, {2, 4})

    def test_devices_are_those_that_are_visible(self) -> None:
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "5,7,2"}):
            self.assertEqual(scale_parts.visible([0, 2]), "5,2")
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            self.assertEqual(scale_parts.visible([1]), "1")


class Parts(unittest.TestCase):
    """The parts that need GPUs, on programs that only say what real ones would."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.out = self.root / "out"
        self.out.mkdir()
        self.write("lib/libtutti.so", "")
        self.write("built.json", json.dumps({"torch": "2.11", "without_torch": "", "nccl": "/nccl"}))
        self.write("bin/tutti", '#!/bin/sh\necho \'{"points":[{"out_of_place":{"time_us":4.600,"min_us":4}}]}\'\n')
        self.scene = scale_parts.Scene(self.out, self.root, MACHINE, {}, until=time.monotonic() + 60)
        there = mock.patch("importlib.util.find_spec", lambda name: name)
        for patch in (mock.patch.object(scale_parts, "BENCH", self.root), there):
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def program(self, name: str, content: str, option: str, status: int = 0) -> None:
        """Writes the content where the option says."""
        text = f"import sys\nout = sys.argv[sys.argv.index({option!r}) + 1]\nopen(out, 'w').write({content!r})\n"
        self.write(name, f"{text}sys.exit({status})\n")

    def lines(self, lines: list[dict]) -> str:
        return "".join(json.dumps(line) + "\n" for line in lines)

    def test_contract(self) -> None:
        script = '#!/bin/sh\n[ "$CUDA_VISIBLE_DEVICES,$TUTTI_NCCL_LIBRARY" = 0,/nccl ] && exit 0\n'
        script += 'echo "rank 1: it broke"\nexit 1\n'
        self.write("test/test_cuda_contract", script)
        found = scale_parts.contract(self.scene)
        self.assertEqual((found["status"], found["why"]), ("failed", "2 GPUs: failed (rank 1: it broke)"))
        self.assertEqual(found["runs"]["1"]["outcome"], "passed")
        self.write("test/test_cuda_contract", "#!/bin/sh\nexit 77\n")  # it found no device: that is no pass
        self.assertEqual(scale_parts.contract(self.scene)["status"], "failed")
        self.write("test/test_cuda_contract", "#!/bin/sh\nexit 0\n")
        self.assertEqual(scale_parts.contract(self.scene)["status"], "ok")

    def test_peers(self) -> None:
        self.program("gpu_peers.py", self.lines(some_lines()), "--json")
        found = scale_parts.peers(self.scene)
        self.assertEqual((found["status"], found["c_us"], found["lines"]), ("partial", 4.6, some_lines()))
        self.assertEqual(found["why"], "4 of 176 cells")
        self.assertTrue((self.scene.rest / "gpu_all_reduce_bfloat16_out.svg").exists())
        self.assertEqual({path.name for path in self.out.iterdir()}, {"gpu.jsonl", "gpu.md"})
        self.assertIn("Wrong results in 0 of 4 cells.", (self.out / "gpu.md").read_text())

    def test_all_cells_or_the_part_is_not_whole(self) -> None:
        self.scene.up_to = "256"
        cells = [cell(op, 256, {"tutti": 1.0, "tutti window": 1.0, "nccl": 2.0}) for op in gpu_peers.OPERATIONS]
        every = [HEAD, *cells, *cells, *cells, cells[0]]  # 16: two types, out of place five and in place three
        self.program("gpu_peers.py", self.lines(every), "--json")
        self.assertEqual((scale_parts.peers(self.scene)["status"], scale_parts.peers(self.scene)["why"]), ("ok", ""))
        for lines, status in ((every[:2], "partial"), ([HEAD], "failed"), ([], "failed")):
            self.program("gpu_peers.py", self.lines(lines), "--json")
            found = scale_parts.peers(self.scene)
            self.assertEqual((found["status"], found["why"]), (status, f"{max(0, len(lines) - 1)} of 16 cells"))

    def test_calls_from_c_that_fail_are_told(self) -> None:
        self.program("gpu_peers.py", self.lines(some_lines()), "--json")
        for script, why in (("kill -SEGV $$", "it ended with -11: no word"), ("echo", "told no time")):
            self.write("bin/tutti", f"#!/bin/sh\n{script}\n")
            found = scale_parts.peers(self.scene)
            self.assertEqual((found["status"], found["c_us"]), ("failed", None))
            self.assertRegex(found["why"], f"tutti bench:? {why}")

    def test_a_part_that_ran_nothing_failed(self) -> None:
        self.write("test/test_cuda_contract", "#!/bin/sh\nexit 1\n")
        with mock.patch.object(scale_parts, "stages", lambda _n: []):
            self.assertEqual(scale_parts.contract(self.scene)["status"], "failed")
        self.scene.machine = {**MACHINE, "n_gpus": -1}
        self.assertEqual(scale.run_part("contract", self.scene, 5.0)["why"], "no CUDA device")

    def test_a_build_is_of_these_sources(self) -> None:
        self.write("test/test_cuda_contract", "#!/bin/sh\nexit 0\n")
        now = {"commit": "abc", "dirty": False, "changes": ""}
        self.scene.source = now
        for source, why in (
            (now, None),
            ({**now, "commit": "def"}, "is of other sources: def"),
            ({**now, "dirty": True, "changes": "12"}, "is of other sources: abc, with changes"),
        ):
            self.write("built.json", json.dumps({"torch": None, "without_torch": "", "nccl": None, "source": source}))
            found = scale.run_part("contract", self.scene, 30.0)
            self.assertIn(why or "", found["why"])
            self.assertEqual(found["status"], "unavailable" if why else "ok")
        for text in ("{", "{}"):
            self.write("built.json", text)
            self.assertIn("did not end well", scale.run_part("cpu", self.scene, 5.0)["why"])

    def test_a_build_that_fails_leaves_none(self) -> None:
        self.write("peers/scale_build.py", "import sys\nsys.exit(1)\n")
        with mock.patch.dict(os.environ, {"PYTHONPATH": str(self.root)}):
            self.assertEqual(scale_parts.build(self.scene)["status"], "failed")
        self.assertIn("did not end well", scale.run_part("cpu", self.scene, 5.0)["why"])

    def cpu_part(self, lines: list[dict], status: int = 0) -> dict:
        """Of two jobs that leave these lines."""
        self.program("cpu_peers.py", self.lines(lines), "--out", status)
        with mock.patch.object(scale_parts, "cpu_jobs", lambda _n: [scale_parts.Job(2, "all_reduce", "8", "pages", 1)]):
            return scale_parts.cpu(self.scene)

    def test_cpu_is_about_tutti(self) -> None:
        machine = {"cpu": "Test CPU", "vendor": "AuthenticAMD", "n_cpus": 2}
        head = {"machine": machine, "date": "2026-01-01", "kernel": "Linux 6.1", "command": "", "fresh": False}
        head |= {"peers": {"tutti": "", "openmpi": "4.1.4"}, "missing": {}, "operations": ["all_reduce"]}
        where = {"world": "2", "operation": "all_reduce", "size": 8, "memory": "pages", "fresh": False}
        times = {"us": 0.2, "min_us": 0.1, "wrong": 0, "probe_ns": [60.0, 60.0]}
        tutti, other = ({**where, "peer": peer, **times} for peer in ("tutti", "openmpi"))
        copy = {**tutti, "operation": "copy"}
        lost = {**where, "peer": "tutti", "operation": "", "size": 0, "reason": "did not start: no word"}
        ended = {**where, "peer": "tutti", "reason": "ended: no word"}
        for lines, why in (
            ([tutti, other], ""),
            ([other, lost], "tutti: did not start: no word"),
            ([other, copy], "nothing was measured of tutti"),
            ([], "nothing was measured of tutti"),
            ([tutti, other, ended], "tutti: all_reduce ended: no word"),
        ):
            found = self.cpu_part([{"run": head}, *lines])
            self.assertEqual(found["status"], "failed" if why else "ok", (lines, found))
            self.assertEqual(found["why"], f"cpu_1_2_ranks: {why}" if why else "")

    def test_peers_that_hang_leave_what_they_had(self) -> None:
        head = self.lines(some_lines()[:3])
        self.program("gpu_peers.py", head, "--json")
        path = self.root / "gpu_peers.py"
        path.write_text(path.read_text().replace("sys.exit(0)", "import time; time.sleep(1000)"))
        self.scene.until = time.monotonic() + scale_parts.GRACE_S + 4
        found = scale_parts.peers(self.scene)
        self.assertEqual(found["lines"], some_lines()[:3])
        self.assertIn("its time was up: KeyboardInterrupt", found["why"])
        self.assertIn("1 of 176 cells", found["why"])
        self.assertIn("Wrong results in 0 of 1 cells.", (self.out / "gpu.md").read_text())

    def test_cells_that_were_begun_again_are_told(self) -> None:
        lines = [*some_lines(), {"restarted": "broadcast: rank 1 failed in nccl"}, {"failed": "all_gather: left out"}]
        text = scale_report.peers_lines({"lines": lines})
        self.assertIn("broadcast: rank 1 failed in nccl.", text)
        self.assertIn("Not all cells were measured: all_gather: left out.", text)

    def test_wrong_results_and_failures_of_peers_count(self) -> None:
        wrong = [*some_lines(), cell("all_gather", 8 * KIB, {"tutti": 1.0, "tutti window": 1.0, "nccl": 2.0}, wrong=1)]
        self.program("gpu_peers.py", self.lines(wrong), "--json")
        self.assertEqual(scale_parts.peers(self.scene)["why"], "wrong results in 1 cells; 5 of 176 cells")
        self.program("gpu_peers.py", self.lines(some_lines()), "--json", status=1)
        found = scale_parts.peers(self.scene)
        self.assertEqual((found["status"], len(found["lines"])), ("failed", len(some_lines())))

    def test_training(self) -> None:
        steps = {"tutti": {"median_us": 9e3}, "nccl": {"median_us": 10e3}}
        self.program("torch_peers.py", json.dumps({"worlds": {"2": {"training": {"ddp": steps}}}}), "--json")
        found = scale_parts.training(self.scene)
        self.assertEqual(found["status"], "ok")
        self.assertIn("| DDP | 9.0 | 10.0 |", scale_report.training_part(found))
        steps = {"tutti": {"reason": "wrong gradients"}, "nccl": {"median_us": 10e3}}
        self.program("torch_peers.py", json.dumps({"worlds": {"2": {"training": {"ddp": steps}}}}), "--json")
        self.assertEqual(scale_parts.training(self.scene)["why"], "ddp on tutti: wrong gradients")
        self.program("torch_peers.py", "{}", "--json")
        self.assertEqual(scale_parts.training(self.scene)["status"], "failed")

    def test_what_is_missing_is_told(self) -> None:
        self.write("built.json", json.dumps({"torch": None, "without_torch": "no torch here", "nccl": None}))
        found = scale.run_part("training", self.scene, 5.0)
        why = "no PyTorch package: no torch here; TUTTI_PYTHON can name a Python"
        self.assertEqual((found["status"], found["why"]), ("unavailable", why))
        with mock.patch("importlib.util.find_spec", lambda _name: None):
            for name in ("peers", "tune"):
                self.assertIn("; TUTTI_PYTHON can name a Python", scale.run_part(name, self.scene, 5.0)["why"])
        self.assertEqual(scale.run_part("contract", self.scene, 5.0)["why"], "test_cuda_contract is not built")
        (self.root / "lib" / "libtutti.so").unlink()
        self.assertIn("there is no build", scale.run_part("cpu", self.scene, 5.0)["why"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Report(unittest.TestCase):
    def verdict(self, start: str, lines: list[dict], c_us: float | None = None):
        found = [v for v in gpu_goals.verdicts(lines, c_us) if v.what.startswith(start)]
        self.assertEqual(len(found), 1, (start, found))
        return found[0]

    def test_tables_are_whole(self) -> None:
        self.assertEqual(len(gpu_goals.SIZES), 10)
        for table in gpu_goals.TABLES.values():
            self.assertEqual(len(table), 5)
            for times in table.values():
                self.assertEqual(len(times), len(gpu_goals.SIZES))
                self.assertEqual(list(times), sorted(times))
        self.assertEqual(gpu_goals.TABLES[4]["all_reduce"][-1], 4280)
        self.assertEqual(gpu_goals.TABLES[2]["all_to_all"][gpu_goals.SIZES.index(MIB)], 4.6)

    def test_goals_are_of_h200_and_of_so_many(self) -> None:
        def table(machine: str, n: int) -> int | None:
            return gpu_goals.table_of([{**HEAD, "machine": machine, "ranks": n}])

        self.assertEqual([table("NVIDIA H200", n) for n in (2, 3, 4, 8)], [2, None, 4, None])
        self.assertEqual([table(name, 2) for name in ("NVIDIA H100", "NVIDIA B200", "NVIDIA GH200 480GB")], [None] * 3)
        self.assertIsNone(gpu_goals.table_of([]))
        for head in ({**HEAD, "machine": "NVIDIA B200"}, {**HEAD, "ranks": 8}):
            lines = [head, *some_lines()[1:]]
            self.assertEqual(gpu_goals.missed(lines), [])
            told = [verdict.what for verdict in gpu_goals.verdicts(lines)]
            self.assertFalse([what for what in told if "times" in what or "mean" in what], told)
            text = "\n".join(scale_report.peers_lines({"lines": lines}))
            self.assertIn("goals of H200 alone", text)
            self.assertNotIn("miss their time", text)

    def test_times(self) -> None:
        lines = some_lines()
        out = self.verdict("times of the table for 2 GPUs, bfloat16, out", lines)
        self.assertEqual((out.reached, out.met), ("2 of 3 cells", False))  # 4 MiB: 18 > 16; 2.4 is met
        self.assertIs(self.verdict("times of the table for 2 GPUs, bfloat16, in", lines).met, True)
        missed = gpu_goals.missed(lines)
        self.assertEqual([(m.cell["bytes"], m.us, m.goal) for m in missed], [(4 * MIB, 18.0, 16)])
        four = [{**HEAD, "ranks": 4}, *lines[1:]]
        self.assertEqual(gpu_goals.missed(four), [])  # 24 us there, and 2840

    def test_slower_and_means(self) -> None:
        lines = some_lines()
        slower = gpu_goals.slower(lines)
        self.assertEqual([(c["bytes"], memory, peer) for c, memory, _, peer in slower],
                         [(4 * MIB, "ordinary memory, NCCL", "nccl")])  # fmt: skip
        self.assertAlmostEqual(slower[0][2], 0.75)
        window = self.verdict("not slower: registered", lines)
        self.assertEqual((window.reached, window.met), ("4 of 4 cells", True))
        small = self.verdict("geometric mean up to 256 KiB: registered", lines)
        self.assertEqual((small.reached, small.met), ("2.00 (2 cells)", False))  # 4 / 2 and 4.8 / 2.4
        middle = self.verdict("geometric mean 1 to 16 MiB: registered", lines)
        self.assertEqual((middle.reached, middle.met), ("1.50 (1 cells)", True))
        plain = self.verdict("geometric mean up to 256 KiB: ordinary", lines)
        self.assertEqual((plain.reached, plain.met), ("2.45 (2 cells)", True))  # sqrt(3 * 2)

    def test_eager(self) -> None:
        self.assertIs(self.verdict("call by call from C", some_lines(), 4.6).met, True)
        self.assertIsNone(self.verdict("call by call from C", some_lines()).met)
        self.assertIs(self.verdict("call by call from PyTorch", some_lines()).met, False)

    def test_nothing_is_told_of_one_gpu(self) -> None:
        self.assertEqual(gpu_goals.verdicts([{**HEAD, "ranks": 1}, *some_lines()[1:]]), [])
        self.assertEqual(gpu_goals.verdicts([]), [])

    def test_goals_of_many_cpus(self) -> None:
        head = {"machine": {"n_cpus": 64, "vendor": "AuthenticAMD"}, "peers": {"tutti": ""}}
        head["operations"] = ["all_reduce"]
        rows = [
            {"world": "64", "operation": "all_reduce", "size": size, "peer": "tutti", "memory": memory, "us": us}
            for size, memory, us in ((8, "pages", 1.4), (64 * KIB, "huge", 60.0), (64 * KIB, "mapped", 39.0))
        ]
        found = results.Results(head, [{**row, "min_us": row["us"], "probe_ns": [60.0, 60.0]} for row in rows])
        results.sort_out(found)
        told = {v.what: v.met for v in gpu_goals.many_cpus(found, "C")}
        self.assertEqual(list(told.values()), [True, False, True, None, None])
        head["machine"]["n_cpus"] = 32
        self.assertEqual(gpu_goals.many_cpus(found, "C"), [])

    def test_summary_tells_all_parts(self) -> None:
        found = {
            "machine": MACHINE, "date": "2026-01-01", "commit": "abc", "asked": ["build", "contract", "peers", "cpu"],
            "parts": {
                "build": {"status": "ok", "why": "", "seconds": 50.0, "limit_s": 130.0, "without_torch": ""},
                "contract": {
                    "status": "failed", "why": "2 GPUs: time was up (x)", "seconds": 9.0, "limit_s": 9.0,
                    "runs": {"1": {"outcome": "passed", "seconds": 3.0, "told": ""},
                             "2": {"outcome": "time was up", "seconds": 6.0, "told": "x"}},
                },
                "peers": {"status": "ok", "why": "", "seconds": 100.0, "limit_s": 120.0, "lines": some_lines()},
            },
        }  # fmt: skip
        text = "\n".join(scale_report.summary(found))
        self.assertIn("# 2 x NVIDIA H200; Test CPU, 64 CPUs", text)
        self.assertIn("| contract | failed | 9 of 9 | 2 GPUs: time was up (x) |", text)
        self.assertIn("| cpu | not begun |", text)
        self.assertIn("A peer is faster in 1 cells.", text)
        self.assertIn("| all_reduce 4 MiB, bfloat16, out of place | 18.0 | 16 | 1.12 |", text)
        self.assertIn("Not all cells were measured: time was up after 100 s.", text)

    def test_pictures_lie_within_their_frame(self) -> None:
        lines = some_lines()
        self.assertEqual(gpu_plots.drawn(lines), [("bfloat16", False, "all_reduce")])
        root = ElementTree.fromstring(gpu_plots.svg(lines, "bfloat16", False, "all_reduce"))
        drawn = root.findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(drawn), 2 * 5)  # time and bandwidth of five libraries
        width, height = float(root.get("width")), float(root.get("height"))
        for line in drawn:
            for x, y in (map(float, point.split(",")) for point in line.get("points").split()):
                self.assertTrue(0 <= x <= width and 0 <= y <= height)


class Kept(unittest.TestCase):
    """What lies in --out."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out, self.build = Path(folder.name) / "out", Path(folder.name) / "build"

    def members(self) -> dict[str, bytes]:
        with tarfile.open(self.out / scale.REST) as archive:
            return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}

    def options(self, parts: str) -> list[str]:
        return ["--parts", parts, "--gpus", "0", "--out", str(self.out), "--build", str(self.build)]

    def test_many_files_are_one(self) -> None:
        rest = self.build / "rest"
        rest.mkdir(parents=True)
        self.out.mkdir()
        (rest / "a.log").write_bytes(b"x" + b"y" * (scale.END_BYTES - 1) + b"z")
        (rest / "b.svg").write_bytes(b"<svg/>")
        scale.pack(rest, self.out)
        found = self.members()
        self.assertEqual(found, {"rest/a.log": b"y" * (scale.END_BYTES - 1) + b"z", "rest/b.svg": b"<svg/>"})

    def test_what_was_found_is_kept_when_all_is_ended(self) -> None:
        def build(scene) -> dict:
            scale_parts.run(scene, "build", ["echo", "built"])
            return scale_parts.ended("")

        def ended(scene) -> dict:
            scale_parts.run(scene, "cpu", ["echo", "begun"])
            sys.exit(143)

        with mock.patch.dict(scale.PARTS, {"build": build, "cpu": ended}), mock.patch("sys.stderr"):
            with self.assertRaises(SystemExit):
                scale.run(scale.options(self.options("build,cpu,tune")))
        found = json.loads((self.out / scale.RESULTS).read_text())
        self.assertEqual(list(found["parts"]), ["build"])
        self.assertEqual(self.members(), {"rest/build.log": b"built\n", "rest/cpu.log": b"begun\n"})
        self.assertIn("| cpu | not begun |", (self.out / "summary.md").read_text())

    def test_what_an_earlier_run_has_left_is_put_away(self) -> None:
        names = {"gpu.md", "gpu.jsonl", "nvidia-h200-2.tune", "results.json", "summary.md", scale.REST}
        self.out.mkdir()
        for name in (*names, "mine.txt"):
            (self.out / name).write_text("old")
        with mock.patch.dict(scale.PARTS, {"cpu": lambda _scene: scale_parts.ended("")}), mock.patch("sys.stderr"):
            scale.run(scale.options(self.options("cpu")))
        found = {path.name for path in self.out.iterdir()}
        self.assertEqual(found, {"results.json", "summary.md", scale.REST, scale.OLD, "mine.txt"})
        old = {path.name: path.read_text() for path in (self.out / scale.OLD).iterdir()}
        self.assertEqual(old, dict.fromkeys(names, "old"))

    def test_a_run_leaves_few_files(self) -> None:
        def filled(scene) -> dict:
            for i in range(20):
                scale_parts.run(scene, f"made_up_{i}", ["true"])
            return scale_parts.ended("")

        with mock.patch.dict(scale.PARTS, {"build": filled}), mock.patch("sys.stderr"):
            scale.run(scale.options(self.options("build")))
        self.assertEqual({path.name for path in self.out.iterdir()}, {"results.json", "summary.md", scale.REST})
        self.assertEqual(len(self.members()), 20)


class Fit(unittest.TestCase):
    """Times as the costs of cuda_plan.c, cuda_direct.c and cuda_engines.c have them."""

    SPEED = {
        "lines_ns": 2300.0, "sentinel_ns": 2100.0, "exceptions_ns": 150.0, "sentinel2_ns": 3500.0, "tiles_ns": 5000.0,
        "store_gbs": 340.0, "tile_gbs": 320.0, "engine_ns": 6500.0, "engine_gbs": 380.0,
        "direct_ns": 4700.0, "direct_gbs": 345.0, "multicast_ns": 2200.0,
    }  # fmt: skip
    MEET_NS = 2700.0

    def us(self, op: str, size: int, n: int) -> dict[str, float]:
        s, block = self.SPEED, size if op == "all_reduce" else size // n
        push = block * (n - 1)
        us = {"tiles": s["tiles_ns"] + push / s["tile_gbs"]}
        if size <= MIB:
            us["lines"] = s["lines_ns"] + 2 * push / s["store_gbs"]
            us["multicast"] = s["multicast_ns"] + 2 * push / s["store_gbs"]
        if size <= 4 * MIB:
            extra = s["exceptions_ns"] if op == "all_gather" else 0
            us["sentinel"] = s["sentinel_ns"] + extra + push / s["store_gbs"]
        if op == "all_reduce":
            us["sentinel2"] = s["sentinel2_ns"] + 2 * push / n / s["store_gbs"]
        else:
            us["direct"] = s["direct_ns"] + push / s["direct_gbs"]
            us["engines"] = (n - 1) * (s["engine_ns"] + block / s["engine_gbs"]) + 2 * self.MEET_NS
        return {name: ns / 1e3 for name, ns in us.items()}

    def test_constants_are_found_again(self) -> None:
        for n in (2, 3, 4, 8):
            sizes = [size // n * n for size in (KIB, 16 * KIB, 128 * KIB, MIB, 4 * MIB, 64 * MIB)]
            lines = [cell(op, size, self.us(op, size, n)) for op in ("all_reduce", "all_gather") for size in sizes]
            found = gpu_fit.fit([HEAD, *lines], n, self.MEET_NS)
            self.assertEqual(set(found), set(self.SPEED))
            for name, value in self.SPEED.items():
                self.assertAlmostEqual(found[name] / value, 1.0, places=3, msg=f"{name} of {n}")

    def test_what_was_not_measured_is_not_made_up(self) -> None:
        self.assertEqual(gpu_fit.fit([HEAD], 2, 1.0), {})
        only = [cell("all_gather", size, {"tiles": 5.0 + size / 1e5}) for size in (KIB, MIB)]
        self.assertEqual(set(gpu_fit.fit(only, 2, 1.0)), {"tiles_ns", "tile_gbs"})

    def test_fewest_blocks_that_suffice(self) -> None:
        def both(first: dict, second: dict) -> list[dict]:
            return [cell("all_gather", 16 * MIB, first), cell("all_reduce", 16 * MIB, second)]

        fast = {"tiles": 1.0, "tiles@32": 40.0, "tiles@64": 30.1, "tiles@128": 30.0}
        self.assertEqual(gpu_fit.fewest_blocks(both(fast, {"tiles@32": 9, "tiles@64": 9, "tiles@128": 9})), 64)
        self.assertEqual(gpu_fit.fewest_blocks(both(fast, {"tiles@64": 12, "tiles@128": 9})), 128)
        self.assertIsNone(gpu_fit.fewest_blocks([cell("all_gather", KIB, {"tiles": 1.0})]))

    def test_the_library_takes_what_is_found(self) -> None:
        header = (ROOT / "src" / "backend" / "cuda_speed.h").read_text()
        rows = re.findall(r"X\((\w+), ([0-9.e]+), ([0-9.e]+), \"", header)
        ranges = {name: (float(low), float(high)) for name, low, high in rows}
        self.assertLessEqual({*self.SPEED, "blocks"}, set(ranges))
        for name in {*self.SPEED, "blocks"}:
            low, high = ranges[name]
            values = (low, high, -1e9, low - 0.01, high * 1.01, 1e12, float("nan"))
            kept = [value for value in values if gpu_fit.sorted_out({name: value})[0]]
            self.assertEqual(kept, [low, high], name)

    def test_a_meeting_is_as_long_as_the_library_has_it(self) -> None:
        source = (ROOT / "src" / "backend" / "cuda_speed.c").read_text()
        self.assertEqual(len(gpu_fit.ROW.findall(source)), source.count(".meet_ns ="))
        row = {n: float(re.search(rf'"NVIDIA H200",\s*{n},.*?meet_ns = ([0-9]+)', source, re.S)[1]) for n in (2, 4)}
        self.assertNotEqual(row[2], row[4])
        self.assertEqual([gpu_fit.meet_ns("NVIDIA H200", n) for n in (2, 3, 4, 8)], [row[2], row[2], row[4], row[4]])
        self.assertEqual(gpu_fit.meet_ns("another", 4), row[2])

    def test_what_can_not_be_is_told(self) -> None:
        us = {KIB: 50.0, MIB: 9.0}  # more bytes in less time
        lines = [HEAD, *(cell("all_gather", size, {"tiles": 5.0 + size / 4e4, "direct": us[size]}) for size in us)]
        lines += [cell("all_gather", size, {"engines": 1.0 + size / 1e5}) for size in us]
        with tempfile.TemporaryDirectory() as out, mock.patch.object(gpu_peers, "measure", lambda *_: lines):
            found = f"{out}/found.json"
            arguments = ["gpu_tune", "-n", "2", "--library", "libtutti.so", "--out", out, "--json", found]
            with mock.patch.object(sys, "argv", arguments), mock.patch("sys.stderr"):
                self.assertEqual(gpu_tune.main(), 0)
            told, text = json.loads(Path(found).read_text()), (Path(out) / "nvidia-h200-2.tune").read_text()
        self.assertEqual(set(told["left_out"]), {"engine_ns"})
        self.assertIn("left out, since no such value can be: engine_ns -", told["told"])
        for name in ("engine_ns", "direct", "meet_ns"):
            self.assertNotIn(name, text)
        self.assertIn("engine_gbs", text)

    def test_tuner(self) -> None:
        cases = [(op, size) for op in gpu_fit.FOLDS + gpu_fit.MOVES for size in (KIB, MIB)]
        lines = [HEAD, *(cell(op, size, self.us(op, size, 2)) for op, size in cases)]
        seen = []

        def measure(chosen, module: str) -> list[dict]:
            seen.append((module, len(gpu_peers.plan_of(chosen)["cells"])))
            return lines

        with tempfile.TemporaryDirectory() as out, mock.patch.object(gpu_peers, "measure", measure):
            found = f"{out}/found.json"
            arguments = ["gpu_tune", "-n", "2", "--library", "libtutti.so", "--out", out, "--json", found]
            with mock.patch.object(sys, "argv", arguments):
                self.assertEqual(gpu_tune.main(), 0)
            self.assertEqual(seen, [("peers.gpu_tune_rank", 2 * len(gpu_tune.SIZES))])
            self.assertEqual(json.loads(Path(found).read_text())["file"], "nvidia-h200-2.tune")
            text = (Path(out) / "nvidia-h200-2.tune").read_text()
            self.assertIn("tiles_ns        5000.000\n", text)
            self.assertNotIn("meet_ns", text)
            lines.append({"failed": "rank 1 failed at the end"})
            with mock.patch.object(sys, "argv", arguments):
                self.assertEqual(gpu_tune.main(), 1)

    def test_file(self) -> None:
        self.assertEqual(gpu_fit.file_name("NVIDIA H200", 4), "nvidia-h200-4.tune")
        text = gpu_fit.file_text({"tiles_ns": 1234.5}, "4 x NVIDIA H200")
        self.assertEqual(text, "# 4 x NVIDIA H200\ntiles_ns        1234.500\n")


class Run(unittest.TestCase):
    def script(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([ROOT / "bench" / "gpu_scale.sh", *arguments], capture_output=True, text=True, timeout=60)

    def test_parts_that_need_a_gpu_say_so(self) -> None:
        with tempfile.TemporaryDirectory() as out:
            parts = "contract,peers,training,tune"
            done = self.script("--gpus", "0", "--seconds", "30", "--parts", parts, "--out", out, "--build", out)
            self.assertEqual(done.returncode, 1, done.stderr)
            found = json.loads((Path(out) / "results.json").read_text())
            for name in parts.split(","):
                self.assertIn(f"| {name} | unavailable |", done.stdout)
                self.assertEqual(found["parts"][name]["why"], "no CUDA device")
            found = {path: path.stat().st_mtime_ns for path in Path(out).iterdir()}
            again = self.script("--report", "--out", out)
            self.assertEqual((again.returncode, again.stdout, again.stderr), (1, done.stdout, ""))
            self.assertEqual(found, {path: path.stat().st_mtime_ns for path in Path(out).iterdir()})

    def test_a_report_of_what_is_broken_is_a_sentence(self) -> None:
        with tempfile.TemporaryDirectory() as out:
            path = Path(out) / "results.json"
            missing = "No such file or directory; no part"
            for text, why in (("", missing), ('{"machine', "is broken"), ("{}", "is broken")):
                if text:
                    path.write_text(text)
                done = self.script("--report", "--out", out)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, f"^gpu_scale: {path}:? {why}.*\n$")
            path.write_text(json.dumps({"machine": MACHINE, "date": "", "commit": "abc", "asked": [], "parts": {}}))
            (Path(out) / "gpu.jsonl").write_text(json.dumps(HEAD) + '\n{"op":')
            self.assertIn("is half written", self.script("--report", "--out", out).stderr)


if __name__ == "__main__":
    unittest.main()
