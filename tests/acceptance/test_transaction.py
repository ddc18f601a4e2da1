"""`inbox.transaction` in a consumer written by hand over aio-pika: what each outcome raises, on real servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import (
    AlreadyProcessed,
    CommitUnresolved,
    ConsumerSettings,
    DatabaseSettings,
    Event,
    IdentityConflict,
    Inbox,
    MySQL,
    NotApplied,
    NotDone,
    Refused,
    TryAgain,
    UnitMisused,
    delivery_from,
)
from inbox.testing.faults import Catch, FaultProxy, MySqlFraming, is_commit
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.crash.world import at_port
from tests.facts import wait_until
from tests.pairs import Driver, Pair

LOCK_WAIT = 1


@dataclass
class Shop:
    """A queue and a table, and the consumer that somebody has: `consume` is what they wrote."""

    pair: Pair
    url: str
    queue: AbstractQueue
    channel: aio_pika.abc.AbstractChannel
    outcomes: list[str] = field(default_factory=list)

    def inbox(self, port: int | None = None) -> Inbox:
        store = MySQL(at_port(self.url, port), DatabaseSettings(lock_wait=LOCK_WAIT, connect_timeout=5))
        return Inbox("shop", store=store, settings=ConsumerSettings(concurrency=4, deadline=20))

    async def publish(self, identifier: str | None, body: bytes = b"{}") -> None:
        headers = {"ce-source": "/shop", "ce-type": "order.placed", "ce-specversion": "1.0"}
        if identifier is not None:
            headers["ce-id"] = identifier
        message = aio_pika.Message(body, headers=dict(headers), content_type="application/json")
        await self.channel.default_exchange.publish(message, self.queue.name)

    async def receive(self) -> AbstractIncomingMessage:
        return await self.queue.get(timeout=10)

    async def event(self, inbox: Inbox, identifier: str = "1", body: bytes = b"{}") -> Event:
        """A verified event by way of the broker, its message acknowledged: for what is not about acknowledging."""
        await self.publish(identifier, body)
        message = await self.receive()
        await message.ack()
        return await inbox.verify(delivery_from(message))

    async def consume(self, inbox: Inbox, number: int) -> None:
        """`number` messages, by the rule: acknowledge only after a normal exit or `AlreadyProcessed`."""
        for _ in range(number):
            message = await self.receive()
            try:
                event = await inbox.verify(delivery_from(message, queue=self.queue.name))
                with suppress(AlreadyProcessed):
                    async with inbox.transaction(event) as session:
                        await order(session, event.id)
            except Refused as error:
                self.outcomes.append(error.code)
                await message.reject()
            except NotDone as error:
                self.outcomes.append(type(error).__name__)
                await message.nack()
            else:
                await message.ack()

    def orders(self) -> list[str]:
        with closing(connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM orders ORDER BY n")
            return [row[0] for row in cursor.fetchall()]

    def keys(self) -> list[str]:
        with closing(connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT event_id FROM inbox")
            return sorted(row[0].decode() for row in cursor.fetchall())

    @asynccontextmanager
    async def proxied(self) -> AsyncIterator[tuple[FaultProxy, Inbox]]:
        database = self.pair.database
        async with (
            FaultProxy(database.host, database.port, framing=MySqlFraming) as proxy,
            self.inbox(proxy.port) as inbox,
        ):
            yield proxy, inbox


Step = Callable[[AsyncSession], Awaitable[None]]


async def order(session: AsyncSession, identifier: str) -> None:
    await session.execute(text("INSERT INTO orders (id) VALUES (:id)"), {"id": identifier})


async def take_from_stock(session: AsyncSession, identifier: int = 1) -> None:
    await session.execute(text("UPDATE stock SET n = n + 1 WHERE id = :id"), {"id": identifier})


async def place(inbox: Inbox, event: Event, *further: Step) -> None:
    """The block that is tried: an order, and what else the test wants in it."""
    async with inbox.transaction(event) as session:
        await order(session, event.id)
        for step in further:
            await step(session)


@pytest.fixture
async def shop(pair: Pair, driver: Driver) -> AsyncIterator[Shop]:
    await create_tables(pair)
    with closing(connect(pair.database_url)) as database, database.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (n INT PRIMARY KEY AUTO_INCREMENT, id VARCHAR(64)) ENGINE=InnoDB")
        cursor.execute("CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
        cursor.execute("INSERT INTO stock VALUES (1, 0), (2, 0)")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(pair.unique("shop"), durable=True)
        yield Shop(pair, pair.url_for(driver), queue, channel)


# ------------------------------------------------------------------ what a consumer does
async def test_each_event_once_and_every_message_settled(shop: Shop) -> None:
    for identifier in ("1", "2", "1", "3", "2", "1"):
        await shop.publish(identifier)
    await shop.publish("3", b'{"other":true}')
    await shop.publish(None)
    async with shop.inbox() as inbox:
        await shop.consume(inbox, 8)
    assert shop.orders() == ["1", "2", "3"]
    assert shop.keys() == ["1", "2", "3"]
    assert shop.outcomes == ["identity-conflict", "missing-id"]
    assert await shop.queue.get(fail=False) is None


async def test_a_duplicate_does_not_run_the_block(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)
        await place(inbox, event)
        with pytest.raises(AlreadyProcessed):
            await place(inbox, event)
        with pytest.raises(IdentityConflict):
            await place(inbox, await shop.event(inbox, "1", b"[]"))
    assert shop.orders() == ["1"]


async def test_an_exception_of_the_block_undoes_it_and_comes_out_as_it_is(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)
        with pytest.raises(LookupError, match="mine"):
            await place(inbox, event, raises)
        assert (shop.orders(), shop.keys()) == ([], [])
        await place(inbox, event)
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


async def raises(session: AsyncSession) -> None:
    raise LookupError("mine")


async def test_a_cancelled_block_is_undone(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)
        written = asyncio.Event()

        async def work() -> None:
            async with inbox.transaction(event) as session:
                await order(session, "1")
                written.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (shop.orders(), shop.keys()) == ([], [])


# ------------------------------------------------------------------ contention
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_a_lock_wait_timeout_is_try_again(shop: Shop, swallowed: bool) -> None:
    """Error 1205 undoes one statement only: what the block makes of it does not matter."""
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)
        with closing(connect(shop.pair.database_url)) as holder, holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE stock SET n = n + 1 WHERE id = 1")
            with pytest.raises(TryAgain):
                await place(inbox, event, swallowing if swallowed else take_from_stock)
            cursor.execute("ROLLBACK")
        assert (shop.orders(), shop.keys()) == ([], [])


async def swallowing(session: AsyncSession) -> None:
    with suppress(DBAPIError):
        await take_from_stock(session)


async def test_a_dead_lock_is_try_again(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        events = [await shop.event(inbox, identifier) for identifier in ("1", "2")]
        both = asyncio.Barrier(2)

        async def work(event: Event, first: int, second: int) -> None:
            async with inbox.transaction(event) as session:
                await take_from_stock(session, first)
                await both.wait()
                await take_from_stock(session, second)
                await order(session, event.id)

        ends = await asyncio.gather(work(events[0], 1, 2), work(events[1], 2, 1), return_exceptions=True)
    assert [type(end) for end in ends if end is not None] == [TryAgain]
    assert len(shop.orders()) == 1
    assert shop.orders() == shop.keys()


async def test_a_racing_duplicate_is_no_duplicate_before_the_first_has_ended(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)

        async def race(session: AsyncSession) -> None:
            with pytest.raises(TryAgain):
                await asyncio.create_task(place(inbox, event))

        await place(inbox, event, race)
        with pytest.raises(AlreadyProcessed):
            await place(inbox, event)
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


# ------------------------------------------------------------------ the commit's answer is lost
async def test_a_commit_that_took_place_unanswered_is_a_normal_exit(shop: Shop) -> None:
    async with shop.proxied() as (proxy, inbox):
        event = await shop.event(inbox)
        trap = proxy.trap(is_commit, Catch.LOSE_ANSWER)
        await place(inbox, event)
        assert trap.reached.is_set()
        with pytest.raises(AlreadyProcessed):
            await place(inbox, event)
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


async def test_a_commit_that_never_arrived_is_not_applied(shop: Shop) -> None:
    async with shop.proxied() as (proxy, inbox):
        event = await shop.event(inbox)
        trap = proxy.trap(is_commit, Catch.CUT)
        with pytest.raises(NotApplied):
            await place(inbox, event)
        assert trap.reached.is_set()
        assert (shop.orders(), shop.keys()) == ([], [])
        await place(inbox, event)
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


async def test_a_commit_that_nobody_can_tell_of_is_unresolved(shop: Shop) -> None:
    """The old session is still there, behind a link of its own, and holds the row: KILL would hit a stranger's."""
    async with shop.proxied() as (proxy, inbox):
        event = await shop.event(inbox)
        trap = proxy.trap(is_commit, Catch.SWALLOW)
        task = asyncio.ensure_future(place(inbox, event))
        link = await trap.wait()
        link.cut_client()
        with pytest.raises(CommitUnresolved):
            await task
        link.cut()
        await link.ended.wait()
        await wait_until(lambda: open_transactions(shop) == 0)
        assert (shop.orders(), shop.keys()) == ([], [])
        await place(inbox, event)
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


