# SPDX-License-Identifier: BSD-3-Clause
"""tutti chaos with the example's groups: single ranks and lighthouses are struck, and training goes on."""

import json
import os
import subprocess
import sys
import unittest

from lighthouse import lacks

tutti = sys.argv.pop(1)
group = os.path.join(os.path.dirname(tutti), "replica_group")


class Chaos(unittest.TestCase):
    def run_it(self, kinds, seconds, environment=None):
        cleared = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        command = [tutti, "chaos", "-g", "2", "--lighthouses", "3", "-k", kinds, "--every", "1s", "--calm", "1s"]
        command += ["--hold", "300ms", "--pause", "300ms", "--for", f"{seconds}s", "--json", "-", "--", group]
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
