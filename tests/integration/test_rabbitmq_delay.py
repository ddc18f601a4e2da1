"""Copies that wait in the broker: exact, never lost, and the original stays until one is known to be kept."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from inbox.adapters.rabbitmq import Binding, Publisher, QueueDepth, RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.arguments import NO_DELIVERY_LIMIT
from inbox.adapters.rabbitmq.encoding import is_same
from inbox.adapters.rabbitmq.retry_queues import RetryQueue, retry_queues
from inbox.adapters.rabbitmq.settings import QueueKind
from inbox.core.delivery import Delivery
from inbox.core.kept import delivery_digest
from inbox.errors import TopologyError, TransportError
from inbox.testing.conformance.transport import PATIENCE, Hand, consuming
from inbox.testing.faults import AmqpFraming, Catch, FaultProxy
from tests.integration.test_rabbitmq_unreadable import HEADERS, raw_publisher, short, table
from tests.pairs import Pair

DELAYS = (0.3, 1.0)
QUICK = RabbitMQSettings(heartbeat=1, reconnect_max_delay=0.5, confirm_timeout=5)
QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
CHECKED = RabbitMQSettings(declare=False, retry_queues=True)


def queue_of(pair: Pair, *delays: float) -> str:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    for retry in retry_queues(queue, (*DELAYS, *delays)):
        pair.discard(retry.name)
    return queue


def is_publish(command: bytes) -> bool:
    """Whether it is basic.publish (class 60, method 40)."""
    return command[:4] == b"\x00\x3c\x00\x28"


def through(pair: Pair, proxy: FaultProxy) -> str:
    parts = urlsplit(pair.amqp_url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
async def channel(pair: Pair) -> Any:
    async with await aio_pika.connect(pair.amqp_url) as connection, connection.channel() as made:
        yield made


@asynccontextmanager
async def delaying(transport: RabbitMQ, hand: Hand, *, prefetch: int = 10) -> AsyncIterator[None]:
    async with consuming(transport, hand, prefetch=prefetch, delays=DELAYS):
        yield


async def publish(pair: Pair, queue: str, *bodies: bytes, headers: Mapping[str, Any] | None = None) -> None:
    async with Publisher(pair.amqp_url) as publisher:
        for body in bodies:
            await publisher.publish(body, exchange="", routing_key=queue, headers=headers)


async def move(transport: RabbitMQ, delivery: Delivery, seconds: float = DELAYS[0]) -> None:
    await transport.delay(delivery, seconds, b"\x00key")
    assert await transport.acknowledge(delivery)


async def until_ready(transport: RabbitMQ, name: str, count: int | None) -> None:
    async with asyncio.timeout(PATIENCE):
        while {depth.name: depth.ready for depth in await transport.depths()}[name] != count:
            await asyncio.sleep(0.05)


def field(kind: bytes, octets: bytes) -> bytes:
    return kind + octets


#: One header of every type that a peer can send, as it is on the wire: more of them than any client library writes.
FIELDS: dict[str, bytes] = {
    "true": b"t\x01",
    "signed octet": b"b\x85",
    "unsigned octet": b"B\x85",
    "signed short": b"s\x80\x00",
    "unsigned short": b"u\x80\x00",
    "signed long": b"I\x80\x00\x00\x00",
    "unsigned long": b"i\x80\x00\x00\x00",
    "signed long long": b"l" + b"\x80" + bytes(7),
    "float": b"f" + struct.pack(">f", 0.1),
    "double": b"d" + struct.pack(">d", 0.1),
    "minus zero": b"d" + struct.pack(">d", -0.0),
    "decimal": b"D\x02\x00\x00\x00\x7b",
    "decimal with many places": b"D\xc8\x00\x00\x00\x7b",
    "text": b"S" + table("grüße\0".encode()),
    "text that is not UTF-8": b"S" + table(b"\xff\xfe"),
    "long text": b"S" + table(b"x" * 60_000),
    "byte array": b"x" + table(b"\x00\xff"),
    "nothing": b"V",
    "time": b"T" + struct.pack(">Q", 1_782_345_600),
    "time in milliseconds": b"T" + struct.pack(">Q", 1_782_345_600_123),
    "list": b"A" + table(b"t\x00" + b"S" + table(b"\xff") + b"A" + table(b"V")),
    "table": b"F" + table(short(b"a") + b"F" + table(short(b"") + b"I\x00\x00\x00\x01")),
}


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_every_header_comes_back_as_it_was(pair: Pair, kind: QueueKind) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue, settings=RabbitMQSettings(queue_type=kind))
    async with delaying(transport, hand, prefetch=50):
        contents = [short(b"k") + octets for octets in FIELDS.values()]
        contents += [short(b"n" * 255) + b"V", short(b"a") + b"V" + short(b"a") + b"t\x01"]
        contents.append(b"".join(short(name.encode()) + octets for name, octets in FIELDS.items()))
        with raw_publisher(pair) as publisher:
            for content in contents:
                publisher.publish(b"{}", routing_key=queue.encode(), flags=HEADERS, properties=table(content))
        firsts = await hand.wait(len(contents))
        assert all(first.headers and first.refusal is None for first in firsts)
        for first in firsts:
            await move(transport, first)
        copies = (await hand.wait(2 * len(contents)))[len(contents) :]
        for copy in copies:
            # Quorum queues do not keep the order of what expires at one time.
            (first,) = [first for first in firsts if is_same(dict(first.headers), dict(copy.headers))]
            assert delivery_digest(b"c", copy) == delivery_digest(b"c", first)
            assert copy.origin == first.origin
            assert await transport.acknowledge(copy)
    assert len(hand.deliveries) == 2 * len(contents)


async def test_the_properties_and_the_route_of_the_first_publish_come_back(
    pair: Pair, channel: AbstractChannel
) -> None:
    hand, queue, exchange = Hand(), queue_of(pair), pair.unique("jobs")
    transport = RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "job.*", declare="topic")])
    async with delaying(transport, hand):
        message = aio_pika.Message(
            b"\x00\xff",
            content_type="application/json",
            content_encoding="gzip",
            correlation_id="c",
            reply_to="r",
            message_id="m",
            timestamp=1_782_345_600,
            type="t",
            app_id="a",
            priority=3,
            expiration=60,
            user_id=urlsplit(pair.amqp_url).username,
        )
        await (await channel.get_exchange(exchange)).publish(message, "job.failed")
        (first,) = await hand.wait(1)
        await move(transport, first)
        _, copy = await hand.wait(2)
        left_out = ("expiration", "user_id", "delivery_mode")
        expected = {name: value for name, value in first.properties.items() if name not in left_out}
        assert copy.properties == expected | {"delivery_mode": 2}
        assert (copy.body, copy.content_type) == (b"\x00\xff", "application/json")
        assert (copy.origin.exchange, copy.origin.routing_key) == (exchange, "job.failed")
        await channel.exchange_delete(exchange)  # its producers' own affair
        await move(transport, copy)
        again = (await hand.wait(3))[2]
        assert (again.origin, again.properties) == (copy.origin, copy.properties)
        assert await transport.acknowledge(again)


async def test_a_copy_is_in_no_queue_that_its_event_was_also_sent_to(pair: Pair, channel: AbstractChannel) -> None:
    """RabbitMQ routes by the header CC too: other consumers, and we ourselves, would get the copy at once."""
    hand, queue, other = Hand(), queue_of(pair), pair.unique("other")
    await channel.declare_queue(other, durable=True)
    transport = RabbitMQ(pair.amqp_url, queue)
    async with delaying(transport, hand):
        await publish(pair, queue, b"one", headers={"CC": [other, queue], "BCC": [other]})
        (first,) = await hand.wait(1)
        assert first.headers["CC"] == [other, queue]
        before = (await channel.declare_queue(other, passive=True)).declaration_result.message_count
        await move(transport, first)
        _, copy = await hand.wait(2)
        assert is_same(dict(copy.headers), dict(first.headers))
        assert copy.waited == DELAYS[0]
        after = (await channel.declare_queue(other, passive=True)).declaration_result.message_count
        assert after == before
        assert await transport.acknowledge(copy)
    assert len(hand.deliveries) == 2


async def test_what_cannot_be_read_is_not_copied(pair: Pair) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue)
    async with delaying(transport, hand):
        with raw_publisher(pair) as publisher:
            octets = table(short(b"\xff\xfe") + b"t\x01")
            publisher.publish(b"odd", routing_key=queue.encode(), flags=HEADERS, properties=octets)
        (odd,) = await hand.wait(1)
        with pytest.raises(TransportError):
            await transport.delay(odd, DELAYS[0], b"key")
        assert await transport.acknowledge(odd)


async def test_two_with_one_message_id_are_not_taken_for_each_other(pair: Pair, channel: AbstractChannel) -> None:
    """Their producer sent the event twice; both copies come back from a queue that is gone, and neither is kept."""
    hand, queue = Hand(), queue_of(pair)
    await channel.declare_queue(queue, durable=True, arguments=QUORUM | {"x-delivery-limit": NO_DELIVERY_LIMIT})
    await declare(channel, *retry_queues(queue, DELAYS))
    transport = RabbitMQ(pair.amqp_url, queue, settings=CHECKED)
    async with delaying(transport, hand, prefetch=20):
        for _ in range(20):
            await channel.default_exchange.publish(aio_pika.Message(b"one", message_id="m"), queue)
        firsts = await hand.wait(20)
        await channel.queue_delete(f"{queue}.retry.300ms")
        ended = await asyncio.gather(
            *(transport.delay(first, DELAYS[0], b"k") for first in firsts), return_exceptions=True
        )
        assert all(isinstance(error, TransportError) for error in ended)


async def declare(channel: AbstractChannel, *retries: RetryQueue, changed: Mapping[str, Any] | None = None) -> None:
    for retry in retries:
        arguments = {k: v for k, v in {**retry.arguments, **(changed or {})}.items() if v is not None}
        await channel.declare_queue(retry.name, durable=True, arguments=arguments)


@pytest.mark.parametrize("many", [1, 20])
async def test_a_deleted_retry_queue_is_declared_again(pair: Pair, channel: AbstractChannel, many: int) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue)
    async with delaying(transport, hand, prefetch=many):
        await publish(pair, queue, *(b"%d" % number for number in range(many)))
        firsts = await hand.wait(many)
        await channel.queue_delete(f"{queue}.retry.300ms")
        # The broker may refuse what reaches the queue while it is being deleted: nothing was acknowledged then.
        ended = await asyncio.gather(*(move(transport, first) for first in firsts), return_exceptions=True)
        assert {type(error) for error in ended} <= {type(None), TransportError}
        for first, error in zip(firsts, ended, strict=True):
            if error is not None:
                await move(transport, first)
        for copy in (await hand.wait(2 * many))[many:]:
            assert not copy.pristine
            assert await transport.acknowledge(copy)
    assert len(hand.deliveries) == 2 * many


async def test_a_retry_queue_that_was_only_checked_stays_deleted_and_nothing_is_lost(
    pair: Pair, channel: AbstractChannel
) -> None:
    hand, queue = Hand(), queue_of(pair)
    await channel.declare_queue(queue, durable=True)
    await declare(channel, *retry_queues(queue, DELAYS))
    transport = RabbitMQ(pair.amqp_url, queue, settings=CHECKED)
    async with delaying(transport, hand):
        await publish(pair, queue, b"one")
        (first,) = await hand.wait(1)
        await channel.queue_delete(f"{queue}.retry.300ms")
        with pytest.raises(TransportError, match="no queue took"):
            await transport.delay(first, DELAYS[0], b"key")
        assert await transport.release(first)
        _, second = await hand.wait(2)
        await move(transport, second, DELAYS[1])  # the other one is still there
        assert await transport.acknowledge((await hand.wait(3))[2])
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
        await channel.declare_queue(f"{queue}.retry.300ms", passive=True)


async def test_a_retry_queue_that_came_back_different_fails_and_nothing_is_lost(
    pair: Pair, channel: AbstractChannel
) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue)
    full = RetryQueue(queue, 300)
    async with delaying(transport, hand):
        await publish(pair, queue, b"one", b"two")
        first, second = await hand.wait(2)
        await channel.queue_delete(full.name)
        await declare(channel, full, changed={"x-max-length": 1})
        await transport.delay(first, DELAYS[0], b"key")
        # A quorum queue looks at its bound after a few more.
        ended = [await asyncio.gather(transport.delay(second, 0.3, b"key"), return_exceptions=True) for _ in range(5)]
        assert any(isinstance(error, TransportError) and "refused" in str(error) for (error,) in ended)
        assert await transport.acknowledge(first)
        assert await transport.acknowledge(second)


async def test_a_confirmation_that_is_lost_keeps_the_original(pair: Pair) -> None:
    hand, queue = Hand(), queue_of(pair)
    async with FaultProxy(pair.broker.host, pair.broker.port, framing=AmqpFraming) as proxy:
        transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
        async with delaying(transport, hand):
            await publish(pair, queue, b"one", b"two")
            first, second = await hand.wait(2)
            trap = proxy.trap(is_publish, Catch.LOSE_ANSWER)
            with pytest.raises(TransportError, match="may or may not"):
                await transport.delay(first, DELAYS[0], b"key")
            await trap.wait()
            assert await transport.release(first)  # the consumers' connection is another one
            await move(transport, second)
            bodies = sorted(delivery.body for delivery in (await hand.wait(5))[2:])
            assert bodies == [b"one", b"one", b"two"]  # the original and its copy: the inbox knows one of them
            for delivery in hand.deliveries[2:]:
                assert await transport.acknowledge(delivery)


async def test_a_lane_that_is_cancelled_harms_no_other(pair: Pair) -> None:
    hand, queue = Hand(), queue_of(pair)
    async with FaultProxy(pair.broker.host, pair.broker.port, framing=AmqpFraming) as proxy:
        transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
        async with delaying(transport, hand, prefetch=20):
            await publish(pair, queue, *(b"%d" % number for number in range(20)))
            firsts = await hand.wait(20)
            moving = [asyncio.create_task(move(transport, first)) for first in firsts]
            for number in range(0, 20, 3):
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                moving[number].cancel()
            ended = await asyncio.gather(*moving, return_exceptions=True)
            moved = [first.body for first, error in zip(firsts, ended, strict=True) if error is None]
            assert {type(error) for error in ended} <= {type(None), asyncio.CancelledError}
            assert len(moved) >= 13
            async with asyncio.timeout(PATIENCE):
                while not {*moved} <= {copy.body for copy in hand.deliveries[20:]}:
                    await asyncio.sleep(0.05)


async def test_what_is_too_big_is_refused_and_its_neighbours_are_kept(pair: Pair) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with delaying(transport, hand):
        # A header frame that just fits: the copy has headers of ours besides.
        await publish(pair, queue, b"big", headers={"h": "x" * 130_900})
        await publish(pair, queue, b"one", b"two")
        big, one, two = await hand.wait(3)
        ended = await asyncio.gather(
            *(transport.delay(delivery, DELAYS[0], b"k" * 200) for delivery in (one, big, two)), return_exceptions=True
        )
        assert [type(error) for error in ended] == [type(None), TransportError, type(None)]
        if pair.broker.version >= (4,):  # where a message has at most 16 MiB
            with pytest.raises(TransportError):
                await transport.delay(replace(one, body=bytes(17 << 20)), DELAYS[0], b"k")
            await transport.delay(one, DELAYS[0], b"k")
        for delivery in (big, one, two):
            assert await transport.acknowledge(delivery)
        for copy in (await hand.wait(5))[3:]:
            assert await transport.acknowledge(copy)


async def test_a_large_body_comes_back_whole(pair: Pair) -> None:
    hand, queue = Hand(), queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue)
    body = bytes(range(256)) * 8192
    async with delaying(transport, hand):
        await publish(pair, queue, body)
        (first,) = await hand.wait(1)
        await move(transport, first)
        _, copy = await hand.wait(2)
        assert copy.body == body
        assert await transport.acknowledge(copy)


# ------------------------------------------------------------------ what leaves a queue by the broker's own doing
@pytest.mark.parametrize("requeue_first", [False, True])
async def test_a_copy_that_someone_rejects_from_its_queue_is_consumed_early(
    pair: Pair, channel: AbstractChannel, requeue_first: bool
) -> None:
    hand, queue = Hand(), queue_of(pair, 60)
    transport = RabbitMQ(pair.amqp_url, queue)
    async with consuming(transport, hand, delays=(60,)):
        await publish(pair, queue, b"one", headers={"ce-id": b"1"})
        (first,) = await hand.wait(1)
        await move(transport, first)
        waiting = await channel.get_queue(f"{queue}.retry.60s")
        if requeue_first:
            await (await waiting.get(timeout=10)).nack(requeue=True)
        message = await waiting.get(timeout=10, fail=False)
        while message is None:
            message = await waiting.get(timeout=10, fail=False)
        await message.reject(requeue=False)
        _, copy = await hand.wait(2)
        assert (copy.body, copy.queue, copy.refusal, copy.origin) == (b"one", queue, None, first.origin)
        assert is_same(dict(copy.headers), dict(first.headers))
        assert await transport.acknowledge(copy)


async def test_a_queues_bound_on_returns_ends_a_copy_as_a_dead_letter_with_its_first_route(
    pair: Pair, channel: AbstractChannel
) -> None:
    hand, queue, exchange = Hand(), queue_of(pair), pair.unique("jobs")
    arguments = QUORUM | {
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{queue}.dead",
    }
    await channel.declare_queue(f"{queue}.dead", durable=True)
    main = await channel.declare_queue(queue, durable=True, arguments=arguments)
    await main.bind(await channel.declare_exchange(exchange, "topic", durable=True), "#")
    await declare(channel, *retry_queues(queue, DELAYS))
    settings = replace(CHECKED, dead_letter_queue=f"{queue}.dead")
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    async with delaying(transport, hand, prefetch=1), Publisher(pair.amqp_url) as publisher:
        await publisher.publish(b"one", exchange=exchange, routing_key="job.failed", headers={"ce-id": b"1"})
        (first,) = await hand.wait(1)
        await move(transport, first)
        _, copy = await hand.wait(2)
        assert copy.origin == first.origin
        await transport.stop()
    for _ in range(3):
        message = await main.get(timeout=10, fail=False)
        if message is None:
            break
        await message.reject(requeue=True)  # counts on every version
    dead = Hand()
    async with delaying(RabbitMQ(pair.amqp_url, queue, settings=settings), dead):
        (letter,) = await dead.wait(1)
        assert letter.queue == f"{queue}.dead"
        assert letter.refusal is not None
        assert (letter.refusal.code, letter.refusal.detail[-14:]) == ("dead-lettered", "delivery_limit")
        assert (letter.origin.exchange, letter.origin.routing_key) == (exchange, "job.failed")
        assert letter.headers == {"ce-id": bytearray(b"1")}
        assert delivery_digest(b"c", letter) == delivery_digest(b"c", first)


# ------------------------------------------------------------------ what stops the start
async def refusal(transport: RabbitMQ) -> str:
    with pytest.raises(TopologyError) as refused:
        await transport.open(prefetch=1, delays=DELAYS)
    await transport.close()
    return str(refused.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x-message-ttl": 5000}, ["x-message-ttl", "5000", "300"]),
        ({"x-dead-letter-routing-key": "other"}, ["x-dead-letter-routing-key", "'other'"]),
        ({"x-dead-letter-exchange": "amq.direct"}, ["x-dead-letter-exchange", "'amq.direct'"]),
        ({"x-dead-letter-strategy": "at-most-once"}, ["x-dead-letter-strategy", "'at-most-once'"]),
        ({"x-dead-letter-strategy": None}, ["x-dead-letter-strategy", "not set"]),
        ({"x-expires": 600_000}, ["x-expires"]),
        ({"x-queue-type": "classic", "x-delivery-limit": None, "x-dead-letter-strategy": None}, ["x-queue-type"]),
    ],
)
async def test_a_retry_queue_that_is_not_what_it_must_be_stops_the_start(
    pair: Pair, channel: AbstractChannel, changed: dict[str, Any], words: list[str]
) -> None:
    queue = queue_of(pair)
    await channel.declare_queue(queue, durable=True)
    short_one, long_one = retry_queues(queue, DELAYS)
    await declare(channel, long_one)
    await declare(channel, short_one, changed=changed)
    told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=CHECKED))
    assert all(word in told for word in [short_one.name, "retry_queues=False", *words]), told


async def test_a_retry_queue_that_is_missing_stops_the_start_and_is_not_made(
    pair: Pair, channel: AbstractChannel
) -> None:
    queue = queue_of(pair)
    await channel.declare_queue(queue, durable=True)
    for _ in range(2):
        told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=CHECKED))
        assert all(word in told for word in [f"{queue}.retry.300ms", "declare=True", "retry_queues=False"]), told
    await declare(channel, *retry_queues(queue, DELAYS))
    transport = RabbitMQ(pair.amqp_url, queue, settings=CHECKED)
    await transport.open(prefetch=1, delays=DELAYS)
    assert transport.can_delay
    await transport.close()


async def test_a_retry_queue_of_another_time_that_is_declared_stops_the_start_with_both_values(
    pair: Pair, channel: AbstractChannel
) -> None:
    queue = queue_of(pair)
    await declare(channel, RetryQueue(queue, 300), changed={"x-message-ttl": 5000})
    told = await refusal(RabbitMQ(pair.amqp_url, queue))
    assert all(word in told for word in [f"{queue}.retry.300ms", "x-message-ttl", "5000", "300"]), told


async def test_without_retry_queues_none_is_made_and_nothing_can_be_delayed(
    pair: Pair, channel: AbstractChannel
) -> None:
    queue = queue_of(pair)
    transport = RabbitMQ(pair.amqp_url, queue, settings=RabbitMQSettings(retry_queues=False))
    await transport.open(prefetch=1, delays=DELAYS)
    assert not transport.can_delay
    assert [depth.role for depth in await transport.depths(DELAYS)] == ["main", "dead"]
    await transport.close()
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
        await channel.declare_queue(f"{queue}.retry.300ms", passive=True)


@pytest.mark.parametrize("limit", [5, NO_DELIVERY_LIMIT])
async def test_dead_letters_must_not_come_back_over_a_retry_queue(
    pair: Pair, channel: AbstractChannel, limit: int
) -> None:
    """The broker drops what was in a queue before and was rejected by nobody."""
    queue = queue_of(pair)
    retry = RetryQueue(queue, 300)
    arguments = QUORUM | {
        "x-delivery-limit": limit,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": retry.name,
    }
    await channel.declare_queue(queue, durable=True, arguments=arguments)
    await declare(channel, *retry_queues(queue, DELAYS))
    transport = RabbitMQ(pair.amqp_url, queue, settings=CHECKED)
    if limit == NO_DELIVERY_LIMIT:
        await transport.open(prefetch=1, delays=DELAYS)
        await transport.close()
    else:
        assert "come back" in await refusal(transport)


async def test_other_delays_are_other_queues_and_the_old_ones_run_empty(pair: Pair) -> None:
    first_hand, hand, queue = Hand(), Hand(), queue_of(pair, 2)
    first = RabbitMQ(pair.amqp_url, queue)
    async with delaying(first, first_hand):
        await publish(pair, queue, b"one")
        await move(first, (await first_hand.wait(1))[0], DELAYS[1])
    transport = RabbitMQ(pair.amqp_url, queue)
    async with consuming(transport, hand, delays=(2,)):
        (copy,) = await hand.wait(1)
        assert copy.body == b"one"
        assert await transport.acknowledge(copy)
        names = [depth.name for depth in await transport.depths()]
        assert names == [queue, f"{queue}.dead", f"{queue}.retry.2s"]


async def test_depths_are_told_without_being_open(pair: Pair, channel: AbstractChannel) -> None:
    hand, queue = Hand(), queue_of(pair, 60)
    transport = RabbitMQ(pair.amqp_url, queue)
    names = [queue, f"{queue}.dead", f"{queue}.retry.60s"]
    roles = ["main", "dead", "retry"]
    missing = await transport.depths((60,))
    assert missing == [QueueDepth(name, role, None, 0) for name, role in zip(names, roles, strict=True)]  # type: ignore[arg-type]  # a literal in a list
    async with consuming(transport, hand, prefetch=1, delays=(60,)):
        await publish(pair, queue, b"one", b"two", b"three")
        await move(transport, (await hand.wait(1))[0])
        await hand.wait(2)
        await until_ready(transport, queue, 1)
        assert [(depth.ready, depth.consumers) for depth in await transport.depths()] == [(1, 1), (0, 1), (1, 0)]
    assert [depth.name for depth in await RabbitMQ(pair.amqp_url, queue).depths()] == names[:2]
    with pytest.raises(TransportError):
        await RabbitMQ("amqp://u:p@127.0.0.1:1/", queue).depths()
