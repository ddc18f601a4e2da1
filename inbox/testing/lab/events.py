"""What may be given as an event, and what is sent for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inbox.core.cloudevents import Mode, decode, encode
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent
from inbox.core.json_format import MEDIA_TYPE
from inbox.core.records import record_of
from inbox.errors import ConfigurationError, Refused, Undecodable

if TYPE_CHECKING:
    from pathlib import Path

    from inbox.core.records import Identity

__all__ = ["DEFAULT_SOURCE", "EventLike", "Message", "delivery_of", "message_of", "read_events"]

#: Of a mapping that says none.
DEFAULT_SOURCE: Final = "/lab"

_NO_EVENT: Final = "this is no CloudEvent"
_EXAMPLE: Final = '{"specversion": "1.0", "id": "order-1", "source": "/shop", "type": "order.paid", "data": {…}}'

#: A CloudEvent, its JSON object as a mapping, its JSON text, or a delivery with headers of your own.
EventLike = CloudEvent | Delivery | Mapping[str, Any] | str | bytes


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One event as it is published.

    Attributes:
        body, headers, content_type: of the message.
        event: what is in it; None where that is no readable CloudEvent.
        exchange, routing_key: where to; None takes the queue itself.
    """

    body: bytes
    headers: Mapping[str, Any]
    content_type: str | None
    event: CloudEvent | None
    exchange: str | None = None
    routing_key: str | None = None

    def __hash__(self) -> int:
        return hash((self.body, self.content_type, self.exchange, self.routing_key))

    def key(self, identity: Identity) -> bytes | None:
        """What the inbox knows it by; None where it has none and can only be quarantined."""
        if self.event is None:
            return None
        try:
            return record_of("lab", self.event, identity, None).key
        except Refused:
            return None


def delivery_of(event: EventLike) -> Delivery:
    """`event` as something that arrives; in structured mode unless it is a delivery already.

    Raises:
        ConfigurationError: it is no CloudEvent.
    """
    if isinstance(event, Delivery):
        return event
    if isinstance(event, CloudEvent):
        try:
            encoded = encode(event, "structured")
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        return Delivery(encoded.body, encoded.headers, encoded.content_type)
    if isinstance(event, Mapping):
        # Attributes that each event needs and that a test seldom means.
        filled = {"specversion": "1.0", "source": DEFAULT_SOURCE} | dict(event)
        event = json.dumps(filled)
    body = event.encode() if isinstance(event, str) else bytes(event)
    delivery = Delivery(body, {}, MEDIA_TYPE)
    try:
        decode(delivery)
    except Undecodable as error:
        raise ConfigurationError(f"{_NO_EVENT}: {error.detail}") from None
    return delivery


def message_of(
    event: EventLike | Message, mode: Mode = "binary", exchange: str | None = None, routing_key: str | None = None
) -> Message:
    """`event` as it is published. A delivery goes as it is, even where it holds no event; a message is one already.

    Args:
        event: what to publish.
        mode: how it travels.
        exchange: where to; None takes the queue itself.
        routing_key: None takes the event's type, or where there is no exchange the queue.

    Raises:
        ConfigurationError: it is no CloudEvent, or cannot travel in this mode.
    """
    if isinstance(event, Message):
        return event
    delivery = delivery_of(event)
    try:
        decoded = decode(delivery)
    except Undecodable:
        return Message(delivery.body, delivery.headers, delivery.content_type, None, exchange, routing_key)
    routing_key = decoded.type if exchange and routing_key is None else routing_key
    if isinstance(event, Delivery):
        return Message(delivery.body, delivery.headers, delivery.content_type, decoded, exchange, routing_key)
    try:
        encoded = encode(decoded, mode)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return Message(encoded.body, encoded.headers, encoded.content_type, decoded, exchange, routing_key)


def _as_it_is(message: Message) -> Message:
    return message


def read_events(
    path: Path,
    mode: Mode = "binary",
    exchange: str | None = None,
    routing_key: str | None = None,
    fit: Callable[[Message], Message] = _as_it_is,
) -> list[Message]:
    """The events of a JSONL file, one on each line that is not blank.

    Args:
        path: of the file.
        mode: how each travels.
        exchange: where to; None takes the queue itself.
        routing_key: of each; None takes the event's type, or where there is no exchange the queue.
        fit: what becomes of each on its queue; see `inbox.testing.lab.queues.Queue.fit`.

    Raises:
        ConfigurationError: a line holds none, or one that its queue cannot bring, or there is no line.
    """
    messages = list(_read(path.read_bytes().splitlines(), (mode, exchange, routing_key), fit))
    if not messages:
        raise ConfigurationError(f"{path} holds no events: write a CloudEvent in JSON format on each line")
    return messages


def _read(
    lines: Iterable[bytes], way: tuple[Mode, str | None, str | None], fit: Callable[[Message], Message]
) -> Iterable[Message]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            message = fit(message_of(line, *way))
        except ConfigurationError as error:
            example = f"; write each as {_EXAMPLE}" if str(error).startswith(_NO_EVENT) else ""
            raise ConfigurationError(f"line {number}: {error}{example}") from None
        yield message
