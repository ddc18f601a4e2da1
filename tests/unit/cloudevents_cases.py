"""Deliveries for the tests of the CloudEvents decoder."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from inbox.core.cloudevents import decode
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent
from inbox.errors import Undecodable

REQUIRED: dict[str, object] = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
JSON = "application/json"

_MESSAGES = json.loads(Path(__file__).with_name("fetcher_messages.json").read_text(encoding="utf-8"))
FETCHER_SHAPES = [name for name in _MESSAGES if name != "about"]


def binary(
    changes: Mapping[str, object] | None = None,
    *,
    body: bytes = b"",
    content_type: str | None = None,
    without: str = "",
) -> Delivery:
    """A minimal event in binary mode, with `changes` to its headers and `without` one of them."""
    headers = {**REQUIRED, **(changes or {})}
    headers.pop(without, None)
    return Delivery(body, headers, content_type)


def structured(
    members: str | bytes | Mapping[str, object], headers: Mapping[str, object] | None = None, content_type: str = ""
) -> Delivery:
    """An event in structured mode: the whole body, or members to add to the required ones."""
    if isinstance(members, Mapping):
        required = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
        members = json.dumps(required | dict(members))
    body = members.encode() if isinstance(members, str) else members
    return Delivery(body, headers or {}, content_type or "application/cloudevents+json")


def fetcher(shape: str, octets: Callable[[bytes], object] = bytearray) -> Delivery:
    """A genuine message, its byte arrays typed as one client library or another types them."""
    message = _MESSAGES[shape]
    headers = {
        name: octets(value.encode()) if kind == "x" else value for name, (kind, value) in message["headers"].items()
    }
    origin = Origin(message["exchange"], message["routing_key"])
    return Delivery(message["body"].encode(), headers, message["content_type"], origin=origin)


def code_of(delivery: Delivery) -> str:
    """The code with which `delivery` is refused."""
    with pytest.raises(Undecodable) as refusal:
        decode(delivery)
    return refusal.value.code


def attribute(name: str, value: object) -> CloudEvent:
    """A minimal event with one header more."""
    return decode(binary({f"ce-{name}": value}))
