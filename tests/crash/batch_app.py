"""The ledger of the kill tests, whose deliveries share transactions."""

import asyncio
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.batching import Batch
from inbox.core.event import Event
from tests.crash import app

#: What is published together is gathered while the first of it is at work, and shares one transaction. More attempts
#: than the failures below can charge.
SETTINGS = replace(
    app.SETTINGS,
    concurrency=2,
    prefetch=40,
    batch=Batch(max=8, wait_ms=50),
    retry=replace(app.SETTINGS.retry, max_attempts=40),
)
#: Nothing but a full batch ends its wait while something else is at work.
FULL = replace(SETTINGS, batch=Batch(max=8, wait_ms=60_000), deadline=90)
#: Runs of one copy in a batch, which is undone at nobody's cost, and tried together again where a server undid it.
TOGETHER = 3


class Ledger(app.Ledger):
    """Of each copy the first runs may be in batches: what has to fail by itself fails as often besides.

    Args:
        url: of the database.
        copies: of each event.
    """

    def __init__(self, url: str, copies: int) -> None:
        super().__init__(url)
        self._spared = TOGETHER * copies

    def count_run(self, event: Event) -> int:
        return max(1, super().count_run(event) - self._spared)

    async def hold(self, event: Event, session: AsyncSession) -> None:
        """The first time it is at work until its process is killed, without a lock that others would wait for."""
        if app.Ledger.count_run(self, event) == 1:
            await asyncio.Event().wait()
        await self.apply(event, session)


def make(database_url: str, amqp_url: str, queue: str, exchange: str, copies: str = "2") -> Inbox:
    return _made(database_url, amqp_url, queue, exchange, int(copies), SETTINGS)


def make_full(database_url: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    """A worker whose batches are full, as long as an event is held."""
    return _made(database_url, amqp_url, queue, exchange, 1, FULL)


def _made(  # noqa: PLR0917 - addresses, and what differs
    database_url: str, amqp_url: str, queue: str, exchange: str, copies: int, settings: ConsumerSettings
) -> Inbox:
    inbox = Inbox(
        app.CONSUMER,
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=settings,
    )
    ledger = Ledger(database_url, copies)
    for kind in ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit", "hold"):
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
