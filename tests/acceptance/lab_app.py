"""What the lab's own tests kill: a shop over files, and one on servers, whose handlers end in every way."""

from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import (
    ConsumerSettings,
    Event,
    Inbox,
    MySQL,
    RabbitMQ,
    Reject,
    RetryPolicy,
    SQLite,
    SQLiteQueue,
    SQLiteQueueSettings,
    env,
)


async def enter(event: Event, session: AsyncSession) -> None:
    await session.execute(text("INSERT INTO entry (payment) VALUES (:payment)"), {"payment": event.id})


async def reject(event: Event, session: AsyncSession) -> None:
    await enter(event, session)
    raise Reject("never wanted")


async def break_down(event: Event, session: AsyncSession) -> None:
    await enter(event, session)
    raise LookupError("always")


def files() -> Inbox:
    """Over files, which need no server."""
    folder = Path(env("LAB_FILE")).parent
    settings = SQLiteQueueSettings(lease=30)
    made = Inbox("shop", store=SQLite(env("LAB_FILE")), transport=SQLiteQueue(folder / "events.db", settings))
    for event_type, function in (("paid", enter), ("rejected", reject)):
        made.handler(event_type)(function)
    return made


def servers() -> Inbox:
    """On servers, with a queue for copies that wait."""
    made = Inbox(
        "shop",
        store=MySQL(env("LAB_DATABASE_URL")),
        transport=RabbitMQ(env("LAB_AMQP_URL"), env("LAB_QUEUE")),
        settings=ConsumerSettings(retry=RetryPolicy(max_attempts=3, delays=(60.0,))),
    )
    for event_type, function in (("paid", enter), ("broken", break_down), ("rejected", reject)):
        made.handler(event_type)(function)
    return made
