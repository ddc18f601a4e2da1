"""Binary content mode: one header for each attribute, the payload as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from inbox.core.attributes import attribute_text, event_of, media_type_of
from inbox.core.event import strict_json
from inbox.errors import Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent

#: `ce-` is written by HTTP, Kafka and RabbitMQ producers, the other two by the AMQP binding.
Prefix = Literal["ce-", "cloudEvents:", "cloudEvents_"]
PREFIXES: tuple[Prefix, ...] = get_args(Prefix)

_SHORT = "ce-"
_LONG = ("cloudevents:", "cloudevents_")
_SHORT_LENGTH, _LONG_LENGTH = len(_SHORT), len(_LONG[0])


def decode_binary(delivery: Delivery, *, check_json: bool) -> CloudEvent:
    """The event of a delivery in binary mode.

    Raises:
        Undecodable: as `inbox.core.cloudevents.decode` says.
    """
    values = header_attributes(delivery.headers)
    if not values:
        raise Undecodable("neither attribute headers nor a CloudEvents content type", code="no-cloudevent")
    _take_content_type(values, delivery.content_type)
    data = delivery.body or None
    event = event_of(values, data)
    if data is not None and check_json and event.datacontenttype and media_type_of(event.datacontenttype).is_json:
        strict_json(data)
    return event


def header_attributes(headers: Mapping[str, object]) -> dict[str, object]:
    """The values of all headers that carry an attribute, by its name in lower case.

    Prefix and name are read in any case, for bridges from HTTP capitalise them. AMQP's own names are
    case-sensitive, so two spellings of one name can arrive together, and then nobody can say which is meant.

    Raises:
        Undecodable: `ambiguous-attributes`: an attribute twice, or two prefixes (AMQP binding, 3.1.3.1: "Any single
            message MUST use the same separator for all CloudEvents attributes"); `bad-attribute`: a name that
            no attribute may have.
    """
    values: dict[str, object] = {}
    seen = None
    for header, value in headers.items():
        prefix = header[:_SHORT_LENGTH].lower()
        if prefix != _SHORT:
            prefix = header[:_LONG_LENGTH].lower()
            if prefix not in _LONG:
                continue
        if seen is None:
            seen = prefix
        elif prefix != seen:
            raise Undecodable("attribute headers with different prefixes", code="ambiguous-attributes")
        name = _attribute_name(header[len(prefix) :])
        if name in values:
            raise Undecodable("one attribute in two spellings", code="ambiguous-attributes")
        values[name] = value
    return values


def _attribute_name(spelling: str) -> str:
    """CloudEvents 1.0, Naming Conventions: lower-case ASCII letters or digits, and not `data`."""
    name = spelling.lower()
    # ASCII before lowering: U+212A, the Kelvin sign, is lowered to the letter k.
    if not (spelling.isascii() and spelling.isalnum()) or name == "data":
        raise Undecodable("a header whose name no attribute may have", code="bad-attribute")
    return name


def _take_content_type(values: dict[str, object], content_type: str | None) -> None:
    """Make the property the `datacontenttype`, as AMQP binding 3.1.1 says ("maps directly").

    Some producers write it as a header as well. The HTTP binding forbids that, the AMQP one leaves it out of the
    headers; two equal values say one thing all the same, two different ones are an attribute that appears twice
    (CloudEvents 1.0, Context Attributes: "MUST only appear at most once").
    """
    if not content_type:
        return
    header = values.get("datacontenttype")
    values["datacontenttype"] = content_type
    if header is None or header == content_type:
        return
    text = attribute_text("datacontenttype", header)
    if text != content_type and media_type_of(text) != media_type_of(content_type):
        raise Undecodable("datacontenttype contradicts the content type", code="ambiguous-attributes")
