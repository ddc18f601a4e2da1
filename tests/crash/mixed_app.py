"""The applications that are killed where the queue and the database are of different kinds: the same ledgers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings
from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.ports import StoreFactory, Transport
from tests.crash import app, embedded_app, orbit_app
from tests.crash.orbit_app import transport_to

SERVER_KINDS = ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit")
FILE_KINDS = ("apply", "flaky", "reject", "lose_often", "lose_commit")


def broker_and_file(folder: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    """RabbitMQ and SQLite."""
    transport = RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")])
    return _by_type(_file(folder), transport, embedded_app.Ledger(Path(folder)), FILE_KINDS, app.SETTINGS)


def queue_and_server(folder: str, database_url: str) -> Inbox:
    """A queue in a file, and MySQL or MariaDB."""
    transport = SQLiteQueue(Path(folder) / "events.db", SQLiteQueueSettings(lease=0.5))
    return _by_type(MySQL(database_url), transport, app.Ledger(database_url), SERVER_KINDS, embedded_app.SETTINGS)


def leases_and_file(folder: str, url: str, subscription: str, credential: str) -> Inbox:
    """A leased subscription and SQLite."""
    transport = transport_to(url, subscription, credential)
    inbox = Inbox(app.CONSUMER, store=_file(folder), transport=transport, settings=orbit_app.SETTINGS)
    ledger = embedded_app.Ledger(Path(folder))

    @inbox.handler("task.succeeded")
    async def take(event: Event, session: AsyncSession) -> None:
        fault: Callable[[Event, AsyncSession], Any] = getattr(ledger, event.json()["fault"])
        await fault(event, session)

    return inbox


def _file(folder: str) -> SQLite:
    return SQLite(Path(folder) / "shop.db")


def _by_type(
    store: StoreFactory, transport: Transport, ledger: object, kinds: tuple[str, ...], settings: ConsumerSettings
) -> Inbox:
    inbox = Inbox(app.CONSUMER, store=store, transport=transport, settings=settings)
    for kind in kinds:
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
