# SPDX-License-Identifier: BSD-3-Clause
"""A lighthouse as a process, and as little of gRPC as its tests need: by hand, so that it can be wrong, too."""

import os
import re
import socket
import struct
import subprocess
import time
import urllib.request

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4


def lacks(tutti):
    """Why this build can not serve; "" when it can."""
    info = subprocess.run([tutti, "info"], capture_output=True, text=True, check=False).stdout
    for line in ("lighthouse ", "lighthouse page"):
        found = re.search(rf"^ *{line} *(.*)$", info, re.M)
        if not found or not found.group(1).startswith("yes"):
            return found.group(1) if found else f"tutti info does not name {line}"
    return ""


class Lighthouse:
    def __init__(self, tutti, *options, environment=None, bind="127.0.0.1:0"):
        cleared = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        command = [tutti, "lighthouse", "--min-replicas", "1", "--join-timeout-ms", "100", "--bind", bind, *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**cleared, **(environment or {})}
        )
        self.said = self.process.stdout.readline()
        if not self.said:
            self.process.stdout.close()
            raise RuntimeError(f"no lighthouse: it ended with {self.process.wait(10)}")
        self.port = int(re.search(r":(\d+)", self.said).group(1))

    def get(self, path, method="GET", headers=None):
        """Status and text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self, number=15):
        self.process.send_signal(number)
        return self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)
        self.process.stdout.close()


def field(number, value):
    """One field of a protobuf message: a number, or bytes."""

    def varint(x):
        out = b""
        while x > 127:
            out, x = out + bytes([x & 127 | 128]), x >> 7
        return out + bytes([x])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """(number, value) of each field of a protobuf message: numbers and bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        yield key >> 3, value


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(text):
    assert len(text) < 127
    return bytes([len(text)]) + text


class Client:
    """One connection; each call is one stream."""

    def __init__(self, port, host="127.0.0.1", job=b""):
        self.socket = socket.create_connection((host, port), timeout=20)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.authority = job + b"@here" if job else b"here"
        self.stream, self.bytes, self.bodies, self.ended = 1, b"", {}, set()

    def close(self):
        self.socket.close()

    def send(self, path, message, more=(), ends=True):
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", self.authority)]
        headers += [(b"te", b"trailers"), (b"content-type", b"application/grpc"), *more]
        block = b"".join(b"\0" + literal(name) + literal(value) for name, value in headers)
        body = b"\0" + struct.pack(">I", len(message)) + message
        stream, self.stream = self.stream, self.stream + 2
        self.socket.sendall(frame(HEADERS, 4, stream, block) + frame(DATA, int(ends), stream, body))
        return stream

    def take(self):
        """The next frame: kind, flags, stream, payload."""
        while True:
            if len(self.bytes) >= 9:
                n = int.from_bytes(self.bytes[:3], "big")
                if len(self.bytes) >= 9 + n:
                    head, payload = self.bytes[:9], self.bytes[9 : 9 + n]
                    self.bytes = self.bytes[9 + n :]
                    return head[3], head[4], int.from_bytes(head[5:9], "big"), payload
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("the lighthouse closed the connection")
            self.bytes += more

    def answer(self, stream):
        """The message's bytes; None: the call failed."""
        while stream not in self.ended:
            kind, flags, of, payload = self.take()
            if kind == SETTINGS and not flags & 1:
                self.socket.sendall(frame(SETTINGS, 1, 0))
            if kind == DATA:
                self.bodies[of] = self.bodies.get(of, b"") + payload
            if kind == RESET or (flags & 1 and kind in (DATA, HEADERS)):
                self.ended.add(of)
        body = self.bodies.pop(stream, None)
        return None if body is None else body[5:]

    def heartbeat(self, name, more=()):
        return self.answer(self.send(b"/torchft.LighthouseService/Heartbeat", field(1, name), more))

    def ask(self, name, step=0, address=b"http://127.0.0.1:1", more=()):
        member = field(1, name) + field(2, address) + field(3, b"store") + field(4, step) + field(5, 1)
        return self.send(b"/torchft.LighthouseService/Quorum", field(1, member), more)


def wait_for(what, within=20):
    """Until what() is true; it is the last one's value."""
    until = time.monotonic() + within
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > until:
            raise TimeoutError(f"not within {within} s: {what}")
        time.sleep(0.02)
