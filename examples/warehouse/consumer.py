"""The warehouse's own consumer: `python -m warehouse.consumer`, from the folder that holds `warehouse`.

Settings come from the environment: WAREHOUSE_DATABASE_URL, WAREHOUSE_AMQP_URL and, where it differs from the
default, WAREHOUSE_QUEUE. No signal is handled, for none has to be: a process that ends, by SIGKILL too, has what it
did not commit undone by the database, and what it did not acknowledge delivered again by the broker.
"""

import asyncio
import logging
from contextlib import suppress

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import AlreadyProcessed, Event, Inbox, MySQL, NotDone, Refused, delivery_from, env

QUEUE = env("WAREHOUSE_QUEUE", "warehouse")
DEAD = f"{QUEUE}.dead"
PAUSE = 1.0  # seconds

log = logging.getLogger("warehouse")


class OutOfStock(Exception):
    """Less is in stock than was ordered."""


async def reserve(event: Event, session: AsyncSession) -> None:
    """The effect: less in stock, and a reservation."""
    order = event.json()
    free = await session.scalar(text("SELECT free FROM stock WHERE item = :item FOR UPDATE"), order)
    if (free or 0) < order["quantity"]:
        raise OutOfStock(order["item"])
    await session.execute(text("UPDATE stock SET free = free - :quantity WHERE item = :item"), order)
    await session.execute(
        text("INSERT INTO reservation (order_id, item, quantity) VALUES (:order_id, :item, :quantity)"), order
    )


async def settle(inbox: Inbox, message: AbstractIncomingMessage) -> None:
    """Apply the event, and tell the broker what has become of it. Each answer has its reason beside it."""
    try:
        event = await inbox.verify(delivery_from(message, queue=QUEUE))
        with suppress(AlreadyProcessed):  # the effect is there; only its acknowledgement was lost
            async with inbox.transaction(event) as session:
                await reserve(event, session)
    except Refused as error:
        # No readable event, or a known id with other content. It will never be better: to the dead letters.
        log.warning("refused: %s", error)
        await message.reject(requeue=False)
    except OutOfStock as error:
        # The business says no, and would say so again. A person fills the shelf and moves the letter back.
        log.warning("out of stock: %s", error)
        await message.reject(requeue=False)
    except NotDone as error:
        # Contention, or no database: TryAgain, NotApplied, CommitUnresolved. Nothing is wrong with the event, so it
        # comes again, but not at once. If an unresolved commit did take place, it comes as AlreadyProcessed.
        log.warning("not done: %s", error)
        await asyncio.sleep(PAUSE)
        await message.nack(requeue=True)
    except Exception:
        # A defect, undone as well. Handed back it would go round for ever: to the dead letters, and moved back from
        # there once it is mended. Were it raised, aio-pika would keep the message unsettled, and its place taken.
        log.exception("a defect")
        await message.reject(requeue=False)
    else:
        await message.ack()  # only here: after the commit, or after a duplicate
        log.info("settled %s", event.id)


async def declare(channel: AbstractChannel) -> AbstractQueue:
    """The queue, and the one that its rejected messages go to: without that they would be dropped."""
    await channel.declare_queue(DEAD, durable=True, arguments={"x-queue-type": "quorum"})
    return await channel.declare_queue(
        QUEUE,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": DEAD,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",  # which that strategy asks for
            "x-delivery-limit": 2**31 - 1,  # none: a database that is away for an hour is no fault of the event's
        },
    )


async def main() -> None:
    """Consume until the process is ended, or a connection that is needed for it is."""
    inbox = Inbox("warehouse", store=MySQL(env("WAREHOUSE_DATABASE_URL")))
    async with inbox, await aio_pika.connect(env("WAREHOUSE_AMQP_URL")) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=16)
        queue = await declare(channel)
        log.info("consuming %s", QUEUE)
        async with queue.iterator() as messages:
            async for message in messages:
                await settle(inbox, message)
    raise ConnectionError("the broker ended the deliveries")  # whoever started this starts it again


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
