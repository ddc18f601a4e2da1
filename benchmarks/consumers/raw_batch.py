"""By hand on aiomysql, many events in one transaction: what the inbox's batches are compared to.

One lane takes what is waiting, inserts the ids by one statement, updates, commits, and acknowledges each. Where ids are
known it undoes all, asks which, acknowledges those, and does the rest again. `--handler` says what the updates are:
`cursor` sends one for each event, `cursor-batch` one for all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import aio_pika
import aiomysql
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.consumers.contract import (
    CONSUMER,
    DUPLICATE,
    INSERT,
    KNOWN,
    UPDATE,
    UPDATE_ALL,
    Job,
    Meter,
    program,
)

Waiting = asyncio.Queue[tuple[AbstractIncomingMessage, float]]


async def take_batch(waiting: Waiting, most: int) -> list[tuple[AbstractIncomingMessage, float]]:
    """What is waiting, and at least one."""
    batch = [await waiting.get()]
    while len(batch) < most and not waiting.empty():
        batch.append(waiting.get_nowait())
    return batch


async def apply(cursor: aiomysql.Cursor, orders: Collection[Any], *, at_once: bool) -> None:
    """The effects of different events."""
    if not at_once:
        for order in orders:
            await cursor.execute(UPDATE, (order["amount"], order["account"]))
        return
    gains: Counter[int] = Counter()
    for order in orders:
        gains[order["account"]] += order["amount"]
    await cursor.execute(UPDATE_ALL, (json.dumps(sorted(gains.items())),))


async def known(cursor: aiomysql.Cursor, keys: Sequence[bytes]) -> set[bytes]:
    """Which of them the inbox has."""
    await cursor.execute(KNOWN, (CONSUMER.encode(), keys))
    return {key for (key,) in await cursor.fetchall()}


async def process(connection: aiomysql.Connection, orders: dict[bytes, Any], *, at_once: bool) -> None:
    """Claim and apply all that are new in one transaction."""
    async with connection.cursor() as cursor:
        while orders:
            try:
                await cursor.executemany(INSERT, [(CONSUMER.encode(), key) for key in orders])
                await apply(cursor, orders.values(), at_once=at_once)
                await connection.commit()
            except aiomysql.IntegrityError as error:
                if error.args[0] != DUPLICATE:
                    raise
                await connection.rollback()
                found = await known(cursor, [*orders])
                await connection.rollback()
                orders = {key: order for key, order in orders.items() if key not in found}
            else:
                return


async def consume(job: Job, meter: Meter) -> None:
    """Claim all, update, commit, acknowledge each."""
    waiting: Waiting = asyncio.Queue()
    connection = await aiomysql.connect(**job.login)

    async def take(message: AbstractIncomingMessage) -> None:
        waiting.put_nowait((message, meter.arrived()))

    async def work() -> None:
        while True:
            batch = await take_batch(waiting, job.batch)
            orders = {str(message.headers["ce-id"]).encode(): json.loads(message.body) for message, _ in batch}
            await process(connection, orders, at_once=job.handler == "cursor-batch")
            for message, arrived in batch:
                await message.ack()
                meter.acknowledged(arrived)

    async with await aio_pika.connect(job.amqp_url) as broker:
        channel = await broker.channel()
        await channel.set_qos(job.prefetch)
        queue = await channel.get_queue(job.queue)
        working = asyncio.create_task(work())
        meter.wait_go()
        await queue.consume(take)
        done = asyncio.create_task(meter.done.wait())
        await asyncio.wait({working, done}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        meter.report()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    connection.close()


if __name__ == "__main__":
    program(consume)
