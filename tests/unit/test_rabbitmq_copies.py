"""Copies: everything that the producer sent travels along, exactly or not at all; and back comes what it sent."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq.content import message_of
from inbox.adapters.rabbitmq.copies import make_copy
from inbox.adapters.rabbitmq.delivery import read
from inbox.adapters.rabbitmq.encoding import is_same
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText
from inbox.core.delivery import Delivery, Origin
from inbox.core.kept import delivery_digest
from inbox.core.policy import LONGEST_WAIT
from inbox.errors import TransportError

HEADERS: dict[str, Any] = {
    "ce-id": bytearray(b"\xff"),
    "ce-type": "job.completed",
    "raw": b"\xff\xfe",
    "n": -1,
    "big": 2**40,
    "rate": 0.1,
    "price": Decimal("1.20"),
    "at": datetime(2026, 6, 25, 0, 0, 0, 123_000, tzinfo=UTC),
    "none": None,
    "deep": {"l": [True, {"x": bytearray(b"")}]},
    "n" * 200: "long name",
}
EXPIRED = {
    "x-death": [{"count": 1, "queue": "orders.retry.1s", "reason": "expired", "exchange": "", "routing-keys": ["r"]}],
    "x-first-death-exchange": "",
    "x-first-death-queue": "orders.retry.1s",
    "x-first-death-reason": "expired",
    "x-last-death-exchange": "",
    "x-delivery-count": 2,
}


def arrived(
    headers: dict[str, Any], *, exchange: str = "jobs", routing_key: str = "job.completed", **properties: Any
) -> Delivery:
    frames = DeliveredMessage(
        delivery=Basic.Deliver("ctag", 7, False, exchange, routing_key),
        header=ContentHeader(body_size=2, properties=Basic.Properties(headers=headers, **properties)),
        body=b"{}",
        channel=None,  # type: ignore[arg-type]  # nothing is settled here
    )
    return read(message_of(frames), queue="orders", is_dead_letter=False, receipt=None)


def sent_on(octets: bytes, more: dict[str, Any]) -> Delivery:
    """The copy as it arrives after the broker has moved it, and added headers of its own."""
    header = ContentHeader()
    header.unmarshal(b"\x00\x3c\x00\x00" + bytes(8) + octets)
    header.properties.headers = {**(header.properties.headers or {}), **more}
    frames = DeliveredMessage(Basic.Deliver("ctag", 8, False, "", "orders"), header, b"{}", None)  # type: ignore[arg-type]  # as above
    return read(message_of(frames), queue="orders", is_dead_letter=False, receipt=None)


def copy_of(delivery: Delivery, *, waited: int = 1000, left: int = 0, more: dict[str, Any] | None = None) -> Delivery:
    return sent_on(
        make_copy(delivery, b"\x00key", waited=waited, left=left).marshal(), EXPIRED if more is None else more
    )


def test_what_comes_back_is_what_the_producer_sent() -> None:
    sent = datetime(2026, 6, 25, tzinfo=UTC)
    given: dict[str, Any] = {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": sent,
        "message_type": "t",
        "app_id": "a",
        "priority": 3,
    }
    first = arrived(HEADERS, **given)
    copy = copy_of(first)
    assert is_same(dict(copy.headers), dict(first.headers))
    assert copy.properties == {**first.properties, "delivery_mode": 2}
    assert (copy.body, copy.content_type, copy.origin) == (first.body, first.content_type, first.origin)
    assert (copy.pristine, copy.waited, copy.wait_left, copy.refusal) == (False, 1.0, 0.0, None)
    assert delivery_digest(b"billing", copy) == delivery_digest(b"billing", first)
    again = copy_of(copy)
    assert is_same(dict(again.headers), dict(first.headers))
    assert (again.properties, again.origin) == (copy.properties, first.origin)


def test_what_a_producer_left_out_is_not_made_up() -> None:
    copy = copy_of(arrived({}))
    assert (copy.headers, copy.content_type, copy.properties) == ({}, None, {"delivery_mode": 2})


def test_neither_an_expiration_nor_a_user_id_is_in_a_copy() -> None:
    """The first would end its wait early; the broker refuses the second, and a header could forge it."""
    copy = copy_of(arrived({}, expiration="5", user_id="someone"))
    assert copy.properties == {"delivery_mode": 2}
    forged = copy_of(arrived({"x-inbox-user-id": "root"}))
    assert "user_id" not in forged.properties


def test_two_copies_at_once_have_two_message_ids() -> None:
    """The client library finds what comes back by its id: with one id for two, the wrong one would be confirmed."""
    first = arrived({}, message_id="m")
    ids = {make_copy(first, b"k", waited=1, left=0).message_id for _ in range(10)}
    assert len(ids) == 10
    assert "m" not in ids


@pytest.mark.parametrize("name", ["CC", "BCC", "x-inbox-sheltered", "x-inbox-message-id"])
def test_a_header_that_the_broker_or_we_would_act_upon_travels_out_of_sight(name: str) -> None:
    for value in ({"CC": ["orders"]}, ["orders", "other"], "text", bytearray(b"x")):
        first = arrived({name: value, "n": 1})
        octets = make_copy(first, b"k", waited=1, left=0).marshal()
        header = ContentHeader()
        header.unmarshal(b"\x00\x3c\x00\x00" + bytes(8) + octets)
        assert header.properties.headers is not None
        assert header.properties.headers["x-inbox-sheltered"] == {name: value}
        assert {"CC", "BCC"}.isdisjoint(header.properties.headers)
        for copy in (sent_on(octets, EXPIRED), copy_of(sent_on(octets, EXPIRED))):
            assert is_same(dict(copy.headers), {name: value, "n": 1})
            assert delivery_digest(b"c", copy) == delivery_digest(b"c", first)
            assert "message_id" not in copy.properties


def test_only_what_must_be_out_of_sight_is_taken_from_there() -> None:
    copy = copy_of(arrived({"ce-id": "1"}))
    forged = sent_on(
        make_copy(copy, b"k", waited=1, left=0).marshal(),
        {"x-inbox-sheltered": {"ce-id": "2", "x-death": [], "CC": ["a"]}},
    )
    assert forged.headers == {"ce-id": "1", "CC": ["a"]}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1500, 1.5),
        (0, 0.0),
        (-1, 0.0),
        (-(2**63), 0.0),
        (2**63 - 1, LONGEST_WAIT),
        (True, 0.0),
        (1.5, 0.0),
        (float("nan"), 0.0),
        ("1500", 0.0),
        (bytearray(b"1"), 0.0),
        (None, 0.0),
        ([1], 0.0),
    ],
)
def test_what_is_left_to_wait_is_a_bounded_number_or_nothing(value: Any, seconds: float) -> None:
    copy = copy_of(arrived({}), more={"x-inbox-waited": value, "x-inbox-wait-left": value})
    assert (copy.waited, copy.wait_left) == (seconds, seconds)


def test_a_wait_is_read_from_copies_only() -> None:
    waits = {"x-inbox-waited": 1000, "x-inbox-wait-left": 1000}
    for headers in (
        waits,
        waits | {"x-inbox-attempt-key": b"k"},
        waits | {"x-inbox-origin-exchange": "e", "x-inbox-origin-routing-key": "r"},
        waits | {"x-inbox-attempt-key": b"k", "x-inbox-origin-exchange": 5, "x-inbox-origin-routing-key": "r"},
    ):
        delivery = arrived(dict(headers))
        assert (delivery.waited, delivery.wait_left) == (0, 0)
        assert delivery.headers == headers
        assert delivery_digest(b"c", copy_of(delivery)) == delivery_digest(b"c", delivery)


def test_the_first_route_is_kept_whatever_moved_it() -> None:
    moved = {
        "x-death": [{"queue": "orders", "reason": "rejected", "exchange": "jobs", "routing-keys": ["job.failed"]}],
        "x-first-death-exchange": "jobs",
        "x-first-death-queue": "orders",
        "x-first-death-reason": "rejected",
    }
    first = arrived(moved, exchange="", routing_key="orders")
    assert first.origin == Origin("jobs", "job.failed")
    assert copy_of(first).origin == first.origin
    assert "x-death" not in copy_of(first).headers


UNREADABLE = [
    Delivery(b"", UnreadableHeaders(b"\x00<")),
    Delivery(b"", {}, origin=Origin("e", UnreadableText(b"\xff"))),
    Delivery(b"", {}, origin=Origin(UnreadableText(b"\xff"), "k")),
]
INEXACT = [
    Delivery(b"", {"k": object()}),
    Delivery(b"", {"k": b"text"}),
    Delivery(b"", {"k": (1,)}),
    Delivery(b"", {"k" * 256: 1}),
    Delivery(b"", {}, content_type="c" * 256),
    Delivery(b"", {}, properties={"message_id": 5.0, "priority": "high"}),
    Delivery(b"", {}, origin=Origin("\ud800", "k")),
]


@pytest.mark.parametrize("delivery", [*UNREADABLE, *INEXACT])
def test_what_cannot_be_copied_exactly_is_not_copied(delivery: Delivery) -> None:
    with pytest.raises(TransportError):
        make_copy(delivery, b"k", waited=1, left=0)
