# SPDX-License-Identifier: BSD-3-Clause
"""A server that has a group of two with each client: it is rank 0, the client rank 1."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.request
import uuid
from abc import ABC, abstractmethod
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

from torch.distributed import TCPStore

from .checkpointing.snapshot_server import open_server
from .process_group import ProcessGroup

logger = logging.getLogger(__name__)


class ParameterServer(ABC):
    """Serves from threads of this process: one a session, in which forward() runs."""

    def __init__(self, port: int, store_port: int = 0) -> None:
        self._store = TCPStore(host_name="127.0.0.1", port=store_port, is_master=True, wait_for_workers=False)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                logger.debug(format, *args)

        self._server = open_server(port, Handler)
        threading.Thread(target=self._server.serve_forever, name="tutti_ft_parameters", daemon=True).start()

    def address(self) -> str:
        return f"http://{socket.gethostname()}:{self._server.server_address[1]}"

    def shutdown(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        """Tells the client where the two meet, and then is the other one there."""
        if request.path != "/new_session":
            return request.send_error(404, "new_session is what there is")
        session = str(uuid.uuid4())
        store = f"{socket.gethostname()}:{self._store.port}/session/{session}"
        body = json.dumps({"session_id": session, "store_addr": store}).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
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
        """Of the kind that both sides use."""

    @classmethod
    def new_session(cls, address: str, timeout: timedelta = timedelta(seconds=60)) -> ProcessGroup:
        """The client's end of a new session."""
        with urllib.request.urlopen(f"{address}/new_session", timeout=timeout.total_seconds()) as answer:
            told = json.load(answer)
        pg = cls.new_process_group()
        pg.configure(told["store_addr"], told["session_id"], 1, 2, 0, 0, 2)
        return pg

    @abstractmethod
    def forward(self, session_id: str, pg: ProcessGroup) -> None:
        """What the server does in a session, which ends with it."""
