"""The load, everything that is done to it, and the end."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pymysql
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from inbox.adapters.mysql.schema import apply
from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.errors import InboxError
from inbox.tables import define_tables
from inbox.testing.crash import CrashWorker
from inbox.testing.faults import AmqpFraming, Cut, FaultProxy, MySqlFraming
from tests.crash.app import connect
from tests.crash.world import World
from tests.pairs import Pair
from tests.services.service import Service
from tests.soak import app
from tests.soak.audit import Order, audit

#: Most events that are handed over ahead of the workers: an outage need not be paid for by hours of catching up.
BACKLOG = 400
#: Seconds for everything to end, once nothing more is done to it.
PATIENCE = 120.0
#: Seconds without faults at first: a quorum queue that was declared within the last second loses what it confirmed.
QUIET = 2.0


@dataclass(frozen=True)
class Plan:
    """How long, how much, and how often something happens: seconds, from and to.

    Attributes:
        seconds: of load.
        seed: of every draw.
        rate: new events a second.
        workers: processes.
        kills, cuts, outages: between two of each.
    """

    seconds: float
    seed: int
    rate: float = 60.0
    workers: int = 3
    kills: tuple[float, float] = (2.0, 5.0)
    cuts: tuple[float, float] = (2.0, 6.0)
    outages: tuple[float, float] = (15.0, 30.0)


@dataclass
class Report:
    """What was done, and what came of it.

    Attributes:
        events: handed over, each under an id of its own.
        deliveries: handed over, duplicates included.
        done: kills, cuts and outages by their names.
        differences: what is not as it must be.
        settling: seconds from the end of the load to the end of the last event.
    """

    seed: int
    pair: str
    events: int = 0
    deliveries: int = 0
    applied: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    settling: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """Of one line."""
        return json.dumps(vars(self) | {"is_right": not self.differences})


class Soak:
    """One run.

    Args:
        world: its tables and queues, nothing in them.
        plan: what is to happen.
        say: told how it goes, every second or so.
    """

    def __init__(self, world: World, plan: Plan, say: Callable[[str], None]) -> None:
        self._world = world
        self._plan = plan
        self._say = say
        self._chance = random.Random(plan.seed)  # noqa: S311 - to be repeated
        self._orders: dict[str, Order] = {}
        self._workers: list[CrashWorker] = []
        self._began = time.monotonic()
        self.enough = asyncio.Event()
        self.report = Report(plan.seed, world.pair.id)

    async def run(self) -> Report:
        """Load, faults, an end in good order, and the audit."""
        pair = self._world.pair
        async with (
            FaultProxy(pair.database.host, pair.database.port, MySqlFraming) as database,
            FaultProxy(pair.broker.host, pair.broker.port, AmqpFraming) as broker,
        ):
            self._proxies = (database, broker)
            try:
                await self._load()
                await self._settle()
            finally:
                self.report.done["exit codes that are not 0"] += await self._stop()
        self.report.differences += await audit(self._world, self._orders)
        self.report.seconds = round(time.monotonic() - self._began, 1)
        return self.report

    # ------------------------------------------------------------ load
    async def _load(self) -> None:
        self._workers = [self._worker() for _ in range(self._plan.workers)]
        await asyncio.gather(*(asyncio.to_thread(worker.wait_ready, 60) for worker in self._workers))
        jobs: list[Coroutine[object, object, None]] = [self._publish(), self._kill(), self._cut(), self._tell()]
        if self._world.pair.database.is_ours and self._world.pair.broker.is_ours:
            jobs.append(self._take_servers_away())
        tasks = [asyncio.ensure_future(job) for job in jobs]
        ending = asyncio.ensure_future(self.enough.wait())
        try:
            await asyncio.wait({*tasks, ending}, timeout=self._plan.seconds, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.enough.set()
            await asyncio.gather(ending, *tasks)
        for proxy in self._proxies:
            proxy.refuse(False)
            proxy.resume()
            proxy.throttle(None)

    async def _publish(self) -> None:
        """One event after the other, some of them again and again; what is not confirmed is handed over once more."""
        again: list[str] = []
        while not self.enough.is_set():
            with suppress(InboxError):
                async with Publisher(self._world.pair.amqp_url) as publisher:
                    while not self.enough.is_set():
                        await self._hand_over(publisher, self._new(), again)
        # Who was handed over and not confirmed may be there or not: for the audit it has to be.
        async with asyncio.timeout(PATIENCE):
            while again:
                with suppress(InboxError):
                    async with Publisher(self._world.pair.amqp_url) as publisher:
                        while again:
                            await self._send(publisher, again[-1])
                            again.pop()
                if again:
                    await asyncio.sleep(0.2)

    def _new(self) -> str:
        kind = self._chance.choices([*app.KINDS], [*app.KINDS.values()])[0]
        identifier = f"{kind}-{len(self._orders)}"
        self._orders[identifier] = Order(kind, 1 + len(self._orders) % 7)
        self.report.events += 1
        return identifier

    async def _hand_over(self, publisher: Publisher, identifier: str, again: list[str]) -> None:
        again.append(identifier)
        await self._send(publisher, identifier)
        if self._chance.random() > 0.3:
            again.remove(identifier)
        while again and self._chance.random() < 0.5:  # late, and out of order
            late = self._chance.choice(again)
            await self._send(publisher, late)
            again.remove(late)
        await self._pause(1 / self._plan.rate)
        while self._behind() > BACKLOG and not self.enough.is_set():
            await asyncio.sleep(0.2)

    async def _send(self, publisher: Publisher, identifier: str) -> None:
        order = self._orders[identifier]
        account = sum(identifier.encode()) % app.ACCOUNTS
        await publisher.publish(
            json.dumps({"amount": order.amount, "account": account}).encode(),
            exchange=self._world.exchange,
            routing_key=order.kind,
            headers={"ce-id": identifier, "ce-source": "/soak", "ce-type": order.kind, "ce-specversion": "1.0"},
            content_type="application/json",
        )
        self.report.deliveries += 1

    def _behind(self) -> int:
        return self.report.events - self.report.applied - self.report.quarantined

    # ------------------------------------------------------------ faults
    async def _kill(self) -> None:
        await self._pause(QUIET)
        while await self._between(self._plan.kills):
            number = self._chance.randrange(len(self._workers))
            # Replaced first: whoever looks meanwhile for those that ended by themselves must not find this one dead.
            victim, self._workers[number] = self._workers[number], self._worker()
            await asyncio.to_thread(victim.kill)
            self.report.done["kills"] += 1

    async def _cut(self) -> None:
        await self._pause(QUIET)
        while await self._between(self._plan.cuts):
            proxy = self._chance.choice(self._proxies)
            fault = self._chance.choice(["cut-fin", "cut-reset", "silence", "refusal", "slowness"])
            self.report.done[fault] += 1
            match fault:
                case "cut-fin" | "cut-reset":
                    proxy.cut(Cut(fault.removeprefix("cut-")))
                case "silence":
                    proxy.stall()
                    await self._pause(self._chance.uniform(0.2, 3))
                    proxy.cut()
                    proxy.resume()
                case "refusal":
                    proxy.refuse()
                    proxy.cut()
                    await self._pause(self._chance.uniform(0.2, 2))
                    proxy.refuse(False)
                case _:
                    proxy.throttle(20_000)
                    await self._pause(self._chance.uniform(0.5, 2))
                    proxy.throttle(None)

    async def _take_servers_away(self) -> None:
        await self._pause(QUIET)
        while await self._between(self._plan.outages):
            pair = self._world.pair
            server = self._chance.choice([pair.database, pair.broker])
            how = self._chance.choice(["restart", "kill9"])
            self.report.done[f"{server.name} {how}"] += 1
            await asyncio.to_thread(take_away, server, how)

    async def _between(self, seconds: tuple[float, float]) -> bool:
        """Wait for the next time; False when it is enough."""
        return await self._pause(self._chance.uniform(*seconds))

    async def _pause(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.enough.wait()
        return not self.enough.is_set()

    # ------------------------------------------------------------ the end
    async def _settle(self) -> None:
        """Wait until every event has ended, with all workers alive and nothing more done to them."""
        began = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not await self._has_settled():
                    self._replace_the_dead()
                    self._say(self._line("settling"))
                    await asyncio.sleep(0.5)
        self.report.settling = round(time.monotonic() - began, 1)

    async def _has_settled(self) -> bool:
        await asyncio.to_thread(self._look)
        return self._behind() <= 0 and await self._world.left_in_queue() == 0

    async def _stop(self) -> int:
        codes = await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in self._workers))
        wrong = [code for code in codes if code != 0]
        if wrong:
            self.report.differences.append(f"workers: ended with {wrong}")
        return len(wrong)

    # ------------------------------------------------------------ looking
    async def _tell(self) -> None:
        while not self.enough.is_set():
            await asyncio.to_thread(self._look)
            self._replace_the_dead()
            left = max(0.0, self._plan.seconds - (time.monotonic() - self._began))
            self._say(self._line(f"{left:4.0f} s left"))
            await self._pause(1)

    def _look(self) -> None:
        with suppress(pymysql.MySQLError):
            self.report.applied = self._world.count("inbox")
            self.report.quarantined = self._world.count("inbox_quarantine")

    def _line(self, where: str) -> str:
        report, done = self.report, self.report.done
        outages = sum(number for name, number in done.items() if name.endswith(("restart", "kill9")))
        links = done.total() - done["kills"] - outages
        return (
            f"{where} · events {report.events} · deliveries {report.deliveries} · applied {report.applied} · "
            f"quarantined {report.quarantined} · behind {self._behind()} · kills {done['kills']} · links {links} · "
            f"outages {outages}"
        )

    def _replace_the_dead(self) -> None:
        for number, worker in enumerate(self._workers):
            if not worker.is_alive():
                self.report.differences.append(f"a worker ended by itself, with {worker.exit_code}")
                self._workers[number] = self._worker()

    def _worker(self) -> CrashWorker:
        database, broker = self._proxies
        return self._world.worker(database_port=database.port, broker_port=broker.port)


def take_away(server: Service, how: str) -> None:
    """Stop or kill a server, and start it again."""
    if how == "restart":
        server.restart()
    else:
        server.kill9()
        server.start()


async def make_world(pair: Pair) -> World:
    """Tables in the run's own database, and names on its broker."""
    engine = create_async_engine(pair.database_url)
    try:
        await apply(engine, define_tables(MetaData()))
    finally:
        await engine.dispose()
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in app.TABLES:
            cursor.execute(statement)
    world = World(pair, pair.unique("soak"), pair.unique("orders"), [], app.make, app.SETTINGS.retry.steps)
    for name in (f"{world.queue}.dead", *world.retry_queues):
        pair.discard(name)
    return world
