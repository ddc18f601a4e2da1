"""By hand on aiomysql, with raw cursors: what everything else is compared to.

Three packets and one acknowledgement an event: INSERT, UPDATE, COMMIT, for with autocommit off the first of them begins
the transaction. It has no guard, no attempts, no quarantine, no reconnects and no checks.
"""

from __future__ import annotations

import json

import aio_pika
import aiomysql
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.consumers.contract import CONSUMER, DUPLICATE, INSERT, UPDATE, Job, Meter, program


async def consume(job: Job, meter: Meter) -> None:
    """Claim, update, commit, acknowledge."""
    pool = await aiomysql.create_pool(**job.login, minsize=job.in_flight, maxsize=job.in_flight)

    async def take(message: AbstractIncomingMessage) -> None:
        arrived = meter.arrived()
        order = json.loads(message.body)
        async with pool.acquire() as connection, connection.cursor() as cursor:
            try:
                await cursor.execute(INSERT, (CONSUMER.encode(), str(message.headers["ce-id"]).encode()))
                await cursor.execute(UPDATE, (order["amount"], order["account"]))
                await connection.commit()
            except aiomysql.IntegrityError as error:
                if error.args[0] != DUPLICATE:
                    raise
                await connection.rollback()
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
    pool.close()
    await pool.wait_closed()


if __name__ == "__main__":
    program(consume)
