"""Programs of this project as forks of an interpreter that has imported it (`tests/stem.py` says why and how)."""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Branch:
    """A process that was forked off, in a session of its own; as much of asyncio's `Process` as the tests use."""

    def __init__(self, pid: int, out: "_Pipe", err: "_Pipe", told: "_Pipe") -> None:
        self.pid = pid
        self.stdout = out.reader
        self.stderr = err.reader
        self._told = told.reader
        self._pipes = (out, err, told)
        self._code: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        """How it ended: negative is the signal it died of."""
        if self._code is None:
            self._code = int(await self._told.readline())
        return self._code

    def close_stdout(self) -> None:
        """As a reader does that has seen enough."""
        self._pipes[0].close()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


class _Pipe:
    """The end that is read here; the other one is a number to hand over, and is closed here after that."""

    def __init__(self) -> None:
        self._here, self.there = os.pipe()
        self.reader = asyncio.StreamReader()
        self._transport: asyncio.ReadTransport | None = None

    async def open(self) -> None:
        os.close(self.there)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(self._here, "rb", 0)
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def branch(
    program: str, words: Sequence[str], *, is_module: bool, environment: Mapping[str, str], folder: Path
) -> Branch:
    """`python <program> <words>`, or `python -m` where it is a module, in that environment and folder.

    Its standard input is empty.
    """
    order = {
        "program": program,
        "words": words,
        "is_module": is_module,
        "environment": dict(environment),
        "folder": str(folder),
    }
    out, err, told = pipes = (_Pipe(), _Pipe(), _Pipe())
    socket.send_fds(_stem(), [json.dumps(order).encode()], [pipe.there for pipe in pipes])
    for pipe in pipes:
        await pipe.open()
    pid = await told.reader.readline()
    assert pid, "the stem has ended: what it says stands on standard error"
    return Branch(int(pid), out, err, told)


@cache
def _stem() -> socket.socket:
    """Where orders go: started once, and ended with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.stem", str(theirs.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONWARNINGS": "error"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
