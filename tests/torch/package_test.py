# SPDX-License-Identifier: BSD-3-Clause
# label: long
"""The package tutti_torch as it is installed: what it says of itself, that importing it is free of side effects, and
that everything that can be wrong with an installation or a build is told in one sentence. Nothing is compiled here."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib import metadata
from pathlib import Path

BINDINGS = Path(__file__).resolve().parents[2] / "bindings" / "torch"


def python(code: str, executable: str = sys.executable, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs code in a process of its own, in which the package's variables are those given and no others."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_TORCH_")}
    return subprocess.run([executable, "-c", code], env={**inherited, **environment}, cwd="/", text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


class Scratch(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def installed(self) -> Path:
        import tutti_torch

        return Path(tutti_torch.__file__).parent

    def copy(self) -> Path:
        """The installed package in this test's folder, where it may be spoilt."""
        return Path(shutil.copytree(self.installed(), self.folder / "tutti_torch"))

    def record(self, **changes: str) -> Path:
        """A copy of the package that says other things of its build."""
        package = self.copy()
        text = (package / "_build.py").read_text()
        for name, value in changes.items():
            text, n = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", text)
            self.assertEqual(n, 1, name)
        (package / "_build.py").write_text(text)
        return package


class Metadata(unittest.TestCase):
    def setUp(self) -> None:
        self.distribution = metadata.distribution("tutti-torch")

    def test_torch_finds_it_by_its_entry_point(self) -> None:
        points = [point for point in self.distribution.entry_points if point.group == "torch.backends"]
        self.assertEqual([(point.name, point.value) for point in points], [("tutti", "tutti_torch_autoload:autoload")])
        self.assertTrue(callable(points[0].load()))

    def test_it_requires_nothing_that_an_installer_would_fetch(self) -> None:
        self.assertIsNone(self.distribution.requires)

    def test_what_is_recorded_is_what_is_there(self) -> None:
        checked = 0
        for file in self.distribution.files or []:
            if file.hash:
                content = file.locate().read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                self.assertEqual((file.hash.mode, file.hash.value), ("sha256", digest), str(file))
                checked += 1
        self.assertGreater(checked, 3)

    def test_it_says_what_it_is(self) -> None:
        import torch

        import tutti_torch

        info = tutti_torch.build_info()
        self.assertEqual(tutti_torch.__version__, self.distribution.version)
        self.assertEqual(info["version"], self.distribution.version)
        self.assertEqual(info["torch"].split(".")[:2], torch.__version__.split(".")[:2])
        self.assertTrue(os.path.isfile(info["library"]))
        page = subprocess.run([sys.executable, "-m", "tutti_torch"], cwd="/", text=True, stdout=subprocess.PIPE,
                              check=True)
        self.assertRegex(page.stdout, rf"(?m)^tutti_torch +{re.escape(info['version'])} in ")
        self.assertRegex(page.stdout, rf"(?m)^libtutti +{re.escape(info['version'])} in {re.escape(info['library'])}$")


