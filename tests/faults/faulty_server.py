"""A server between clients and an object server, which draws faults from a seed: errors, cuts, lost answers."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Kind = Literal[
    "answer 500",
    "answer 503",
    "answer 429",
    "slow answer",
    "cut body",
    "cut upload",
    "lost answer",
    "lost create",
]
"""What may happen to a request. Cut: the connection ends in the middle of a body. Lost: the server did what was asked,
and the client never hears of it; a create is a write that is refused where there is something already."""

KINDS: tuple[Kind, ...] = (
    "answer 500",
    "answer 503",
    "answer 429",
    "slow answer",
    "cut body",
    "cut upload",
    "lost answer",
    "lost create",
)
SLOW_SECONDS = 1.0
"""Wait of a slow answer."""
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Storm:
    """Faults that happen to requests while it lasts.

    Parameters
    ----------
    kinds
        What may happen.
    share
        Share of the requests that it may happen to, to which it does.
    most
        How often it happens at most.
    """

    kinds: tuple[Kind, ...]
    share: float
    most: int = 1 << 30


class FaultyServer:
    """Forwards requests to an object server, and spoils some.

    Parameters
    ----------
    port
        Port of the object server on loopback.
    seed
        Seed of the draws.
    """

    def __init__(self, port: int, seed: int) -> None:
        self._upstream = port
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.storm = Storm((), 0.0)
        self.is_down = False
        self._waiting: tuple[int, Callable[[], None]] | None = None
        self.seen: Counter[str] = Counter()
        """Faults that happened, by kind; "requests" and "creates", all that came; "object server down", those that came
        while it was."""
        handler = type("Handler", (_Handler,), {"faulty": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def reset(self) -> None:
        """Forward everything from now on, and count from zero."""
        with self._lock:
            self.storm, self.is_down, self._waiting = Storm((), 0.0), False, None
            self.seen.clear()

    def call_at(self, n: int, action: Callable[[], None]) -> None:
        """Call a function, by a thread of its own, when the n-th request from now on comes."""
        with self._lock:
            self._waiting = (self.seen["requests"] + n, action)

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def draw(self, method: str, creates: bool, n_sent: int) -> Kind | None:
        """What happens to a request."""
        with self._lock:
            self.seen["requests"] += 1
            self.seen["creates"] += creates
            if self._waiting is not None and self.seen["requests"] >= self._waiting[0]:
                threading.Thread(target=self._waiting[1], daemon=True).start()
                self._waiting = None
            if self.storm.most <= 0:
                return None
            possible = [
                kind
                for kind in self.storm.kinds
                if (kind != "lost create" or creates)
                and (kind != "cut upload" or n_sent > 1)
                and (kind != "cut body" or method == "GET")
                and (kind != "lost answer" or method in ("PUT", "DELETE", "POST"))
            ]
            if not possible or self._random.random() >= self.storm.share:
                return None
            self.storm.most -= 1
            return self._random.choice(possible)

    def note(self, happened: str) -> None:
        """Count a fault that has happened."""
        with self._lock:
            self.seen[happened] += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed, and connections are cut."""


class _Handler(BaseHTTPRequestHandler):
    faulty: FaultyServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _cut(self) -> None:
        """End the connection at once, as a server does that is killed."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def _forward(self) -> None:
        faulty = self.faulty
        if faulty.is_down:
            faulty.note("object server down")
            self._cut()
            return
        length = int(self.headers.get("Content-Length") or 0)
        creates = "If-None-Match" in self.headers
        kind = faulty.draw(self.command, creates, length)
        if kind == "cut upload":
            self.rfile.read(length // 2)
            faulty.note(kind)
            self._cut()
            return
        body = self.rfile.read(length) if length else None
        if kind is not None and kind.startswith("answer "):
            faulty.note(kind)
            self._answer(int(kind.split()[1]), [], b"")
            return
        if kind == "slow answer":
            faulty.note(kind)
            time.sleep(SLOW_SECONDS)
        upstream = http.client.HTTPConnection("127.0.0.1", faulty._upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for key, value in headers.items():
                upstream.putheader(key, value)
            upstream.putheader("Content-Length", str(length))
            upstream.endheaders(body)
            response = upstream.getresponse()
            content = response.read()
            status, given = response.status, response.getheaders()
        finally:
            upstream.close()
        if kind in ("lost answer", "lost create") or faulty.is_down:
            if faulty.is_down:
                faulty.note("object server down")
            elif status < 300:
                # what was refused has not been done
                faulty.note(str(kind))
            self._cut()
            return
        if kind == "cut body" and len(content) > 1:
            faulty.note(kind)
            self._answer(status, given, content, n_sent=len(content) // 2)
            self.wfile.flush()
            self._cut()
            return
        self._answer(status, given, content)

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, n_sent: int | None = None
    ) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for key, value in headers:
            if key.lower() == "content-length" and self.command == "HEAD":
                length = value
            if key.lower() not in _HOP:
                self.send_header(key, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:n_sent])

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward
