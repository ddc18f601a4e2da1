"""The same shop, mended: `unsafe.mended:inbox`."""

from sqlalchemy.ext.asyncio import AsyncSession

from inbox import Event, Inbox, MySQL, RabbitMQ, env

from .models import INBOX_TABLES, Invoice, Letter


async def bill(event: Event, session: AsyncSession) -> None:
    """Writes an invoice and an order to tell the customer, with the event's own row, in one transaction."""
    order = event.json()
    invoice = Invoice(customer=order["customer"], cents=order["cents"])
    session.add(invoice)
    await session.flush()
    session.add(Letter(invoice=invoice.id, customer=order["customer"]))


def inbox() -> Inbox:
    """The consumer that the environment describes."""
    made = Inbox(
        "shop",
        store=MySQL(env("SHOP_DATABASE_URL"), tables=INBOX_TABLES),
        transport=RabbitMQ(env("SHOP_AMQP_URL"), env("SHOP_QUEUE", "shop")),
    )
    made.handler("order.paid")(bill)
    return made