class Import(Scratch):
    TORCH = "2.13.4"

    def refusal(self) -> str:
        """The sentence with which importing this test's package ends. It comes before torch is used, so one that has a
        version and nothing else will do; the real one takes seconds to load."""
        (self.folder / "torch.py").write_text(f"__version__ = {self.TORCH!r}\n")
        answer = python("import tutti_torch", PYTHONPATH=str(self.folder))
        self.assertNotEqual(answer.returncode, 0)
        self.assertRegex(last_line(answer.stderr), "^ImportError: ")
        return last_line(answer.stderr)

    def test_not_built(self) -> None:
        shutil.copytree(BINDINGS / "tutti_torch", self.folder / "tutti_torch",
                        ignore=shutil.ignore_patterns("_build.py", "_C.*", "lib"))
        self.assertIn("is not built: run `pip install .` in the clone of tutti", self.refusal())

    def test_torch_was_upgraded(self) -> None:
        self.record(TORCH="2.12.1")
        sentence = self.refusal()
        self.assertIn(f"built for torch 2.12.1, and this is torch {self.TORCH}", sentence)
        self.assertIn("`pip install .`", sentence)

    def test_another_bugfix_release_of_torch_fits(self) -> None:
        another = ".".join(metadata.version("torch").split(".")[:2]) + ".99"
        self.record(TORCH=another)
        answer = python("import tutti_torch; print(tutti_torch.build_info()['torch'])", PYTHONPATH=str(self.folder))
        self.assertEqual((answer.stdout, answer.returncode), (another + "\n", 0), answer.stderr)

    def test_another_python(self) -> None:
        for library in self.record(TORCH=self.TORCH, PYTHON="3.8.1").glob("_C.*"):
            library.rename(library.with_name("_C.cpython-38-none.so"))
        self.assertIn("built for Python 3.8.1, and this is Python " + sys.version.split()[0], self.refusal())

    def test_import_starts_no_thread_and_opens_nothing(self) -> None:
        answer = python("""
import os, torch, torch.distributed
def state():
    descriptors = {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                   if os.path.lexists(f"/proc/self/fd/{name}")}
    shared = {line.split(maxsplit=5)[-1] for line in open("/proc/self/maps") if line.split()[1][3] == "s"}
    return set(os.listdir("/proc/self/task")), descriptors, shared, set(os.listdir("/dev/shm"))
before = state()
import tutti_torch
after = state()
assert after[0] <= before[0], (before, after)  # one of torch's that ended may have been listed still
assert after[1:3] == before[1:3], (before, after)
assert not {name for name in after[3] - before[3] if "tutti" in name}, after[3]
""")
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_program_may_fork_after_it(self) -> None:
        answer = python("""
import os, sys, tempfile, torch, torch.distributed as dist, tutti_torch
path = tempfile.mktemp()
children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=2)
        tensor = torch.arange(1000.) + rank
        dist.all_reduce(tensor)
        right = torch.equal(tensor, 2 * torch.arange(1000.) + 1)
        dist.destroy_process_group()
        os._exit(0 if right else 9)
    children.append(child)
status = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
os.path.exists(path) and os.unlink(path)
sys.exit(str(status) if any(status) else 0)
""")
        self.assertEqual(answer.returncode, 0, answer.stderr)


class Autoload(Scratch):
    LOADED = "import torch, sys; print('tutti_torch' in sys.modules)"

    def test_nothing_is_loaded_unless_asked_for(self) -> None:
        answer = python(self.LOADED)
        self.assertEqual((answer.stdout, answer.stderr, answer.returncode), ("False\n", "", 0))

    def test_a_broken_package_is_no_matter_of_torch(self) -> None:
        (self.copy() / "_build.py").unlink()
        answer = python(self.LOADED, PYTHONPATH=str(self.folder))
        self.assertEqual((answer.stdout, answer.stderr, answer.returncode), ("False\n", "", 0))

    def test_a_variable_loads_it(self) -> None:
        answer = python(self.LOADED, TUTTI_TORCH_REPLACE="gloo")
        self.assertEqual((answer.stdout, answer.returncode), ("True\n", 0), answer.stderr)

    def test_a_variable_and_an_import_of_the_package(self) -> None:
        answer = python("import tutti_torch; print(tutti_torch.__version__)", TUTTI_TORCH_DEFAULT="cpu")
        self.assertEqual((answer.stdout, answer.stderr), (metadata.version("tutti-torch") + "\n", ""))

    def test_who_asks_for_a_broken_package_is_told(self) -> None:
        (self.copy() / "_build.py").unlink()
        answer = python("import torch", PYTHONPATH=str(self.folder), TUTTI_TORCH_DEFAULT="cpu")
        self.assertNotEqual(answer.returncode, 0)
        told = r"TUTTI_TORCH_DEFAULT asks for tutti_torch, which can not be loaded: .* not built:"
        self.assertRegex(answer.stderr, told)


