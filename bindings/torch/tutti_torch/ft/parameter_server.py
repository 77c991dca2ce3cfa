# SPDX-License-Identifier: BSD-3-Clause
"""A server that has a group of two with each client: it is rank 0, the client rank 1."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import threading
import urllib.parse
import uuid
from abc import ABC, abstractmethod
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

from torch.distributed import TCPStore

from .checkpointing.snapshot_server import open_server
from .process_group import ProcessGroup
from .trust import Token, listening_host, own_name, url_host

logger = logging.getLogger(__name__)
BODY_MAX = 1 << 16


class ParameterServer(ABC):
    """Serves from threads of this process: one a session, in which forward() runs."""

    def __init__(self, port: int, store_port: int = 0) -> None:
        with socket.create_server((listening_host(), store_port)) as listener:
            self._store = TCPStore(host_name="127.0.0.1", port=listener.getsockname()[1], is_master=True,
                                   wait_for_workers=False, master_listen_fd=os.dup(listener.fileno()))
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                logger.debug(format, *args)

        self._token = Token()
        self._server = open_server(port, Handler)
        threading.Thread(target=self._server.serve_forever, name="tutti_ft_parameters", daemon=True).start()

    def address(self) -> str:
        return f"http://{url_host(own_name())}:{self._server.server_address[1]}"

    def shutdown(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        """Tells the client where the two meet, and then is the other one there."""
        if request.path != "/new_session":
            return request.send_error(404, "new_session is what there is")
        authorization = request.headers.get("Authorization", "")
        refused = self._token.refuse(request.path, "", authorization)
        if refused:
            return request.send_error(401, refused)
        session = str(uuid.uuid4())
        store = f"{url_host(own_name())}:{self._store.port}/session/{session}"
        body = json.dumps({"session_id": session, "store_addr": store}).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Tutti-Proof", self._token.proof(authorization, body))
        request.end_headers()
        request.wfile.write(body)
        request.wfile.flush()
        request.close_connection = True
        threading.Thread(target=self._session, args=(session, store), name="tutti_ft_session", daemon=True).start()

    def _session(self, session: str, store: str) -> None:
        pg = self.new_process_group()
        try:
            pg.configure(store, session, 0, 2, 0, 0, 2)
            self.forward(session, pg)
        except Exception:
            logger.exception("session %s failed", session)
        finally:
            pg.shutdown()

    @classmethod
    @abstractmethod
    def new_process_group(cls) -> ProcessGroup:
        """A process group of the kind that both sides use."""

    @classmethod
    def new_session(cls, address: str, timeout: timedelta = timedelta(seconds=60)) -> ProcessGroup:
        """The client's end of a new session."""
        told = json.loads(_get(address, "/new_session", timeout))
        pg = cls.new_process_group()
        pg.configure(told["store_addr"], told["session_id"], 1, 2, 0, 0, 2)
        return pg

    @abstractmethod
    def forward(self, session_id: str, pg: ProcessGroup) -> None:
        """What the server does in a session, which ends with it."""


def _get(address: str, path: str, timeout: timedelta) -> bytes:
    """What the server at this address answers, of which it has to prove that it knows the job's secret."""
    url, token = urllib.parse.urlsplit(address), Token()
    headers = token.headers(path)
    with closing(http.client.HTTPConnection(url.hostname or "", url.port,
                                            timeout=max(0.001, timeout.total_seconds()))) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(BODY_MAX)
    if answer.status != 200:
        raise RuntimeError(f"{address}{path}: {answer.status} {answer.reason}")
    if not token.is_proved(headers.get("Authorization", ""), body, answer.headers.get("Tutti-Proof", "")):
        raise RuntimeError(f"{address}{path}: the server does not prove that it knows the job's secret")
    return body
