"""Everything that takes a consumer away: it is back within seconds, with the same prefetch and no slot lost."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest

from inbox.adapters.rabbitmq import Publisher, RabbitMQ, RabbitMQSettings
from inbox.errors import TopologyError, TransportError
from inbox.testing.conformance.transport import PATIENCE, Hand, consuming
from inbox.testing.faults import AmqpFraming, Catch, Cut, FaultProxy, is_amqp_ack
from tests.facts import wait_until
from tests.pairs import Pair

QUICK = RabbitMQSettings(heartbeat=1, reconnect_max_delay=0.5, connect_timeout=20)
ours = pytest.mark.controls_services


def queue_of(pair: Pair) -> str:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    return queue


def through(pair: Pair, proxy: FaultProxy) -> str:
    parts = urlsplit(pair.amqp_url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(pair.broker.host, pair.broker.port, framing=AmqpFraming, record=True) as made:
        yield made


async def publish(pair: Pair, queue: str, *bodies: bytes) -> None:
    async with Publisher(pair.amqp_url) as publisher:
        for body in bodies:
            await publisher.publish(body, exchange="", routing_key=queue)


async def settle_second_half(transport: RabbitMQ, hand: Hand, prefetch: int) -> None:
    """After a loss with `prefetch` in hand: they come again, no more than that, and can be settled."""
    again = (await hand.wait(2 * prefetch))[prefetch:]
    assert len(hand.deliveries) == 2 * prefetch
    for delivery in again:
        assert await transport.acknowledge(delivery)


@ours
@pytest.mark.parametrize("how", ["restart", "kill9"])
async def test_a_broker_that_comes_back_is_consumed_again(
    pair: Pair, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=2):
        await publish(pair, queue, b"0", b"1", b"2")
        first = (await hand.wait(2))[0]
        # A broker killed in the first moments of a quorum queue's life never serves that queue again: measured on
        # both, with any client. Nothing tells when it has noted it for good.
        await asyncio.sleep(1.5)
        await asyncio.to_thread(getattr(pair.broker, "stop" if how == "restart" else "kill9"))
        assert not await asyncio.wait_for(transport.acknowledge(first), 1) or transport.is_connected
        await wait_until(lambda: not transport.is_connected)
        assert not await asyncio.wait_for(transport.acknowledge(first), 1)
        await asyncio.to_thread(pair.broker.start)
        await settle_second_half(transport, hand, 2)
        assert await transport.acknowledge((await hand.wait(5))[4])
        assert sorted(hand.bodies[2:]) == [b"0", b"1", b"2"]  # in an order that a restart may change
    assert [record for record in caplog.records if record.name.startswith("inbox") and record.exc_info] == []


@ours
async def test_a_frozen_broker_is_noticed_by_its_silence(pair: Pair) -> None:
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=1):
        await publish(pair, queue, b"0")
        (first,) = await hand.wait(1)
        pair.broker.pause()
        try:
            await wait_until(lambda: not transport.is_connected)
            assert not await asyncio.wait_for(transport.acknowledge(first), 1)
        finally:
            pair.broker.resume()
        await settle_second_half(transport, hand, 1)


async def test_a_black_hole_is_noticed_by_its_silence(pair: Pair, proxy: FaultProxy) -> None:
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=1):
        await publish(pair, queue, b"0")
        (first,) = await hand.wait(1)
        proxy.stall()
        assert await asyncio.wait_for(transport.acknowledge(first), 1)  # handed to a socket that leads nowhere
        await wait_until(lambda: not transport.is_connected)
        proxy.resume()
        second = (await hand.wait(2))[1]
        assert second.body == b"0"
        assert await transport.acknowledge(second)


async def test_a_black_hole_before_its_consumers_are_started_is_noticed(pair: Pair, proxy: FaultProxy) -> None:
    """Nobody has a consumer yet whose end could be seen, and no heartbeat is missed in time."""
    queue, hand = queue_of(pair), Hand()
    settings = replace(QUICK, connect_timeout=1, heartbeat=60)
    transport = RabbitMQ(through(pair, proxy), queue, settings=settings)
    await transport.open(prefetch=1)
    await publish(pair, queue, b"0")
    proxy.stall()
    run = asyncio.create_task(transport.run(hand))
    try:
        await wait_until(lambda: not transport.is_connected and transport.generation == 1)
        proxy.resume()
        (first,) = await hand.wait(1)
        assert transport.generation == 2
        assert await transport.acknowledge(first)
    finally:
        await transport.stop()
        await run
        await transport.close()


@pytest.mark.parametrize("how", list(Cut))
async def test_a_cut_connection_is_made_again(pair: Pair, proxy: FaultProxy, how: Cut) -> None:
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=2):
        await publish(pair, queue, b"0", b"1", b"2")
        await hand.wait(2)
        proxy.cut(how)
        gc.collect()  # a consumer that nobody holds would be gone now
        await settle_second_half(transport, hand, 2)
        await hand.wait(5)
        assert transport.generation == 2


async def test_an_acknowledgement_lost_on_its_way_brings_the_event_again(pair: Pair, proxy: FaultProxy) -> None:
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
    async with consuming(transport, hand):
        await publish(pair, queue, b"0")
        trap = proxy.trap(is_amqp_ack, Catch.CUT)
        assert await transport.acknowledge((await hand.wait(1))[0])
        await trap.wait()
        second = (await hand.wait(2))[1]
        assert second.body == b"0"
        assert not second.pristine
        assert await transport.acknowledge(second)


async def test_a_settlement_after_the_loss_is_counted_and_settles_nothing(pair: Pair, proxy: FaultProxy) -> None:
    """Tags begin at 1 again on a new channel: a late one would settle somebody else's delivery."""
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=1):
        await publish(pair, queue, b"0", b"1")
        (first,) = await hand.wait(1)
        proxy.cut()
        await hand.wait(2)
        for _ in range(3):
            assert not await transport.acknowledge(first)
            assert not await transport.release(first)
        assert transport.late_settlements == 6
        assert len(hand.deliveries) == 2
        assert await transport.acknowledge(hand.deliveries[1])
        await hand.wait(3)
        assert sorted(hand.bodies[1:]) == [b"0", b"1"]


