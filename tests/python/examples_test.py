# SPDX-License-Identifier: BSD-3-Clause
"""The examples of examples/python, run as their first lines say: by tutti run, and by mpirun where it is here."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import ranks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
TUTTI = Path(os.environ.get("TUTTI_BUILD", ROOT / "build")) / "bin" / "tutti"


def has(name):
    return importlib.util.find_spec(name) is not None


class Examples(unittest.TestCase):
    """Each prints what it found, a line a rank or one."""

    def run_example(self, launcher, name, lines, text):
        ended = subprocess.run([*launcher, sys.executable, str(EXAMPLES / name)], timeout=200, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = re.findall(text, ended.stdout)
        self.assertEqual((ended.returncode, len(found)), (0, lines), ended.stdout)

    def by_tutti(self, size):
        return [str(TUTTI), "run", "-n", str(size), "--"]

    def test_hello(self):
        self.run_example(self.by_tutti(4), "hello.py", 4, r"rank \d of 4: the sum is 10")

    def test_pi(self):
        self.run_example(self.by_tutti(4), "pi.py", 4, r"pi is 3\.14159265, (\d) came from \1, .* 9\], 2 ranks like me")

    def test_the_page_has_the_example(self):
        page = (ROOT / "docs" / "python.md").read_text()
        program = (EXAMPLES / "hello.py").read_text().partition("with tutti")[2]
        self.assertIn("with tutti" + program, page)

    @unittest.skipUnless(has("numpy"), "NumPy is not here")
    def test_kmeans(self):
        self.run_example(self.by_tutti(4), "kmeans.py", 1, "4 ranks, 16000 points: the centres are within 0.0")

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not here (Debian: openmpi-bin)")
    def test_mpirun(self):
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
        self.run_example(launcher, "hello.py", 4, r"rank \d of 4: the sum is 10")
        if has("numpy"):
            self.run_example(launcher, "kmeans.py", 1, "4 ranks, 16000 points: the centres are within 0.0")

    @unittest.skipUnless(has("jax"), "JAX is not here")
    def test_jax(self):
        self.run_example(self.by_tutti(2), "jax_data_parallel.py", 2, r"rank \d of 2: weights within")


if __name__ == "__main__":
    ranks.main()
