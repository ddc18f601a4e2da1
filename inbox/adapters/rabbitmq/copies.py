"""Copies of events that wait in a retry queue: what they carry, and how they are read back.

A copy is to a verifier and to the quarantine what the producer sent, so three things travel out of the broker's
sight: the route of the first publish; the message id, for a copy has one of its own (see `publisher`); and headers that
the broker would act upon.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.rabbitmq.encoding import ExactProperties, InexactError, exact_properties
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText
from inbox.core.delivery import (
    ATTEMPT_KEY,
    ORIGIN_EXCHANGE,
    ORIGIN_ROUTING_KEY,
    WAIT_LEFT,
    WAITED,
    Origin,
    is_bookkeeping,
)
from inbox.core.policy import LONGEST_WAIT
from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.core.delivery import Delivery

#: Headers of ours beside those of `inbox.core.delivery`: the producer's message id, and what follows.
MESSAGE_ID: Final = "x-inbox-message-id"
#: A table of the producer's headers that must not stand in the open. The broker publishes to every routing key in CC
#: and BCC as well (rabbitmq.com/docs/sender-selected), so that the copy would be in other queues at once, and takes CC
#: away when it dead-letters. The other two would be taken for ours.
SHELTERED: Final = "x-inbox-sheltered"
_TO_SHELTER: Final = frozenset({"CC", "BCC", MESSAGE_ID, SHELTERED})

_PERSISTENT: Final = 2

#: Properties that a copy keeps, under the client library's names. Not the expiration, which would end the wait early;
#: nor the user id: the broker refuses a foreign one, and restored from a header anyone could forge it.
_KEPT: Final = {
    "content_encoding": "content_encoding",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "timestamp": "timestamp",
    "type": "message_type",
    "app_id": "app_id",
    "priority": "priority",
}


def make_copy(delivery: Delivery, key: bytes, *, waited: int, left: int) -> ExactProperties:
    """The properties and headers of a copy, under a message id that nothing else has.

    Args:
        delivery: what is copied.
        key: what its attempts are counted under.
        waited: milliseconds that the copy is about to wait.
        left: milliseconds that it has to wait after that.

    Raises:
        TransportError: it could not be read whole, or cannot be written exactly, so that there must be no copy.
    """
    origin = delivery.origin
    if isinstance(delivery.headers, UnreadableHeaders) or any(
        isinstance(name, UnreadableText) for name in (origin.exchange, origin.routing_key)
    ):
        raise TransportError("what could not be read is not copied")
    own = {
        ORIGIN_EXCHANGE: origin.exchange,
        ORIGIN_ROUTING_KEY: origin.routing_key,
        ATTEMPT_KEY: bytearray(key),
        WAITED: waited,
        WAIT_LEFT: left,
    }
    if "message_id" in delivery.properties:
        own[MESSAGE_ID] = delivery.properties["message_id"]
    theirs = {name: value for name, value in delivery.headers.items() if not is_bookkeeping(name)}
    if sheltered := {name: theirs.pop(name) for name in _TO_SHELTER if name in theirs}:
        own[SHELTERED] = sheltered
    properties = {theirs_: delivery.properties.get(ours) for ours, theirs_ in _KEPT.items()}
    properties |= {"content_type": delivery.content_type, "delivery_mode": _PERSISTENT}
    try:
        return exact_properties(properties, theirs | own, secrets.token_hex(16))
    except InexactError as error:
        raise TransportError("its headers and properties cannot be copied exactly") from error


def is_copy(headers: Mapping[str, Any]) -> bool:
    """Whether these are the headers of a copy that we published, as far as they tell: anyone can write them."""
    return ATTEMPT_KEY in headers and noted_origin(headers) is not None


def noted_origin(headers: Mapping[str, Any]) -> Origin | None:
    """Where the event was first published, if headers of ours say so."""
    exchange, routing_key = header_text(headers.get(ORIGIN_EXCHANGE)), header_text(headers.get(ORIGIN_ROUTING_KEY))
    return None if exchange is None or routing_key is None else Origin(exchange, routing_key)


def original_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers as the producer typed them, out of those of a copy."""
    sheltered = headers.get(SHELTERED)
    theirs = {
        name: value
        for name, value in headers.items()
        if not is_bookkeeping(name) and name not in (MESSAGE_ID, SHELTERED)
    }
    if isinstance(sheltered, dict):
        theirs |= {name: value for name, value in sheltered.items() if name in _TO_SHELTER}
    return theirs


def seconds_in(headers: Mapping[str, Any], name: str) -> float:
    """Milliseconds in the header `name`, as seconds, at most `LONGEST_WAIT`; 0 for what is no such number."""
    value = headers.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0.0
    return min(max(value, 0), LONGEST_WAIT * 1000) / 1000


def header_text(value: object) -> str | None:
    """Text of a header, or None: never `str()` of a byte array, which is its `repr`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return None
    return None
