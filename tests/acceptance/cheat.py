"""A consumer of the benchmark that is fast and wrong, in the way that `--handler` names."""

import os
import signal

import aio_pika
import aiomysql
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.consumers.contract import CONSUMER, INSERT, UPDATE, Job, Meter, program


async def consume(job: Job, meter: Meter) -> None:
    database = await aiomysql.connect(**job.login, autocommit=True)

    async def take(message: AbstractIncomingMessage) -> None:
        arrived = meter.arrived()
        async with database.cursor() as cursor:
            if job.handler != "no-row":
                await cursor.execute(INSERT, (CONSUMER.encode(), str(message.headers["ce-id"]).encode()))
            if job.handler != "no-effect":
                account = 1 if job.handler == "elsewhere" else int(message.body.partition(b":")[2].partition(b",")[0])
                await cursor.execute(UPDATE, (1, account))
        if job.handler == "dies" and meter.is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        if job.handler != "no-ack" or not meter.is_last:
            await message.ack()
        meter.acknowledged(arrived)

    async with await aio_pika.connect(job.amqp_url) as broker:
        channel = await broker.channel()
        await channel.set_qos(1)
        queue = await channel.get_queue(job.queue)
        meter.wait_go()
        await queue.consume(take)
        await meter.done.wait()
        meter.report()
    database.close()


if __name__ == "__main__":
    program(consume)
