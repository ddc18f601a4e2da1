"""Queues declared or checked, never fought over: what stops at start, and what the message says."""

import asyncio
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from inbox.adapters.rabbitmq import Binding, Publisher, RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.arguments import NO_DELIVERY_LIMIT
from inbox.adapters.rabbitmq.topology import facts_of
from inbox.errors import ConfigurationError, TopologyError, TransportError
from inbox.testing.conformance.transport import Hand, consuming
from tests.pairs import Pair

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
PASSIVE = RabbitMQSettings(declare=False)


@pytest.fixture
async def channel(pair: Pair) -> Any:
    async with await aio_pika.connect(pair.amqp_url) as connection, connection.channel() as made:
        yield made


def names(pair: Pair) -> str:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    return queue


async def opens(transport: RabbitMQ) -> None:
    try:
        await transport.open(prefetch=1)
    finally:
        await transport.close()


async def refusal(transport: RabbitMQ) -> str:
    with pytest.raises(TopologyError) as refused:
        await opens(transport)
    return str(refused.value)


async def test_what_is_declared_once_is_the_same_the_next_time(pair: Pair) -> None:
    queue, exchange = names(pair), pair.unique("jobs")
    for _ in range(2):
        await opens(RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "job.#", declare="topic")]))


async def test_a_bound_event_is_delivered_with_its_route(pair: Pair) -> None:
    queue, exchange, hand = names(pair), pair.unique("jobs"), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "job.*", declare="topic")])
    async with consuming(transport, hand), Publisher(pair.amqp_url) as publisher:
        await publisher.publish(b"{}", exchange=exchange, routing_key="job.failed", headers={"ce-id": b"1"})
        (delivery,) = await hand.wait(1)
        assert (delivery.origin.exchange, delivery.origin.routing_key) == (exchange, "job.failed")
        assert delivery.headers == {"ce-id": bytearray(b"1")}
        with pytest.raises(TransportError, match="bound"):
            await publisher.publish(b"{}", exchange=exchange, routing_key="other.key")


async def test_our_queues_have_no_delivery_limit_and_lose_no_dead_letter(pair: Pair, channel: AbstractChannel) -> None:
    queue = names(pair)
    await opens(RabbitMQ(pair.amqp_url, queue))
    async with await aio_pika.connect(pair.amqp_url) as connection:
        ours, dead = await facts_of(connection, queue), await facts_of(connection, f"{queue}.dead")
    assert ours is not None
    assert dead is not None
    assert ours.arguments == QUORUM | {
        "x-delivery-limit": NO_DELIVERY_LIMIT,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{queue}.dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert dead.arguments == QUORUM | {"x-delivery-limit": NO_DELIVERY_LIMIT}
    assert (ours.delivery_limit, dead.delivery_limit) == (None, None)
    await opens(RabbitMQ(pair.amqp_url, queue, settings=PASSIVE))


async def test_thirty_returns_do_not_kill_a_message(pair: Pair) -> None:
    queue, hand = names(pair), Hand()
    transport = RabbitMQ(pair.amqp_url, queue)
    async with consuming(transport, hand, prefetch=1), Publisher(pair.amqp_url) as publisher:
        await publisher.publish(b"poison", exchange="", routing_key=queue)
        for number in range(30):
            assert await transport.release((await hand.wait(number + 1))[number])
        last = (await hand.wait(31))[30]
        assert last.refusal is None
        assert last.queue == queue
        assert await transport.acknowledge(last)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["x-", "broker"]),
        (QUORUM | {"x-dead-letter-exchange": "other"}, ["x-dead-letter-exchange", "'other'", "''"]),
        (QUORUM, ["x-dead-letter-exchange", "not set", "''"]),
    ],
)
async def test_a_queue_with_other_arguments_stops_the_start_and_both_values_are_shown(
    pair: Pair, channel: AbstractChannel, arguments: dict[str, Any], words: list[str]
) -> None:
    queue = names(pair)
    await channel.declare_queue(queue, durable=True, arguments=arguments)
    told = await refusal(RabbitMQ(pair.amqp_url, queue))
    assert all(word in told for word in [queue, "declare=False", *words]), told


