"""Binary content mode: one header for each attribute, the payload as it is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from inbox.core.attributes import attribute_text, event_of, media_type_of, shown_name
from inbox.core.event import strict_json
from inbox.errors import Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent

#: `ce-` is written by HTTP, Kafka and RabbitMQ producers, the other two by the AMQP binding.
Prefix = Literal["ce-", "cloudEvents:", "cloudEvents_"]
PREFIXES: tuple[Prefix, ...] = get_args(Prefix)

_LOWERED = tuple(prefix.lower() for prefix in PREFIXES)


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
        event.parsed.append(strict_json(data))
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
        found = _attribute_of(header)
        if found is None:
            continue
        prefix, name = found
        if prefix != seen:
            if seen is not None:
                raise Undecodable("attribute headers with different prefixes", code="ambiguous-attributes")
            seen = prefix
        if name in values:
            raise Undecodable(f"{shown_name(name)} in two spellings", code="ambiguous-attributes")
        values[name] = value
    return values


@lru_cache(maxsize=1024)  # a producer's header names are few and come with every delivery
def _attribute_of(header: str) -> tuple[str, str] | None:
    """Prefix and attribute name of a header, both in lower case; None for a header that carries no attribute."""
    lowered = header.lower()
    prefix = next((prefix for prefix in _LOWERED if lowered.startswith(prefix)), None)
    if prefix is None:
        return None
    name = lowered[len(prefix) :]
    # CloudEvents 1.0, Naming Conventions: lower-case ASCII letters or digits, and not `data`. ASCII is asked of
    # what came, for U+212A, the Kelvin sign, is lowered to the letter k.
    if not (header.isascii() and name.isalnum()) or name == "data":
        raise Undecodable("a header whose name no attribute may have", code="bad-attribute")
    return prefix, name


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
