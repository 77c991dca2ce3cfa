# SPDX-License-Identifier: BSD-3-Clause
# label: long
# timeout: 2400
"""The wheel as a stranger gets it: made, installed into an empty environment, and used there: README's example in
Python, the command, the headers; what it needs of the system, and that nothing is left when it goes. No kernels for
GPUs: these take half an hour. The other versions of Python that are here import it, too."""

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
OTHERS = [found for minor in range(9, 15) if (found := shutil.which(f"python3.{minor}"))]


def run(*words, **variables):
    """What a program prints, in an environment without the build's folders."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    ended = subprocess.run(list(map(str, words)), env={**environment, **variables}, cwd="/", timeout=1800, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode:
        raise AssertionError(f"{words[0]} ended with {ended.returncode}:\n{ended.stdout[-4000:]}")
    return ended.stdout


def readme_example():
    """The block of README.md that imports tutti."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return next(block for block in blocks if re.search(r"^import .*\btutti\b(?!_)", block, re.M))


class Wheel(unittest.TestCase):
    """One wheel for all tests."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        python = os.environ.get("TUTTI_WHEEL_PYTHON", sys.executable)
        run(python, ROOT / "bindings" / "python" / "wheel.py", cls.folder / "dist", TUTTI_BUILD_CUDA="off")
        (cls.wheel,) = (cls.folder / "dist").glob("tutti-*.whl")

    def environment(self, python):
        """An empty environment with the wheel in it: its programs."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        run(python, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--no-index", self.wheel)
        return folder / "bin"

    def test_use(self):
        programs = self.environment(sys.executable)
        example = self.folder / "example.py"
        example.write_text(readme_example())
        said = run(programs / "tutti", "run", "-n", "4", "--", programs / "python", example)
        self.assertEqual(said.count("of 4: the sum is 10"), 4, said)
        self.assertRegex(run(programs / "tutti", "--version"), r"^tutti \d+\.\d+")
        secret = run(programs / "tutti", "run", "-n", "2", "--", programs / "python", example, TUTTI_SECRET="sesame")
        self.assertEqual(secret.count("of 2: the sum is 3"), 2, secret)
        (package,) = programs.parent.glob("lib/python3*/site-packages/tutti")
        self.assertTrue((package / "include" / "tutti" / "tutti.h").exists())
        before = sorted(path for path in package.parent.iterdir() if path.name.startswith("tutti"))
        self.assertEqual(len(before), 2)
        run(programs / "python", "-m", "pip", "uninstall", "-y", "tutti")
        self.assertFalse(any(path.name.startswith("tutti") for path in package.parent.iterdir()))
        self.assertFalse((programs / "tutti").exists())

    def test_what_it_needs(self):
        """Its name says which glibc: no program in it uses a newer name, or a library that is not in it."""
        glibc = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", self.wheel.name).groups()))
        with zipfile.ZipFile(self.wheel) as wheel:
            names = [name for name in wheel.namelist() if ".so" in name or name == "tutti/bin/tutti"]
            self.assertGreaterEqual(len(names), 4)
            inside = {name.rpartition("/")[2] for name in names}
            for name in names:
                wheel.extract(name, self.folder)
                used = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", "-W", self.folder / name))
                self.assertLessEqual(max((int(a), int(b)) for a, b in used), glibc, name)
                needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", self.folder / name))
                system = [one for one in needed if re.match(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux", one)]
                self.assertEqual(set(needed) - set(system) - inside, set(), name)

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


if __name__ == "__main__":
    ranks.main()
