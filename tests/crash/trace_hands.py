"""Workers that are led step by step, each by proxies of its own to both servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from inbox.testing.crash import CrashWorker
from inbox.testing.faults import AmqpFraming, Cut, FaultProxy, Link, MySqlFraming
from tests.crash import trace_app
from tests.crash.trace import Means, Message
from tests.crash.world import World

#: Seconds within which anything is done, however busy the machine is.
PATIENCE = 60


class OtherwiseError(AssertionError):
    """The real thing did something else than the trace says."""


@dataclass(frozen=True)
class Report:
    """Where a worker is; it blocks there.

    Attributes:
        point: a crash point.
        outcome: of the command, behind it.
        event: identity of the delivery's event.
        message: which of its deliveries it may be.
        session: of its unit, by the server's number.
    """

    point: str
    outcome: str
    event: str
    message: Message
    session: int | None


class LedWorker:
    """A worker process that goes on when it is told to.

    Args:
        name: who it is.
        database: its way to the database.
        broker: its way to the broker.
        process: the process.
    """

    def __init__(self, name: str, database: FaultProxy, broker: FaultProxy, process: CrashWorker) -> None:
        self.name = name
        self.database = database
        self.broker = broker
        self.process = process
        self.at: Report | None = None
        #: Links that outlive it.
        self.orphans: list[Link] = []
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._is_ready = False

    async def wait_ready(self) -> None:
        """Return when it consumes."""
        if not self._is_ready:
            await asyncio.to_thread(self.process.wait_ready, PATIENCE)
        self._is_ready = True

    # ------------------------------------------------------------ the conversation
    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what it says until it ends."""
        self._writer = writer
        while line := await reader.readline():
            said = json.loads(line)
            body = json.loads(said["body"])
            message = Message(body["number"], body["other"], body["garbled"])
            self._reports.put_nowait(Report(said["point"], said["outcome"], body["event"], message, said["session"]))
        self._reports.put_nowait(None)

    def look(self) -> Report | None:
        """Where it is, if it has said so by now."""
        if self.at is None and not self._reports.empty():
            self.at = self._reports.get_nowait()
        return self.at

    def tell(self, order: Means = Means.GO) -> None:
        """Let it go on."""
        assert self._writer is not None, "it has said where it is"
        self.at = None
        self._writer.write(json.dumps(order.name).encode() + b"\n")

    async def arrive(self, point: str) -> Report:
        """Wait until it is there.

        Raises:
            OtherwiseError: it has come to another point, or ended, or goes on for ever.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                self.at = self.at or await self._reports.get()
        except TimeoutError:
            raise OtherwiseError(f"{self.name} did not come to {point} within {PATIENCE} s") from None
        if self.at is None:
            raise OtherwiseError(f"{self.name} ended instead of coming to {point}")
        if self.at.point != point:
            raise OtherwiseError(f"{self.name} came to {self.at.point} instead of {point}")
        return self.at

    # ------------------------------------------------------------ its end
    async def kill(self) -> None:
        """SIGKILL; its links end with it, but for the orphans."""
        await asyncio.to_thread(self.process.kill)
        for link in (*self.database.links, *self.broker.links):
            if link not in self.orphans:
                link.cut(Cut.FIN)

    def ports(self) -> set[int]:
        """By which the database knows the sessions that end with it."""
        return {link.server_port for link in self.database.links if link not in self.orphans}


class Crew:
    """The workers of a world, and where they ask what to do.

    Args:
        world: tables, queue and exchange.
        lock_wait: whole seconds that a claim waits.
        stack: what ends with the test.
    """

    def __init__(self, world: World, lock_wait: int, stack: AsyncExitStack) -> None:
        self._world = world
        self._lock_wait = lock_wait
        self._stack = stack
        self._port = 0
        self._made = 0
        self._by_name: dict[str, LedWorker] = {}
        self.workers: list[LedWorker] = []

    async def open(self) -> None:
        """Listen, and start two workers."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self._stack.callback(server.close)
        self._port = server.sockets[0].getsockname()[1]
        for _ in range(2):
            await self.hire()
        for worker in self.workers:
            await worker.wait_ready()

    async def hire(self) -> None:
        """Start one more; it takes part as soon as it can."""
        pair = self._world.pair
        database = await self._stack.enter_async_context(
            FaultProxy(pair.database.host, pair.database.port, MySqlFraming)
        )
        broker = await self._stack.enter_async_context(FaultProxy(pair.broker.host, pair.broker.port, AmqpFraming))
        self._made += 1
        name = f"worker {self._made}"
        self._world.factory, self._world.extra = trace_app.make, (str(self._port), name, str(self._lock_wait))
        process = self._world.worker(database_port=database.port, broker_port=broker.port)
        worker = LedWorker(name, database, broker, process)
        self._stack.callback(process.kill)
        self._by_name[name] = worker
        self.workers.append(worker)

    async def replace(self, worker: LedWorker) -> None:
        """Start another one in place of one that is dead."""
        self.workers.remove(worker)
        await self.hire()

    async def stop(self) -> None:
        """End them in an orderly way; nobody may have anything in hand."""
        for worker in self.workers:
            await worker.wait_ready()
        codes = await asyncio.gather(*(asyncio.to_thread(worker.process.stop) for worker in self.workers))
        assert codes == [0] * len(codes)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = json.loads(await reader.readline())
        await self._by_name[said["name"]].listen(reader, writer)
        writer.close()


@asynccontextmanager
async def crew(world: World, lock_wait: int) -> AsyncIterator[Crew]:
    """Two workers at a world's queue."""
    async with AsyncExitStack() as stack:
        made = Crew(world, lock_wait, stack)
        await made.open()
        yield made