async def test_a_deleted_queue_is_declared_and_consumed_again(pair: Pair) -> None:
    """The broker tells by basic.cancel, which leaves connection and channel open."""
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand), await aio_pika.connect(pair.amqp_url) as connection:
        await publish(pair, queue, b"0")
        await hand.wait(1)
        async with connection.channel() as channel:
            await channel.queue_delete(queue)
        await wait_until(lambda: transport.generation == 2)
        await publish(pair, queue, b"1")
        assert (await hand.wait(2))[1].body == b"1"


async def test_a_deleted_queue_that_was_only_checked_stops_the_run_with_the_fix(pair: Pair) -> None:
    queue = queue_of(pair)
    async with await aio_pika.connect(pair.amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True)
        transport = RabbitMQ(pair.amqp_url, queue, settings=RabbitMQSettings(declare=False, reconnect_max_delay=0.5))
        await transport.open(prefetch=1)
        running = asyncio.create_task(transport.run(Hand()))
        try:
            await wait_until(lambda: transport.is_consuming)
            await channel.queue_delete(queue)
            with pytest.raises(TopologyError, match="does not exist"):
                await asyncio.wait_for(running, PATIENCE)
        finally:
            await transport.close()


async def test_an_exclusive_consumer_is_waited_for(pair: Pair) -> None:
    """Of a classic queue: quorum queues know none."""
    queue, hand = queue_of(pair), Hand()
    settings = RabbitMQSettings(queue_type="classic", reconnect_max_delay=0.5)
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    await transport.open(prefetch=1)
    await publish(pair, queue, b"0")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(1)
        other = await channel.declare_queue(queue, passive=True)

        async def keep(_: object) -> None:
            """Hold it, unsettled."""

        await other.consume(keep, exclusive=True)
        running = asyncio.create_task(transport.run(hand))
        await wait_until(lambda: transport.generation >= 3)  # it tries again and again, and does not die
        assert hand.deliveries == []
    assert (await hand.wait(1))[0].body == b"0"
    await transport.stop()
    await transport.close()
    await running


@ours
async def test_a_broker_in_alarm_still_delivers_and_takes_acknowledgements(pair: Pair) -> None:
    """It stops reading from connections that publish; ours only consumes."""
    queue, hand = queue_of(pair), Hand()
    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=1):
        await publish(pair, queue, b"0", b"1")
        await hand.wait(1)
        await asyncio.to_thread(pair.broker.control, "set_vm_memory_high_watermark", "0.0000001")
        try:
            async with Publisher(pair.amqp_url, RabbitMQSettings(confirm_timeout=0.5)) as publisher:
                with pytest.raises(TransportError, match="may or may not"):
                    await publisher.publish(b"x", exchange="", routing_key=queue)
            assert await transport.acknowledge(hand.deliveries[0])
            assert (await hand.wait(2))[1].body == b"1"
        finally:
            await asyncio.to_thread(pair.broker.control, "set_vm_memory_high_watermark", "0.4")


@ours
async def test_a_delivery_held_past_the_consumer_timeout_comes_again(pair: Pair) -> None:
    """Of a quorum queue: RabbitMQ 4.3 no longer has the timeout for classic ones."""
    queue, hand = queue_of(pair), Hand()
    settings = RabbitMQSettings(reconnect_max_delay=0.5)
    for expression in ("consumer_timeout, 1000", "channel_tick_interval, 500"):
        await asyncio.to_thread(pair.broker.control, "eval", f"application:set_env(rabbit, {expression}).")
    try:
        transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
        async with consuming(transport, hand, prefetch=1):
            await publish(pair, queue, b"0")
            (first,) = await hand.wait(1)
            second = (await hand.wait(2))[1]
            assert not await transport.acknowledge(first)
            assert await transport.acknowledge(second)
    finally:
        for expression in ("consumer_timeout, 1800000", "channel_tick_interval, 60000"):
            await asyncio.to_thread(pair.broker.control, "eval", f"application:set_env(rabbit, {expression}).")


