"""The `inbox` command as a user runs it: a process of its own, judged by what it writes and how it ends.

It is the installed script, in a fork of an interpreter that has imported the package (`tests/stem.py`): most of a start
is imports. `started=True` has it started as a shell does; that both end alike is a test of its own.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.branches import Branch, branch

ROOT = Path(__file__).parents[2]


def inbox_command() -> list[str]:
    """The installed script; where the package runs from its checkout, the module behind it."""
    script = Path(sys.executable).with_name("inbox")
    return [str(script)] if script.exists() else [sys.executable, "-m", "inbox.cli"]


@dataclass
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Command:
    """A command that runs. What it writes to standard error is read all the time and kept."""

    def __init__(self, process: asyncio.subprocess.Process | Branch) -> None:
        self._process = process
        self._changed = asyncio.Condition()
        self.err = ""
        self._reading = asyncio.ensure_future(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            async with self._changed:
                self.err += line.decode()
                self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, piece: str, times: int = 1) -> None:
        """Return when `piece` has been written so often."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.err.count(piece) >= times or self._reading.done())
        assert self.err.count(piece) >= times, f"it ended without saying {piece!r}:\n{self.err}"

    async def read_line(self) -> str:
        """The next line of standard output."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait_ended(self) -> Ended:
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            out = (await self._process.stdout.read()).decode()
            await self._reading
            return Ended(await self._process.wait(), out, self.err)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        self.send(number)
        return await self.wait_ended()

    def children(self) -> list[int]:
        """Its worker processes, by the kernel's list; not the helper that multiprocessing starts beside them."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent == self.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found


@asynccontextmanager
async def running(
    *words: str, env: Mapping[str, str], cwd: Path = ROOT, started: bool = False
) -> AsyncIterator[Command]:
    """`inbox <words>`, from the project's root or from `cwd`; whatever is left of it at the end is killed."""
    environment = clean_environment() | dict(env) | ({} if cwd == ROOT else {"PYTHONPATH": str(ROOT)})
    process = await (_start if started else _fork)(words, environment, cwd)
    command = Command(process)
    try:
        yield command
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await command._reading
        if isinstance(process, Branch):
            process.close()


async def _start(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *inbox_command(),
        *words,
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _fork(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Branch:
    program = inbox_command()[-1]
    return await branch(program, words, is_module="/" not in program, environment=environment, folder=cwd)


async def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT, started: bool = False) -> Ended:
    """Run `inbox <words>` to its end."""
    async with running(*words, env=env or {}, cwd=cwd, started=started) as command:
        return await command.wait_ended()


def clean_environment() -> dict[str, str]:
    """What the test has, less the settings that a developer may have for the example and the command."""
    settings = ("BILLING_", "INBOX_DATABASE_URL", "INBOX_LOG_", "APP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    return kept | {"COLUMNS": "200", "TERM": "dumb", "PYTHONWARNINGS": "error"}
