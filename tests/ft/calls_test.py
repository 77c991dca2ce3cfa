# SPDX-License-Identifier: BSD-3-Clause
"""Calls of a lighthouse that torchft's does not have: jobs apart from one another, the configuration, failures as they
happen; and its file of options."""

import json
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from lighthouse import DATA, RESET, Client, Lighthouse, field, fields, lacks, wait_for

tutti = sys.argv.pop(1)
SERVICE = b"/torchft.LighthouseService/"


class Calls(unittest.TestCase):
    def open(self, *options, **more):
        lighthouse = Lighthouse(tutti, *options, **more)
        self.addCleanup(lighthouse.__exit__)
        return lighthouse

    def dial(self, lighthouse, job=b""):
        client = Client(lighthouse.port, job=job)
        self.addCleanup(client.close)
        return client

    def quorum(self, answer):
        """Its number and its members' names."""
        quorum = dict(fields(dict(fields(answer))[1]))
        members = [value for number, value in fields(dict(fields(answer))[1]) if number == 2]
        return quorum[1], [dict(fields(member))[1] for member in members]

    def test_jobs_are_apart(self):
        lighthouse = self.open()
        clients = [self.dial(lighthouse, job) for job in (b"", b"blue", b"green")]
        for i, client in enumerate(clients):
            self.assertEqual(self.quorum(client.answer(client.ask(b"g%d" % i))), (1, [b"g%d" % i]))
        again = self.dial(lighthouse, b"default")  # its name, said
        again.heartbeat(b"g0")
        self.assertEqual(again.answer(again.ask(b"g0"))[:2], b"\x0a" + again.answer(again.ask(b"g0"))[1:2])
        wait_for(lambda: json.loads(lighthouse.get("/status.json?job=green")[1])["quorum"])
        names = [group["replica_id"] for group in json.loads(lighthouse.get("/status.json?job=green")[1])["groups"]]
        self.assertEqual(names, ["g2"])
        for wrong in (b"a b", b"<script>", b"x" * 65):
            self.assertIsNone(self.dial(lighthouse, wrong).heartbeat(b"g"))
        self.assertEqual(lighthouse.get("/status.json?job=%3Cscript%3E")[0], 404)

    def test_thousands_of_jobs(self):
        """Made-up names take no place from groups that come, nor from groups that had a quorum."""
        lighthouse = self.open("--rate", "0")
        kept = self.dial(lighthouse, b"kept")
        kept.answer(kept.ask(b"g"))
        for i in range(1100):  # 1,024 are kept
            client = Client(lighthouse.port, job=b"job%d" % i)
            self.assertEqual(client.heartbeat(b"g"), b"")
            client.close()
        comes = self.dial(lighthouse, b"comes")
        self.assertEqual(self.quorum(comes.answer(comes.ask(b"g"))), (1, [b"g"]))
        self.assertEqual(self.quorum(kept.answer(kept.ask(b"g"))), (1, [b"g"]))

    def test_config(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# rules\nmin-replicas = 1\njoin_timeout_ms=250\n\n learning.rate = 3e-4 # told as it is\n")
            file.flush()
            lighthouse = self.open("--config", file.name, "--quorum-tick-ms", "77")
        client = self.dial(lighthouse)
        answer = client.answer(client.send(SERVICE + b"GetConfig", b""))
        entries = dict((dict(fields(entry))[1], dict(fields(entry))[2]) for _, entry in fields(answer))
        self.assertEqual(entries[b"join_timeout_ms"], b"100")  # the command line's
        self.assertEqual(entries[b"learning.rate"], b"3e-4")
        self.assertEqual([entries[b"quorum_tick_ms"], entries[b"heartbeat_timeout_ms"]], [b"77", b"5000"])

    def test_failures_are_told(self):
        lighthouse = self.open("--heartbeat-timeout-ms", "400")
        client, other = self.dial(lighthouse, b"blue"), self.dial(lighthouse)
        streams = [c.send(SERVICE + b"SubscribeFailures", b"") for c in (client, other)]
        client.heartbeat(b"a")
        client.heartbeat(b"b")
        told = set()
        while len(told) < 2:
            kind, _, stream, payload = client.take()
            if kind == DATA and stream == streams[0]:
                told.add(payload[5:])
        self.assertEqual(told, {field(1, b"a"), field(1, b"b")})
        other.heartbeat(b"c")  # in another job: it is told of its own alone
        while True:
            kind, _, stream, payload = other.take()
            if kind == DATA and stream == streams[1]:
                break
        self.assertEqual(payload[5:], field(1, b"c"))

    def test_status_follows_and_escapes(self):
        """Names are shown as they are, but for what a terminal would obey."""
        lighthouse = self.open("--heartbeat-timeout-ms", "60000")
        client = self.dial(lighthouse)
        name = "gr\u00fcn".encode() + b"\x1b[2J\xff" + "\u009b\u202e".encode()
        client.heartbeat(name)
        command = [tutti, "ft", "status", f"http://127.0.0.1:{lighthouse.port}", "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as follows:
            self.addCleanup(follows.kill)
            lines = [follows.stdout.readline() for _ in range(6)]
            shown = "gr\u00fcn\\u001b[2J\\ufffd\\u009b\\u202e".encode()
            self.assertTrue(lines[-1].startswith(shown), lines)
            for i in range(100):  # until it is
                dies = self.dial(lighthouse)
                dies.heartbeat(name + b"%d" % i)
                dies.close()
                if select.select([follows.stdout], [], [], 0.5)[0]:
                    break
            line = follows.stdout.readline()
            self.assertIn(shown, line)
            self.assertTrue(line.endswith(b" is not heard any more\n"))
            follows.kill()

    def beat(self, client, name, step, collective):
        progress = field(1, step) + field(2, collective) + field(4, 1)
        message = field(1, name) + b"\xa2\x06" + bytes([len(progress)]) + progress
        client.answer(client.send(SERVICE + b"Heartbeat", message))

    def test_who_hangs(self):
        """Both managers live; one trainer has come to a collective that the other does not reach."""
        lighthouse = self.open("--min-replicas", "2", "--heartbeat-timeout-ms", "600")
        clients = {name: self.dial(lighthouse) for name in (b"goes", b"hangs")}
        streams = [client.ask(name) for name, client in clients.items()]
        for stream, client in zip(streams, clients.values()):
            self.assertEqual(self.quorum(client.answer(stream)), (1, [b"goes", b"hangs"]))
        ends = threading.Event()

        def live():
            collective = 3
            while not ends.wait(0.05):
                collective += 1
                self.beat(clients[b"goes"], b"goes", 0, collective)
                self.beat(clients[b"hangs"], b"hangs", 0, 3)

        lives = threading.Thread(target=live)
        lives.start()
        try:
            wait_for(lambda: self.state(lighthouse) == {"goes": "member", "hangs": "hangs"})
            command = [tutti, "ft", "status", f"http://127.0.0.1:{lighthouse.port}"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertRegex(said, r"(?m)^goes +member")
            self.assertRegex(said, r"(?m)^hangs +hangs")
        finally:
            ends.set()
            lives.join()

    def state(self, lighthouse):
        groups = json.loads(lighthouse.get("/status.json")[1])["groups"]
        return {group["replica_id"]: group["state"] for group in groups}

    def test_who_closes_is_gone(self):
        lighthouse = self.open("--heartbeat-timeout-ms", "60000")
        gone, stays, anew = (self.dial(lighthouse) for _ in range(3))
        for name, client in ((b"gone", gone), (b"stays", stays), (b"anew", anew)):
            client.heartbeat(name)
        streams = [client.ask(name) for name, client in ((b"gone", gone), (b"stays", stays), (b"anew", anew))]
        stays.answer(streams[1])
        anew.close()
        again = self.dial(lighthouse)
        again.heartbeat(b"anew")
        other = self.dial(lighthouse)  # a client that has spoken elsewhere meanwhile
        stays.close()
        other.heartbeat(b"stays")
        gone.close()
        wait_for(lambda: self.state(lighthouse)["gone"] == "lost", 5)
        self.assertEqual(self.state(lighthouse), {"gone": "lost", "stays": "member", "anew": "member"})
        other.heartbeat(b"gone")  # and is back
        wait_for(lambda: self.state(lighthouse)["gone"] == "member", 5)

    def test_a_lighthouse_that_was_stopped(self):
        """Heartbeats of that time are read before anybody is late."""
        lighthouse = self.open("--heartbeat-timeout-ms", "400")
        clients = [self.dial(lighthouse) for _ in range(2)]
        for name, client in zip((b"a", b"b"), clients):
            client.heartbeat(name)
        lighthouse.process.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        streams = [c.send(SERVICE + b"Heartbeat", field(1, name)) for name, c in zip((b"a", b"b"), clients)]
        lighthouse.process.send_signal(signal.SIGCONT)
        for client, stream in zip(clients, streams):
            client.answer(stream)
        events = json.loads(lighthouse.get("/status.json")[1])["events"]
        self.assertEqual([event for event in events if "not heard" in event["text"]], [])

    def test_a_request_without_an_end(self):
        """It takes no place for longer than its time."""
        client = self.dial(self.open())
        stream = client.send(SERVICE + b"Heartbeat", field(1, b"a"), ((b"grpc-timeout", b"100m"),), ends=False)
        while True:
            kind, _, of, payload = client.take()
            if of == stream:
                break
        self.assertEqual((kind, payload), (RESET, b"\0\0\0\x08"))  # CANCEL
        self.assertEqual(client.heartbeat(b"a"), b"")

    def test_leave_and_progress(self):
        lighthouse = self.open("--heartbeat-timeout-ms", "60000")
        client = self.dial(lighthouse)
        progress = field(1, 7) + field(2, 99) + field(3, 1) + field(4, 8)
        beat = field(1, b"a") + b"\xa2\x06" + bytes([len(progress)]) + progress
        client.answer(client.send(SERVICE + b"Heartbeat", beat))
        group = wait_for(lambda: json.loads(lighthouse.get("/status.json")[1])["groups"])[0]
        self.assertEqual([group["progress"][key] for key in ("step", "collective", "rank", "ranks")], [7, 99, 1, 8])
        self.assertEqual(client.answer(client.send(b"/tutti.LighthouseService/Leave", field(1, b"a"))), b"")
        wait_for(lambda: self.state(lighthouse)["a"] == "lost", 5)


    def test_a_manager_as_a_process(self):
        """Its group is heard of while it runs, and leaves when it is told to end."""
        lighthouse = self.open()
        address = f"http://127.0.0.1:{lighthouse.port}"
        command = [tutti, "ft", "manager", "--replica-id", "alone", "--lighthouse", address, "--bind", "127.0.0.1:0"]
        manager = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            self.assertRegex(manager.stdout.readline(), r"^manager at http://[a-z0-9.]+:\d+$")
            wait_for(lambda: self.state(lighthouse).get("alone") == "waiting", 20)
            manager.send_signal(signal.SIGTERM)
            self.assertEqual(manager.wait(20), 0)
            wait_for(lambda: self.state(lighthouse)["alone"] == "lost", 20)
        finally:
            manager.kill()
            manager.wait(20)
            manager.stdout.close()
        for missing in (["--lighthouse", "http://127.0.0.1:1"], ["--replica-id", "alone"]):
            ended = subprocess.run(
                command[:3] + missing, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin"}
            )
            self.assertEqual(ended.returncode, 2)
            self.assertIn("is missing", ended.stderr)

if __name__ == "__main__":
    why = lacks(tutti)
    if why:
        print("SKIP:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
