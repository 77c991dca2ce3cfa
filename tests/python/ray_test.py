# SPDX-License-Identifier: BSD-3-Clause
# label: long
"""The example of Ray: ranks in actors, of which one is killed. By the Python of TEST_RAY_PYTHON, or this one, where it
has the package ray."""

import os
import subprocess
import sys

PYTHON = os.environ.get("TEST_RAY_PYTHON", sys.executable)
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "ray", "actors.py")


def main():
    if subprocess.run([PYTHON, "-c", "import ray, numpy"], capture_output=True, timeout=120).returncode != 0:
        print(f"skipped: {PYTHON} has no package ray: TEST_RAY_PYTHON names one that has")
        sys.exit(77)
    done = subprocess.run([PYTHON, EXAMPLE, "3"], capture_output=True, text=True, timeout=280,
                          env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"})
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "3 ranks found 3.000 x + 2.000" in done.stdout, text
    assert "rank 0 was told: connection closed by peer: rank 2 died" in done.stdout, text
    print("ok")


main()
