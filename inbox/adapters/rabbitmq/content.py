"""The three frames of a delivery, read at a fraction of what the client library takes to make objects of them.

AMQP 0-9-1, 4.2.6: a `basic.deliver` method is followed by a content header and as many content bodies as it says. What
is read here is what pamqp reads, which every test of this module is about: whatever is not plain is left to pamqp
itself, with the wrapping of `inbox.adapters.rabbitmq.undecodable`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pamqp import decode
from pamqp.commands import Basic
from pamqp.header import ContentHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiormq.abc import DeliveredMessage

__all__ = ["DELIVER", "Content", "Message", "Route", "content_of", "message_of", "present", "route_of"]

#: Class and method of `basic.deliver` (AMQP 0-9-1, 1.8.3.13).
DELIVER: Final = b"\x00\x3c\x00\x3c"

_HEADER: Final = struct.Struct(">HHQH")  # class id, weight, body size, property flags: AMQP 0-9-1, 4.2.6.1
_TAG: Final = struct.Struct(">QB")  # delivery tag, redelivered
_LENGTH: Final = struct.Struct(">I")
_LONG_STRING: Final = ord("S")
#: One was `cluster_id`, one nobody's, and the last one says that more flags follow.
_UNUSED_FLAGS: Final = 0x0007


class Route(NamedTuple):
    """What `basic.deliver` says."""

    tag: int
    is_redelivered: bool
    exchange: str
    routing_key: str


class Content(NamedTuple):
    """What a content header says.

    Attributes:
        size: octets of the body.
        headers: as pamqp types them.
        content_type: media type of the body.
        properties: the other ones that are set, neither empty nor zero.
    """

    size: int
    headers: Mapping[str, Any]
    content_type: str | None
    properties: dict[str, object]


class Message(NamedTuple):
    """One delivery, whoever has read it."""

    route: Route
    content: Content
    body: bytes


def route_of(payload: bytes) -> Route:
    """Read the payload of a `basic.deliver` method frame."""
    try:
        return _plain_route(payload)
    except (IndexError, ValueError, struct.error):
        deliver = Basic.Deliver()
        deliver.unmarshal(payload[len(DELIVER) :])
        return _route_of(deliver)


def content_of(payload: bytes) -> Content:
    """Read the payload of a content header frame.

    Raises:
        Exception: it is too short to say how long the body is. A channel that sends this cannot be understood any more.
    """
    try:
        return _plain_content(payload)
    except Exception:  # noqa: BLE001 - whatever pamqp's own parsers raise
        header = ContentHeader()
        header.unmarshal(payload)
        return _content_of(header)


def message_of(delivered: DeliveredMessage) -> Message:
    """A delivery that the client library has read."""
    return Message(_route_of(delivered.delivery), _content_of(delivered.header), delivered.body)


def _route_of(deliver: Any) -> Route:
    return Route(
        deliver.delivery_tag or 0, bool(deliver.redelivered), deliver.exchange or "", deliver.routing_key or ""
    )


def _content_of(header: ContentHeader) -> Content:
    properties = header.properties
    return Content(
        header.body_size, properties.headers or {}, properties.content_type, present(properties, "message_type")
    )


def present(source: object, type_name: str) -> dict[str, object]:
    """The properties beside content type and headers that are set, neither empty nor zero.

    Args:
        source: an object of a client library that has them as attributes.
        type_name: what it calls `type`.
    """
    found = {name: getattr(source, type_name if name == "type" else name, None) for name, _, _ in _PROPERTIES}
    return {name: value for name, value in found.items() if value not in (None, "", 0)}


# ------------------------------------------------------------------ plain ones
def _plain_route(payload: bytes) -> Route:
    """Raises: ValueError, IndexError, struct.error: it is not plain."""
    at = len(DELIVER) + 1 + payload[len(DELIVER)]  # behind the consumer's tag, which we chose
    tag, flags = _TAG.unpack_from(payload, at)
    exchange, at = _short_string(payload, at + _TAG.size)
    routing_key, at = _short_string(payload, at)
    _require_end(payload, at)
    return Route(tag, bool(flags & 1), exchange, routing_key)


def _plain_content(payload: bytes) -> Content:
    """Raises: Exception: it is not plain."""
    _, _, size, flags = _HEADER.unpack_from(payload)
    if flags & _UNUSED_FLAGS:
        raise ValueError("a property that AMQP 0-9-1 does not have")
    at = _HEADER.size
    content_type: str | None = None
    headers: dict[str, Any] = {}
    properties: dict[str, object] = {}
    if flags & _CONTENT_TYPE:
        content_type, at = _short_string(payload, at)
    if flags & _CONTENT_ENCODING:
        properties["content_encoding"], at = _short_string(payload, at)
    if flags & _HEADERS:
        headers, at = _table(payload, at)
    rest = flags & _REST
    if rest:
        for name, flag, read in _BEHIND_HEADERS:
            if rest & flag:
                properties[name], at = read(payload, at)
    _require_end(payload, at)
    return Content(size, headers, content_type, {name: value for name, value in properties.items() if value})


def _require_end(payload: bytes, at: int) -> None:
    """A slice beyond the end is shorter, and nothing is raised: but then this is not where the payload ends."""
    if at != len(payload):
        raise ValueError("the fields do not end where the payload does")


def _short_string(payload: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + payload[at]
    return payload[at + 1 : end].decode(), end


def _table(payload: bytes, at: int) -> tuple[dict[str, Any], int]:
    """A field table; of its values only texts are read here, which nearly all are."""
    table: dict[str, Any] = {}
    at, end = at + 4, at + 4 + _LENGTH.unpack_from(payload, at)[0]
    while at < end:
        value_at = at + 1 + payload[at]
        name = payload[at + 1 : value_at].decode()
        if payload[value_at] == _LONG_STRING:
            text_at = value_at + 5
            at = text_at + _LENGTH.unpack_from(payload, value_at + 1)[0]
            table[name] = payload[text_at:at].decode()
        else:
            consumed, table[name] = decode.embedded_value(payload[value_at:])
            at = value_at + consumed
    if at != end:
        raise ValueError("a value reaches beyond its table")
    return table, end


def _octet(payload: bytes, at: int) -> tuple[int, int]:
    return payload[at], at + 1


def _timestamp(payload: bytes, at: int) -> tuple[object, int]:
    consumed, moment = decode.timestamp(payload[at : at + 8])
    return moment, at + consumed


#: Properties beside content type and headers, with their flags and how they are read; in the order of the wire
#: (AMQP 0-9-1, 1.8.3, "Properties").
_PROPERTIES: Final[tuple[tuple[str, int, Callable[[bytes, int], tuple[Any, int]]], ...]] = (
    ("content_encoding", 0x4000, _short_string),
    ("delivery_mode", 0x1000, _octet),
    ("priority", 0x0800, _octet),
    ("correlation_id", 0x0400, _short_string),
    ("reply_to", 0x0200, _short_string),
    ("expiration", 0x0100, _short_string),
    ("message_id", 0x0080, _short_string),
    ("timestamp", 0x0040, _timestamp),
    ("type", 0x0020, _short_string),
    ("user_id", 0x0010, _short_string),
    ("app_id", 0x0008, _short_string),
)
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_REST: Final = 0x1FF8
_BEHIND_HEADERS: Final = _PROPERTIES[1:]
