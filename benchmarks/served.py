"""`inbox run` as a process of the studies' own: started, looked at, and stopped in an orderly way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.measure import ROOT, cpu_seconds_of

TARGET: Final = "benchmarks.consumers.served:make"
#: Seconds that a start and a stop may take.
PATIENCE: Final = 60.0


class Served:
    """A running `inbox run`.

    Args:
        process: the command's.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pids(self) -> list[int]:
        """Of the command, and of the workers that it has started."""
        return [self._process.pid, *_children(self._process.pid)]

    def is_running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.returncode is None

    def resident_mb(self) -> float:
        """Mebibytes of all its processes that are in memory now (proc(5), VmRSS)."""
        return sum(_resident_kb(pid) for pid in self.pids) / 1024

    def cpu_seconds(self) -> float:
        """That all its processes have used."""
        used = 0.0
        for pid in self.pids:
            with suppress(OSError):  # it has ended since
                used += cpu_seconds_of(pid)
        return used

    async def stop(self) -> int:
        """End it as an operator would; its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


@asynccontextmanager
async def served(urls: tuple[str, str], queue: str, workers: int, settings: dict[str, str]) -> AsyncIterator[Served]:
    """Run the inbox's own consumer of `queue`.

    Args:
        urls: of the database, and of the broker that has the queue.
        queue: its name.
        workers: processes.
        settings: environment variables, such as `INBOX_CONCURRENCY`.
    """
    environment = {
        **os.environ,
        "BENCH_DATABASE_URL": "mysql+aiomysql:" + urls[0].partition(":")[2],
        "BENCH_AMQP_URL": urls[1],
        "BENCH_QUEUE": queue,
        **settings,
    }
    words = ("-m", "inbox", "run", TARGET, "--workers", str(workers), "--quiet", "--log-level", "error")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, env=environment)
    running = Served(process)
    try:
        yield running
    finally:
        if running.is_running():
            await running.stop()


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())


def _resident_kb(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0
