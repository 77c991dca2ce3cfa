# SPDX-License-Identifier: BSD-3-Clause
"""How long after a death, a deadline or another call the sentence is there, on devices and with oneCCL, where ranks
that did nothing wrong wait: late.py [--build FOLDER] [--rounds N]. Runs the tests that make these failures (ctest's:
xpu.failures, oneccl, oneccl.device, and oneccl.real where ./dev check --xpu has got the library) and prints, of all
ranks and rounds, the median and the longest time in milliseconds."""

import argparse
import collections
import os
import statistics
import subprocess
import sys
import tempfile

TESTS = r"^(xpu\.failures|oneccl|oneccl\.device|oneccl\.real)$"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build"))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "late")
        for _ in range(given.rounds):
            subprocess.run(["ctest", "--test-dir", given.build, "-R", TESTS, "--output-on-failure"],
                           env={**os.environ, "TUTTI_TEST_LATE": path}, stdout=sys.stderr, check=True)
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                way, what, _, us = line.split(" | ")
                found[way, what].append(int(us) / 1000)
    print("| way | a rank | sentences | median, ms | longest, ms |\n|---|---|---|---|---|")
    for (way, what), times in sorted(found.items()):
        print(f"| {way} | {what} | {len(times)} | {statistics.median(times):.1f} | {max(times):.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
