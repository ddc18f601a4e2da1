"""The service under test: `inbox run kill_test.ledger:make_inbox`. Put yours in its place."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import Event, Inbox, MySQL, RabbitMQ, env


async def enter(event: Event, session: AsyncSession) -> None:
    """The handler. Nothing in the table keeps it from writing twice."""
    await session.execute(text("INSERT INTO entry (payment) VALUES (:payment)"), {"payment": event.id})


def make_inbox(queue: str = "ledger") -> Inbox:
    """The consumer of `queue`, on the servers that the environment names."""
    inbox = Inbox("ledger", store=MySQL(env("LEDGER_DATABASE_URL")), transport=RabbitMQ(env("LEDGER_AMQP_URL"), queue))
    inbox.handler("payment.made")(enter)
    return inbox
