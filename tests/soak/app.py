"""The ledger under soak: whatever a handler does is in its unit, so that no outage is its own fault."""

import random

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject

CONSUMER = "soak"
ACCOUNTS = 16

TABLES = (
    "CREATE TABLE effect (event_id VARBINARY(512) NOT NULL, amount INT NOT NULL, KEY (event_id)) ENGINE=InnoDB",
    "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB",
    f"INSERT INTO account VALUES {', '.join(f'({number}, 0)' for number in range(ACCOUNTS))}",  # noqa: S608 - numbers
)

#: Kinds of events, and how many of a hundred are of each.
KINDS = {"apply": 80, "flaky": 10, "slow": 5, "reject": 5}
#: The share of its runs in which a flaky handler fails.
FAILS = 0.3

SETTINGS = ConsumerSettings(
    concurrency=4,
    deadline=5,
    cancel_patience=2,
    shutdown_patience=20,
    # No event may be given up for what is done to its workers: every one has a known end.
    retry=RetryPolicy(max_attempts=1000, delays=(0.1, 0.5), first_delay=0.02, max_delay=0.5, max_releases=100_000),
)


async def apply(event: Event, session: AsyncSession) -> None:
    order = event.json()
    values = {"id": event.id.encode(), "amount": order["amount"], "account": order["account"]}
    await session.execute(text("INSERT INTO effect VALUES (:id, :amount)"), values)
    await session.execute(text("UPDATE account SET balance = balance + :amount WHERE id = :account"), values)


async def flaky(event: Event, session: AsyncSession) -> None:
    await apply(event, session)
    if random.random() < FAILS:  # noqa: S311 - no secret
        raise LookupError("now and then")


async def slow(event: Event, session: AsyncSession) -> None:
    await apply(event, session)
    await session.execute(text("DO SLEEP(0.1)"))


async def reject(event: Event, session: AsyncSession) -> None:
    await apply(event, session)
    raise Reject("never wanted")


def make(database_url: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    """A worker that waits for its servers, however often they go."""
    inbox = Inbox(
        CONSUMER,
        store=MySQL(database_url, DatabaseSettings(lock_wait=1, connect_timeout=3, start_patience=120)),
        transport=RabbitMQ(
            amqp_url,
            queue,
            [Binding(exchange, "#", declare="topic")],
            RabbitMQSettings(heartbeat=2, start_patience=120, reconnect_max_delay=1, confirm_timeout=3),
        ),
        settings=SETTINGS,
    )
    for handler in (apply, flaky, slow, reject):
        inbox.handler(handler.__name__)(handler)
    return inbox
