"""Copies that wait while something is taken away from under them: a queue, memory, the broker itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aio_pika
import pytest

from inbox.adapters.rabbitmq import Publisher, RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.adapters.rabbitmq.settings import QueueKind
from inbox.core.delivery import Delivery
from inbox.errors import TransportError
from inbox.testing.conformance.transport import PATIENCE, Hand, consuming
from tests.pairs import Pair

pytestmark = pytest.mark.controls_services

QUICK = RabbitMQSettings(heartbeat=1, reconnect_max_delay=0.5, connect_timeout=20, confirm_timeout=1, close_timeout=1)


def queue_of(pair: Pair, *delays: float) -> str:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    for retry in retry_queues(queue, delays):
        pair.discard(retry.name)
    return queue


async def control(pair: Pair, *arguments: str) -> str:
    return await asyncio.to_thread(pair.broker.control, *arguments)


@asynccontextmanager
async def impatient(pair: Pair) -> AsyncIterator[None]:
    """Queues declared in here hand over again after a second what was not taken, instead of three minutes."""
    name = "dead_letter_worker_publisher_confirm_timeout"
    await control(pair, "eval", f"application:set_env(rabbit, {name}, 1000).")
    try:
        yield
    finally:
        await control(pair, "eval", f"application:set_env(rabbit, {name}, 180000).")


async def publish(pair: Pair, queue: str, *bodies: bytes) -> None:
    async with Publisher(pair.amqp_url) as publisher:
        for body in bodies:
            await publisher.publish(body, exchange="", routing_key=queue)


async def move(transport: RabbitMQ, delivery: Delivery, seconds: float) -> None:
    await transport.delay(delivery, seconds, b"key")
    assert await transport.acknowledge(delivery)


async def settle_what_came(transport: RabbitMQ, hand: Hand, settled: set[bytes]) -> None:
    """Acknowledge everything once more: what a link that was lost has brought again is settled by its new delivery."""
    for delivery in hand.deliveries[2:]:
        with suppress(TransportError):
            if await transport.acknowledge(delivery):
                settled.add(delivery.body)
    await asyncio.sleep(0.1)


async def until_ready(transport: RabbitMQ, name: str, ready: int | None) -> None:
    async with asyncio.timeout(PATIENCE):
        while {depth.name: depth.ready for depth in await transport.depths()}[name] != ready:
            await asyncio.sleep(0.05)


async def connections(pair: Pair) -> int:
    listed = await control(pair, "list_connections", "--quiet", "name")
    return sum("->" in line for line in listed.splitlines())


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_what_expires_while_the_queue_is_gone_is_there_when_it_is_back(pair: Pair, kind: QueueKind) -> None:
    """At-least-once: the broker keeps what it cannot hand over, and tries again (every three minutes by default)."""
    queue, hand, again = queue_of(pair, 0.5), Hand(), Hand()
    settings = RabbitMQSettings(queue_type=kind)
    async with impatient(pair):
        transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
        async with consuming(transport, hand, prefetch=20, delays=(0.5,)):
            await publish(pair, queue, *(b"%d" % number for number in range(20)))
            await asyncio.gather(*(move(transport, first, 0.5) for first in await hand.wait(20)))
        async with await aio_pika.connect(pair.amqp_url) as connection, connection.channel() as channel:
            await channel.queue_delete(queue)
            await asyncio.sleep(1)  # they have expired by now, and have nowhere to go
            assert (await transport.depths())[0].ready is None
        transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
        async with consuming(transport, again, prefetch=20, delays=(0.5,)):
            copies = await again.wait(20)
            assert {copy.body for copy in copies} == {b"%d" % number for number in range(20)}
            assert all(copy.origin.routing_key == queue and not copy.pristine for copy in copies)
            for copy in copies:
                assert await transport.acknowledge(copy)
            await until_ready(transport, f"{queue}.retry.500ms", 0)


@pytest.mark.parametrize("how", ["restart", "kill9"])
async def test_what_waits_outlives_the_broker(pair: Pair, how: str) -> None:
    queue, hand = queue_of(pair, 6), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=2, delays=(6,)):
        await publish(pair, queue, b"0", b"1")
        first, second = await hand.wait(2)
        # A quorum queue that is killed in its first moments never serves again: tests/services/service.py.
        await asyncio.sleep(1.5)
        await move(transport, first, 6)
        await asyncio.to_thread(getattr(pair.broker, "stop" if how == "restart" else "kill9"))
        with pytest.raises(TransportError):
            await transport.delay(second, 6, b"key")
        await asyncio.to_thread(pair.broker.start)
        settled: set[bytes] = set()
        async with asyncio.timeout(60):
            # The acknowledgement of the first may be lost with the broker: then both come, it and its copy.
            while not {b"0", b"1"} <= settled or not any(delivery.waited == 6 for delivery in hand.deliveries):
                await settle_what_came(transport, hand, settled)
        # The link for copies was lost as well, and is made anew.
        await publish(pair, queue, b"2")
        async with asyncio.timeout(PATIENCE):
            third = await hand.wait_for_body(b"2")
            while True:
                with suppress(TransportError):
                    await transport.delay(third, 6, b"key")
                    break
                await asyncio.sleep(0.1)
            await until_ready(transport, f"{queue}.retry.6s", 1)
            while b"2" not in settled:
                await settle_what_came(transport, hand, settled)


async def test_a_broker_in_alarm_takes_no_copy_and_keeps_the_original(pair: Pair) -> None:
    queue, hand = queue_of(pair, 0.5), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=3, delays=(0.5,)):
        await publish(pair, queue, b"0", b"1", b"2")
        firsts = await hand.wait(3)
        await move(transport, firsts[0], 0.5)
        copy = (await hand.wait(4))[3]
        assert await transport.acknowledge(copy)
        await control(pair, "set_vm_memory_high_watermark", "0.0000001")
        try:
            for _ in range(3):
                ended = await asyncio.gather(
                    *(transport.delay(first, 0.5, b"key") for first in firsts[1:]), return_exceptions=True
                )
                assert [type(error) for error in ended] == [TransportError] * 2
            assert await transport.release(firsts[1])  # on the consumers' connection, which is not blocked
            again = await hand.wait_for_body(b"1", start=4)
            assert not again.pristine
        finally:
            await control(pair, "set_vm_memory_high_watermark", "0.4")
        await transport.delay(firsts[2], 0.5, b"key")
        await transport.delay(again, 0.5, b"key")
        for delivery in (firsts[2], again):
            assert await transport.acknowledge(delivery)
        async with asyncio.timeout(PATIENCE):
            while {b"1", b"2"} - {delivery.body for delivery in hand.deliveries if delivery.waited == 0.5}:
                await asyncio.sleep(0.05)
    # Each time a link that had been in doubt was left for another one: none may stay behind.
    async with asyncio.timeout(PATIENCE):
        while await connections(pair):
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("policy", "seconds"), [('{"message-ttl":400}', 60.0), ('{"delivery-limit":1,"max-length":1000}', 0.5)]
)
async def test_what_an_operators_policy_moves_out_of_a_retry_queue_is_consumed(
    pair: Pair, policy: str, seconds: float
) -> None:
    queue, hand = queue_of(pair, 60, 0.5), Hand()
    await control(pair, "set_policy", "--apply-to", "queues", "retries", f"^{queue}.retry", policy)
    try:
        transport = RabbitMQ(pair.amqp_url, queue)
        async with consuming(transport, hand, delays=(seconds,)):
            await publish(pair, queue, b"0")
            (first,) = await hand.wait(1)
            await move(transport, first, seconds)
            _, copy = await hand.wait(2)
            assert (copy.body, copy.origin, copy.refusal) == (b"0", first.origin, None)
            assert await transport.acknowledge(copy)
    finally:
        await control(pair, "clear_policy", "retries")


async def test_a_retry_queue_that_a_policy_bounds_refuses_what_it_cannot_keep(pair: Pair) -> None:
    queue, hand = queue_of(pair, 5), Hand()
    await control(pair, "set_policy", "--apply-to", "queues", "retries", f"^{queue}.retry", '{"max-length":5}')
    try:
        transport = RabbitMQ(pair.amqp_url, queue)
        async with consuming(transport, hand, prefetch=20, delays=(5,)):
            await publish(pair, queue, *(b"%d" % number for number in range(20)))
            kept = set()
            for first in await hand.wait(20):
                with suppress(TransportError):
                    await move(transport, first, 5)
                    kept.add(first.body)
            assert 5 <= len(kept) < 20
            for first in hand.deliveries[:20]:
                if first.body not in kept:
                    assert await transport.acknowledge(first)
            copies = (await hand.wait(20 + len(kept)))[20:]
            assert {copy.body for copy in copies} == kept
            for copy in copies:
                assert await transport.acknowledge(copy)
    finally:
        await control(pair, "clear_policy", "retries")
