"""Deliveries are taken out of the stream; everything else is the client library's, octet for octet."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import aiormq.connection
import pytest
from aiormq.exceptions import AMQPConnectionError
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from inbox.adapters.rabbitmq.bypass import Bypass
from inbox.adapters.rabbitmq.content import Message

OURS, OTHER = 3, 4
QOS_OK = commands.Basic.QosOk()


def delivery(body: bytes, *, channel: int = OURS, tag: int = 1, pieces: int = 1) -> bytes:
    """The frames of one delivery."""
    size = -(-len(body) // pieces) if body else 1
    bodies = [ContentBody(body[at : at + size]) for at in range(0, len(body), size)]
    header = ContentHeader(body_size=len(body), properties=commands.Basic.Properties(message_id=f"m{tag}"))
    parts: list[Any] = [commands.Basic.Deliver("ctag", tag, False, "jobs", "orders"), header, *bodies]
    return b"".join(frame.marshal(part, channel) for part in parts)


class Wire:
    """A connection's receiver with `OURS` taken, and what came of it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.bypass = Bypass()
        with self.bypass.open():
            self.receiver: Any = aiormq.connection.FrameReceiver(self.reader)
        self.taken: list[Message] = []

    def take(self) -> None:
        self.bypass.take(OURS, self.taken.append)

    async def frame(self) -> Any:
        """The next one for the client library: its channel and name."""
        _, channel, found = await asyncio.wait_for(self.receiver.get_frame(), 10)
        return channel, found.name

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.taken]


@pytest.fixture
async def wire() -> Wire:
    wire = Wire()
    wire.take()
    return wire


async def test_what_a_channel_delivers_is_taken_and_a_heartbeat_tells_that_the_peer_lives(wire: Wire) -> None:
    wire.reader.feed_data(delivery(b"one") + delivery(b"", tag=2) + delivery(b"three", tag=3, pieces=3))
    assert await wire.frame() == (0, Heartbeat.name)
    assert wire.bodies == [b"one", b"", b"three"]
    assert [message.route.tag for message in wire.taken] == [1, 2, 3]
    assert wire.taken[2].content.properties == {"message_id": "m3"}
    wire.reader.feed_data(frame.marshal(QOS_OK, OURS))
    assert await wire.frame() == (OURS, QOS_OK.name)


async def test_other_channels_and_other_frames_are_the_librarys_in_their_order(wire: Wire) -> None:
    theirs = delivery(b"theirs", channel=OTHER)
    wire.reader.feed_data(delivery(b"a") + theirs + frame.marshal(QOS_OK, OURS) + delivery(b"b", tag=2))
    assert await wire.frame() == (OTHER, "Basic.Deliver")
    assert await wire.frame() == (OTHER, ContentHeader.name)
    assert await wire.frame() == (OTHER, ContentBody.name)
    assert await wire.frame() == (OURS, QOS_OK.name)
    assert await wire.frame() == (0, Heartbeat.name)
    assert wire.bodies == [b"a", b"b"]


async def test_channels_may_take_turns_between_the_frames_of_a_delivery(wire: Wire) -> None:
    ours, theirs = delivery(b"ours", pieces=2), delivery(b"theirs", channel=OTHER, pieces=2)
    for each in (ours, theirs):
        assert len(frames_of(each)) == 4
    mixed = [part for pair in zip(frames_of(ours), frames_of(theirs), strict=True) for part in pair]
    wire.reader.feed_data(b"".join(mixed))
    names = [await wire.frame() for _ in range(4)]
    assert names == [(OTHER, name) for name in ("Basic.Deliver", "ContentHeader", "ContentBody", "ContentBody")]
    assert wire.bodies == [b"ours"]


def frames_of(octets: bytes) -> list[bytes]:
    """Cut a stream into frames."""
    cut = []
    while octets:
        size = 7 + int(struct.unpack_from(">I", octets, 3)[0]) + 1
        cut.append(octets[:size])
        octets = octets[size:]
    return cut


