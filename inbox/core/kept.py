"""What is kept of a refused delivery, and how it is read back: the same in every database.

All that arrived is one typed JSON object and the body. What is listed and searched stands beside them, as far as the
columns hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbox.core.delivery import Delivery, Origin, digest, is_bookkeeping
from inbox.core.quarantine import EVENT_TYPE_OCTETS, cut_octets, kept_delivery
from inbox.core.records import EVENT_ID_OCTETS
from inbox.core.typed_json import dump_headers, load_headers
from inbox.errors import Undecodable

if TYPE_CHECKING:
    from inbox.core.event import CloudEvent, Event

#: Octets and characters that the columns hold (`inbox.tables`); what is cut there is whole in `headers`.
SOURCE_OCTETS = 1024
SHORTSTR_OCTETS = 255
REASON_LENGTH = 64
DETAIL_LENGTH = 1024


def stored_headers(delivery: Delivery) -> bytes:
    """All that is kept of a delivery but its body, as `inbox.core.typed_json` writes it."""
    kept = kept_delivery(delivery)
    whole: dict[str, object] = {
        "headers": kept.headers,
        "content_type": kept.content_type,
        "properties": kept.properties,
        "origin": [kept.origin.exchange, kept.origin.routing_key],
        "queue": kept.queue,
    }
    if kept.refusal is not None:
        whole["refusal"] = [kept.refusal.code, kept.refusal.detail]
    return dump_headers(whole)


def stored_delivery(headers: bytes, body: bytes) -> Delivery:
    """The delivery that `stored_headers` wrote, for a replay.

    Raises:
        ValueError: these are no headers of its writing.
    """
    whole = load_headers(headers)
    own, properties, origin, refusal = (whole.get(name) for name in ("headers", "properties", "origin", "refusal"))
    content_type, queue = whole.get("content_type"), whole.get("queue")
    if not (
        isinstance(own, dict)
        and isinstance(properties, dict)
        and (content_type is None or isinstance(content_type, str))
        and isinstance(queue, str)
    ):
        raise ValueError("stored headers lack something of a delivery")
    return Delivery(
        body=body,
        headers=own,
        content_type=content_type,
        properties=properties,
        origin=Origin(*_two_texts(origin)),
        queue=queue,
        pristine=False,
        is_replay=True,
        refusal=None if refusal is None else _refusal(*_two_texts(refusal)),
    )


def _two_texts(value: object) -> tuple[str, str]:
    match value:
        case [str() as one, str() as other]:
            return one, other
        case _:
            raise ValueError("stored headers lack something of a delivery")


def _refusal(code: str, detail: str) -> Undecodable:
    return Undecodable(detail, code=code)


def delivery_digest(consumer: bytes, delivery: Delivery) -> bytes:
    """What makes a delivery the same delivery: SHA-256 of its consumer, body, origin, content type and headers.

    The broker's own counters and the headers of our copies are left out, for they differ between hand-outs; so are the
    message properties, which a broker rewrites when it dead-letters (it removes the expiration: RabbitMQ, "Dead Letter
    Exchanges"). Headers count by name, type and value, in any order.
    """
    kept = {name: value for name, value in sorted(delivery.headers.items()) if not is_bookkeeping(name)}
    return digest(
        {
            "consumer": consumer,
            "body": delivery.body,
            "exchange": _octets(delivery.origin.exchange),
            "routing_key": _octets(delivery.origin.routing_key),
            "content_type": _octets(delivery.content_type or ""),
            "headers": dump_headers(kept),
        }
    )


def described(event: Event | CloudEvent | None) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Id, type and source for listing; an id that does not fit is left out, for a cut one would be another's."""
    if event is None:
        return None, None, None
    id_ = _octets(event.id)
    return (
        id_ if len(id_) <= EVENT_ID_OCTETS else None,
        cut_octets(event.type, EVENT_TYPE_OCTETS),
        cut_octets(event.source, SOURCE_OCTETS),
    )


def places(delivery: Delivery) -> tuple[bytes, bytes, bytes]:
    """Exchange, routing key and queue, as far as their columns hold them."""
    exchange, routing_key = delivery.origin.exchange, delivery.origin.routing_key
    return (
        cut_octets(exchange, SHORTSTR_OCTETS),
        cut_octets(routing_key, SHORTSTR_OCTETS),
        cut_octets(delivery.queue, SHORTSTR_OCTETS),
    )


def cut_text(text: str, length: int) -> str:
    """The beginning of `text`, of so many characters, as a column of text takes it."""
    return text.encode("utf-8", "replace").decode()[:length]


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