# ------------------------------------------------------------------ misuse
async def commits(session: AsyncSession) -> None:
    await session.execute(text("COMMIT"))


async def rolls_back(session: AsyncSession) -> None:
    await session.rollback()


async def alters(session: AsyncSession) -> None:
    with suppress(Exception):
        await session.execute(text("CREATE TABLE other (id INT)"))


@pytest.mark.parametrize("misuse", [commits, rolls_back, alters])
async def test_a_misused_unit_is_undone(shop: Shop, misuse: Step) -> None:
    async with shop.inbox() as inbox:
        event = await shop.event(inbox)
        with pytest.raises(UnitMisused):
            await place(inbox, event, misuse)
        assert (shop.orders(), shop.keys()) == ([], [])
        # A commit flushes: existing services work unchanged.
        await place(inbox, event, lambda session: session.commit())
    assert (shop.orders(), shop.keys()) == (["1"], ["1"])


async def test_a_session_is_of_no_use_after_its_block(shop: Shop) -> None:
    async with shop.inbox() as inbox:
        async with inbox.transaction(await shop.event(inbox)) as session:
            await order(session, "1")
        with pytest.raises(Exception):  # noqa: B017, PT011 - SQLAlchemy's own word or the guard's
            await order(session, "late")
        async with inbox.transaction(await shop.event(inbox, "2")) as session:
            await order(session, "2")
    assert shop.orders() == ["1", "2"]


def open_transactions(shop: Shop) -> int:
    sql = (
        "SELECT COUNT(*) FROM information_schema.innodb_trx AS trx "
        "JOIN information_schema.processlist AS session ON session.id = trx.trx_mysql_thread_id "
        "WHERE session.db = DATABASE()"
    )
    with closing(connect(shop.pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
    return int(row[0]) if row else 0
