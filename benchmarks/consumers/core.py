"""By hand with SQLAlchemy Core: a connection from its pool for each event."""

from __future__ import annotations

import json

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.consumers.contract import CONSUMER, DUPLICATE, Job, Meter, program
from benchmarks.consumers.models import CLAIM, CREDIT
from benchmarks.consumers.pool import fill


async def consume(job: Job, meter: Meter) -> None:
    """Claim, update, commit, acknowledge."""
    engine = create_async_engine(job.url_for(job.driver), pool_size=job.in_flight, max_overflow=0)
    await fill(engine, job.in_flight)

    async def take(message: AbstractIncomingMessage) -> None:
        arrived = meter.arrived()
        order = json.loads(message.body)
        key = str(message.headers["ce-id"]).encode()
        try:
            async with engine.begin() as connection:
                await connection.execute(CLAIM, {"name": CONSUMER.encode(), "key": key})
                await connection.execute(CREDIT, {"account": order["account"], "amount": order["amount"]})
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
