"""Events per second of the inbox against a consumer written by hand, on the servers that the environment names.

    BENCH_DATABASE_URL=mysql://… BENCH_AMQP_URL=amqp://… python -m benchmarks.throughput --events 5000

Both consume the same events from a quorum queue, claim each in the same table by the same INSERT, run the same UPDATE,
commit, and acknowledge. The one by hand has no guard, no attempts, no quarantine, no reconnects and no checks: it is
the floor that nobody should ship.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aio_pika
import aiomysql
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from inbox import Binding, ConsumerSettings, Event, Inbox, MySQL, RabbitMQ, define_tables, env

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

UPDATE = "UPDATE bench_account SET balance = balance + 1 WHERE id = :id"
ACCOUNTS = 1000


@dataclass(frozen=True)
class Load:
    """What is consumed, and how."""

    database_url: str
    amqp_url: str
    events: int
    concurrency: int
    prefetch: int

    @property
    def async_url(self) -> str:
        return f"mysql+aiomysql:{self.database_url.partition(':')[2]}"


async def by_hand(load: Load, queue_name: str) -> float:
    """A consumer of forty lines: claim, update, commit, ack."""
    parts = urlsplit(load.database_url)
    pool = await aiomysql.create_pool(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        db=parts.path[1:],
        minsize=load.concurrency,
        maxsize=load.concurrency,
    )
    done, finished, limit = 0, asyncio.Event(), asyncio.Semaphore(load.concurrency)

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        nonlocal done
        async with limit, pool.acquire() as connection, connection.cursor() as cursor:
            identifier = str(message.headers["ce-id"])
            await cursor.execute(
                "INSERT INTO inbox (consumer_name, event_id) VALUES (%s, %s)", (b"by-hand", identifier.encode())
            )
            await cursor.execute(UPDATE.replace(":id", "%s"), (account(identifier),))
            await connection.commit()
        await message.ack()
        done += 1
        if done == load.events:
            finished.set()

    async with await aio_pika.connect(load.amqp_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(load.prefetch)
        queue = await channel.get_queue(queue_name)
        start = time.perf_counter()
        await queue.consume(take)
        await finished.wait()
        elapsed = time.perf_counter() - start
    pool.close()
    await pool.wait_closed()
    return load.events / elapsed


async def with_session(event: Event, session: AsyncSession) -> None:
    await session.execute(STATEMENT, {"id": account(event.id)})


async def with_connection(event: Event, connection: AsyncConnection) -> None:
    await connection.execute(STATEMENT, {"id": account(event.id)})


def with_sync_session(event: Event, session: Session) -> None:
    session.execute(STATEMENT, {"id": account(event.id)})


STATEMENT = text(UPDATE)


async def by_inbox(load: Load, queue: str, handler: Callable[..., Any]) -> float:
    """The inbox, with everything it does."""
    inbox = Inbox(
        handler.__name__,
        store=MySQL(load.database_url),
        transport=RabbitMQ(load.amqp_url, queue),
        settings=ConsumerSettings(concurrency=load.concurrency, prefetch=load.prefetch),
    )
    inbox.handler("bench")(handler)
    started = asyncio.Event()
    task = asyncio.create_task(inbox.run(started=started.set))
    await started.wait()
    start = time.perf_counter()
    while inbox.telemetry.counts["applied"] < load.events:  # noqa: ASYNC110 - an event of ours would cost what is measured
        await asyncio.sleep(0.005)
    elapsed = time.perf_counter() - start
    inbox.stop()
    await task
    return load.events / elapsed


def account(identifier: str) -> int:
    """Spread over the accounts, so that row locks are not what is measured."""
    return int(identifier, 16) % ACCOUNTS


@asynccontextmanager
async def filled_queue(load: Load) -> AsyncIterator[str]:
    """A queue with the events of one round."""
    name = f"bench-{secrets.token_hex(4)}"
    async with await aio_pika.connect(load.amqp_url) as connection:
        channel = await connection.channel()
        declared = RabbitMQ(load.amqp_url, name, [Binding(name, "#", declare="topic")])
        await declared.open(prefetch=1)
        await declared.close()
        exchange = await channel.get_exchange(name)
        for start in range(0, load.events, 500):
            await asyncio.gather(
                *(exchange.publish(_message(), "bench") for _ in range(start, min(start + 500, load.events)))
            )
        yield name
        for queue in (name, f"{name}.dead"):
            await channel.queue_delete(queue)
        await channel.exchange_delete(name)


def _message() -> aio_pika.Message:
    headers = {"ce-id": secrets.token_hex(8), "ce-source": "/bench", "ce-type": "bench", "ce-specversion": "1.0"}
    return aio_pika.Message(
        b'{"amount": 1}',
        headers=dict(headers),
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


async def prepare(load: Load) -> None:
    """The tables."""
    engine = create_async_engine(load.async_url)
    metadata = MetaData()
    define_tables(metadata)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(text("CREATE TABLE IF NOT EXISTS bench_account (id INT PRIMARY KEY, balance INT)"))
        rows = ", ".join(f"({n}, 0)" for n in range(ACCOUNTS))
        await connection.execute(text(f"INSERT IGNORE INTO bench_account VALUES {rows}"))  # noqa: S608 - numbers of ours
    await engine.dispose()


async def measure(load: Load, rounds: int) -> dict[str, float]:
    """Events per second, the best of `rounds` each, in turns so that all see the same machine."""
    await prepare(load)
    best: dict[str, float] = {}
    for _ in range(rounds):
        async with filled_queue(load) as queue:
            best["by hand"] = max(best.get("by hand", 0), await by_hand(load, queue))
        for handler in (with_connection, with_session, with_sync_session):
            async with filled_queue(load) as queue:
                name = handler.__name__
                best[name] = max(best.get(name, 0), await by_inbox(load, queue, handler))
    return best


def main() -> None:
    """Measure and print JSON: events per second, and the ratio to the one by hand."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--prefetch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    load = Load(env("BENCH_DATABASE_URL"), env("BENCH_AMQP_URL"), options.events, options.concurrency, options.prefetch)
    best = asyncio.run(measure(load, options.rounds))
    print(  # noqa: T201 - the result
        json.dumps(
            {
                name: {"events_per_second": round(rate), "ratio": round(rate / best["by hand"], 2)}
                for name, rate in best.items()
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
