"""The handler dies between COMMIT and acknowledgement, its event is delivered again, and its effect is there once."""

import asyncio
import json
import time
from uuid import uuid4

import aio_pika
from sqlalchemy import Connection, text

from inbox import env
from inbox.core.crashpoints import CrashPoint
from inbox.testing.crash import CrashWorker

from .ledger import make_inbox


def test_killed_between_commit_and_acknowledgement(database: Connection, queue: str) -> None:
    payment, later = str(uuid4()), str(uuid4())
    victim = CrashWorker(make_inbox, (queue,), crash=CrashPoint.parse("after:commit"))
    victim.start()
    victim.wait_ready()
    asyncio.run(publish(payment, queue))
    victim.wait_killed()  # by SIGKILL, at that point and at no other
    assert entries(database, payment) == 1

    survivor = CrashWorker(make_inbox, (queue,))  # which gets what was not acknowledged
    survivor.start()
    survivor.wait_ready()
    asyncio.run(publish(later, queue))  # comes behind it
    while entries(database, later) == 0:
        assert survivor.is_alive()
        time.sleep(0.05)
    assert survivor.stop() == 0
    assert entries(database, payment) == 1


async def publish(payment: str, queue: str) -> None:
    event = {"specversion": "1.0", "id": payment, "source": "/bank", "type": "payment.made"}
    message = aio_pika.Message(json.dumps(event).encode(), content_type="application/cloudevents+json")
    async with await aio_pika.connect(env("LEDGER_AMQP_URL")) as connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(message, queue)


def entries(database: Connection, payment: str) -> int:
    return len(database.execute(text("SELECT 1 FROM entry WHERE payment = :payment"), {"payment": payment}).all())