async def test_stop_while_it_reconnects_ends_at_once(pair: Pair, proxy: FaultProxy) -> None:
    transport = RabbitMQ(through(pair, proxy), queue_of(pair), settings=QUICK)
    async with consuming(transport, Hand()) as running:
        await wait_until(lambda: transport.is_consuming)
        proxy.refuse()
        proxy.cut()
        await wait_until(lambda: not transport.is_connected)
        await transport.stop()
        await asyncio.wait_for(running, 5)


async def test_stop_while_a_black_hole_takes_the_log_in_ends_at_once(pair: Pair, proxy: FaultProxy) -> None:
    transport = RabbitMQ(through(pair, proxy), queue_of(pair), settings=QUICK)
    async with consuming(transport, Hand()) as running:
        await wait_until(lambda: transport.is_consuming)
        proxy.stall()
        proxy.cut()
        await wait_until(lambda: not transport.is_connected)
        await asyncio.sleep(0.5)  # now it is somewhere in its log-in
        await transport.stop()
        await asyncio.wait_for(running, 5)
        proxy.resume()


async def test_patience_ends_the_run(pair: Pair, proxy: FaultProxy) -> None:
    settings = RabbitMQSettings(reconnect_max_delay=0.1, reconnect_min_delay=0.05, patience=0.5)
    transport = RabbitMQ(through(pair, proxy), queue_of(pair), settings=settings)
    await transport.open(prefetch=1)
    running = asyncio.create_task(transport.run(Hand()))
    await wait_until(lambda: transport.is_consuming)
    proxy.refuse()
    proxy.cut()
    with pytest.raises(TransportError, match="cannot be reached"):
        await asyncio.wait_for(running, PATIENCE)
    await transport.close()


async def test_open_waits_for_a_broker_that_is_not_there_yet(pair: Pair, proxy: FaultProxy) -> None:
    settings = RabbitMQSettings(start_patience=PATIENCE, reconnect_min_delay=0.1, reconnect_max_delay=0.2)
    transport = RabbitMQ(through(pair, proxy), queue_of(pair), settings=settings)
    proxy.refuse()
    opening = asyncio.create_task(transport.open(prefetch=1))
    await asyncio.sleep(0.3)
    assert not opening.done()
    proxy.refuse(refusing=False)
    await asyncio.wait_for(opening, PATIENCE)
    await transport.close()


async def test_a_sink_that_raises_is_nobodys_to_swallow(pair: Pair) -> None:
    queue = queue_of(pair)

    def broken(_: Any) -> None:
        raise LookupError("a defect")

    transport = RabbitMQ(pair.amqp_url, queue, settings=QUICK)
    await transport.open(prefetch=1)
    running = asyncio.create_task(transport.run(broken))
    await publish(pair, queue, b"0")
    with pytest.raises(LookupError):
        await asyncio.wait_for(running, PATIENCE)
    await transport.close()


async def test_no_password_or_payload_is_in_our_logs(
    pair: Pair, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="inbox")
    queue, hand = queue_of(pair), Hand()
    url = through(pair, proxy)
    password = urlsplit(url).password or ""
    transport = RabbitMQ(url, queue, settings=QUICK)
    async with consuming(transport, hand):
        await publish(pair, queue, b"payload-of-someone")
        await hand.wait(1)
        await wait_until(lambda: transport.is_consuming)
        proxy.cut()
        await hand.wait(2)
    told = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("inbox"))
    assert "again" in told, "something was said about the loss"
    assert f":{password}@" not in told
    assert "payload-of-someone" not in told
    assert f":{password}@" not in str(transport.describe())


async def test_acknowledgements_travel_together(pair: Pair, proxy: FaultProxy) -> None:
    """Counted on the wire: far fewer frames than events, in whatever order they are settled."""
    queue, hand, events = queue_of(pair), Hand(), 200
    transport = RabbitMQ(through(pair, proxy), queue, settings=QUICK)
    async with consuming(transport, hand, prefetch=64):
        await publish(pair, queue, *(b"%d" % number for number in range(events)))
        for number in range(0, events, 8):
            group = (await hand.wait(number + 8))[number:]
            for delivery in reversed(group[:8]):
                assert await transport.acknowledge(delivery)
    frames = sum(is_amqp_ack(command) for command in proxy.commands)
    assert frames <= events // 4
    async with await aio_pika.connect(pair.amqp_url) as connection, connection.channel() as channel:
        left = await channel.declare_queue(queue, passive=True)
        assert left.declaration_result.message_count == 0
