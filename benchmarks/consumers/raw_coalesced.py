"""By hand, as strong as it gets: `raw` with more in hand than is at work, and acknowledgements that travel together.

Each worker keeps its connection, so that no pool is asked. One `basic.ack` with `multiple` settles every delivery up to
its tag (AMQP 0-9-1, basic.ack), so it is sent for the longest run of tags of which each one is settled.
"""

from __future__ import annotations

import asyncio
import json

import aio_pika
import aiomysql
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.consumers.contract import CONSUMER, DUPLICATE, INSERT, UPDATE, Job, Meter, program

#: Seconds for which an acknowledgement waits for others; next to nothing beside what the prefetch holds.
LINGER = 0.002


class Acknowledger:
    """Acknowledges the deliveries of one channel in runs.

    Args:
        meter: told of each.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._settled: dict[int, tuple[AbstractIncomingMessage, float]] = {}
        self._floor = 0  # every tag up to here was acknowledged
        self._open = 0
        self._wake = asyncio.Event()

    def deliver(self) -> None:
        """One more is in hand."""
        self._open += 1

    def settle(self, message: AbstractIncomingMessage, arrived: float) -> None:
        """Its transaction is over."""
        assert message.delivery_tag is not None  # noqa: S101 - it was delivered; for the type checker
        self._open -= 1
        self._settled[message.delivery_tag] = (message, arrived)
        self._wake.set()

    async def run(self) -> None:
        """Acknowledge, until cancelled."""
        while True:
            await self._wake.wait()
            if self._open:  # else nothing will come along
                await asyncio.sleep(LINGER)
            self._wake.clear()
            run = []
            while self._floor + 1 in self._settled:
                self._floor += 1
                run.append(self._settled.pop(self._floor))
            if run:
                await run[-1][0].ack(multiple=True)
            for _, arrived in run:
                self._meter.acknowledged(arrived)


async def consume(job: Job, meter: Meter) -> None:
    """Claim, update, commit; acknowledge a little later."""
    deliveries: asyncio.Queue[tuple[AbstractIncomingMessage, float]] = asyncio.Queue()
    acknowledger = Acknowledger(meter)
    connections = [await aiomysql.connect(**job.login) for _ in range(job.in_flight)]

    async def take(message: AbstractIncomingMessage) -> None:
        acknowledger.deliver()
        deliveries.put_nowait((message, meter.arrived()))

    async def work(connection: aiomysql.Connection) -> None:
        async with connection.cursor() as cursor:
            while True:
                message, arrived = await deliveries.get()
                order = json.loads(message.body)
                try:
                    await cursor.execute(INSERT, (CONSUMER.encode(), str(message.headers["ce-id"]).encode()))
                    await cursor.execute(UPDATE, (order["amount"], order["account"]))
                    await connection.commit()
                except aiomysql.IntegrityError as error:
                    if error.args[0] != DUPLICATE:
                        raise
                    await connection.rollback()
                acknowledger.settle(message, arrived)

    async with await aio_pika.connect(job.amqp_url) as broker:
        channel = await broker.channel()
        await channel.set_qos(job.prefetch)
        queue = await channel.get_queue(job.queue)
        tasks = [asyncio.create_task(acknowledger.run()), *(asyncio.create_task(work(each)) for each in connections)]
        meter.wait_go()
        await queue.consume(take)
        await meter.done.wait()
        meter.report()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    program(consume)