class Build(Scratch):
    """What a build refuses before it compiles: `pip install .` prints that one line."""

    BEGIN = f"import sys; sys.path.insert(0, {str(BINDINGS)!r}); import build_backend, build_facts, sysconfig\n"

    def refusal(self, executable: str = sys.executable, first: str = "", **environment: str) -> str:
        answer = python(f"{self.BEGIN}{first}\nbuild_backend.prepare_metadata_for_build_wheel({str(self.folder)!r})",
                        executable, **environment)
        self.assertEqual(answer.returncode, 1, answer.stderr)
        self.assertEqual(len(answer.stderr.splitlines()), 1, answer.stderr)
        self.assertRegex(answer.stderr, "^tutti: ")
        return answer.stderr

    def path_without(self, *names: str) -> str:
        """A PATH on which these programs are missing."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name in {"cc", "gcc", "c++", "g++", "cmake", "ninja", "make"} - set(names):
            found = shutil.which(name)
            if found:
                (folder / name).symlink_to(found)
        return str(folder)

    def bare_python(self) -> str:
        """A Python that has nothing installed."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")], check=True)
        return str(self.folder / "venv" / "bin" / "python")

    def false_torch(self, text: str) -> "dict[str, str]":
        (self.folder / "path" / "torch").mkdir(parents=True)
        (self.folder / "path" / "torch" / "__init__.py").write_text(text)
        return {"PYTHONPATH": str(self.folder / "path")}

    def test_metadata_without_compiling(self) -> None:
        answer = python(f"{self.BEGIN}print(build_backend.prepare_metadata_for_build_wheel({str(self.folder)!r}))")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        folder = self.folder / last_line(answer.stdout)
        installed = metadata.distribution("tutti-torch")
        self.assertEqual(metadata.Distribution.at(folder).metadata["Version"], installed.version)
        self.assertEqual((folder / "entry_points.txt").read_text(), installed.read_text("entry_points.txt"))

    def test_no_compiler(self) -> None:
        self.assertIn("a C++ compiler is missing: install it (Debian: apt-get install g++)",
                      self.refusal(PATH=self.path_without("c++", "g++"), CXX=""))

    def test_no_c_compiler(self) -> None:
        self.assertIn("a C compiler is missing", self.refusal(PATH=self.path_without("cc", "gcc"), CC=""))

    def test_a_compiler_that_is_not_there(self) -> None:
        self.assertIn("CXX names /none/g++, which is not there", self.refusal(CXX="/none/g++"))

    def test_no_cmake(self) -> None:
        self.assertIn("CMake is missing: install it (Debian: apt-get install cmake)",
                      self.refusal(PATH=self.path_without("cmake")))

    def test_cmake_of_old(self) -> None:
        path = Path(self.path_without("cmake"))
        (path / "cmake").write_text("#!/bin/sh\necho cmake version 3.22.1\n")
        (path / "cmake").chmod(0o755)
        self.assertIn("is version 3.22, and 3.25 is the oldest", self.refusal(PATH=f"{path}:/usr/bin:/bin"))

    def test_neither_ninja_nor_make(self) -> None:
        self.assertIn("Ninja (or make) is missing", self.refusal(PATH=self.path_without("ninja", "make")))

    def test_no_headers_of_python(self) -> None:
        first = f"sysconfig.get_path = lambda name: {str(self.folder)!r}"
        self.assertIn("Python's headers are missing", self.refusal(first=first))

    def test_no_torch(self) -> None:
        self.assertIn("there is no torch in the environment of", self.refusal(self.bare_python()))

    def test_torch_too_old(self) -> None:
        begin = "import types\n_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=False)\n"
        self.assertIn("torch 2.5.1+cu121 is too old: tutti needs torch 2.6 or later",
                      self.refusal(self.bare_python(), **self.false_torch(begin + "__version__ = '2.5.1+cu121'\n")))

    def test_torch_without_headers(self) -> None:
        begin = "import types\n_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)\n"
        self.assertIn("comes without its C++ headers",
                      self.refusal(self.bare_python(), **self.false_torch(begin + "__version__ = '2.13.0'\n")))

    def test_torch_that_can_not_be_imported(self) -> None:
        false = self.false_torch("raise OSError('libcudart.so.13: no such file')")
        self.assertIn("can not be imported: OSError: libcudart.so.13: no such file",
                      self.refusal(self.bare_python(), **false))

    def test_what_pip_hides_is_found(self) -> None:
        """As while pip builds in isolation: a sitecustomize takes the environment's packages off the path, with them
        torch, and what a cmake that was installed with pip imports."""
        (self.folder / "overlay").mkdir()
        hides = "import sys\nsys.path[:] = [path for path in sys.path if 'site-packages' not in path]\n"
        (self.folder / "overlay" / "sitecustomize.py").write_text(hides)
        path = self.path_without("cmake")
        program = self.folder / "bin" / "cmake"
        program.write_text(f"#!{sys.executable}\nimport typing_extensions\nprint('cmake version 3.31.4')\n")
        program.chmod(0o755)
        code = f"{self.BEGIN}facts = build_facts.gather(); print(facts.torch_version, facts.cmake)"
        answer = python(code, PATH=path, PYTHONPATH=str(self.folder / "overlay"), PYTHONNOUSERSITE="1")
        self.assertEqual(answer.stdout, f"{metadata.version('torch')} {program}\n", answer.stderr)


if __name__ == "__main__":
    unittest.main()
