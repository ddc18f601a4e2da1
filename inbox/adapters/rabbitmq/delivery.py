"""From a message of the broker to a `Delivery`: nothing here may raise, whatever a producer sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbox.adapters.rabbitmq.content import present
from inbox.adapters.rabbitmq.copies import MESSAGE_ID, header_text, is_copy, noted_origin, original_headers, seconds_in
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText
from inbox.core.delivery import ATTEMPT_KEY, WAIT_LEFT, WAITED, Delivery, Origin
from inbox.errors import Refused, Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aio_pika.abc import AbstractIncomingMessage

    from inbox.adapters.rabbitmq.content import Message

#: Where the quarantine finds octets that could not be parsed.
RAW_HEADER = "raw_header"
RAW_EXCHANGE = "raw_exchange"
RAW_ROUTING_KEY = "raw_routing_key"

#: Why a broker gives a message up (rabbitmq.com/docs/dlx, "Effects on Messages").
REASONS = frozenset({"rejected", "expired", "maxlen", "delivery_limit"})


def delivery_from(message: AbstractIncomingMessage, *, queue: str = "") -> Delivery:
    """A delivery made of a message that your own aio-pika consumer received.

    `inbox.verify` takes it from there. You acknowledge the message yourself, and only after
    `inbox.transaction` ended normally or raised `AlreadyProcessed`.

    Args:
        message: the message as aio-pika handed it over.
        queue: name of the queue it came from, for the quarantine's records.
    """
    properties = present(message, "type")
    if "delivery_mode" in properties:
        properties["delivery_mode"] = int(message.delivery_mode or 0)
    return _delivery(
        message.body,
        message.headers,
        message.content_type,
        properties,
        (message.exchange or "", message.routing_key or ""),
        is_redelivered=bool(message.redelivered),
        queue=queue,
    )


def read(message: Message, *, queue: str, is_dead_letter: bool, receipt: object) -> Delivery:
    """A delivery made of a message as a channel hands it over.

    Args:
        message: frames of one delivery, put together. Its headers are passed on as they were typed; those of a copy
            that we published as the producer typed them, without ours and without the broker's counters.
        queue: the queue consumed.
        is_dead_letter: the queue holds what the broker gave up; the delivery is then refused.
        receipt: what settles it.
    """
    route, content = message.route, message.content
    return _delivery(
        message.body,
        content.headers,
        content.content_type,
        content.properties,
        (route.exchange, route.routing_key),
        is_redelivered=route.is_redelivered,
        queue=queue,
        is_dead_letter=is_dead_letter,
        receipt=receipt,
    )


def _delivery(
    body: bytes,
    headers: Mapping[str, Any],
    content_type: str | None,
    properties: dict[str, object],
    route: tuple[str, str],
    *,
    is_redelivered: bool,
    queue: str,
    is_dead_letter: bool = False,
    receipt: object = None,
) -> Delivery:
    refusal = _refusal(headers, route, properties) or (_dead_letter(headers) if is_dead_letter else None)
    copy = is_copy(headers)
    return Delivery(
        body=body,
        headers=original_headers(headers) if copy else headers,
        content_type=content_type,
        properties=_of_original(properties, headers) if copy else properties,
        origin=origin_of(headers, *route),
        queue=queue,
        pristine=not is_redelivered and is_pristine(headers),
        waited=seconds_in(headers, WAITED) if copy else 0.0,
        wait_left=seconds_in(headers, WAIT_LEFT) if copy else 0.0,
        refusal=refusal,
        receipt=receipt,
    )


def _of_original(properties: dict[str, object], headers: Mapping[str, Any]) -> dict[str, object]:
    """A copy has a message id of its own; the producer's, if there was one, is among its headers."""
    given = header_text(headers.get(MESSAGE_ID))
    kept = {name: value for name, value in properties.items() if name != "message_id"}
    return kept if given is None else kept | {"message_id": given}


def _refusal(headers: Mapping[str, Any], route: tuple[str, str], properties: dict[str, object]) -> Undecodable | None:
    """Note the octets that could not be parsed among `properties`, and say so."""
    exchange, routing_key = route
    if isinstance(exchange, UnreadableText):
        properties[RAW_EXCHANGE] = exchange.raw
    if isinstance(routing_key, UnreadableText):
        properties[RAW_ROUTING_KEY] = routing_key.raw
    if isinstance(headers, UnreadableHeaders):
        properties[RAW_HEADER] = headers.raw
        return Undecodable("the header frame of the message cannot be parsed", code="unreadable-header")
    if RAW_EXCHANGE in properties or RAW_ROUTING_KEY in properties:
        return Undecodable("the route of the message is not UTF-8", code="unreadable-route")
    return None


def _dead_letter(headers: Mapping[str, Any]) -> Refused:
    reason = next((header_text(death.get("reason")) for death in _deaths(headers)), None)
    known = reason if reason in REASONS else "unknown"
    return Refused(f"the broker gave the message up, reason {known}", code="dead-lettered")


def is_pristine(headers: Mapping[str, Any]) -> bool:
    """Whether no header hints at an earlier hand-out: no death, no counter above 0, no copy of ours.

    Quorum queues count hand-outs in `x-delivery-count` and, since RabbitMQ 4.3, `x-acquired-count`.
    They are hints only: absent at first, and gone from a copy.
    """
    if "x-death" in headers or ATTEMPT_KEY in headers:
        return False
    return not any(headers.get(name) for name in ("x-delivery-count", "x-acquired-count"))


def origin_of(headers: Mapping[str, Any], exchange: str, routing_key: str) -> Origin:
    """Where the event was first published, for signatures that cover it.

    Our own headers say it for copies that we published; else the first death for what the broker
    moved; else it is the delivery's own route. None of it is trusted: a verifier decides.

    Args:
        headers: the message's headers.
        exchange: of this delivery.
        routing_key: of this delivery.
    """
    ours = noted_origin(headers)
    if ours is not None:
        return ours
    first = header_text(headers.get("x-first-death-exchange"))
    if first is None:
        return Origin(exchange, routing_key)
    return Origin(first, _first_death_routing_key(headers) or routing_key)


def _first_death_routing_key(headers: Mapping[str, Any]) -> str | None:
    """`x-death` is newest first, so its first entry is the wrong one after a second hop."""
    wanted = header_text(headers.get("x-first-death-queue")), header_text(headers.get("x-first-death-reason"))
    for death in _deaths(headers):
        if (header_text(death.get("queue")), header_text(death.get("reason"))) == wanted:
            keys = death.get("routing-keys")
            return header_text(keys[0]) if isinstance(keys, list) and keys else None
    return None


def _deaths(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    deaths = headers.get("x-death")
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