async def test_an_exchange_of_another_kind_is_never_fought_over(pair: Pair, channel: AbstractChannel) -> None:
    queue, exchange = names(pair), pair.unique("jobs")
    await channel.declare_exchange(exchange, "fanout", durable=True)
    told = await refusal(RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "k", declare="topic")]))
    assert "'fanout'" in told
    assert "'topic'" in told
    await opens(RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "k")]))


async def test_an_exchange_that_is_not_there_is_left_to_its_owner(pair: Pair) -> None:
    queue = names(pair)
    told = await refusal(RabbitMQ(pair.amqp_url, queue, [Binding("nobody-made-it", "k")]))
    assert "nobody-made-it" in told
    assert "owner" in told


async def test_a_passive_queue_that_is_missing_names_the_fix_and_is_not_made(pair: Pair) -> None:
    queue = names(pair)
    for _ in range(2):
        told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=PASSIVE))
        assert queue in told
        assert "declare=True" in told


async def test_asking_for_a_queues_arguments_never_makes_it(pair: Pair, channel: AbstractChannel) -> None:
    queue = names(pair)
    async with await aio_pika.connect(pair.amqp_url) as connection:
        with pytest.raises(TopologyError, match="does not exist"):
            await facts_of(connection, queue)
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
        await channel.declare_queue(queue, passive=True)


async def test_the_limit_that_rabbitmq_4_puts_on_every_queue_is_refused_without_dead_letters(
    pair: Pair, channel: AbstractChannel
) -> None:
    queue = names(pair)
    await channel.declare_queue(queue, durable=True, arguments=QUORUM)
    transport = RabbitMQ(pair.amqp_url, queue, settings=PASSIVE)
    if pair.broker.version < (4,):
        await opens(transport)
    else:
        told = await refusal(transport)
        assert "after 20 returns" in told
        assert "x-dead-letter-exchange" in told
        vouched = RabbitMQSettings(declare=False, dead_letters_by_policy=True)
        await opens(RabbitMQ(pair.amqp_url, queue, settings=vouched))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (QUORUM | {"x-delivery-limit": 5}, "after 5 returns"),
        ({"x-message-ttl": 60_000}, "x-message-ttl"),
        ({"x-max-length": 1000}, "x-max-length"),
        ({"x-expires": 600_000}, "x-expires"),
        ({"x-message-ttl": 60_000, "x-dead-letter-exchange": ""}, "x-dead-letter-routing-key"),
        ({"x-message-ttl": 60_000, "x-dead-letter-exchange": "gone"}, "does not exist"),
    ],
)
async def test_a_queue_that_would_drop_events_is_refused(
    pair: Pair, channel: AbstractChannel, arguments: dict[str, Any], words: str
) -> None:
    queue = names(pair)
    await channel.declare_queue(queue, durable=True, arguments=arguments)
    told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=PASSIVE))
    assert words in told
    assert queue in told


async def test_a_queue_that_does_not_survive_the_broker_is_refused(pair: Pair, channel: AbstractChannel) -> None:
    queue = names(pair)
    # Auto-deleted and durable: a transient one is no longer possible everywhere.
    await channel.declare_queue(queue, durable=True, auto_delete=True)
    told = await refusal(RabbitMQ(pair.amqp_url, queue, settings=PASSIVE))
    assert "auto_delete" in told


