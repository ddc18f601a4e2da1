"""A project of an adopter, in a folder of the test's own: it can be edited while its worker runs."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import aio_pika

from inbox import RabbitMQ
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.pairs import Pair

TARGET = "shop.app:inbox"
SECRET = "hunter2"

HEAD = """\
import asyncio
import logging
import threading
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import ConsumerSettings, Event, Inbox, MySQL, RabbitMQ, Reject, RetryPolicy, env

VERSION = 1

inbox = Inbox(
    "shop",
    store=MySQL(env("APP_DATABASE_URL")),
    transport=RabbitMQ(env("APP_AMQP_URL"), env("APP_QUEUE")),
    settings=ConsumerSettings(concurrency=2, retry=RetryPolicy(max_attempts=1)),
)


async def write(event: Event, session: AsyncSession) -> None:
    await session.execute(
        text("INSERT INTO note (event, version) VALUES (:event, :version)"), {"event": event.id, "version": VERSION}
    )
"""


@dataclass
class Project:
    """Its files, its database, its queue."""

    folder: Path
    pair: Pair
    queue: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "APP_DATABASE_URL": self.pair.database_url,
            "APP_AMQP_URL": self.pair.amqp_url,
            "APP_QUEUE": self.queue,
        }

    def write(self, name: str, text: str) -> None:
        """Write a file as editors do: its readers see the old one or the new one."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        half = file.with_name(f"{file.name}~")
        half.write_text(text)
        half.replace(file)

    async def declare(self) -> None:
        """Make the queue as the worker would, for events that come before it."""
        transport = RabbitMQ(self.pair.amqp_url, self.queue)
        await transport.open(prefetch=1)
        await transport.close()

    async def publish(self, *ids: str) -> None:
        """One event of type `sold` under each id, with a secret in it."""
        async with await aio_pika.connect(self.pair.amqp_url) as connection:
            channel = await connection.channel()
            for each in ids:
                headers: Mapping[str, str] = {
                    "ce-id": each, "ce-source": "/till", "ce-type": "sold", "ce-specversion": "1.0",
                }  # fmt: skip
                message = aio_pika.Message(
                    f'{{"card": "{SECRET}"}}'.encode(), headers=dict(headers), content_type="application/json"
                )
                await channel.default_exchange.publish(message, routing_key=self.queue)

    def notes(self) -> list[tuple[str, int]]:
        """The effects: which event was written by which version of the code."""
        with closing(connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT event, version FROM note ORDER BY id")
            return [(str(event), int(version)) for event, version in cursor.fetchall()]


async def make_project(folder: Path, pair: Pair) -> Project:
    queue = pair.unique("shop")
    pair.discard(f"{queue}.dead")
    await create_tables(pair)
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE note (id INT AUTO_INCREMENT PRIMARY KEY, event VARCHAR(64) NOT NULL, version INT NOT NULL) "
            "ENGINE=InnoDB"
        )
    made = Project(folder, pair, queue)
    made.write("shop/__init__.py", "")
    return made
