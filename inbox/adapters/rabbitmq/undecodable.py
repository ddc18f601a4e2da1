"""Frames that the client library cannot parse, made harmless.

One message with a timestamp out of range, a header name that is not UTF-8, a table nested too deeply or
a routing key that is not UTF-8 passes both brokers' checks, and then makes pamqp raise inside the frame reader:
the connection dies, the broker delivers the message again, and the consumer loops for ever while a delivery
limit destroys its healthy neighbours. `install` wraps the two parsers concerned for the whole process. The
wrappers act only where the connection would have died: everything that can be parsed is parsed as before.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Self

from pamqp import decode
from pamqp.commands import Basic
from pamqp.header import ContentHeader

#: The one header of a message whose real ones cannot be read; an empty table would be lost on the way.
MARK = "x-inbox-unreadable"

_HEADER = struct.Struct(">HHQ")  # class id, weight, body size: AMQP 0-9-1, 4.2.6.1
_LENGTH = struct.Struct(">I")  # of a table or an array: AMQP 0-9-1, 4.2.5.5
_FLAGS = struct.Struct(">H")  # which properties are there: AMQP 0-9-1, 4.2.6.1
_TAG_AND_FLAG = struct.Struct(">QB")  # delivery tag, redelivered: AMQP 0-9-1, basic.deliver


class UnreadableHeaders(dict[str, Any]):
    """Stands where the header table would: a type that no peer can send.

    Attributes:
        raw: the content header frame's payload as it came, for the quarantine.
    """

    def __init__(self, raw: bytes) -> None:
        # The quarantine tells deliveries apart by their headers: two that cannot be read are not the same one.
        super().__init__({MARK: hashlib.sha256(raw).hexdigest()})
        self.raw = raw


class UnreadableText(str):
    """A name of a route that is not UTF-8, with the bad octets escaped.

    Attributes:
        raw: its octets as they came.
    """

    __slots__ = ("raw",)
    raw: bytes

    def __new__(cls, raw: bytes) -> Self:
        made = super().__new__(cls, raw.decode("utf-8", "backslashreplace"))
        made.raw = raw
        return made


def install() -> None:
    """Wrap pamqp's parsers, once for the process. Called by every transport that opens."""
    if not getattr(ContentHeader.unmarshal, "_inbox", False):
        _wrap_content_header()
        _wrap_field_array()
        _wrap_deliver()


def _wrap_content_header() -> None:
    parse = ContentHeader.unmarshal

    def unmarshal(self: ContentHeader, data: bytes) -> None:
        try:
            _require_one_word(data)
            parse(self, data)
        except Exception:  # noqa: BLE001 - whatever is raised here kills the connection
            # Shorter than the fixed part, and nobody knows how long the body is: then it must die.
            _, _, self.body_size = _HEADER.unpack_from(data)
            self.properties = Basic.Properties(headers=UnreadableHeaders(bytes(data)))

    unmarshal._inbox = True  # type: ignore[attr-defined]  # noqa: SLF001 - our own mark
    ContentHeader.unmarshal = unmarshal  # type: ignore[method-assign]


def _require_one_word(data: bytes) -> None:
    """No property of AMQP 0-9-1 needs a second word of flags, and before version 4 pamqp never comes back from one.

    Raises:
        ValueError, struct.error: there is one, or not even the first.
    """
    if _FLAGS.unpack_from(data, _HEADER.size)[0] & 1:
        raise ValueError("a second word of flags")


def _wrap_field_array() -> None:
    """Before version 4 pamqp reads an array that says it is longer than the frame for ever, and keeps all of it."""
    parse = decode.TABLE_MAPPING[b"A"]

    def field_array(value: bytes) -> tuple[int, Any]:
        if _LENGTH.unpack_from(value)[0] > len(value) - _LENGTH.size:
            raise ValueError("an array longer than the frame")
        return parse(value)

    decode.TABLE_MAPPING[b"A"] = field_array


def _wrap_deliver() -> None:
    parse = Basic.Deliver.unmarshal

    def unmarshal(self: Basic.Deliver, data: bytes) -> None:
        try:
            parse(self, data)
        except Exception:  # noqa: BLE001 - whatever is raised here kills the connection
            _read_deliver(self, bytes(data))

    Basic.Deliver.unmarshal = unmarshal  # type: ignore[method-assign, assignment]


def _read_deliver(frame: Basic.Deliver, data: bytes) -> None:
    tag, rest = _short_string(data)
    frame.consumer_tag = tag.decode("ascii")  # we chose it
    frame.delivery_tag, redelivered = _TAG_AND_FLAG.unpack_from(rest)
    frame.redelivered = bool(redelivered & 1)
    exchange, rest = _short_string(rest[_TAG_AND_FLAG.size :])
    routing_key, _ = _short_string(rest)
    frame.exchange = _text(exchange)
    frame.routing_key = _text(routing_key)


def _short_string(data: bytes) -> tuple[bytes, bytes]:
    end = 1 + data[0]
    return data[1:end], data[end:]


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return UnreadableText(raw)
