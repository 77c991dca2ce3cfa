# SPDX-License-Identifier: BSD-3-Clause
"""Serves a snapshot by HTTP/1.1, in ranges: those who read it hold up nobody, and go on when the next one is there."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from collections import Counter
from typing import Any, Dict, Optional, Tuple, Type

import torch

from ..trust import Token, listening_host, own_name, url_host
from .stream import Snapshot

logger = logging.getLogger(__name__)
WAIT_MAX = 3600.0  # seconds
REFUSED = 409  # the state can not travel
DIGESTS = "Tutti-Digests"  # SHA-256 of each piece of a range; with a secret, the proof is over them
STRANGER = 5.0  # seconds in which a connection asks for something that it may have
CONNECTIONS_MAX, OF_ONE_ADDRESS_MAX = 1024, 128


class SnapshotServer:
    """Serves the last snapshot that was offered, under its step."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._step = -1
        self._snapshot: Optional[Snapshot] = None
        self._offered = False
        self._refusal = ""  # why there is none
        self._readers = 0  # readers of any snapshot
        self._closed = False
        self.token = Token()
        self._server = open_server(0, _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1},
                                        name="tutti_ft_serve", daemon=True)
        self._thread.start()

    def address(self) -> str:
        return f"http://{url_host(own_name())}:{self._server.server_address[1]}/checkpoint/"

    def offer(self, step: int, snapshot: Snapshot) -> None:
        with self._changed:
            self._step, self._snapshot, self._offered, self._refusal = step, snapshot, True, ""
            self._changed.notify_all()

    def refuse(self, step: int, why: str) -> None:
        """There will be no snapshot of this step: receivers that ask for it hear why."""
        with self._changed:
            self._step, self._snapshot, self._offered, self._refusal = step, None, False, why
            self._changed.notify_all()

    def allow(self, step: int) -> None:
        """The last one, if it is of this step; else whoever asks waits for it."""
        with self._changed:
            if step != self._step:
                self._snapshot, self._refusal = None, ""
            self._step, self._offered = step, True
            self._changed.notify_all()

    def withdraw(self) -> None:
        """A reader that begins now waits for the next one; one that has begun goes on."""
        with self._changed:
            self._offered = False

    def take_back(self) -> Optional[torch.Tensor]:
        """The memory of the last snapshot, if nobody reads any more: it is not offered from now on."""
        with self._changed:
            self._offered = False
            if self._readers or self._snapshot is None:
                return None
            snapshot, self._snapshot = self._snapshot, None
            return snapshot.payload

    def state(self) -> Tuple[int, bool]:
        with self._changed:
            return self._step, self._offered

    def shutdown(self, wait: bool) -> None:
        with self._changed:
            self._closed, self._snapshot, self._offered = True, None, False
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        if wait:
            self._thread.join()

    def find(self, step: int, seconds: float, begins: bool) -> Tuple[Optional[Snapshot], str]:
        """The snapshot of that step, waited for; or why there is none."""
        def decided() -> bool:
            refused = step == self._step and self._refusal
            return self._closed or step < self._step or bool(refused) or self._is_there(step, begins)

        with self._changed:
            self._changed.wait_for(decided, min(seconds, WAIT_MAX))
            if self._is_there(step, begins):
                self._readers += 1
                return self._snapshot, ""
            if step != self._step:
                return None, f"invalid checkpoint requested, serving {self._step} but got step={step}"
            return None, self._refusal or f"step {step} is not offered any more"

    def refuses(self, step: int) -> bool:
        with self._changed:
            return step == self._step and bool(self._refusal)

    def done(self) -> None:
        """With what find() returned."""
        with self._changed:
            self._readers -= 1

    def _is_there(self, step: int, begins: bool) -> bool:
        return self._snapshot is not None and step == self._step and (self._offered or not begins)


def open_server(port: int, handler: Type[BaseHTTPRequestHandler]) -> "_Server":
    """At all addresses of the host that trust.py allows."""
    host = listening_host()
    if host or not socket.has_dualstack_ipv6():
        return _Server4((host, port), handler)
    return _Server(("::", port), handler)


class _Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 1024
    daemon_threads = True
    owner: SnapshotServer

    def __init__(self, *given: Any) -> None:
        self._lock = threading.Lock()
        self._connections: "Counter[str]" = Counter()  # by address
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            address = client_address[0]
            full = (self._connections[address] >= OF_ONE_ADDRESS_MAX
                    or sum(self._connections.values()) >= CONNECTIONS_MAX)
            if not full:
                self._connections[address] += 1
        if full:
            logger.warning("too many connections: one of %s is refused", address)
            return self.shutdown_request(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._connections[client_address[0]] -= 1
                self._connections += Counter()  # drops what is 0

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)  # HTTPServer's own asks the DNS for this host's name
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = socket.gethostname(), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.info("a transfer to %s ended early", client_address, exc_info=True)


class _Server4(_Server):
    address_family = socket.AF_INET


class _Handler(BaseHTTPRequestHandler):
    """GET /checkpoint/STEP/header?wait=SECONDS and, with "Range: bytes=A-B", /checkpoint/STEP/payload."""

    protocol_version = "HTTP/1.1"
    timeout = STRANGER
    idle = 60.0  # seconds without another request, or in which nothing of an answer is taken
    server: _Server

    def do_GET(self) -> None:
        asked = re.fullmatch(r"/checkpoint/(-?\d{1,18})/(header|payload)(?:\?wait=(\d{1,6}(?:\.\d{1,6})?))?", self.path)
        if asked is None:
            return self.send_error(404, "unknown path")
        authorization = self.headers.get("Authorization", "")
        refused = self.server.owner.token.refuse(self.path, self.headers.get("Range", ""), authorization)
        if refused:
            return self.send_error(401, refused)
        self.connection.settimeout(self.idle)
        step, what, wait = int(asked[1]), asked[2], float(asked[3] or 0)
        snapshot, why = self.server.owner.find(step, wait, begins=what == "header")
        if snapshot is None:
            return self.send_error(REFUSED if self.server.owner.refuses(step) else 400, why)
        try:
            self._answer(snapshot, what, authorization)
        finally:
            self.server.owner.done()

    def _answer(self, snapshot: Snapshot, what: str, authorization: str) -> None:
        if what == "header":
            proof = self.server.owner.token.proof(authorization, snapshot.header)
            return self._send(200, memoryview(snapshot.header), {"Tutti-Proof": proof})
        payload = memoryview(snapshot.payload.numpy())
        part = re.fullmatch(r"bytes=(\d{1,18})-(\d{1,18})", self.headers.get("Range", ""))
        if part is None or not int(part[1]) <= int(part[2]) < len(payload):
            return self.send_error(416, f"a range within {len(payload)} bytes is needed")
        first, last = int(part[1]), int(part[2])
        headers = {"Content-Range": f"bytes {first}-{last}/{len(payload)}"}
        if authorization:
            headers[DIGESTS] = ",".join(snapshot.digests(first, last + 1))
            headers["Tutti-Proof"] = self.server.owner.token.proof(authorization, headers[DIGESTS].encode())
        self._send(206, payload[first : last + 1], headers)

    def _send(self, status: int, body: memoryview, headers: Dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        until = time.monotonic() + self.idle
        while body:  # not sendall: its deadline is of the whole
            sent = self.connection.send(body[: 8 << 20])
            body = body[sent:]
            until = time.monotonic() + self.idle if sent else until
            if time.monotonic() > until:
                raise TimeoutError("nothing was taken")

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)
