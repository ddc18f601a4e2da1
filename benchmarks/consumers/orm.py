"""By hand with SQLAlchemy's ORM: a session for each event, and two objects in it.

The flush claims before anything else is done. The account is read with its row locked, or of two events at once that
change it the later one would undo the other's.
"""

from __future__ import annotations

import json

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from benchmarks.consumers.contract import CONSUMER, DUPLICATE, Job, Meter, program
from benchmarks.consumers.models import Account, Seen
from benchmarks.consumers.pool import fill


async def consume(job: Job, meter: Meter) -> None:
    """Claim, change, commit, acknowledge."""
    engine = create_async_engine(job.url_for(job.driver), pool_size=job.in_flight, max_overflow=0)
    sessions = async_sessionmaker(engine)
    await fill(engine, job.in_flight)

    async def take(message: AbstractIncomingMessage) -> None:
        arrived = meter.arrived()
        order = json.loads(message.body)
        key = str(message.headers["ce-id"]).encode()
        try:
            async with sessions.begin() as session:
                session.add(Seen(consumer_name=CONSUMER.encode(), event_id=key))
                await session.flush()
                account = await session.get_one(Account, order["account"], with_for_update=True)
                account.balance += order["amount"]
        except IntegrityError as error:
            if error.orig is None or error.orig.args[0] != DUPLICATE:
                raise
        await message.ack()
        meter.acknowledged(arrived)

    async with await aio_pika.connect(job.amqp_url) as broker:
        channel = await broker.channel()
        await channel.set_qos(job.prefetch)
        queue = await channel.get_queue(job.queue)
        meter.wait_go()
        await queue.consume(take)
        await meter.done.wait()
        meter.report()
    await engine.dispose()


if __name__ == "__main__":
    program(consume)