@pytest.mark.parametrize("seed", range(8))
async def test_it_does_not_matter_where_the_stream_is_cut(wire: Wire, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    bodies = [bytes([number]) * draw.choice([0, 1, 500, 70_000]) for number in range(20)]
    stream = b"".join(
        delivery(body, tag=number, pieces=draw.randint(1, 3))
        + (frame.marshal(QOS_OK, OTHER) if number % 4 == 0 else b"")
        for number, body in enumerate(bodies)
    )
    reading = asyncio.create_task(collect(wire, 5))
    while stream:
        at = draw.choice([1, 3, 7, 8, 100, 3_000, 100_000])
        wire.reader.feed_data(stream[:at])
        stream = stream[at:]
        await asyncio.sleep(0)
    assert await reading == [(OTHER, QOS_OK.name)] * 5
    while len(wire.taken) < len(bodies):
        await wire.frame()
    assert wire.bodies == bodies


async def collect(wire: Wire, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        got = await wire.frame()
        if got != (0, Heartbeat.name):
            found.append(got)
    return found


async def test_until_a_channel_asks_everything_is_the_librarys() -> None:
    wire = Wire()
    wire.reader.feed_data(delivery(b"early") + frame.marshal(QOS_OK, OURS))
    assert await wire.frame() == (OURS, "Basic.Deliver")
    wire.take()
    # The rest of that delivery is the library's as well: it has the beginning.
    assert [await wire.frame() for _ in range(3)] == [
        (OURS, ContentHeader.name),
        (OURS, ContentBody.name),
        (OURS, QOS_OK.name),
    ]
    wire.reader.feed_data(delivery(b"late", tag=2))
    assert await wire.frame() == (0, Heartbeat.name)
    assert wire.bodies == [b"late"]


async def test_a_channel_that_is_forgotten_is_the_librarys_again(wire: Wire) -> None:
    wire.bypass.forget(OURS)
    wire.bypass.forget(OURS)
    assert not wire.bypass.is_used
    wire.reader.feed_data(delivery(b"x"))
    assert await wire.frame() == (OURS, "Basic.Deliver")
    assert wire.taken == []


@pytest.mark.parametrize("rest", [b"", delivery(b"cut short")[:-3]], ids=["between frames", "amid one"])
async def test_the_end_of_the_connection_is_told_as_the_library_tells_it(wire: Wire, rest: bytes) -> None:
    reading = asyncio.create_task(collect(wire, 1))
    await asyncio.sleep(0)
    wire.reader.feed_data(rest)
    wire.reader.feed_eof()
    with pytest.raises(AMQPConnectionError, match="unexpectedly closed"):
        await reading


async def test_a_connection_that_is_reset_is_told_as_the_library_tells_it(wire: Wire) -> None:
    reading = asyncio.create_task(wire.receiver.get_frame())
    await asyncio.sleep(0)
    wire.reader.set_exception(ConnectionResetError("reset"))
    with pytest.raises(AMQPConnectionError, match="reset"):
        await reading


async def test_a_frame_without_its_end_is_the_librarys_to_refuse(wire: Wire) -> None:
    broken = bytearray(frames_of(delivery(b"x"))[0])
    broken[-1] = 0
    wire.reader.feed_data(bytes(broken))
    with pytest.raises(Exception, match="Last byte error"):
        await wire.frame()
    assert wire.taken == []


async def test_a_header_that_does_not_say_how_long_the_body_is_ends_the_connection(wire: Wire) -> None:
    deliver = frames_of(delivery(b"x"))[0]
    wire.reader.feed_data(deliver + struct.pack(">BHI", 2, OURS, 2) + b"\x00\x3c\xce")
    with pytest.raises(struct.error):
        await wire.frame()
    assert wire.taken == []


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [0, 1, 1], [0, 1, 0]], ids=str)
async def test_frames_out_of_order_end_the_connection(wire: Wire, order: list[int]) -> None:
    frames = frames_of(delivery(b"x"))
    wire.reader.feed_data(b"".join(frames[number] for number in order))
    with pytest.raises(ValueError, match="out of order"):
        await wire.frame()
    assert wire.taken == []


async def test_a_channel_that_is_closed_amid_a_delivery_is_closed(wire: Wire) -> None:
    beginning = b"".join(frames_of(delivery(b"x"))[:2])
    wire.reader.feed_data(beginning + frame.marshal(commands.Channel.Close(404, "gone", 0, 0), OURS))
    assert await wire.frame() == (OURS, "Channel.Close")
    assert wire.taken == []


async def test_whoever_connects_elsewhere_gets_the_librarys_own() -> None:
    Wire()
    reader = asyncio.StreamReader()
    assert type(aiormq.connection.FrameReceiver(reader)).__module__ == "aiormq.connection"


async def test_a_library_that_reads_in_another_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(aiormq.connection, "FrameReceiver")
    with Bypass().open():
        assert not hasattr(aiormq.connection, "FrameReceiver")