@pytest.mark.parametrize("gives_up", [True, False])
async def test_dead_letters_may_come_back_only_after_a_rejection(
    pair: Pair, channel: AbstractChannel, gives_up: bool
) -> None:
    queue, wait = names(pair), pair.unique("wait")
    back: dict[str, Any] = {"x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    await channel.declare_queue(wait, durable=True, arguments=back)
    limit = 5 if gives_up else NO_DELIVERY_LIMIT
    forth = QUORUM | {"x-delivery-limit": limit, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
    await channel.declare_queue(queue, durable=True, arguments=forth)
    transport = RabbitMQ(pair.amqp_url, queue, settings=PASSIVE)
    if gives_up:
        assert "come back" in await refusal(transport)
    else:
        await opens(transport)


async def test_a_locked_queue_is_waited_for(pair: Pair) -> None:
    queue = names(pair)
    transport = RabbitMQ(pair.amqp_url, queue, settings=RabbitMQSettings(declare=False, start_patience=20))
    async with await aio_pika.connect(pair.amqp_url) as other:
        locking = await other.channel()
        await locking.declare_queue(queue, exclusive=True)
        with pytest.raises(TransportError, match="locked"):
            await opens(RabbitMQ(pair.amqp_url, queue, settings=PASSIVE))
    # It went with its connection: waiting for it ends with the truth.
    with pytest.raises(TopologyError, match="does not exist"):
        await opens(transport)


async def test_dead_letters_arrive_refused_with_their_first_route(pair: Pair, channel: AbstractChannel) -> None:
    queue, exchange, hand = names(pair), pair.unique("jobs"), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "#", declare="topic")])
    await opens(transport)
    async with Publisher(pair.amqp_url) as publisher:
        await publisher.publish(b"given up", exchange=exchange, routing_key="job.failed")
    message = await (await channel.get_queue(queue)).get(timeout=10)
    await message.reject(requeue=False)
    transport = RabbitMQ(pair.amqp_url, queue)
    async with consuming(transport, hand):
        (delivery,) = await hand.wait(1)
        assert delivery.queue == f"{queue}.dead"
        assert delivery.refusal is not None
        assert (delivery.refusal.code, delivery.refusal.detail[-8:]) == ("dead-lettered", "rejected")
        assert (delivery.origin.exchange, delivery.origin.routing_key) == (exchange, "job.failed")
        assert not delivery.pristine
        assert await transport.acknowledge(delivery)


async def test_a_dead_letter_exchange_may_have_a_name(pair: Pair, channel: AbstractChannel) -> None:
    queue, exchange, hand = names(pair), pair.unique("dlx"), Hand()
    settings = RabbitMQSettings(queue_type="classic", dead_letter_exchange=exchange)
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    await opens(transport)
    async with Publisher(pair.amqp_url) as publisher:
        await publisher.publish(b"given up", exchange="", routing_key=queue)
    await (await (await channel.get_queue(queue)).get(timeout=10)).reject(requeue=False)
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    async with consuming(transport, hand):
        (delivery,) = await hand.wait(1)
        assert delivery.refusal is not None
        assert delivery.origin.routing_key == queue


async def test_a_wrong_password_or_virtual_host_stops_the_start(pair: Pair) -> None:
    url = pair.amqp_url
    password = url.split("@")[0].rsplit(":", 1)[1]
    with pytest.raises(ConfigurationError, match="login") as refused:
        await opens(RabbitMQ(url.replace(f":{password}@", ":hunter2@"), "orders"))
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="virtual host"):
        await opens(RabbitMQ(f"{url}nowhere", "orders"))


@pytest.mark.controls_services
async def test_a_user_who_may_only_read_can_consume_a_queue_as_it_is_and_is_told_what_declaring_takes(
    pair: Pair, channel: AbstractChannel
) -> None:
    queue, hand = names(pair), Hand()
    await channel.declare_queue(queue, durable=True)
    await channel.default_exchange.publish(aio_pika.Message(b"one"), queue)
    for command in (["add_user", "reader", "reader"], ["set_permissions", "reader", "", "", ".*"]):
        await asyncio.to_thread(pair.broker.control, *command)
    try:
        url = f"amqp://reader:reader@{pair.broker.host}:{pair.broker.port}/"
        transport = RabbitMQ(url, queue, settings=PASSIVE)
        async with consuming(transport, hand):
            assert await transport.acknowledge((await hand.wait(1))[0])
        assert "permission to configure" in await refusal(RabbitMQ(url, queue))
    finally:
        await asyncio.to_thread(pair.broker.control, "delete_user", "reader")
