"""What a test sees of its servers."""

import re
import secrets
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import aio_pika

from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.core.policy import RetryPolicy
from tests.services.probe import connect_database
from tests.services.service import Service, ServiceNotOursError, Tls

Driver = Literal["aiomysql", "asyncmy"]
DRIVERS: tuple[Driver, ...] = ("aiomysql", "asyncmy")


@dataclass(frozen=True)
class Pair:
    """A database and a broker of one age. The database is this test's own; on the broker its names are.

    Attributes:
        driver: over which this test reaches the database, unless it asks for another.
    """

    id: str
    database: Service
    broker: Service
    schema: str
    driver: Driver = "aiomysql"
    _handed_out: list[str] = field(default_factory=list, repr=False)

    @property
    def database_url(self) -> str:
        return self.url_for(self.driver)

    def url_for(self, driver: Driver, *, user: str | None = None, password: str | None = None) -> str:
        """The SQLAlchemy URL of this test's database, over another driver or as another user."""
        parts = urlsplit(self.database.dsn)
        login = f"{user or parts.username}:{password or parts.password}"
        return f"mysql+{driver}://{login}@{self.database.host}:{self.database.port}/{self.schema}"

    @property
    def amqp_url(self) -> str:
        return self.broker.dsn

    @property
    def tls(self) -> Tls:
        """The broker's TLS address and authority; the server of the database may or may not offer TLS."""
        if self.broker.tls is None:
            raise ServiceNotOursError(
                f"{self.broker.name} has no TLS address: set {self.broker.offer.tls_variable} and INBOX_TLS_AUTHORITY, "
                f"or unset {self.broker.offer.variable} and the run starts its own"
            )
        return self.broker.tls

    @property
    def is_mysql(self) -> bool:
        return self.database.offer.product == "MySQL"

    def unique(self, label: str) -> str:
        """A name that no other test uses, for a queue or exchange; both are deleted after the test.

        So are the queue's retry queues, where they are those of the default delays.
        """
        name = f"{label}-{secrets.token_hex(4)}"
        self._handed_out.append(name)
        return name

    def discard(self, name: str) -> None:
        """Delete this queue and exchange after the test too: for names that the code under test made up."""
        self._handed_out.append(name)


def create_schema(database: Service, test: str) -> str:
    label = re.sub(r"\W+", "_", test)[:40]
    schema = f"t_{label}_{secrets.token_hex(4)}"
    with connect_database(database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{schema}` CHARACTER SET utf8mb4")
    return schema


def drop_schema(database: Service, schema: str) -> None:
    """Drop it, after ending the sessions that a killed worker left in it: their locks would make the drop wait."""
    with connect_database(database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (schema,))
        for (session,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL {int(session)}")
            except connection.Error:  # it has gone by itself
                continue
        cursor.execute(f"DROP DATABASE `{schema}`")


async def delete_names(pair: Pair) -> None:
    if not pair._handed_out:
        return
    connection = await aio_pika.connect(pair.amqp_url)
    async with connection:
        channel = await connection.channel()
        for name in pair._handed_out:
            await channel.queue_delete(name)
            await channel.exchange_delete(name)
            for retry in retry_queues(name, RetryPolicy().steps):
                await channel.queue_delete(retry.name)
