# SPDX-License-Identifier: BSD-3-Clause
"""The peers that this process serves. With a secret of the job: those that know it, at all addresses; a request by HTTP
carries a token made of it, and the answer a proof that the server knows it, too. Without one: this host alone, unless
TUTTI_TRUST_NETWORK says that only trusted machines listen."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import socket
import struct
import threading
import time
from typing import Dict

from .. import _C

logger = logging.getLogger(__name__)
CLOCKS = 300  # seconds by which clocks of two hosts may differ
SEEN_MOST = 1 << 14  # nonces that are kept before old ones are looked for
LOOPBACK = "127.0.0.1"
SIOCGIFADDR = 0x8915

_lock = threading.Lock()
_told = False


def secret() -> str:
    """The job's, as the library reads it; "": there is none."""
    return _C.option("secret")[0]


def listening_host() -> str:
    """"": all addresses. Says once when nobody has to prove anything."""
    global _told
    trusts = bool(_C.option("trust_network")[1])
    if secret():
        return ""
    with _lock:
        tell, _told = not _told, True
    if tell:
        logger.warning("unauthenticated: whoever reaches %s gets states and meets groups: give all ranks the same "
                       "TUTTI_SECRET or TUTTI_SECRET_FILE%s", "this process" if trusts else "this host's loopback",
                       "" if trusts else "; other hosts do not reach it without TUTTI_TRUST_NETWORK=1")
    return "" if trusts else LOOPBACK


def own_name() -> str:
    """By which those whom listening_host() admits reach this host."""
    if listening_host():
        return LOOPBACK
    return _address_of(_C.option("interface")[0]) or socket.gethostname()


def url_host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _address_of(interface: str) -> str:
    """The address of an interface by name, or by address; "": none."""
    if not interface:
        return ""
    try:
        return ipaddress.ip_address(interface).compressed
    except ValueError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            read = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise ValueError(f"TUTTI_INTERFACE={interface} has no IPv4 address here: {error}") from error
    return socket.inet_ntoa(read[20:24])


class Token:
    """Proof of HTTP requests by the job's secret; where there is none, all are admitted and nothing is proved."""

    def __init__(self) -> None:
        self._key = secret().encode()
        self._lock = threading.Lock()
        self._seen: Dict[str, int] = {}  # nonces of the requests that were answered, and when

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._key, "\n".join(("tutti_torch.ft http 1", *parts)).encode(), hashlib.sha256).hexdigest()

    def headers(self, path: str, part: str = "") -> Dict[str, str]:
        """The proof for a GET of this path, and of this range of it."""
        made = {"Range": part} if part else {}
        if self._key:
            when, nonce = str(int(time.time())), secrets.token_hex(16)
            made["Authorization"] = f"Tutti {when} {nonce} {self._mac('ask', path, part, when, nonce)}"
        return made

    def refuse(self, path: str, part: str, authorization: str) -> str:
        """Why not; "": it may be answered."""
        if not self._key:
            return ""
        found = re.fullmatch(r"Tutti (\d{1,12}) ([0-9a-f]{32}) ([0-9a-f]{64})", authorization)
        if found is None or not hmac.compare_digest(self._mac("ask", path, part, found[1], found[2]), found[3]):
            return "who asks has to know the job's secret: TUTTI_SECRET"
        now = int(time.time())
        away = int(found[1]) - now
        if abs(away) > CLOCKS:
            return f"the clock of who asks is {away} s away from this one"
        return "" if self._is_new(found[2], now) else "this request was made before: each counts once"

    def _is_new(self, nonce: str, now: int) -> bool:
        """A request that somebody recorded is not answered again."""
        with self._lock:
            if nonce in self._seen:
                return False
            if len(self._seen) > SEEN_MOST:
                self._seen = {old: when for old, when in self._seen.items() if now - when <= 2 * CLOCKS}
            self._seen[nonce] = now
            return True

    def proof(self, authorization: str, body: bytes) -> str:
        """That who answers this request with this body knows the secret; "": there is none."""
        digest = hashlib.sha256(body).hexdigest()
        return self._mac("answer", authorization, digest) if self._key else ""

    def is_proved(self, authorization: str, body: bytes, given: str) -> bool:
        return hmac.compare_digest(self.proof(authorization, body), given)
