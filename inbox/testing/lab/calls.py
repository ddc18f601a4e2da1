"""A HTTP server that answers everything and remembers it: what a handler sends is seen, and can be compared."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from inbox.testing.lab.database import Rows

__all__ = ["HttpServer"]

_MOST_OCTETS: Final = 64 * 1024


class HttpServer:
    """Listens on loopback, answers 200 with `{}`, and counts requests by method, path and body."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[Any, ...]] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="inbox lab http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def calls(self) -> Rows:
        """What came since `forget`."""
        with self._lock:
            return Rows(("method", "path", "body"), Counter(self._calls))

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._calls.clear()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        calls, lock = self._calls, self._lock

        class Answer(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST_OCTETS))
                with lock:
                    calls[self.command, self.path, body] += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(b"{}")
                self.wfile.flush()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                """Nothing: the report tells of them."""

        return Answer
