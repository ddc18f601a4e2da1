"""What arrived, in words of CloudEvents: `CloudEvent` is decoded, `Event` is verified."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inbox.errors import Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from inbox.core.delivery import Origin
    from inbox.core.records import InboxRecord


@dataclass(frozen=True, slots=True, repr=False)
class CloudEvent:
    """The attributes and data of one CloudEvent 1.0, decoded and not yet trusted.

    Attributes:
        id: producer's id of the event, exact text.
        source: URI reference of the producer.
        type: what happened.
        time: the producer's time, aware, cut to microseconds; None where absent.
        time_text: the same, exactly as received (signatures cover the text).
        subject, datacontenttype, dataschema: as CloudEvents 1.0 defines them; None where absent.
        extensions: extension attributes by their lower-case names.
        data: the payload's bytes, exactly as received in binary mode; None where there is no data.
        parsed: what the data says as JSON, where it was parsed on the way; for the first who asks for it, and for no
            one after, for it may be changed by whoever has it.
    """

    id: str
    source: str
    type: str
    specversion: str = "1.0"
    time: datetime | None = None
    time_text: str | None = None
    subject: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict)
    data: bytes | None = None
    parsed: list[Any] = field(default_factory=list, init=False, compare=False)

    def __repr__(self) -> str:
        return f"<CloudEvent {'with' if self.data is not None else 'without'} data>"


class Event:
    """A verified CloudEvent: what handlers get.

    It is made after verification only; nothing that applies effects takes anything else.
    """

    __slots__ = ("cloudevent", "origin", "record")

    def __init__(self, cloudevent: CloudEvent, record: InboxRecord, origin: Origin) -> None:
        self.cloudevent = cloudevent
        self.record = record
        self.origin = origin

    def __repr__(self) -> str:
        return f"<Event of consumer {self.record.consumer}>"

    @property
    def id(self) -> str:
        """The producer's id of the event."""
        return self.cloudevent.id

    @property
    def source(self) -> str:
        """URI reference of the producer."""
        return self.cloudevent.source

    @property
    def type(self) -> str:
        """What happened."""
        return self.cloudevent.type

    @property
    def subject(self) -> str | None:
        """What it happened to, where the producer says so."""
        return self.cloudevent.subject

    @property
    def time(self) -> datetime | None:
        """When it happened by the producer's clock, aware; None where absent."""
        return self.cloudevent.time

    @property
    def extensions(self) -> Mapping[str, str | int | bool]:
        """Extension attributes by their lower-case names."""
        return self.cloudevent.extensions

    @property
    def data(self) -> bytes | None:
        """The payload's bytes as received."""
        return self.cloudevent.data

    def json(self) -> Any:
        """The payload as JSON, strictly: UTF-8, no NaN, no duplicate keys, integers exact.

        Returns:
            What the JSON text says; None where the event has no data.

        Raises:
            Undecodable: the payload is no such JSON. Left to escape from a handler, it sends the
                event to quarantine like any other refusal.
        """
        if self.cloudevent.parsed:
            return self.cloudevent.parsed.pop()
        return None if self.data is None else strict_json(self.data)


def strict_json(data: bytes) -> Any:
    """Parse JSON as RFC 8259 asks, which `json.loads` alone does not.

    Args:
        data: UTF-8 text without a byte-order mark (RFC 8259, 8.1).

    Raises:
        Undecodable: not UTF-8, not JSON, a NaN or Infinity, a duplicate member name (RFC 8259, 4:
            "the names within an object SHOULD be unique"), or nested too deeply.
    """
    try:
        return STRICT_JSON.decode(data.decode("utf-8", "strict"))
    except (ValueError, RecursionError) as error:
        raise Undecodable("the data is not strict JSON", code="bad-json") from error


def _refuse_constant(_: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member name")
    return members


#: Refuses what JSON does not have; made once, since `json.loads` with options makes a decoder for every call.
STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
