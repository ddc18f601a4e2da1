"""The example's publisher as its users run it."""

import asyncio
import json
import os
import sys
from collections import Counter

import aio_pika

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery
from inbox.core.event import strict_json
from inbox.demo.jobs import sign
from tests.pairs import Pair

KEY = "0f" * 32


async def run_publisher(pair: Pair, *words: str) -> tuple[int | None, str, str]:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.billing.publisher",
        *words,
        env=os.environ | {"BILLING_AMQP_URL": pair.amqp_url, "FETCHER_EXTERNAL_HMAC_KEY": KEY},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await program.communicate()
    return program.returncode, output.decode(), errors.decode()


async def test_every_event_arrives_confirmed_genuine_and_signed(pair: Pair) -> None:
    exchange, name = pair.unique("events"), pair.unique("billing")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange, "job.#")

        words = (
            "--exchange",
            exchange,
            "--count",
            "30",
            "--duplicates",
            "12",
            "--failed-share",
            "0.2",
            "--rate",
            "400",
        )
        code, output, errors = await run_publisher(pair, *words)
        assert (code, errors) == (0, "")
        summary = json.loads(output)

        ids = Counter[str]()
        for _ in range(42):
            message = await queue.get(timeout=10)
            event = decode(Delivery(message.body, message.headers, message.content_type))
            ids[event.id] += 1
            assert message.routing_key == f"job.{event.extensions['eventtype']}"
            assert message.headers["x-message-signature"] == sign(
                bytes.fromhex(KEY),
                message.body,
                timestamp=int(str(message.headers["t"])),
                tenant="single-tenant",
                job_id=strict_json(message.body)["jobId"],
                exchange=exchange,
                routing_key=message.routing_key,
            )
            await message.ack()
        assert await queue.get(fail=False) is None

    assert ids == Counter(summary["completed"] + summary["failed"] + summary["duplicates"])
    assert [len(summary[kind]) for kind in ("completed", "failed", "duplicates")] == [24, 6, 12]


async def test_an_event_that_no_queue_takes_is_an_error(pair: Pair) -> None:
    code, output, errors = await run_publisher(pair, "--exchange", pair.unique("events"))
    assert (code, output) == (1, "")
    assert "no queue took an event" in errors


async def test_an_exchange_with_other_settings_is_an_error_without_a_traceback(pair: Pair) -> None:
    exchange = pair.unique("events")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_exchange(exchange, aio_pika.ExchangeType.DIRECT)
        code, output, errors = await run_publisher(pair, "--exchange", exchange)
    assert (code, output) == (1, "")
    assert errors.startswith("publisher: the broker is out of reach or refused: ")
    assert errors.count("\n") == 1
