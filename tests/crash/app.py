"""The application that is killed: a ledger, with handlers that lead through every command of the lifecycle."""

from contextlib import closing
from urllib.parse import urlsplit

import pymysql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject

CONSUMER = "ledger"
ACCOUNTS = 4

TABLES = [
    "CREATE TABLE effect (event_id VARBINARY(512) NOT NULL, KEY (event_id)) ENGINE=InnoDB",
    "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE run (event_id VARBINARY(512) PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB",
    "INSERT INTO account VALUES (0, 0), (1, 0), (2, 0), (3, 0)",
]

#: Runs of one event that end with its connection. Of the two or three deliveries of it, at least one has more of them
#: than are repeated in place, and is released.
CUTS = 4

SETTINGS = ConsumerSettings(
    concurrency=4,
    deadline=20,
    shutdown_patience=10,
    retry=RetryPolicy(max_attempts=6, delays=(0.05, 0.1), first_delay=0.02, max_delay=0.1, immediate=1),
)


def connect(url: str) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """A connection outside every unit of work, for facts that a rollback must not take back."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
        autocommit=True,
        ssl_disabled=True,  # or each connection reads every authority that this machine trusts, which takes 25 ms
    )


class Ledger:
    """Handlers by what happens to them the first time."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_first_run(self, event: Event) -> bool:
        return self.count_run(event) == 1

    def count_run(self, event: Event) -> int:
        with closing(connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO run VALUES (%s, 1) ON DUPLICATE KEY UPDATE n = n + 1", (event.id.encode(),))
            cursor.execute("SELECT n FROM run WHERE event_id = %s", (event.id.encode(),))
            row = cursor.fetchone()
        assert row is not None
        return int(row[0])

    def cut(self, connection_id: int) -> None:
        """End a connection from outside, and return when the server has ended it."""
        with closing(connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute(f"KILL CONNECTION {connection_id}")
            while cursor.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (connection_id,)):
                pass

    async def apply(self, event: Event, session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id.encode()})
        account = sum(event.id.encode()) % ACCOUNTS
        await session.execute(text("UPDATE account SET balance = balance + 1 WHERE id = :id"), {"id": account})

    async def flaky(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.is_first_run(event):
            raise LookupError("the first time always fails")

    async def reject(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        raise Reject("never wanted")

    async def lose_connection(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.is_first_run(event):
            self.cut((await session.execute(text("SELECT CONNECTION_ID()"))).scalar_one())
            await session.execute(text("SELECT 1"))

    async def lose_often(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.count_run(event) <= CUTS:
            self.cut((await session.execute(text("SELECT CONNECTION_ID()"))).scalar_one())
            await session.execute(text("SELECT 1"))

    async def lose_commit(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.is_first_run(event):
            self.cut((await session.execute(text("SELECT CONNECTION_ID()"))).scalar_one())


def make(database_url: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    inbox = Inbox(
        CONSUMER,
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=SETTINGS,
    )
    ledger = Ledger(database_url)
    for kind in ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit"):
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
