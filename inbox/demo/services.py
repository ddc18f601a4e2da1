"""Servers of the demo's own, started as the tests start theirs: only in a checkout of the source."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inbox.errors import ConfigurationError, StartupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["private_servers"]

_ROOT: Final = Path(__file__).parents[2]
_EXPORT: Final = re.compile(r"export (\w+)='(.*)'")
_DATABASE: Final = "INBOX_MYSQL_DSN"
_BROKER: Final = "INBOX_RABBIT4_DSN"
#: Seconds until they serve. Their packages may have to be fetched first.
_START: Final = 900.0
_STOP: Final = 60.0


@asynccontextmanager
async def private_servers(say: Callable[[str], None]) -> AsyncIterator[tuple[str, str]]:
    """A database and a broker for the block, by their addresses.

    They are started by a process of its own, in a session of its own: Ctrl-C is for the demo to heed, which still has
    its tables to remove.

    Args:
        say: told what happens meanwhile.

    Raises:
        ConfigurationError: this is no checkout.
        StartupError: they do not start; what was said shows why.
    """
    if not (_ROOT / "tests/services/__main__.py").exists():
        raise ConfigurationError(
            "--services needs a checkout of the source, for its tests know how to start servers: "
            "leave it out, or name servers with --database and --broker"
        )
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.services",
        cwd=_ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    telling = asyncio.create_task(_tell(program, say), name="services")
    try:
        yield await _addresses(program)
    finally:
        await _end(program)
        await telling


async def _addresses(program: asyncio.subprocess.Process) -> tuple[str, str]:
    assert program.stdout is not None  # noqa: S101 - a pipe was asked for
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(_START):
            while not {_DATABASE, _BROKER} <= found.keys():
                line = (await program.stdout.readline()).decode()
                if not line:
                    raise StartupError("the private servers did not start")
                if export := _EXPORT.match(line):
                    found[export[1]] = export[2]
    except TimeoutError:
        raise StartupError(f"the private servers did not serve within {_START:g} seconds") from None
    return found[_DATABASE], found[_BROKER]


async def _tell(program: asyncio.subprocess.Process, say: Callable[[str], None]) -> None:
    assert program.stderr is not None  # noqa: S101 - as above
    while line := (await program.stderr.readline()).decode().strip():
        say(line)


async def _end(program: asyncio.subprocess.Process) -> None:
    """Let it stop its servers; if it does not, they end with it, for something else watches over them."""
    with suppress(ProcessLookupError):
        program.terminate()
    try:
        async with asyncio.timeout(_STOP):
            await program.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        await program.wait()
