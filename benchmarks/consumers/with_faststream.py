"""FastStream with SQLAlchemy Core: its subscriber, acknowledging when the transaction is over."""

from __future__ import annotations

import logging

from faststream import AckPolicy
from faststream.rabbit import Channel, RabbitBroker, RabbitMessage, RabbitQueue
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.consumers.contract import CONSUMER, DUPLICATE, Job, Meter, program
from benchmarks.consumers.models import CLAIM, CREDIT
from benchmarks.consumers.pool import fill


class Order(BaseModel):
    """The payload."""

    account: int
    amount: int


async def consume(job: Job, meter: Meter) -> None:
    """Claim, update, commit, acknowledge."""
    engine = create_async_engine(job.url_for(job.driver), pool_size=job.in_flight, max_overflow=0)
    await fill(engine, job.in_flight)
    broker = RabbitBroker(job.amqp_url, default_channel=Channel(prefetch_count=job.prefetch), log_level=logging.DEBUG)

    @broker.subscriber(RabbitQueue(job.queue, declare=False), ack_policy=AckPolicy.MANUAL)
    async def take(order: Order, message: RabbitMessage) -> None:
        arrived = meter.arrived()
        key = str(message.headers["ce-id"]).encode()
        try:
            async with engine.begin() as connection:
                await connection.execute(CLAIM, {"name": CONSUMER.encode(), "key": key})
                await connection.execute(CREDIT, {"account": order.account, "amount": order.amount})
        except IntegrityError as error:
            if error.orig is None or error.orig.args[0] != DUPLICATE:
                raise
        await message.ack()
        meter.acknowledged(arrived)

    async with broker:
        meter.wait_go()
        await broker.start()
        await meter.done.wait()
        meter.report()
    await engine.dispose()


if __name__ == "__main__":
    program(consume)
