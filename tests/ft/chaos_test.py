# SPDX-License-Identifier: BSD-3-Clause
"""tutti chaos with the example's groups: single ranks and lighthouses are struck, and training goes on."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

from lighthouse import lacks

tutti = sys.argv.pop(1)
group = os.path.join(os.path.dirname(tutti), "replica_group")


# A group whose step is the time; it needs no other.
TELLS = """
import os, time
with open(os.environ["CHAOS_STEPS"], "a") as file:
    while True:
        time.sleep(0.01)
        now = time.monotonic_ns()
        print(now, now // 20_000_000, 8, file=file, flush=True)
"""


class Chaos(unittest.TestCase):
    def run_it(self, kinds, seconds, environment=None, options=("--lighthouses", "3"), program=(group,)):
        cleared = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        command = [tutti, "chaos", "-g", "2", *options, "-k", kinds, "--every", "1s", "--calm", "1s"]
        command += ["--hold", "300ms", "--pause", "300ms", "--for", f"{seconds}s", "--json", "-", "--", *program]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=100, env={**cleared, **(environment or {})}
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout.splitlines()[-1]), run.stdout + run.stderr

    def test_ranks_and_lighthouses(self):
        report, said = self.run_it("rank,rank-stop,lighthouse,lighthouse-stop", 5)
        struck = [kind for kind in ("rank", "rank-stop", "lighthouse", "lighthouse-stop") if report[kind]]
        self.assertGreaterEqual(len(struck), 3, said)
        self.assertGreater(report["disturbed_per_s"], 0, said)
        self.assertEqual(report["ended"], 0, said)  # a group whose rank was killed did not end by itself

    def test_steps_that_programs_tell(self):
        """What was told is what the table says, and what the picture shows."""
        with tempfile.TemporaryDirectory() as folder:
            table, picture = os.path.join(folder, "steps.csv"), os.path.join(folder, "steps.svg")
            report, said = self.run_it("kill,stop", 4, options=("--csv", table, "--svg", picture),
                                       program=(sys.executable, "-c", TELLS))
            rows = list(csv.DictReader(open(table, encoding="utf-8")))
            lines = [mark for mark in ElementTree.parse(picture).iter() if mark.get("stroke") == "#d62728"]
        steps = [row for row in rows if row["what"] == "step"]
        self.assertEqual(report["told_by"], "groups", said)
        self.assertGreaterEqual(report["kill"] + report["stop"], 2, said)
        self.assertEqual(len(lines), report["blows"])
        self.assertEqual(sum(row["what"] in ("kill", "stop") for row in rows), report["blows"])
        for row in steps:  # 8 of each group
            self.assertEqual(float(row["samples"]), 8 * len(row["members"].split()), row)
        self.assertEqual([int(row["step"]) for row in steps], sorted({int(row["step"]) for row in steps}))
        members = {row["members"] for row in steps}
        self.assertTrue("0 1" in members and members & {"0", "1"}, members)

    def test_the_users_secret(self):
        report, said = self.run_it("kill", 2, {"TUTTI_SECRET": "sesame"})
        self.assertIn("(authenticated)", said)
        self.assertGreater(report["disturbed_per_s"], 0, said)


if __name__ == "__main__":
    why = lacks(tutti) or ("" if os.path.exists(group) else f"there is no {group}")
    if why:
        print("SKIP:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
