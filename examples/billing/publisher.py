"""Publish genuine job events, signed, to RabbitMQ: what a Fetcher worker sends when a job has ended.

Usage::

    export FETCHER_EXTERNAL_HMAC_KEY=$(python -c "import secrets; print(secrets.token_hex(32))")
    export BILLING_AMQP_URL=amqp://guest:guest@localhost/
    python -m examples.billing.publisher --count 100 --duplicates 20 --failed-share 0.1 --rate 50 --seed 7

A consumer that checks signatures needs the same key; `examples.billing.app` trusts its broker. Start it first: events
are published *mandatory*, and the program stops with exit code 1 where no queue is bound to take them. Every publish is
awaited until the broker has confirmed it.

Options:
    --amqp-url      the broker; BILLING_AMQP_URL where it is not given
    --exchange      durable topic exchange, declared if absent; BILLING_EXCHANGE or fetcher.job.events otherwise
    --tenant        tenant id (default single-tenant)
    --count         how many different events (default 10)
    --duplicates    how many further publishes of events drawn from those, mixed in among them (default 0)
    --failed-share  share of events that say job.failed, from 0 to 1 (default 0)
    --rate          publishes a second; 0 publishes as fast as the broker confirms (default 0)
    --seed          the same seed gives the same events, so a second run is all duplicates (default: at random)

At the end it prints one JSON object: `exchange`, `seed`, `published` (how many publishes), and the event ids of
`completed`, `failed` and `duplicates` (one entry for each further publish).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import aio_pika
from aio_pika.exceptions import AMQPError, DeliveryError

from inbox.demo.jobs import Job, Sender, Status, make_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aio_pika.abc import AbstractExchange

KEY_VARIABLE = "FETCHER_EXTERNAL_HMAC_KEY"
URL_VARIABLE = "BILLING_AMQP_URL"
EXCHANGE_VARIABLE = "BILLING_EXCHANGE"

_IN_FLIGHT = 64


class Worker(Sender):
    """Who publishes over RabbitMQ."""

    def message_of(self, job: Job, now: float) -> aio_pika.Message:
        """The message of one publish of `job` at Unix time `now`: headers, signature, request id are new each time."""
        encoded = self.encoded(job, now)
        return aio_pika.Message(
            encoded.body,
            headers=dict(encoded.headers),
            content_type=encoded.content_type,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )


def make_jobs(count: int, failed_share: float, key: bytes, draw: random.Random) -> list[Job]:
    """`count` jobs that ended, `failed_share` of them in failure (rounded), in the order in which they did.

    Args:
        count: how many.
        failed_share: from 0 to 1.
        key: the external HMAC key, which authenticates a result as well.
        draw: decides everything that is drawn.
    """
    failed = round(count * failed_share)
    statuses: list[Status] = ["failed" if number < failed else "completed" for number in range(count)]
    draw.shuffle(statuses)
    return [make_job(number, status, key, draw) for number, status in enumerate(statuses)]


def with_duplicates(jobs: Sequence[Job], duplicates: int, draw: random.Random) -> list[tuple[Job, bool]]:
    """Every job once, and `duplicates` of them again at some later place.

    Returns:
        In the order of publishing, each with whether it is a further publish.
    """
    order: list[tuple[float, Job, bool]] = [(float(place), job, False) for place, job in enumerate(jobs)]
    for _ in range(duplicates):
        first = draw.randrange(len(jobs))
        order.append((draw.uniform(first, len(jobs)), jobs[first], True))
    order.sort(key=lambda entry: (entry[0], entry[2]))
    return [(job, again) for _, job, again in order]


async def publish(url: str, worker: Worker, jobs: Sequence[Job], rate: float) -> None:
    """Publish each of `jobs`, mandatory and confirmed.

    Args:
        url: of the broker.
        worker: who publishes.
        jobs: in this order; confirmations may overtake each other.
        rate: publishes a second; 0 for no limit.

    Raises:
        ExceptionGroup: with `DeliveryError` where no queue is bound, or the broker refused a message.
        OSError, AMQPError: the broker is out of reach or the exchange has other settings.
    """
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange(worker.exchange, aio_pika.ExchangeType.TOPIC, durable=True)
        window = asyncio.Semaphore(_IN_FLIGHT)
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(jobs):
                if rate:
                    await asyncio.sleep(start + number / rate - time.monotonic())
                await window.acquire()
                task = group.create_task(_publish_one(exchange, worker, job))
                task.add_done_callback(lambda _: window.release())


async def _publish_one(exchange: AbstractExchange, worker: Worker, job: Job) -> None:
    await exchange.publish(worker.message_of(job, time.time()), job.routing_key, mandatory=True)


def summary_of(exchange: str, seed: int, order: Sequence[tuple[Job, bool]]) -> dict[str, Any]:
    """What was published, by event id."""
    first = [job for job, again in order if not again]
    return {
        "exchange": exchange,
        "seed": seed,
        "published": len(order),
        "completed": [job.event_id for job in first if job.status == "completed"],
        "failed": [job.event_id for job in first if job.status == "failed"],
        "duplicates": [job.event_id for job, again in order if again],
    }


def external_key(text: str) -> bytes:
    """The key of 64 hex digits in `text`.

    Raises:
        ValueError: it is none. The message holds nothing of it.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != hashlib.sha256().digest_size:
        raise ValueError(f"{KEY_VARIABLE} must be 64 hex digits")
    return key


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="publisher", description="Publish genuine job events, signed, to RabbitMQ.")
    parser.add_argument("--amqp-url", default=os.environ.get(URL_VARIABLE), help=f"default: {URL_VARIABLE}")
    parser.add_argument("--exchange", default=os.environ.get(EXCHANGE_VARIABLE, "fetcher.job.events"))
    parser.add_argument("--tenant", default="single-tenant")
    parser.add_argument("--count", type=int, default=10, help="different events")
    parser.add_argument("--duplicates", type=int, default=0, help="further publishes of events drawn from those")
    parser.add_argument("--failed-share", type=float, default=0.0, help="from 0 to 1")
    parser.add_argument("--rate", type=float, default=0.0, help="publishes a second; 0: no limit")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same events")
    arguments = parser.parse_args(words)
    if not arguments.amqp_url:
        parser.error(f"--amqp-url or {URL_VARIABLE} must name the broker")
    if not arguments.amqp_url.startswith(("amqp://", "amqps://")):
        parser.error("the broker's address must start with amqp:// or amqps://")
    if arguments.count < 1 or arguments.duplicates < 0 or arguments.rate < 0 or not 0 <= arguments.failed_share <= 1:
        parser.error("--count from 1, --duplicates and --rate from 0, --failed-share from 0 to 1")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Run with command-line `words`.

    Returns:
        The exit code: 0, or 1 where the key is missing or not every event was published; the reason is on stderr.

    Raises:
        SystemExit: with 2, for wrong words.
    """
    arguments = _arguments(words)
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it would show the whole message that nobody took
    try:
        summary = run(arguments)
    except* ValueError as errors:
        reason = str(errors.exceptions[0])
    except* DeliveryError:
        reason = f"no queue took an event: bind one to the exchange {arguments.exchange!r} before publishing"
    except* (OSError, AMQPError) as errors:
        reason = f"the broker is out of reach or refused: {type(errors.exceptions[0]).__name__}"
    else:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
        return 0
    sys.stderr.write(f"publisher: {reason}\n")
    return 1


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the events, publish them, and say what was published.

    Raises:
        ValueError: the key is missing or malformed.
        ExceptionGroup, OSError, AMQPError: as `publish`.
    """
    worker = Worker(arguments.exchange, arguments.tenant, external_key(os.environ.get(KEY_VARIABLE, "")))
    seed = arguments.seed if arguments.seed is not None else random.randrange(2**32)  # noqa: S311 - test data
    draw = random.Random(seed)  # noqa: S311 - test data
    jobs = make_jobs(arguments.count, arguments.failed_share, worker.key, draw)
    order = with_duplicates(jobs, arguments.duplicates, draw)
    asyncio.run(publish(arguments.amqp_url, worker, [job for job, _ in order], arguments.rate))
    return summary_of(worker.exchange, seed, order)


if __name__ == "__main__":
    sys.exit(main())
