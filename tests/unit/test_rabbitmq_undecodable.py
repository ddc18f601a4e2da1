"""Frames that pamqp cannot parse are marked; all others are parsed as before."""

import struct

import pytest
from pamqp import frame
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq import undecodable
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText

CONTENT_TYPE, HEADERS, TIMESTAMP = 0x8000, 0x2000, 0x0040


def table(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def nested(depth: int) -> bytes:
    inner = table(b"")
    for _ in range(depth):
        inner = table(short(b"a") + b"F" + inner)
    return inner


def header_payload(flags: int, properties: bytes, *, size: int = 2) -> bytes:
    return struct.pack(">HHQH", 60, 0, size, flags) + properties


def parse_frame(kind: int, payload: bytes) -> object:
    raw = struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"
    consumed, channel, parsed = frame.unmarshal(raw)
    assert (consumed, channel) == (len(raw), 1)
    return parsed


BAD_HEADERS = {
    "timestamp property": header_payload(TIMESTAMP, struct.pack(">Q", 2**64 - 1)),
    "timestamp in the table": header_payload(HEADERS, table(short(b"k") + b"T" + struct.pack(">Q", 2**64 - 1))),
    "key that is not UTF-8": header_payload(HEADERS, table(short(b"\xff\xfe") + b"t\x01")),
    "content type that is not UTF-8": header_payload(CONTENT_TYPE, short(b"\xff")),
    "flags that go on": header_payload(0x8001, struct.pack(">H", 0) + short(b"text/plain")),
    "array longer than the frame": header_payload(
        HEADERS, table(short(b"k") + b"A" + struct.pack(">I", 1000) + b"t\x01")
    ),
    "deep nesting": header_payload(HEADERS, nested(3000)),
    "unknown field type": header_payload(HEADERS, table(short(b"k") + b"Q12345678")),
    "table longer than the frame": header_payload(HEADERS, struct.pack(">I", 1000) + b"abc"),
}


@pytest.fixture(autouse=True)
def installed() -> None:
    undecodable.install()


@pytest.mark.parametrize("payload", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_a_header_that_cannot_be_parsed_is_marked(payload: bytes) -> None:
    parsed = parse_frame(2, payload)
    assert isinstance(parsed, ContentHeader)
    assert parsed.body_size == 2
    marked = parsed.properties.headers
    assert isinstance(marked, UnreadableHeaders)
    assert marked.raw == payload
    assert parsed.properties.content_type is None


def test_a_header_without_its_fixed_part_still_kills_the_connection() -> None:
    with pytest.raises(Exception, match=r"."):
        parse_frame(2, b"\x00\x3c")


def test_a_good_header_is_parsed_as_before() -> None:
    properties = Basic.Properties(content_type="text/plain", headers={"a": bytearray(b"x")}, message_type="t")
    raw = frame.marshal(ContentHeader(body_size=9, properties=properties), 1)
    _, _, parsed = frame.unmarshal(raw)
    assert isinstance(parsed, ContentHeader)
    assert parsed.properties == properties
    assert type(parsed.properties.headers) is dict


def deliver_payload(exchange: bytes, routing_key: bytes, *, redelivered: bool) -> bytes:
    start = struct.pack(">HH", 60, 60) + short(b"ctag1")
    return start + struct.pack(">QB", 2**40, redelivered) + short(exchange) + short(routing_key)


@pytest.mark.parametrize("redelivered", [True, False])
def test_a_route_that_is_not_utf8_is_marked(redelivered: bool) -> None:
    parsed = parse_frame(1, deliver_payload("é".encode(), b"a.\xff", redelivered=redelivered))
    assert isinstance(parsed, Basic.Deliver)
    assert (parsed.consumer_tag, parsed.delivery_tag, parsed.redelivered) == ("ctag1", 2**40, redelivered)
    assert parsed.exchange == "é"
    assert not isinstance(parsed.exchange, UnreadableText)
    assert isinstance(parsed.routing_key, UnreadableText)
    assert parsed.routing_key.raw == b"a.\xff"


def test_a_good_route_is_parsed_as_before() -> None:
    parsed = parse_frame(1, deliver_payload(b"jobs", b"job.completed", redelivered=False))
    assert isinstance(parsed, Basic.Deliver)
    assert type(parsed.routing_key) is str


def test_installing_twice_wraps_once() -> None:
    before = ContentHeader.unmarshal, Basic.Deliver.unmarshal
    undecodable.install()
    assert (ContentHeader.unmarshal, Basic.Deliver.unmarshal) == before
