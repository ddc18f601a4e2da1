"""From named values to a checked `CloudEvent`: the rules that hold in every content mode."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from inbox.core.event import CloudEvent
from inbox.core.headers import is_attribute_text, text_of
from inbox.core.media_types import MediaType, parse_media_type
from inbox.core.timestamps import format_timestamp, parse_timestamp
from inbox.core.uris import is_uri
from inbox.errors import Undecodable

#: CloudEvents 1.0, REQUIRED Attributes, in the order in which their absence is reported.
REQUIRED = ("specversion", "id", "source", "type")

# CloudEvents 1.0, Type System, Integer: "in the range -2,147,483,648 to +2,147,483,647 inclusive".
_LEAST, _GREATEST = -(2**31), 2**31 - 1

# CloudEvents 1.0, Naming Conventions: names "SHOULD NOT exceed 20 characters"; a longer one is remote text at length.
_LONGEST_NAME_SHOWN = 20


def event_of(values: dict[str, object], data: bytes | None) -> CloudEvent:
    """Check every attribute and make the event.

    Args:
        values: by attribute name, as the transport or JSON typed them; None counts as absent. Emptied by the call.
        data: the payload's octets; None where there is none.

    Raises:
        Undecodable: `missing-id`, `missing-source`, `missing-type`, `missing-specversion`: absent or empty;
            `unsupported-specversion`: not 1.0; `bad-time`: `time` is no RFC 3339 date-time that can be held;
            `bad-attribute`: any other rule of CloudEvents 1.0. The detail names the attribute, never its value.
    """
    if _required(values, "specversion") != "1.0":
        raise Undecodable("specversion is not 1.0", code="unsupported-specversion")
    identifier = _required(values, "id")
    # Not asked to be a URI reference: producers copy free text from their configuration into it, and an event that
    # is refused for its spelling helps nobody. It counts by its exact octets.
    source = _required(values, "source")
    kind = _required(values, "type")
    time, time_text = _time(values.pop("time", None))
    return CloudEvent(
        id=identifier,
        source=source,
        type=kind,
        time=time,
        time_text=time_text,
        subject=_optional(values, "subject"),
        datacontenttype=_datacontenttype(values),
        dataschema=_dataschema(values),
        extensions={name: _extension(name, value) for name, value in values.items() if value is not None},
        data=data,
    )


def media_type_of(value: str) -> MediaType:
    """A `datacontenttype` as a media type.

    Raises:
        Undecodable: `bad-attribute`: it is none (CloudEvents 1.0: "MUST adhere to the format specified in RFC 2046").
    """
    try:
        return parse_media_type(value)
    except ValueError:
        refuse_attribute("datacontenttype", "is not a media type")


def attribute_text(name: str, value: object) -> str:
    """The text of an attribute whose type is text.

    Raises:
        Undecodable: `bad-attribute`: not text in UTF-8, or a character that no attribute may hold.
    """
    text = text_of(value)
    if text is None:
        refuse_attribute(name, "is not text in UTF-8")
    if not (text.isascii() and text.isprintable()) and not is_attribute_text(text):
        refuse_attribute(name, "holds a control character, a surrogate or a noncharacter")
    return text


def refuse_attribute(name: str, reason: str) -> NoReturn:
    """Raise `Undecodable` for the attribute `name`."""
    raise Undecodable(f"{shown_name(name)} {reason}", code="bad-attribute")


def shown_name(name: str) -> str:
    """`name` as it may stand in a message."""
    return name if len(name) <= _LONGEST_NAME_SHOWN else "an attribute with an overlong name"


def _required(values: dict[str, object], name: str) -> str:
    value = values.pop(name, None)
    text = None if value is None else attribute_text(name, value)
    if not text:
        raise Undecodable(f"{name} is {'absent' if text is None else 'empty'}", code=f"missing-{name}")
    return text


def _optional(values: dict[str, object], name: str) -> str | None:
    """CloudEvents 1.0 says of each optional text: "If present, MUST be a non-empty string"."""
    value = values.pop(name, None)
    if value is None:
        return None
    return attribute_text(name, value) or refuse_attribute(name, "is empty")


def _datacontenttype(values: dict[str, object]) -> str | None:
    text = _optional(values, "datacontenttype")
    if text is not None:
        media_type_of(text)
    return text


def _dataschema(values: dict[str, object]) -> str | None:
    text = _optional(values, "dataschema")
    # The specification names RFC 3986 4.3, which has no fragment; schemas are pointed into by fragments all the same.
    if text is not None and not is_uri(text):
        refuse_attribute("dataschema", "is not an absolute URI")
    return text


def _time(value: object) -> tuple[datetime | None, str | None]:
    """The moment and its text. An AMQP timestamp comes without a text and gets the canonical one."""
    if value is None:
        return None, None
    text = _timestamp_text("time", value) if isinstance(value, datetime) else attribute_text("time", value)
    try:
        return parse_timestamp(text), text
    except ValueError as error:
        raise Undecodable(f"time is {error}", code="bad-time") from None


def _timestamp_text(name: str, moment: datetime) -> str:
    try:
        return format_timestamp(moment)
    except ValueError as error:
        raise Undecodable(f"{shown_name(name)} is {error}", code="bad-time") from None


def _extension(name: str, value: object) -> str | int | bool:
    """The AMQP binding (3.1.3.2): an implementation "MUST be able to interpret both forms", native and text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _LEAST <= value <= _GREATEST else refuse_attribute(name, "is outside the range of an Integer")
    if isinstance(value, datetime):
        return _timestamp_text(name, value)
    return attribute_text(name, value)
