"""Messages that the client library cannot parse: they arrive marked, on one connection, beside healthy neighbours.

Published as raw frames on a socket, for no client library would write them.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest
from pamqp import commands, frame

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.settings import QueueKind
from inbox.testing.conformance.transport import Hand, consuming
from tests.pairs import Pair

CONTENT_TYPE, HEADERS, TIMESTAMP = 0x8000, 0x2000, 0x0040


def table(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def nested(depth: int, wrap: bytes) -> bytes:
    inner = table(b"")
    for _ in range(depth):
        inner = table(wrap + inner)
    return inner


BAD: dict[str, tuple[int, bytes]] = {
    "timestamp property": (TIMESTAMP, struct.pack(">Q", 2**64 - 1)),
    "timestamp in the table": (HEADERS, table(short(b"k") + b"T" + struct.pack(">Q", 2**64 - 1))),
    "key that is not UTF-8": (HEADERS, table(short(b"\xff\xfe") + b"t\x01")),
    "content type that is not UTF-8": (CONTENT_TYPE, short(b"\xff\xfe")),
    "tables nested deeply": (HEADERS, nested(3000, short(b"a") + b"F")),
    "arrays nested deeply": (HEADERS, table(short(b"a") + b"A" + nested(3000, b"A"))),
}


class RawPublisher:
    """As much of AMQP 0-9-1 as it takes to publish octets of one's own choice, confirmed."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = b""

    def log_in(self, user: str, password: str) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._read()
        response = f"\0{user}\0{password}"
        self._write(commands.Connection.StartOk({}, mechanism="PLAIN", response=response, locale="en_US"), 0)
        self._read()
        self._write(commands.Connection.TuneOk(2047, 131072, 0), 0)
        for request, channel in (
            (commands.Connection.Open("/"), 0),
            (commands.Channel.Open(), 1),
            (commands.Confirm.Select(), 1),
        ):
            self._write(request, channel)
            self._read()

    def publish(
        self, body: bytes, *, routing_key: bytes, exchange: bytes = b"", flags: int = 0, properties: bytes = b""
    ) -> object:
        """The broker's answer."""
        method = struct.pack(">HHH", 60, 40, 0) + short(exchange) + short(routing_key) + b"\x01"
        header = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
        for kind, payload in ((1, method), (2, header), (3, body)):
            self._socket.sendall(struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce")
        return self._read()

    def _write(self, request: Any, channel: int) -> None:
        self._socket.sendall(frame.marshal(request, channel))

    def _read(self) -> object:
        while True:
            if len(self._received) >= 7:
                end = 8 + struct.unpack(">I", self._received[3:7])[0]
                if len(self._received) >= end:
                    whole, self._received = self._received[:end], self._received[end:]
                    return frame.unmarshal(whole)[2]
            received = self._socket.recv(65536)
            assert received, "the broker closed the connection"
            self._received += received


@contextmanager
def raw_publisher(pair: Pair) -> Iterator[RawPublisher]:
    parts = urlsplit(pair.amqp_url)
    with socket.create_connection((pair.broker.host, pair.broker.port), timeout=10) as connection:
        publisher = RawPublisher(connection)
        publisher.log_in(parts.username or "", parts.password or "")
        yield publisher


async def make_queue(pair: Pair, kind: QueueKind = "quorum") -> RabbitMQ:
    queue = pair.unique("orders")
    pair.discard(f"{queue}.dead")
    settings = RabbitMQSettings(queue_type=kind)
    transport = RabbitMQ(pair.amqp_url, queue, settings=settings)
    await transport.open(prefetch=1)
    await transport.close()
    return RabbitMQ(pair.amqp_url, queue, settings=settings)


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_they_arrive_marked_and_their_neighbours_arrive_too(pair: Pair, kind: QueueKind) -> None:
    transport, hand = await make_queue(pair, kind), Hand()
    key = transport.topology.queue.encode()
    with raw_publisher(pair) as publisher:
        for name, (flags, properties) in BAD.items():
            answer = publisher.publish(name.encode(), routing_key=key, flags=flags, properties=properties)
            assert isinstance(answer, commands.Basic.Ack), name
            publisher.publish(b"healthy", routing_key=key)
    async with consuming(transport, hand, prefetch=3):
        for number in range(2 * len(BAD)):
            delivery = (await hand.wait(number + 1))[number]
            if delivery.body == b"healthy":
                assert delivery.refusal is None
            else:
                _, octets = BAD[delivery.body.decode()]
                assert delivery.refusal is not None
                assert delivery.refusal.code == "unreadable-header"
                raw = delivery.properties["raw_header"]
                assert isinstance(raw, bytes)
                assert octets[5:60] in raw
            assert await transport.acknowledge(delivery)
        assert transport.generation == 1
    assert len(hand.deliveries) == 2 * len(BAD)


async def test_a_route_that_is_not_utf8_arrives_marked(pair: Pair) -> None:
    """Both brokers route it; and it would kill the connection in the frame before the header."""
    transport, hand = await make_queue(pair), Hand()
    exchange = pair.unique("jobs")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        made = await channel.declare_exchange(exchange, "topic", durable=True)
        await (await channel.get_queue(transport.topology.queue)).bind(made, "#")
    with raw_publisher(pair) as publisher:
        answer = publisher.publish(b"odd", exchange=exchange.encode(), routing_key=b"job.\xff")
        assert isinstance(answer, commands.Basic.Ack)
        publisher.publish(b"healthy", exchange=exchange.encode(), routing_key=b"job.completed")
    async with consuming(transport, hand):
        odd, healthy = await hand.wait(2)
        assert odd.refusal is not None
        assert odd.refusal.code == "unreadable-route"
        assert odd.properties["raw_routing_key"] == b"job.\xff"
        assert healthy.refusal is None
        for delivery in (odd, healthy):
            assert await transport.acknowledge(delivery)
        assert transport.generation == 1


async def test_an_odd_delivery_mode_loses_no_slot(pair: Pair) -> None:
    """RabbitMQ 4 lets it through, and aio-pika's own message object raises over it; 3.10 refuses it."""
    transport, hand = await make_queue(pair), Hand()
    key = transport.topology.queue.encode()
    with raw_publisher(pair) as publisher:
        answer = publisher.publish(b"odd", routing_key=key, flags=0x1000, properties=b"\x07")
    if pair.broker.version < (4,):
        assert isinstance(answer, commands.Channel.Close)
        return
    async with consuming(transport, hand, prefetch=1):
        (delivery,) = await hand.wait(1)
        assert delivery.properties["delivery_mode"] == 7
        assert await transport.acknowledge(delivery)


@pytest.mark.parametrize(
    "octets", [table(short(b"k") + b"Q12345678"), struct.pack(">I", 1000) + b"abc"], ids=["field type", "truncated"]
)
async def test_what_the_broker_cannot_parse_either_never_gets_in(pair: Pair, octets: bytes) -> None:
    transport = await make_queue(pair)
    with raw_publisher(pair) as publisher:
        answer = publisher.publish(
            b"x", routing_key=transport.topology.queue.encode(), flags=HEADERS, properties=octets
        )
    assert isinstance(answer, commands.Connection.Close)
    await transport.close()
