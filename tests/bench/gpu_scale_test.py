# SPDX-License-Identifier: BSD-3-Clause
"""bench/gpu_scale.sh: how parts share the time and end, what each makes of what its programs leave, and what is kept.
Needs no GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import gpu_peers  # noqa: E402
from gpu_lines import HEAD, KIB, MACHINE, cell, some_lines  # noqa: E402
from peers.scale import command as scale, parts as scale_parts, report as scale_report  # noqa: E402


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
        for words in (["--gpus", "-1"], ["--gpus", "two"], ["--up-to", "16X"], ["--seconds", "nan"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                scale.options(words)
        self.assertEqual(scale.options(["--gpus", "0"]).gpus, 0)

    def test_a_folder_that_can_not_be_made_is_a_sentence(self) -> None:
        with self.assertRaisesRegex(SystemExit, "gpu_scale: /dev/null/here can not be made: Not a directory"):
            scale.run(scale.options(["--out", "/dev/null/here"]))


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
from peers.scale import command as scale, parts as scale_parts
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
        self.write("peers/scale/build.py", "import sys\nsys.exit(1)\n")
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
