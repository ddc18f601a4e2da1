"""A store that speaks S3, on loopback: moto's, as a program of its own, ready in half a second."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import quote

_START = 30.0
_PROGRAM = "import sys; from moto.server import main; main(sys.argv[1:])"


class S3Server:
    """Buckets, written to without a client library: what is read by one library is not written by the same."""

    def __init__(self, port: int) -> None:
        self._port = port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def put(self, bucket: str, key: str = "", content: bytes = b"") -> None:
        """Store an object; without a key, make the bucket."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("PUT", f"/{bucket}/{quote(key)}" if key else f"/{bucket}", content)
            answer = connection.getresponse()
            assert answer.status == http.HTTPStatus.OK, answer.read()
        finally:
            connection.close()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """One for the block. Which port it got, it says itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with tempfile.TemporaryFile("w+b") as said:
        program = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-u", "-c", _PROGRAM, "-H", "127.0.0.1", "-p", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
        )
        try:
            yield S3Server(_port_of(program, said))
        finally:
            program.kill()
            program.wait()


def _port_of(program: subprocess.Popen[bytes], said: BinaryIO) -> int:
    ends_at = time.monotonic() + _START
    while time.monotonic() < ends_at and program.poll() is None:
        # At a place of its own: the file's position is the program's as well.
        found = re.search(rb"Running on http://127\.0\.0\.1:(\d+)\n", os.pread(said.fileno(), 4096, 0))
        if found:
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError("the store did not start")
