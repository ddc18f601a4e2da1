"""CloudEvents 1.0 on messages: from a delivery to an event, and from an event to a message.

Strict on purpose: what a lenient reader repairs (an absent id, a text made of octets, the last of two spellings)
it repairs differently each time or in each library, and one event then has two identities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from inbox.core.binary_mode import PREFIXES, Prefix, decode_binary
from inbox.core.delivery import Delivery
from inbox.core.json_format import MEDIA_TYPE, STRUCTURED, decode_structured, encode_structured
from inbox.core.timestamps import format_timestamp
from inbox.errors import Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.core.event import CloudEvent

__all__ = ["PREFIXES", "Encoded", "Mode", "Prefix", "decode", "encode"]

Mode = Literal["binary", "structured"]
HeaderValue = str | int | bool | bytearray


@dataclass(frozen=True, slots=True, repr=False)
class Encoded:
    """A message that carries one event.

    Attributes:
        headers: application headers; empty in structured mode.
        content_type: media type of the body; None where the event declares none.
        body: octets; empty where the event has no data in binary mode.
    """

    headers: Mapping[str, HeaderValue]
    content_type: str | None
    body: bytes

    def __repr__(self) -> str:
        return f"<Encoded with {len(self.headers)} headers>"


def decode(delivery: Delivery, *, check_json: bool = True) -> CloudEvent:
    """Read the CloudEvent of `delivery`, or say why there is none.

    A content type that begins with `application/cloudevents`, in any case, means structured mode, every other one
    binary mode (AMQP binding, 3). An empty payload is no data.

    Args:
        delivery: untrusted; only headers, content type and body are read.
        check_json: parse a payload that declares JSON, so that broken JSON is refused here and no handler starts
            on it. Costs as much as parsing; without it `Event.json` refuses, when a handler asks.

    Returns:
        The event. In binary mode `data` is the body's octets; in structured mode the exact source text of the
        `data` member, where that is JSON, so that integers, spacing and escapes stay as they were signed.

    Raises:
        Undecodable: with one of these codes. No detail holds a value, and none a name that no attribute may have.

            `no-cloudevent`: neither attribute headers nor a CloudEvents content type;
            `missing-specversion`, `missing-id`, `missing-source`, `missing-type`: absent or empty;
            `unsupported-specversion`: not 1.0;
            `ambiguous-attributes`: an attribute twice, two prefixes, or two contradicting places;
            `bad-attribute`: a name, type, character or syntax that CloudEvents 1.0 does not allow;
            `bad-time`: `time` is no RFC 3339 date-time with an offset, or one that no `datetime` holds;
            `bad-json`: body or payload declare JSON and are no strict JSON (`inbox.core.event.strict_json`);
            `bad-data`: `data` and `data_base64` together, broken base64, no text where one is declared;
            `batch`: `application/cloudevents-batch+json`;
            `unsupported-format`: another CloudEvents format than JSON, or another charset than UTF-8.
    """
    content_type = delivery.content_type
    if content_type is not None and content_type[: len(STRUCTURED)].lower() == STRUCTURED:
        return decode_structured(delivery, content_type, check_json=check_json)
    return decode_binary(delivery, check_json=check_json)


def encode(event: CloudEvent, mode: Mode = "binary", prefix: Prefix = "ce-", *, octets: bool = False) -> Encoded:
    """Write `event` as a message from which `decode` reads the same event.

    Args:
        event: an empty payload counts as none; a `time` without `time_text` is written in UTC.
        mode: `binary` puts attributes into headers, `structured` everything into one JSON object.
        prefix: of the headers in binary mode.
        octets: write texts as `bytearray`, which AMQP 0-9-1 libraries send as byte arrays, instead of `str`.
            Integers and booleans stay what they are either way.

    Raises:
        ValueError: the event breaks CloudEvents 1.0, or cannot be carried in this mode. The message names the
            attribute, never its value.
    """
    event = replace(event, time_text=_time_text(event), data=event.data or None)
    try:
        encoded = _structured(event) if mode == "structured" else _binary(event, prefix, octets=octets)
        same = decode(Delivery(encoded.body, encoded.headers, encoded.content_type)) == event
    except Undecodable as error:
        raise ValueError(f"no CloudEvent can be written: {error.detail}") from None
    if not same:
        raise ValueError(f"the event cannot be carried in {mode} mode: it would be read as another one")
    return encoded


def _structured(event: CloudEvent) -> Encoded:
    return Encoded({}, MEDIA_TYPE, encode_structured(event, _values(event)))


def _binary(event: CloudEvent, prefix: Prefix, *, octets: bool) -> Encoded:
    headers: dict[str, HeaderValue] = {}
    for name, value in _values(event).items():
        headers[prefix + name] = bytearray(value, "utf-8") if octets and isinstance(value, str) else value
    return Encoded(headers, event.datacontenttype, event.data or b"")


def _values(event: CloudEvent) -> dict[str, str | int | bool]:
    """Every attribute but `datacontenttype`, in the order of the specification."""
    named = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "dataschema": event.dataschema,
        "subject": event.subject,
        "time": event.time_text,
    }
    present: dict[str, str | int | bool] = {name: value for name, value in named.items() if value is not None}
    return present | dict(event.extensions)


def _time_text(event: CloudEvent) -> str | None:
    if event.time is None or event.time_text is not None:
        return event.time_text
    return format_timestamp(event.time)
