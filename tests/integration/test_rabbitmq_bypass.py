"""Deliveries pass the client library by, at real brokers; and where they cannot, they come through it."""

from __future__ import annotations

from typing import Any

import aio_pika
import pytest

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings, bypass
from inbox.adapters.rabbitmq.consumer import Consumer
from inbox.core.delivery import Delivery
from inbox.testing.conformance.transport import Hand, consuming
from tests.pairs import Pair

#: Octets: none at all, few, and more than fit into one frame (131072 by default) or one read.
SIZES = (0, 500, 70_000, 300_000)


async def published(pair: Pair) -> RabbitMQ:
    """A queue with a message of each size, and one that has every property."""
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    settings = RabbitMQSettings()
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    await transport.open(prefetch=1)
    await transport.close()
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        for size in SIZES:
            message = aio_pika.Message(bytes(size), headers={"ce-id": f"{size}", "n": size}, message_id=f"m{size}")
            await channel.default_exchange.publish(message, queue)
    return RabbitMQ(pair.amqp_url, queue, settings=settings)


def seen_by_the_library(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What came through the client library, from now on."""
    seen: list[Any] = []
    original = Consumer._on_delivered

    async def noting(self: Consumer, delivered: Any) -> None:
        seen.append(delivered)
        await original(self, delivered)

    monkeypatch.setattr(Consumer, "_on_delivered", noting)
    return seen


async def consumed(transport: RabbitMQ) -> list[Delivery]:
    hand = Hand()
    async with consuming(transport, hand, prefetch=len(SIZES)):
        deliveries = list(await hand.wait(len(SIZES)))
        for delivery in deliveries:
            assert await transport.acknowledge(delivery)
        assert transport.generation == 1
    return deliveries


def told(delivery: Delivery) -> Any:
    return len(delivery.body), delivery.headers, delivery.properties, delivery.origin, delivery.pristine


async def test_deliveries_pass_the_library_by_and_are_the_same_as_through_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = seen_by_the_library(monkeypatch)
    past = await consumed(await published(pair))
    assert [len(delivery.body) for delivery in past] == list(SIZES)
    assert seen == []

    monkeypatch.setattr(bypass.Bypass, "take", lambda *_: None)
    through = await consumed(await published(pair))
    assert len(seen) == len(SIZES)
    assert [told(delivery)[:3] for delivery in through] == [told(delivery)[:3] for delivery in past]
    assert [delivery.pristine for delivery in past] == [True] * len(SIZES)
