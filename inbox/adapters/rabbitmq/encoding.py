"""Content headers written octet by octet, and proved to be read as what they were written from.

The client library's own encoder changes some of what its decoder hands out: it refuses a text that is not UTF-8, halves
the precision of a number with a fraction, cuts a header's name after 128 octets, takes the milliseconds off a
timestamp and, in old versions, spoils small negative numbers. A copy of an event has to be exact, for a signature may
cover every header; so what is written here is read back, and compared by type and value, before it is sent.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pamqp.commands import Basic
from pamqp.header import ContentHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: From here on the client library takes a timestamp for milliseconds, which some producers send.
_MILLISECONDS_FROM: Final = 0xFFFFFFFF
_FIXED_PART: Final = struct.Struct(">HHQ")  # class id, weight, body size: AMQP 0-9-1, 4.2.6.1
_BASIC: Final = 60


class InexactError(ValueError):
    """A value that AMQP 0-9-1 has no exact form for."""


class ExactProperties(Basic.Properties):
    """Properties whose octets are settled, so that the client library cannot fail or change its mind over them.

    Args:
        octets: property flags and list.
        message_id: under which the client library finds a message that comes back.
    """

    def __init__(self, octets: bytes, message_id: str) -> None:
        super().__init__(message_id=message_id)
        self.octets = octets

    def marshal(self) -> bytes:
        """The octets as they are."""
        return self.octets


def encode_properties(properties: Mapping[str, object], headers: Mapping[str, object], message_id: str) -> bytes:
    """Property flags and property list (AMQP 0-9-1, 4.2.6.1).

    Args:
        properties: by the client library's names; one that is None is left out.
        headers: the header table; left out where it is empty.
        message_id: the property of that name.

    Raises:
        InexactError: a value has no form.
    """
    given = {**properties, "headers": dict(headers) or None, "message_id": message_id}
    flags, parts = 0, []
    try:
        for name, (bit, encode) in _PROPERTIES.items():
            if (value := given.pop(name, None)) is not None:
                flags |= 1 << bit
                parts.append(encode(value))
    except (struct.error, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise InexactError("a header or property has no form in AMQP") from error
    if given:
        raise InexactError("a property has no place in AMQP")
    return struct.pack(">H", flags) + b"".join(parts)


def exact_properties(
    properties: Mapping[str, object], headers: Mapping[str, object], message_id: str
) -> ExactProperties:
    """As `encode_properties`, and proved: read back, each value is what it was, in value and in type.

    Raises:
        InexactError: a value has no form, or another one is read back.
    """
    octets = encode_properties(properties, headers, message_id)
    parsed = ContentHeader()
    try:
        parsed.unmarshal(_FIXED_PART.pack(_BASIC, 0, 0) + octets)
        given = {**properties, "headers": dict(headers) or None, "message_id": message_id}
        changed = [name for name in _PROPERTIES if not is_same(getattr(parsed.properties, name), given.get(name))]
    except (struct.error, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise InexactError("a header or property cannot be read back") from error
    if changed:
        raise InexactError(f"what is read back differs in {', '.join(changed)}")
    return ExactProperties(octets, message_id)


def is_same(one: object, other: object) -> bool:
    """Whether both are the same in type and value, and so is everything in them."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    exact = next((exact for kind, exact in _EXACT if isinstance(one, kind)), None)
    return one == other if exact is None else exact(one) == exact(other)


#: What makes two values the same where `==` says too much or too little: a float that is no number equals not even
#: itself, and 0.0 is -0.0; 1.0 is 1.00; a time is the same in every zone.
_EXACT: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (float, float.hex),
    (Decimal, Decimal.as_tuple),
    (datetime, datetime.isoformat),
)


def encode_table(table: Mapping[str, object]) -> bytes:
    """A field table (AMQP 0-9-1, 4.2.5.5; the types as RabbitMQ has them, rabbitmq.com/amqp-0-9-1-errata).

    Raises:
        struct.error, TypeError, ValueError, ArithmeticError, RecursionError: a value has no form.
    """
    return _long(b"".join(_short(name) + _field(value) for name, value in table.items()))


def _field(value: object) -> bytes:
    for kind, encode in _FIELDS:
        if isinstance(value, kind):
            return encode(value)
    raise TypeError(f"no field type for a {type(value).__name__}")


def _short(text: str) -> bytes:
    octets = text.encode()
    return struct.pack(">B", len(octets)) + octets


def _long(octets: bytes | bytearray) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def _whole(value: int) -> bytes:
    # Two of the eight integer types are enough, and every client reads these two as signed.
    return b"I" + struct.pack(">i", value) if -(2**31) <= value < 2**31 else b"l" + struct.pack(">q", value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    scaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    # Clients do not agree on whether it is signed; the octets are the same where it fits either.
    return b"D" + struct.pack(">B", -int(exponent)) + struct.pack(">i" if scaled < 2**31 else ">I", scaled)


def _timestamp(value: datetime) -> bytes:
    since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
    seconds, rest = divmod(since, timedelta(seconds=1))
    if not rest and seconds <= _MILLISECONDS_FROM:
        return struct.pack(">Q", seconds)
    return struct.pack(">Q", round(since / timedelta(milliseconds=1)))


_FIELDS: Final[tuple[tuple[type, Callable[[Any], bytes]], ...]] = (
    (bool, lambda value: b"t" + struct.pack(">?", value)),
    (int, _whole),
    (str, lambda value: b"S" + _long(value.encode())),
    (bytearray, lambda value: b"x" + _long(value)),
    (bytes, lambda value: b"S" + _long(value)),  # what the client library reads a text as that is not UTF-8
    (float, lambda value: b"d" + struct.pack(">d", value)),
    (datetime, lambda value: b"T" + _timestamp(value)),
    (dict, lambda value: b"F" + encode_table(value)),
    (list, lambda value: b"A" + _long(b"".join(map(_field, value)))),
    (Decimal, _decimal),
    (type(None), lambda _: b"V"),
)


def _octet(value: int) -> bytes:
    return struct.pack(">B", value)


#: The client library's names, in the order of the standard, with their flags (AMQP 0-9-1, class basic).
_PROPERTIES: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "content_type": (15, _short),
    "content_encoding": (14, _short),
    "headers": (13, encode_table),
    "delivery_mode": (12, _octet),
    "priority": (11, _octet),
    "correlation_id": (10, _short),
    "reply_to": (9, _short),
    "expiration": (8, _short),
    "message_id": (7, _short),
    "timestamp": (6, _timestamp),
    "message_type": (5, _short),
    "user_id": (4, _short),
    "app_id": (3, _short),
}
