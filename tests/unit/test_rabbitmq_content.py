"""What is read of a delivery's frames is what pamqp reads, whatever a peer sends."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq import content, undecodable
from inbox.adapters.rabbitmq.content import DELIVER, Content, Route, content_of, route_of
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText
from tests.unit.test_rabbitmq_undecodable import BAD_HEADERS, header_payload, short, table

SENT = datetime(2026, 6, 25, 12, 30, tzinfo=UTC)


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    undecodable.install()


def payload_of(properties: Basic.Properties, size: int = 2) -> bytes:
    return ContentHeader(body_size=size, properties=properties).marshal()


def by_pamqp(payload: bytes) -> Content:
    header = ContentHeader()
    header.unmarshal(payload)
    return content._content_of(header)


def route_by_pamqp(payload: bytes) -> Route:
    deliver = Basic.Deliver()
    deliver.unmarshal(payload[len(DELIVER) :])
    return content._route_of(deliver)


def outcome(function: Any, payload: bytes) -> object:
    """What it returns, with the types of all values; or what it raises."""
    try:
        return repr(function(payload))
    except Exception as error:  # noqa: BLE001 - the same one is expected of both
        return type(error)


FULL: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "headers": {"ce-id": "1", "n": 7, "t": SENT, "deep": {"a": [1, "x"]}, "octets": bytearray(b"\xff"), "none": None},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": SENT,
    "message_type": "t",
    "user_id": "guest",
    "app_id": "a",
}


def test_every_property_is_read_by_its_name() -> None:
    read = content_of(payload_of(Basic.Properties(**FULL)))
    assert read.size == 2
    assert read.content_type == "application/json"
    assert read.headers == FULL["headers"]
    others = {name: value for name, value in FULL.items() if name not in {"content_type", "headers", "message_type"}}
    assert read.properties == others | {"type": "t"}


@pytest.mark.parametrize("left_out", FULL)
def test_each_property_alone_and_each_left_out_is_read_as_by_pamqp(left_out: str) -> None:
    for given_ in ({left_out: FULL[left_out]}, {name: FULL[name] for name in FULL if name != left_out}):
        payload = payload_of(Basic.Properties(**given_))
        assert content_of(payload) == by_pamqp(payload)


def test_no_property_at_all_and_empty_ones_are_none() -> None:
    assert content_of(payload_of(Basic.Properties(), size=0)) == Content(0, {}, None, {})
    empty = header_payload(0x0880, b"\x00" + short(b""))  # priority 0, message_id ""
    assert content_of(empty) == Content(2, {}, None, {})


@pytest.mark.parametrize("payload", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_what_pamqp_cannot_read_is_marked(payload: bytes) -> None:
    read = content_of(payload)
    assert read.size == 2
    assert isinstance(read.headers, UnreadableHeaders)
    assert read.headers.raw == payload


ODD = {
    "octets that are no UTF-8": header_payload(0x2000, table(short(b"k") + b"S" + struct.pack(">I", 2) + b"\xff\xfe")),
    "a key twice": header_payload(0x2000, table(2 * (short(b"k") + b"S" + struct.pack(">I", 1) + b"a"))),
    "something behind the end": header_payload(0x8000, short(b"text/plain") + b"more"),
    "a text cut short": header_payload(0x8000, b"\x20text"),
    "a value longer than its table": header_payload(0x2000, table(short(b"k") + b"S" + struct.pack(">I", 99) + b"abc")),
    "the flag of cluster_id": header_payload(0x0004, short(b"c")),
    "the flag that nobody has": header_payload(0x0002, b""),
    "flags and nothing behind": header_payload(0xFFFC, b""),
}


@pytest.mark.parametrize("payload", ODD.values(), ids=ODD.keys())
def test_what_is_odd_is_read_as_by_pamqp(payload: bytes) -> None:
    assert outcome(content_of, payload) == outcome(by_pamqp, payload)


def test_a_header_without_its_fixed_part_is_an_error() -> None:
    with pytest.raises(struct.error):
        content_of(b"\x00\x3c")


VALUES: list[Any] = [
    *("", "text", "größe", "x" * 300, True, False, 0, 7, 2**31 - 1, 2**40, 1.5, None, SENT, Decimal("1.5")),
    *(bytearray(b"\xff"), bytearray(), ["a", 1, ["b"]], [], {"a": {"b": "c"}}, {}),
]
NAMES = ["ce-id", "ce-source", "cloudEvents:type", "größe", "", "k", "x-death", "n" * 120]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_producer_sends_is_read_as_by_pamqp(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    for _ in range(40):
        headers = {name: draw.choice(VALUES) for name in draw.sample(NAMES, draw.randint(0, 4))}
        names = draw.sample([name for name in FULL if name != "headers"], draw.randint(0, 4))
        properties = Basic.Properties(headers=headers, **{name: FULL[name] for name in names})
        payload = payload_of(properties, size=draw.choice([0, 2, 2**40]))
        assert outcome(content_of, payload) == outcome(by_pamqp, payload)
        for _ in range(8):
            broken = bytearray(payload)
            broken[draw.randrange(12, len(broken))] = draw.randrange(256)
            for octets in (bytes(broken), bytes(broken[: draw.randrange(12, len(broken))])):
                assert outcome(content_of, octets) == outcome(by_pamqp, octets)


def deliver(exchange: bytes, routing_key: bytes, *, tag: int = 7, flags: int = 0) -> bytes:
    return DELIVER + short(b"ctag") + struct.pack(">QB", tag, flags) + short(exchange) + short(routing_key)


def test_the_route_is_read() -> None:
    assert route_of(deliver(b"jobs", "größe".encode(), tag=2**40, flags=1)) == Route(2**40, True, "jobs", "größe")
    assert route_of(deliver(b"", b"orders")) == Route(7, False, "", "orders")


def test_a_route_that_is_no_text_is_marked() -> None:
    route = route_of(deliver(b"\xff", b"orders"))
    assert isinstance(route.exchange, UnreadableText)
    assert (route.tag, route.exchange.raw, route.routing_key) == (7, b"\xff", "orders")


@pytest.mark.parametrize("seed", range(8))
def test_whatever_route_a_peer_sends_is_read_as_by_pamqp(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    names = [b"", b"jobs", "größe".encode(), b"\xff", b"x" * 255]
    for _ in range(40):
        tag, flags = draw.choice([0, 1, 2**62]), draw.randrange(256)
        payload = deliver(draw.choice(names), draw.choice(names), tag=tag, flags=flags)
        for octets in (payload, payload + b"x", payload[: draw.randrange(len(DELIVER) + 1, len(payload))]):
            assert outcome(route_of, octets) == outcome(route_by_pamqp, octets)
