"""One run of one consumer: filled, started, timed, and checked."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.catalog import Cell
from benchmarks.database import Database
from benchmarks.workload import Batch, Channel, fresh_queue, make_batch
from inbox.testing.faults import AmqpFraming, FaultProxy, MySqlFraming, is_amqp_ack
from tests.services.local import LocalService
from tests.services.service import Service

ROOT: Final = Path(__file__).parents[1]
#: Where Node's consumer is put with its libraries.
NODE_FOLDER: Final = ROOT / "build/bench/node"
#: Seconds that a consumer may take to connect, and to settle one delivery on average, and beside that.
_START_PATIENCE: Final = 60.0
_PATIENCE_EACH: Final = 0.1
_PATIENCE: Final = 30.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Wrong(Exception):
    """A consumer did not do what it must, so that its figures are none. The message says what."""


@dataclass(frozen=True)
class Servers:
    """One database and one broker, for all runs of one pair."""

    database: Database
    amqp_url: str
    services: tuple[Service, Service]

    def cpu_seconds(self) -> tuple[float | None, float | None]:
        """What database and broker have used so far; None of one that is not ours."""
        database, broker = (_cpu_of(service) for service in self.services)
        return database, broker


@dataclass(frozen=True)
class Timing:
    """What one run took.

    Attributes:
        deliveries: that were settled.
        seconds: from the first delivery to the last acknowledgement.
        p50_ms, p99_ms: from a delivery's arrival in the process to its acknowledgement.
        cpu_us, database_cpu_us, broker_cpu_us: processor time for one delivery; None of a server that is not ours.
        questions: statements that the database counted for one delivery; None where others use it too.
        peak_rss_mb: of the consumer.
    """

    deliveries: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    peak_rss_mb: float
    database_cpu_us: float | None = None
    broker_cpu_us: float | None = None
    questions: float | None = None

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return self.deliveries / self.seconds


@dataclass(frozen=True)
class WireCount:
    """What one delivery cost on the wire, counted by a proxy in a run of its own.

    Attributes:
        commands: packets to the database that begin a command.
        round_trips: of them, those that were sent when the one before was answered.
        acks: acknowledgement frames to the broker.
    """

    commands: float
    round_trips: float
    acks: float


async def time_run(cell: Cell, servers: Servers, count: int, draw: random.Random) -> Timing:
    """Consume `count` deliveries, and see that every effect is there once.

    Raises:
        Wrong: it did not end in time, or left something undone or done twice.
    """
    batch = make_batch(cell.load, count, draw)
    async with _consuming(cell, servers, batch) as consumer:
        # Read while the consumer waits, so that neither its start nor our publishing is in the figures.
        questions, cpu = servers.database.questions(), servers.cpu_seconds()
        result = await consumer.run()
        cpu_after, questions_after = servers.cpu_seconds(), servers.database.questions()
    database_cpu, broker_cpu = (
        None if before is None or after is None else 1e6 * (after - before) / count
        for before, after in zip(cpu, cpu_after, strict=True)
    )
    return Timing(
        count,
        result["seconds"],
        result["p50_ms"],
        result["p99_ms"],
        1e6 * result["cpu_seconds"] / count,
        result["peak_rss_mb"],
        database_cpu,
        broker_cpu,
        # The second question about it is one itself.
        (questions_after - questions - 1) / count if servers.services[0].is_ours else None,
    )


async def count_run(cell: Cell, servers: Servers, count: int, draw: random.Random) -> WireCount:
    """Consume `count` deliveries through proxies that count. Checked like any run.

    Raises:
        Wrong: as `time_run`.
    """
    database_url, amqp_url = urlsplit(servers.database.url), urlsplit(servers.amqp_url)
    database = FaultProxy(database_url.hostname or "", database_url.port or 3306, MySqlFraming)
    broker = FaultProxy(amqp_url.hostname or "", amqp_url.port or 5672, AmqpFraming, record=True)
    async with database, broker:
        urls = (at_port(servers.database.url, database.port), at_port(servers.amqp_url, broker.port))
        batch = make_batch(cell.load, count, draw)
        async with _consuming(cell, servers, batch, urls) as consumer:
            before, acks_before = database.traffic.copy(), _acks(broker)
            await consumer.run()
            # What was written by then may still be on its way through the proxy.
            await _wait_quiet(broker)
            traffic, acks = database.traffic - before, _acks(broker) - acks_before
    return WireCount(traffic.commands / count, traffic.round_trips / count, acks / count)


class _Consumer:
    """A consumer's process that has connected and waits.

    Args:
        process: its own.
        channel: over which single events are sent.
        batch: what it will consume.
        is_fed: it gets the next event when the last one is acknowledged.
    """

    def __init__(self, process: Process, channel: Channel, batch: Batch, *, is_fed: bool) -> None:
        self._process = process
        self._channel = channel
        self._batch = batch
        self._is_fed = is_fed

    async def run(self) -> dict[str, Any]:
        """Let it consume everything; its result.

        Raises:
            Wrong: it did not end in time, or without a result.
        """
        await self._tell("go")
        deliveries = self._batch.deliveries
        try:
            async with asyncio.timeout(_PATIENCE + _PATIENCE_EACH * len(deliveries)):
                for event in deliveries if self._is_fed else ():
                    await self._channel.publish([event])
                    if await self.line() != "acknowledged":
                        raise Wrong("it did not acknowledge one event after the other")
                result: dict[str, Any] = json.loads(await self.line())
        except TimeoutError:
            raise Wrong("it did not settle everything in time") from None
        return result

    async def line(self) -> str:
        """Its next one."""
        assert self._process.stdout is not None  # noqa: S101 - started with a pipe
        read = await self._process.stdout.readline()
        if not read:
            raise Wrong(f"it ended early, with {await self._process.wait()}")
        return read.decode().strip()

    async def close(self) -> None:
        """Let it close its connections, and end."""
        await self._tell("seen")
        try:
            async with asyncio.timeout(_PATIENCE):
                code = await self._process.wait()
        except TimeoutError:
            raise Wrong("it did not end") from None
        if code != 0:
            raise Wrong(f"it ended with {code}")

    async def _tell(self, word: str) -> None:
        assert self._process.stdin is not None  # noqa: S101 - started with a pipe
        with suppress(ConnectionError):  # it has died: its output says so
            self._process.stdin.write(f"{word}\n".encode())
            await self._process.stdin.drain()


@asynccontextmanager
async def _consuming(
    cell: Cell, servers: Servers, batch: Batch, urls: tuple[str, str] | None = None
) -> AsyncIterator[_Consumer]:
    """Everything before the clock starts, and the checks afterwards."""
    queue = f"bench-{secrets.token_hex(4)}"
    servers.database.reset(batch)
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(fresh_queue(servers.amqp_url, queue))
        is_fed = cell.load.kind == "one alone"
        if not is_fed:
            await channel.publish(batch.deliveries)
        words = _words(cell, queue, len(batch.deliveries), is_fed=is_fed)
        process = await stack.enter_async_context(_process(words, urls or (servers.database.url, servers.amqp_url)))
        consumer = _Consumer(process, channel, batch, is_fed=is_fed)
        async with asyncio.timeout(_START_PATIENCE):
            if (line := await consumer.line()) != "ready":
                raise Wrong(f"it said {line!r} instead of ready")
        yield consumer
        await consumer.close()
        await check(servers.database, channel, batch)


async def check(database: Database, channel: Channel, batch: Batch) -> None:
    """See that every effect is there once and nothing is left, after the consumer has closed.

    Raises:
        Wrong: it is not so.
    """
    wrongs = database.wrongs(batch)
    if left := await channel.left():
        wrongs.append(f"{left} messages left in the queue")
    if wrongs:
        raise Wrong("; ".join(wrongs))


@asynccontextmanager
async def _process(words: Sequence[str], urls: tuple[str, str]) -> AsyncIterator[Process]:
    environment = {**os.environ, "BENCH_DATABASE_URL": urls[0], "BENCH_AMQP_URL": urls[1]}
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _words(cell: Cell, queue: str, expect: int, *, is_fed: bool) -> list[str]:
    consumer, in_flight = cell.consumer, cell.load.in_flight
    at_work = max(in_flight, consumer.batch)
    words = ["--queue", queue, "--in-flight", str(in_flight), "--expect", str(expect)]
    words += ["--tells-each"] if is_fed else []
    words += ["--prefetch", str(at_work * consumer.prefetch)] if consumer.prefetch is not None else []
    if consumer.program == "node":
        return [shutil.which("node") or "node", str(NODE_FOLDER / "consumer.js"), *words]
    words += ["--driver", consumer.driver, "--loop", consumer.loop, "--handler", consumer.handler]
    words += ["--batch", str(consumer.batch)]
    return [sys.executable, "-m", consumer.program, *words]


def at_port(url: str, port: int) -> str:
    """The same address by way of a proxy on loopback."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()


def _acks(broker: FaultProxy) -> int:
    return sum(is_amqp_ack(command) for command in broker.commands)


async def _wait_quiet(broker: FaultProxy) -> None:
    """Until what the client wrote has come through: the acknowledgements wait for no answer."""
    seen = -1
    while seen != broker.traffic.packets:
        seen = broker.traffic.packets
        await asyncio.sleep(0.05)


def _cpu_of(service: Service) -> float | None:
    """Processor seconds of a server that this run started."""
    if not isinstance(service, LocalService) or service.pid is None:
        return None
    return cpu_seconds_of(service.pid)


def cpu_seconds_of(pid: int) -> float:
    """That a process has used so far (proc(5), /proc/pid/stat: utime and stime).

    Raises:
        OSError: there is none.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
