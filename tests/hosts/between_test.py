# SPDX-License-Identifier: BSD-3-Clause
"""Somebody between two hosts changes, repeats, leaves out, moves or cuts off encrypted data of a job (between.c): each
time the call fails on both sides with a sentence, and no result is wrong before. between_test.py FOLDER SHARED_OBJECT.

The hosts are two names on one machine, which talk over the loopback."""

import os
import subprocess
import sys
import tempfile
import unittest

FOLDER, BETWEEN = sys.argv[1:3]
LARGE, SMALL = (20000, 1 << 20), (100, 4000)  # bytes of the calls of send: a payload, a short call's packet
CHANGED = "what member 0 sent to member 1 was changed on its way"
ENDED = "connection closed by peer"


class Between(unittest.TestCase):
    """Two ranks of hosts_job, the first with somebody behind it."""

    def both(self, how, bytes_of_calls, at=20):
        """What the two ranks say, with their exit statuses."""
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(2):
                env = {**os.environ, "TUTTI_RANK": str(rank), "TUTTI_WORLD_SIZE": "2", "TUTTI_LOCAL_RANK": "0",
                       "TUTTI_LOCAL_WORLD_SIZE": "1", "TUTTI_STORE": f"file://{folder}", "TUTTI_JOB": "between",
                       "TUTTI_HOST": f"h{rank}", "TUTTI_SECRET": "sesame-sesame-sesame", "TUTTI_ENCRYPT": "1"}
                if rank == 0 and how:
                    env.update(LD_PRELOAD=BETWEEN, BETWEEN=how, BETWEEN_AT=str(at),
                               BETWEEN_LEAST=str(bytes_of_calls[0]), BETWEEN_MOST=str(bytes_of_calls[1]))
                ranks.append(subprocess.Popen([os.path.join(FOLDER, "hosts_job"), "loop=2"], env=env, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            return [(rank.communicate(timeout=120)[0], rank.returncode) for rank in ranks]

    def told(self, how, words):
        for size in (LARGE, SMALL):
            with self.subTest(how=how, bytes=size):
                said = self.both(how, size)
                self.assertIn("between acts", said[0][0], said)
                for text, status in said:
                    self.assertEqual(status, 1, said)
                    self.assertIn(f"wrong loop: {words}", text, said)

    def test_nobody(self):
        for text, status in self.both(None, LARGE):
            self.assertEqual(status, 0, text)

    def test_a_bit(self):
        self.told("flip", CHANGED)

    def test_again(self):
        self.told("replay", CHANGED)

    def test_left_out(self):
        self.told("drop", CHANGED)

    def test_out_of_order(self):
        self.told("swap", CHANGED)

    def test_cut_off(self):
        self.told("cut", ENDED)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
