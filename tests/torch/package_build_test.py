# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 1800
"""The package as it is built, in a copy of the tree: the wheel of an isolated build that may download nothing and what
is in it, that it works where it is unpacked, an installation that stays in the tree, and the source archive."""

import csv
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Two ranks, from the package that is first on the path.
PROGRAM = """
import os, sys, torch, torch.distributed as dist, tutti_torch
path = sys.argv[1]
children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=2)
        tensor = torch.arange(100.) + rank
        dist.all_reduce(tensor)
        right = torch.equal(tensor, 2 * torch.arange(100.) + 1)
        dist.destroy_process_group()
        os._exit(0 if right else 9)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
print(tutti_torch.__file__)
"""


def command(*arguments: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **environment}
    return subprocess.run(arguments, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


class Build(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.tree = cls.folder / "a tree"
        ours = shutil.ignore_patterns(".git", ".venv", "build", "build-*", "__pycache__", "_build.py", "_C.*.so")
        shutil.copytree(ROOT, cls.tree, symlinks=True, ignore=ours)
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "-w", str(cls.folder), "."]
        built = command(*pip, folder=cls.tree)
        if built.returncode != 0:
            raise AssertionError(built.stdout)
        (cls.wheel,) = cls.folder.glob("*.whl")

    def hook(self, name: str) -> "subprocess.CompletedProcess[str]":
        """What an installer calls; what it makes is in a folder of that name."""
        made = self.folder / name
        made.mkdir(exist_ok=True)
        code = f"import sys; sys.path.insert(0, 'bindings/torch'); import build_backend as b; b.{name}(sys.argv[1])"
        return command(sys.executable, "-c", code, str(made), folder=self.tree)

    def check_runs(self, package: Path) -> None:
        answer = command(sys.executable, "-c", PROGRAM, str(self.folder / "store"), folder=Path("/"),
                         PYTHONPATH=str(package), OMP_NUM_THREADS="1")
        self.assertEqual(answer.returncode, 0, answer.stdout)
        self.assertEqual(answer.stdout.splitlines()[-1], str(package / "tutti_torch" / "__init__.py"))

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "kernels are built where there is a GPU")
    def test_without_a_gpu_no_kernels_are_built(self) -> None:
        for cache in (self.tree / "build-torch").glob("*/CMakeCache.txt"):
            self.assertIn("TUTTI_CUDA:UNINITIALIZED=off\n", cache.read_text().replace(":STRING=", ":UNINITIALIZED="))

    def test_wheel_holds_the_package_and_says_so(self) -> None:
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
            recorded = [row[0] for row in csv.reader(wheel.read(record).decode().splitlines())]
            tag = re.search(r"^Tag: (.*)$", wheel.read(record.replace("RECORD", "WHEEL")).decode(), re.M)
        self.assertEqual(sorted(names), sorted(recorded))
        self.assertTrue(self.wheel.name.endswith(f"-{tag[1]}.whl"), self.wheel.name)
        self.assertEqual(len([name for name in names if re.match(r"tutti_torch/_C\..*\.so$", name)]), 1)
        self.assertEqual(len([name for name in names if name.startswith("tutti_torch/lib/libtutti.so.")]), 1)
        (tutti,) = [name for name in names if name.endswith(".data/scripts/tutti")]  # installers put it on the PATH
        with zipfile.ZipFile(self.wheel) as wheel:
            self.assertEqual(wheel.getinfo(tutti).external_attr >> 16, 0o100755)
            program = Path(wheel.extract(tutti, self.folder))
        program.chmod(0o755)
        self.assertIn("tutti", command(str(program), "--version", folder=self.folder).stdout)
        ends = (".py", ".pyi", "py.typed")
        python = {name for name in names if name.startswith("tutti_torch") and name.endswith(ends)}
        ours = {str(path.relative_to(ROOT / "bindings" / "torch"))
                for end in ends for path in (ROOT / "bindings" / "torch").glob(f"tutti_torch*/**/*{end}")}
        stubs = {f"tutti_torch/comms/{name}.pyi" for name in ("__init__", "hooks/clog", "hooks/fr")}
        self.assertEqual(python, ours | stubs | {"tutti_torch/_build.py", "tutti_torch_autoload.py"})

    def test_it_runs_where_it_is_unpacked(self) -> None:
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(self.folder / "unpacked")
        self.check_runs(self.folder / "unpacked")

    def test_second_build_compiles_nothing(self) -> None:
        built = self.hook("build_wheel")
        self.assertEqual(built.returncode, 0, built.stdout)
        self.assertNotRegex(built.stdout, "Building C")
        again = self.folder / "build_wheel" / self.wheel.name
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def test_editable(self) -> None:
        built = self.hook("build_editable")
        self.assertEqual(built.returncode, 0, built.stdout)
        (wheel,) = (self.folder / "build_editable").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            self.assertEqual(archive.read("__editable__.tutti_torch.pth").decode(), f"{self.tree}/bindings/torch\n")
        self.check_runs(self.tree / "bindings" / "torch")

    def test_source_archive(self) -> None:
        refused = self.hook("build_sdist")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("tutti: a source archive is made of what git tracks, and this tree is no clone", refused.stdout)
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            done = command(*git, *arguments, folder=self.tree)
            self.assertEqual(done.returncode, 0, done.stdout)
        made = self.hook("build_sdist")
        shutil.rmtree(self.tree / ".git")
        self.assertEqual(made.returncode, 0, made.stdout)
        (archive,) = (self.folder / "build_sdist").glob("*.tar.gz")
        with tarfile.open(archive) as files:
            names = files.getnames()
        base = archive.name[:-len(".tar.gz")]
        for name in ("PKG-INFO", "pyproject.toml", "dev", "src/base/base.h", "bindings/torch/build_backend.py"):
            self.assertIn(f"{base}/{name}", names)
        self.assertFalse([name for name in names if "build-torch" in name])


if __name__ == "__main__":
    unittest.main()
