# SPDX-License-Identifier: BSD-3-Clause
"""Lighthouses that stand for one another: the one that leads is killed while groups wait for it, and they go on; all
are killed, and numbers of quorums only grow; and one alone that keeps what it said."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from lighthouse import DATA, Client, Lighthouse, field, fields, lacks, wait_for

tutti = sys.argv.pop(1)


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Group(threading.Thread):
    """Asks again and again, at any of the lighthouses, as a client with a list of addresses does."""

    def __init__(self, name, ports):
        super().__init__(daemon=True)
        self.name_, self.ports, self.stops, self.pauses = name.encode(), ports, False, 0.02
        self.answers = []  # (when, number, members)
        self.step = 0
        self.start()

    def run(self):
        turn = 0
        while not self.stops:
            try:
                self.talk(Client(self.ports[turn % len(self.ports)]))
            except OSError:
                turn += 1
                time.sleep(0.05)

    def talk(self, client):
        client.socket.settimeout(5)
        try:
            while not self.stops:
                self.ask(client)
                time.sleep(self.pauses)
        finally:
            client.close()

    def ask(self, client):
        answer = client.answer(client.ask(self.name_, self.step, more=((b"grpc-timeout", b"1000m"),)))
        if answer is None:
            raise ConnectionError("refused")
        quorum = dict(fields(dict(fields(answer))[1]))
        members = [dict(fields(value))[1] for number, value in fields(dict(fields(answer))[1]) if number == 2]
        self.answers.append((time.monotonic(), quorum[1], members))
        self.step += 1


class Replicas(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.ports = free_ports(3)
        self.lighthouses = [None] * 3
        self.groups = []
        self.addCleanup(self.end)

    def end(self):
        for group in self.groups:
            group.stops = True
        for lighthouse in self.lighthouses:
            if lighthouse:
                lighthouse.__exit__()

    def start(self, i, heartbeat_timeout_ms=1500):
        peers = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        state = os.path.join(self.folder.name, str(i))
        options = ["--peers", peers, "--number", str(i), "--state", state, "--min-replicas", "2"]
        options += ["--heartbeat-timeout-ms", str(heartbeat_timeout_ms)]
        self.lighthouses[i] = Lighthouse(tutti, *options, bind=f"127.0.0.1:{self.ports[i]}")

    def kill(self, i):
        self.lighthouses[i].end(9)
        self.lighthouses[i].__exit__()
        self.lighthouses[i] = None

    def leader(self):
        """Which one leads; None: nobody, as far as they know."""
        for i, lighthouse in enumerate(self.lighthouses):
            if lighthouse and lighthouse.get("/status.json")[0] == 200:
                return i
        return None

    def wait_for_leader(self):
        wait_for(lambda: self.leader() is not None, 30)
        return self.leader()

    def go_on(self, groups, n=5, within=30):
        """Each has n more answers with all of them in it."""
        names = sorted(group.name_ for group in groups)
        before = [len(group.answers) for group in groups]

        def enough():
            return all(
                sum(members == names for _, _, members in group.answers[at:]) >= n for group, at in zip(groups, before)
            )

        wait_for(enough, within)

    def check(self):
        """One number, one set of members; and numbers only grow."""
        members_of = {}
        for group in self.groups:
            for _, number, members in list(group.answers):
                self.assertEqual(members_of.setdefault(number, members), members)
            numbers = [number for _, number, _ in group.answers]
            self.assertEqual(numbers, sorted(numbers))
        return max(members_of)

    def test_loss_of_the_leader_and_of_all(self):
        for i in range(3):
            self.start(i)
        self.wait_for_leader()
        self.groups = [Group(name, self.ports) for name in "abc"]
        self.go_on(self.groups)
        for _ in range(2):
            leader = self.wait_for_leader()
            self.kill(leader)  # while they wait, or are told
            self.go_on(self.groups)
            self.start(leader)
            self.go_on(self.groups)
        highest = self.check()
        for i in range(3):
            self.kill(i)
        for i in range(3):
            self.start(i)
        self.go_on(self.groups)
        self.groups[2].stops = True  # another set of members: another number
        self.groups[2].join(10)
        self.go_on(self.groups[:2])
        self.assertGreater(self.check(), highest)

    def test_one_of_them_does_not_lead_without_the_others(self):
        for i in range(3):
            self.start(i)
        leader = self.wait_for_leader()
        others = [i for i in range(3) if i != leader]
        status, text = self.lighthouses[others[0]].get("/status.json")
        self.assertEqual(status, 421)
        self.assertIn(f":{self.ports[leader]}", text)
        addresses = ",".join(f"http://127.0.0.1:{self.ports[i]}" for i in (*others, leader))
        run = subprocess.run([tutti, "ft", "status", addresses], capture_output=True, text=True, check=True)
        self.assertIn("job default, unauthenticated", run.stdout)
        for i in others:
            self.kill(i)
        wait_for(lambda: self.lighthouses[leader].get("/status.json")[0] == 503)
        client = Client(self.ports[leader])
        self.addCleanup(client.close)
        timeout = client.ask(b"a", more=((b"grpc-timeout", b"300m"),))
        self.assertIsNone(client.answer(timeout))  # nobody decides
        self.start(others[0])
        self.wait_for_leader()

    def test_a_death_is_known_through_another_lighthouse(self):
        for i in range(3):
            self.start(i, 60000)
        leader = self.wait_for_leader()
        told = Client(self.ports[(leader + 1) % 3])  # notified of failures by one that does not lead
        self.addCleanup(told.close)
        told.send(b"/torchft.LighthouseService/SubscribeFailures", b"")
        self.assertEqual(told.heartbeat(b"b"), b"")
        client = Client(self.ports[(leader + 1) % 3])
        self.assertEqual(client.heartbeat(b"a"), b"")
        client.close()
        status = wait_for(
            lambda: (lambda text: text if '"state":"lost"' in text else "")(
                self.lighthouses[leader].get("/status.json")[1]
            )
        )
        self.assertEqual(json.loads(status)["groups"][0]["replica_id"], "a")
        while (frame := told.take())[0] != DATA or frame[3][5:] != field(1, b"a"):
            pass


class Alone(unittest.TestCase):
    def test_numbers_grow_across_restarts(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "state")
            for life in range(3):
                with Lighthouse(tutti, "--state", state, "--heartbeat-timeout-ms", "700") as lighthouse:
                    for job in (b"", b"blue"):
                        client = Client(lighthouse.port, job=job)
                        name = b"g%d" % life  # others than before
                        number = 0
                        while number <= life:  # each try is a heartbeat, too
                            answer = client.answer(client.ask(name, more=((b"grpc-timeout", b"200m"),)))
                            number = dict(fields(dict(fields(answer))[1]))[1] if answer else 0
                        self.assertEqual(number, life + 1)
                        client.close()
                    with self.assertRaises(RuntimeError):
                        Lighthouse(tutti, "--state", state)  # somebody has it
                    lighthouse.end(9)
            with open(os.path.join(state, "ballot"), "r+b") as file:
                file.seek(9)
                file.write(b"\xff")
            with self.assertRaises(RuntimeError):
                Lighthouse(tutti, "--state", state)

    def test_peers_need_a_secret(self):
        with self.assertRaises(RuntimeError):
            Lighthouse(tutti, "--peers", "http://10.0.0.1:1,http://127.0.0.1:2", "--state", "/nowhere")
        with self.assertRaises(RuntimeError):
            Lighthouse(tutti, "--peers", "http://127.0.0.1:1,http://127.0.0.1:2")


if __name__ == "__main__":
    why = lacks(tutti)
    if why:
        print("SKIP:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
