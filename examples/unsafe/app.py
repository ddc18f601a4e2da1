"""A shop whose handler is NOT safe, in two ways that no test without a kill shows: `unsafe.app:inbox`.

Settings come from the environment: SHOP_DATABASE_URL, SHOP_AMQP_URL, SHOP_QUEUE and MAIL_URL.
"""

import asyncio
from urllib.request import Request, urlopen

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inbox import Event, Inbox, MySQL, RabbitMQ, env

from .models import INBOX_TABLES, Invoice


async def bill(event: Event, session: AsyncSession) -> None:
    """Writes an invoice, and tells the customer."""
    order = event.json()
    engine = create_async_engine(env("SHOP_DATABASE_URL"))
    # Unsafe: another engine is another transaction. It is committed here, and the event is not.
    async with engine.begin() as other:
        await other.execute(insert(Invoice).values(customer=order["customer"], cents=order["cents"]))
    await engine.dispose()
    # Unsafe: what has left the process comes back with no rollback.
    await asyncio.to_thread(tell, order["customer"])


def tell(customer: str) -> None:
    """Sends a letter."""
    with urlopen(Request(f"{env('MAIL_URL')}/letters", customer.encode())) as answer:
        answer.read()


def inbox() -> Inbox:
    """The consumer that the environment describes."""
    made = Inbox(
        "shop",
        store=MySQL(env("SHOP_DATABASE_URL"), tables=INBOX_TABLES),
        transport=RabbitMQ(env("SHOP_AMQP_URL"), env("SHOP_QUEUE", "shop")),
    )
    made.handler("order.paid")(bill)
    return made
