"""The demo on a database and a broker that are there: with tables, queues and an exchange of its own in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aio_pika.exceptions import AMQPError
from sqlalchemy import MetaData, text
from sqlalchemy.exc import DBAPIError

from inbox.adapters.mysql import MySQL, schema
from inbox.adapters.mysql.engine import make_engine
from inbox.adapters.rabbitmq import Binding, Publisher, RabbitMQ
from inbox.adapters.rabbitmq.connection import apart, connect, leave
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.adapters.rabbitmq.settings import parse_address
from inbox.adapters.rabbitmq.tls import make_context
from inbox.config import DatabaseSettings
from inbox.demo.fetcher import make_fetcher_inbox
from inbox.demo.ledger import SETTINGS, Ledger, make_inbox
from inbox.demo.stage import all_of, enlist
from inbox.errors import InboxError
from inbox.tables import TableNames, define_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aio_pika.abc import AbstractConnection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from inbox.app import Inbox
    from inbox.demo.board import Board
    from inbox.demo.script import Sending

__all__ = ["ServerStage", "make", "make_verifying", "table_names"]

_SESSION: Final = 60.0
#: Publishes that wait for the broker at once.
_IN_FLIGHT: Final = 200
#: Seconds that a removal waits for the last sessions of killed workers.
_REMOVAL: Final = 15


class ServerStage:
    """`inbox.demo.stage.Stage` over MySQL or MariaDB, and RabbitMQ.

    Args:
        database_url: of a database in which tables may be made.
        broker_url: of a broker on which queues and an exchange may be declared.
        name: begins the names of all of them.
        key: that the events are signed with, where the workers are to verify them.

    Raises:
        ConfigurationError: an address is none. The message never shows it.
    """

    def __init__(self, database_url: str, broker_url: str, name: str, key: bytes | None = None) -> None:
        self._name = name
        self._engine = make_engine(database_url, DatabaseSettings(), _SESSION)
        self._transport = _transport(broker_url, name)
        self._address = parse_address(broker_url)
        self._broker_url = broker_url
        self._publisher: Publisher | None = None
        self._flying = asyncio.Semaphore(_IN_FLIGHT)
        self.ledger = Ledger(f"{name}_")
        self.tables = table_names(name)
        self.exchange = name
        where = (database_url, broker_url, name)
        self.factory = make if key is None else make_verifying
        self.arguments: tuple[object, ...] = where if key is None else (*where, key)

    def describe(self) -> str:
        """See `Stage.describe`."""
        url = self._engine.url
        where = f"{url.host or 'localhost'}:{url.port or 3306}/{url.database}"
        return f"tables {self._name}_… in {where}, queue {self._name} on {self._address.host}:{self._address.port}"

    async def open(self) -> None:
        """See `Stage.open`."""
        self._publisher = await Publisher(self._broker_url).__aenter__()
        await schema.apply(self._engine, define_tables(MetaData(), self.tables))
        async with self._engine.begin() as connection:
            await connection.run_sync(self.ledger.metadata.create_all)
            await connection.execute(self.ledger.opening())

    async def close(self) -> list[str]:
        """See `Stage.close`."""
        publisher, self._publisher = self._publisher, None
        problems = []
        if publisher is not None:
            await publisher.__aexit__(None, None, None)
            try:
                async with asyncio.timeout(_REMOVAL):
                    await self._remove_queues()
            except (InboxError, AMQPError, OSError) as error:  # TimeoutError is one of the last
                problems.append(
                    f"the queues {self._name}… and the exchange could not be removed ({type(error).__name__})"
                )
            try:
                async with asyncio.timeout(2 * _REMOVAL), self._engine.begin() as connection:
                    await self._remove_tables(connection)
            except (DBAPIError, OSError) as error:
                problems.append(f"the tables {self._name}_… could not be removed ({type(error).__name__})")
        await self._engine.dispose()
        return problems

    async def publish(self, sendings: Sequence[Sending]) -> None:
        """See `Stage.publish`. Each is mandatory and confirmed."""
        await all_of([self._publish(sending) for sending in sendings])

    async def left(self) -> int:
        """See `Stage.left`. What workers have in hand is not among them."""
        depths = await self._transport.depths(SETTINGS.retry.steps)
        return sum(depth.ready or 0 for depth in depths)

    async def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """See `Stage.rows`."""
        async with self._engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(text(sql))]

    async def _publish(self, sending: Sending) -> None:
        assert self._publisher is not None  # noqa: S101 - open
        async with self._flying:
            encoded = sending.encoded()
            await self._publisher.publish(
                encoded.body,
                exchange=sending.sender.exchange,
                routing_key=sending.job.routing_key,
                headers=encoded.headers,
                content_type=encoded.content_type,
            )

    async def _remove_queues(self) -> None:
        settings = self._transport.settings
        context = make_context(settings.tls) if self._address.is_tls else None
        connection = await connect(self._address, settings, context)
        try:
            await apart(self._delete(connection))
        finally:
            await leave(connection, settings.close_timeout)

    async def _delete(self, connection: AbstractConnection) -> None:
        """Deleting what is not there is no error to RabbitMQ."""
        topology = self._transport.topology
        waiting = [queue.name for queue in retry_queues(topology.queue, SETTINGS.retry.steps)]
        channel = await connection.channel()
        for queue in (topology.queue, topology.dead_letter_queue, *waiting):
            if queue is not None:
                await channel.queue_delete(queue)
        await channel.exchange_delete(self.exchange)

    async def _remove_tables(self, connection: AsyncConnection) -> None:
        # A killed worker's session keeps a table until the server has noticed that nobody is there.
        await connection.execute(text(f"SET SESSION lock_wait_timeout = {_REMOVAL}"))
        names = [table.name for table in self.ledger.metadata.tables.values()]
        kinds = ("inbox", "attempt", "quarantine", "worker", "schema")
        names += [getattr(self.tables, kind) for kind in kinds]
        await connection.execute(text("DROP TABLE IF EXISTS " + ", ".join(f"`{name}`" for name in names)))


def table_names(name: str) -> TableNames:
    """Names that begin with `name`. No view, which would take a right of its own."""
    kinds = ("inbox", "attempt", "quarantine", "worker", "schema")
    return TableNames(**{kind: f"{name}_{kind}" for kind in kinds}, view=None)


def _transport(broker_url: str, name: str) -> RabbitMQ:
    bindings = [Binding(name, "job.completed", declare="topic"), Binding(name, "job.failed", declare="topic")]
    return RabbitMQ(broker_url, name, bindings)


def make(database_url: str, broker_url: str, name: str, board: Board, place: int) -> Inbox:
    """A worker's Inbox. Called in the worker's process."""
    store = MySQL(database_url, tables=table_names(name))
    return enlist(make_inbox(Ledger(f"{name}_"), store, _transport(broker_url, name)), board, place)


def make_verifying(  # noqa: PLR0917 - a process is given its arguments by position
    database_url: str, broker_url: str, name: str, key: bytes, board: Board, place: int
) -> Inbox:
    """The same for a worker that verifies what it gets."""
    store, transport = MySQL(database_url, tables=table_names(name)), _transport(broker_url, name)
    return enlist(make_fetcher_inbox(Ledger(f"{name}_"), store, transport, key=key, exchange=name), board, place)
