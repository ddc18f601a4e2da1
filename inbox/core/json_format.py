"""Structured content mode in the JSON event format: attributes and payload in one JSON object."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from inbox.core.attributes import REQUIRED, attribute_text, event_of, media_type_of
from inbox.core.binary_mode import header_attributes
from inbox.core.event import STRICT_JSON, strict_json
from inbox.core.headers import text_of
from inbox.core.media_types import MediaType, parse_media_type
from inbox.errors import Undecodable

if TYPE_CHECKING:
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent

#: Media type of the format, and how every structured CloudEvent's begins (AMQP binding, 3).
MEDIA_TYPE = "application/cloudevents+json"
STRUCTURED = "application/cloudevents"

_BATCH = "application/cloudevents-batch+json"
_SPACE = re.compile(r"[ \t\n\r]*+")
_ATTRIBUTE_NAME = re.compile(r"[a-z0-9]+")


class _Member(NamedTuple):
    value: object
    source: str


def decode_structured(delivery: Delivery, content_type: str, *, check_json: bool) -> CloudEvent:
    """The event of a delivery in structured mode.

    Raises:
        Undecodable: as `inbox.core.cloudevents.decode` says.
    """
    _check_format(content_type)
    members = _members(delivery.body)
    data = _take_data(members, check_json=check_json)
    event = event_of(_attributes(members), data)
    _compare_headers(delivery, event)
    return event


def encode_structured(event: CloudEvent, values: dict[str, str | int | bool]) -> bytes:
    """The JSON object of `event`, whose attributes are `values`.

    JSON is put into `data` octet for octet; whatever else, and JSON with space around it, into `data_base64`, which
    the format allows for any payload (3.1.1) and which alone keeps every octet.
    """
    if event.datacontenttype is not None:
        values["datacontenttype"] = event.datacontenttype
    head = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    if event.data is None:
        return head
    if event.datacontenttype is not None and media_type_of(event.datacontenttype).is_json and _is_tight(event.data):
        strict_json(event.data)
        return head[:-1] + b',"data":' + event.data + b"}"
    return head[:-1] + b',"data_base64":"' + base64.b64encode(event.data) + b'"}'


def _is_tight(data: bytes) -> bool:
    return bool(data) and data == data.strip(b" \t\n\r")


def _check_format(content_type: str) -> None:
    try:
        media_type = parse_media_type(content_type)
    except ValueError:
        raise Undecodable("the content type is not a media type", code="unsupported-format") from None
    if media_type.essence == _BATCH:
        raise Undecodable("a batch of events, which one acknowledgement cannot settle", code="batch")
    if media_type.essence != MEDIA_TYPE:
        raise Undecodable("a CloudEvents format other than JSON", code="unsupported-format")
    if not media_type.is_utf8:  # RFC 8259, 8.1: "MUST be encoded using UTF-8"
        raise Undecodable("JSON in another charset than UTF-8", code="unsupported-format")


def _members(body: bytes) -> dict[str, _Member]:
    """The members of the one JSON object in `body`, each with its exact source text."""
    try:
        return _scan(body.decode("utf-8", "strict"))
    except (ValueError, RecursionError):
        raise Undecodable("the body is not one strict JSON object", code="bad-json") from None


def _scan(text: str) -> dict[str, _Member]:
    members: dict[str, _Member] = {}
    at, mark = _mark(text, 0, "{")
    if _peek(text, at) == "}":
        at, mark = _mark(text, at, "}")
    while mark != "}":
        name, at = STRICT_JSON.raw_decode(text, at)
        if not isinstance(name, str) or name in members:
            raise ValueError("a member's name is no string, or there twice")
        at, _ = _mark(text, at, ":")
        value, end = STRICT_JSON.raw_decode(text, at)
        members[name] = _Member(value, text[at:end])
        at, mark = _mark(text, end, ",}")
    if at != len(text):
        raise ValueError("more than one value")
    return members


def _mark(text: str, at: int, marks: str) -> tuple[int, str]:
    """Where the text goes on after one of `marks` with space around it, and which it was."""
    at = _after_space(text, at)
    mark = _peek(text, at)
    if not mark or mark not in marks:
        raise ValueError("not the JSON object expected")
    return _after_space(text, at + 1), mark


def _peek(text: str, at: int) -> str:
    return text[at : at + 1]


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _take_data(members: dict[str, _Member], *, check_json: bool) -> bytes | None:
    """The payload's octets, taken out of `members`.

    JSON is kept as the producer wrote it, for a payload parsed and written again has other octets. A text that is
    not JSON becomes UTF-8.
    """
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if encoded is not None and encoded.value is None:  # the format's JSON schema lets it be null
        encoded = None
    if data is not None and encoded is not None:  # 3.1.1: "mutually exclusive"
        raise Undecodable("both data and data_base64", code="bad-data")
    if data is not None:
        return _plain_data(data, members)
    return None if encoded is None else _encoded_data(encoded.value, members, check_json=check_json)


def _plain_data(data: _Member, members: dict[str, _Member]) -> bytes | None:
    media_type = _declared(members)
    if media_type is None:
        # 3.1.2: "if the datacontenttype attribute is absent, a JSON deserializer SHOULD proceed as if it were set
        # to application/json", and set it where the event goes on in another form.
        members["datacontenttype"] = _Member("application/json", "")
    if media_type is None or media_type.is_json:
        return data.source.encode()
    text = text_of(data.value)
    if text is None or not media_type.is_utf8:  # 3.1.2: "MAY fail [...] if the data member is not a string"
        raise Undecodable("data is not a text of its datacontenttype in UTF-8", code="bad-data")
    return text.encode() or None


def _encoded_data(value: object, members: dict[str, _Member], *, check_json: bool) -> bytes | None:
    if not isinstance(value, str):
        raise Undecodable("data_base64 is not a string", code="bad-data")
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError:  # binascii.Error is one
        raise Undecodable("data_base64 is not base64", code="bad-data") from None
    media_type = _declared(members)
    if data and check_json and media_type is not None and media_type.is_json:
        strict_json(data)
    return data or None


def _declared(members: dict[str, _Member]) -> MediaType | None:
    member = members.get("datacontenttype")
    if member is None or member.value is None:
        return None
    return media_type_of(attribute_text("datacontenttype", member.value))


def _attributes(members: dict[str, _Member]) -> dict[str, object]:
    if not all(_ATTRIBUTE_NAME.fullmatch(name) for name in members):
        raise Undecodable("a member whose name no attribute may have", code="bad-attribute")
    return {name: member.value for name, member in members.items()}


def _compare_headers(delivery: Delivery, event: CloudEvent) -> None:
    """The AMQP binding (3.2.3) lets the attributes be repeated as headers; brokers route by them.

    The body decides. A header that names another event is refused.
    """
    values = header_attributes(delivery.headers)
    for name in REQUIRED:
        value = values.get(name)
        if value is not None and text_of(value) != getattr(event, name):
            raise Undecodable(f"{name} differs between body and headers", code="ambiguous-attributes")
