"""Confirmed or not: what becomes of messages on their way, over a channel that answers as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq import RabbitMQSettings
from inbox.adapters.rabbitmq.encoding import ExactProperties
from inbox.adapters.rabbitmq.publisher import Link, Outlet, Returned
from inbox.adapters.rabbitmq.settings import parse_address
from inbox.errors import ConfigurationError, TransportError

RETURNED = DeliveredMessage(Basic.Return(312, "NO_ROUTE", "", "q"), ContentHeader(), b"", cast("Any", None))
ADDRESS = parse_address("amqp://someone:hunter2@127.0.0.1:1/")


class FakeConnection:
    def __init__(self) -> None:
        self.is_closed = False
        self.closed = 0
        self.may_close = asyncio.Event()
        self.may_close.set()

    async def close(self) -> None:
        await self.may_close.wait()
        self.is_closed = True
        self.closed += 1


class FakeChannel:
    max_content_size = 1000

    def __init__(self) -> None:
        self.is_closed = False
        self.sent: list[asyncio.Future[Any]] = []

    async def basic_publish(self, body: bytes, **_: Any) -> object:
        self.sent.append(asyncio.get_running_loop().create_future())
        return await self.sent[-1]


class World:
    """Links with a fake each, in the order in which they were made."""

    def __init__(self) -> None:
        self.settings = RabbitMQSettings(confirm_timeout=0.05, close_timeout=0.05)
        self.connections: list[FakeConnection] = []
        self.channels: list[FakeChannel] = []
        self.refusal: Exception | None = None
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.outlet = Outlet(ADDRESS, self.settings, None)

    async def open(self, *_: Any) -> Link:
        await self.may_open.wait()
        if self.refusal is not None:
            raise self.refusal
        self.connections.append(FakeConnection())
        self.channels.append(FakeChannel())
        return Link(cast("Any", self.connections[-1]), cast("Any", self.channels[-1]), self.settings)

    def publish(self, octets: bytes = b"\0\0") -> asyncio.Task[None]:
        properties = ExactProperties(octets, "id")
        return asyncio.create_task(self.outlet.publish(b"", exchange="", routing_key="q", properties=properties))

    async def sent(self, count: int, channel: int = 0) -> list[asyncio.Future[Any]]:
        await until(lambda: len(self.channels) > channel and len(self.channels[channel].sent) == count)
        return self.channels[channel].sent


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World()
    monkeypatch.setattr(Link, "open", made.open)
    yield made
    await made.outlet.close()


async def test_it_ends_when_the_broker_has_confirmed(world: World) -> None:
    first, second = world.publish(), world.publish()
    sent = await world.sent(2)
    sent[1].set_result(Basic.Ack(2))
    await second
    assert not first.done()
    sent[0].set_result(Basic.Ack(1))
    await first
    assert len(world.connections) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (PublishError(RETURNED, RETURNED.delivery), Returned),
        (DeliveryError(None, Basic.Nack(1)), TransportError),
        (ConnectionError(), TransportError),
        (None, TransportError),
        (Basic.Nack(1), TransportError),
    ],
)
async def test_all_but_a_confirmation_is_a_failure(world: World, answer: object, error: type[TransportError]) -> None:
    publishing = world.publish()
    (sent,) = await world.sent(1)
    if isinstance(answer, Exception):
        sent.set_exception(answer)
    else:
        sent.set_result(answer)
    with pytest.raises(TransportError) as failed:
        await publishing
    assert type(failed.value) is error


async def test_a_channel_that_was_closed_for_an_unknown_exchange_lets_it_be_asked_for(world: World) -> None:
    publishing = world.publish()
    (sent,) = await world.sent(1)
    sent.set_exception(ChannelNotFoundEntity("NOT_FOUND - no exchange 'orders' in vhost '/'"))
    with pytest.raises(TransportError, match=r"may or may not have it; is there no such exchange\?$"):
        await publishing


async def test_the_librarys_cancellation_is_a_lost_connection(world: World) -> None:
    publishing = world.publish()
    (await world.sent(1))[0].cancel()
    with pytest.raises(TransportError, match="may or may not"):
        await publishing


async def test_what_was_not_confirmed_in_time_is_not_cancelled_and_the_next_goes_another_way(world: World) -> None:
    """A message that is cancelled while it is sent shifts the numbers of all that follow."""
    late = world.publish()
    with pytest.raises(TransportError, match="may or may not"):
        await late
    assert not world.channels[0].sent[0].cancelled() or world.connections[0].closed
    following = world.publish()
    (await world.sent(1, channel=1))[0].set_result(Basic.Ack(1))
    await following
    await until(lambda: world.connections[0].closed == 1)
    assert world.connections[1].closed == 0


async def test_a_cancelled_waiter_cancels_no_message(world: World) -> None:
    publishing, other = world.publish(), world.publish()
    sent = await world.sent(2)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert not sent[0].cancelled()
    sent[0].set_exception(ConnectionError())  # seen by nobody, and no complaint
    sent[1].set_result(Basic.Ack(2))
    await other
    assert len(world.connections) == 1


async def test_a_link_in_doubt_is_closed_only_when_nobody_waits_on_it(world: World) -> None:
    first = world.publish()
    await world.sent(1)
    await asyncio.sleep(0.03)  # the second has this much more time than the first
    second = world.publish()
    await world.sent(2)
    with pytest.raises(TransportError):
        await first
    assert world.connections[0].closed == 0
    world.channels[0].sent[1].set_result(Basic.Ack(2))
    await second
    await until(lambda: world.connections[0].closed == 1)


@pytest.mark.parametrize("octets", [b"x" * 1000, b"x" * 989])
async def test_properties_longer_than_a_frame_harm_nobody_else(world: World, octets: bytes) -> None:
    neighbour = world.publish()
    await world.sent(1)
    with pytest.raises(TransportError, match="frame"):
        await world.publish(octets)
    world.channels[0].sent[0].set_result(Basic.Ack(1))
    await neighbour


async def test_a_route_that_is_too_long_harms_nobody_else(world: World) -> None:
    link = await world.outlet.link()
    for exchange, key in (("", "ü" * 128), ("ü" * 128, "")):
        with pytest.raises(TransportError, match="octets"):
            await link.publish(b"", exchange=exchange, routing_key=key, properties=ExactProperties(b"\0\0", "id"))
    assert world.channels[0].sent == []


async def test_a_lost_link_is_replaced_at_the_next_message(world: World) -> None:
    losses: list[Callable[[], None]] = [
        lambda: setattr(world.connections[0], "is_closed", True),
        lambda: setattr(world.channels[1], "is_closed", True),
    ]
    for number, lose in enumerate(losses):
        publishing = world.publish()
        (await world.sent(1, channel=number))[0].set_result(Basic.Ack(1))
        await publishing
        lose()
    publishing = world.publish()
    (await world.sent(1, channel=2))[0].set_result(Basic.Ack(1))
    await publishing


async def test_all_wait_for_one_link_and_each_is_told_that_there_is_none(world: World) -> None:
    world.may_open.clear()
    world.refusal = ConfigurationError("refused")
    publishing = [world.publish() for _ in range(3)]
    await asyncio.sleep(0)
    publishing[0].cancel()
    world.may_open.set()
    ended = await asyncio.gather(*publishing, return_exceptions=True)
    assert [type(error) for error in ended] == [asyncio.CancelledError, TransportError, TransportError]
    world.refusal = None
    following = world.publish()
    (await world.sent(1))[0].set_result(Basic.Ack(1))
    await following
    assert len(world.connections) == 1


async def test_closing_ends_every_wait_and_closes_what_is_being_opened(world: World) -> None:
    waiting = world.publish()
    await world.sent(1)
    world.may_open.clear()
    world.channels[0].is_closed = True
    opening = world.publish()
    await asyncio.sleep(0)
    for _ in range(2):
        await world.outlet.close()
    ended = await asyncio.gather(waiting, opening, return_exceptions=True)
    assert [type(error) for error in ended] == [TransportError, TransportError]
    assert world.connections[0].closed == 1
    with pytest.raises(TransportError, match="closed"):
        await world.publish()


async def test_a_good_bye_that_does_not_end_is_cut_short(world: World) -> None:
    publishing = world.publish()
    (await world.sent(1))[0].set_result(Basic.Ack(1))
    await publishing
    world.connections[0].may_close.clear()
    await asyncio.wait_for(world.outlet.close(), 5)
