"""From a message to a delivery: types kept, origin found, nothing raised."""

from datetime import UTC, datetime
from typing import Any

import pytest
from aio_pika import IncomingMessage
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from inbox.adapters.rabbitmq import delivery_from
from inbox.adapters.rabbitmq.content import Message, message_of
from inbox.adapters.rabbitmq.delivery import is_pristine, origin_of, read
from inbox.adapters.rabbitmq.undecodable import UnreadableHeaders, UnreadableText
from inbox.core.delivery import Origin
from inbox.core.kept import delivery_digest
from inbox.errors import Undecodable


def message(headers: dict[str, Any] | None = None, **given: Any) -> Message:
    return message_of(delivered(headers, **given))


def delivered(
    headers: dict[str, Any] | None = None,
    *,
    body: bytes = b"{}",
    exchange: str = "jobs",
    routing_key: str = "job.completed",
    redelivered: bool = False,
    **properties: Any,
) -> DeliveredMessage:
    return DeliveredMessage(
        delivery=Basic.Deliver("ctag", 7, redelivered, exchange, routing_key),
        header=ContentHeader(body_size=len(body), properties=Basic.Properties(headers=headers, **properties)),
        body=body,
        channel=None,  # type: ignore[arg-type]  # nothing is settled here
    )


def death(queue: str, reason: str, exchange: str, *keys: Any) -> dict[str, Any]:
    return {"count": 1, "queue": queue, "reason": reason, "exchange": exchange, "routing-keys": list(keys)}


def test_headers_and_properties_are_passed_on_as_they_were_typed() -> None:
    sent = datetime(2026, 6, 25, tzinfo=UTC)
    headers = {"ce-id": bytearray(b"\xff"), "n": 1, "t": sent, "s": "text", "deep": {"a": [1, None]}}
    delivery = read(
        message(headers, content_type="application/json", message_id="m", message_type="made", priority=3),
        queue="orders",
        is_dead_letter=False,
        receipt="receipt",
    )
    assert delivery.headers == headers
    assert delivery.headers["ce-id"] is headers["ce-id"]
    assert delivery.content_type == "application/json"
    assert delivery.properties == {"message_id": "m", "type": "made", "priority": 3}
    assert delivery.origin == Origin("jobs", "job.completed")
    assert (delivery.queue, delivery.receipt, delivery.pristine, delivery.refusal) == ("orders", "receipt", True, None)


def test_a_message_without_any_property_is_a_delivery() -> None:
    delivery = read(message(None, body=b""), queue="orders", is_dead_letter=False, receipt=None)
    assert (delivery.headers, delivery.content_type, dict(delivery.properties)) == ({}, None, {})


def test_a_message_of_aio_pika_makes_the_same_delivery() -> None:
    frames = delivered({"ce-id": bytearray(b"1")}, content_type="text/plain", correlation_id="c", delivery_mode=2)
    ours = read(message_of(frames), queue="orders", is_dead_letter=False, receipt=None)
    theirs = delivery_from(IncomingMessage(frames), queue="orders")
    for name in ("body", "headers", "content_type", "properties", "origin", "queue", "pristine", "refusal"):
        assert getattr(theirs, name) == getattr(ours, name), name


@pytest.mark.parametrize(
    ("headers", "pristine"),
    [
        ({}, True),
        ({"x-delivery-count": 0}, True),
        ({"x-delivery-count": 1}, False),
        ({"x-acquired-count": 1}, False),
        ({"x-death": []}, False),
        ({"x-inbox-attempt-key": "k"}, False),
        ({"x-retry-count": 3}, True),
    ],
)
def test_what_hints_at_an_earlier_hand_out_is_not_pristine(headers: dict[str, Any], pristine: bool) -> None:
    assert is_pristine(headers) is pristine


def test_a_redelivered_message_is_not_pristine() -> None:
    assert not read(message({}, redelivered=True), queue="q", is_dead_letter=False, receipt=None).pristine


TWO_HOPS = {
    "x-first-death-exchange": "jobs",
    "x-first-death-queue": "orders",
    "x-first-death-reason": "rejected",
    "x-death": [death("wait", "expired", "retry", "orders"), death("orders", "rejected", "jobs", "job.failed", "copy")],
}


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({}, Origin("here", "now")),
        (TWO_HOPS, Origin("jobs", "job.failed")),
        (TWO_HOPS | {"x-first-death-exchange": ""}, Origin("", "job.failed")),
        (TWO_HOPS | {"x-death": []}, Origin("jobs", "now")),
        (TWO_HOPS | {"x-death": "forged"}, Origin("jobs", "now")),
        (TWO_HOPS | {"x-death": [{"queue": "orders", "reason": "rejected"}]}, Origin("jobs", "now")),
        (TWO_HOPS | {"x-death": ["odd", None, death("orders", "rejected", "jobs", 5)]}, Origin("jobs", "now")),
        (
            TWO_HOPS | {"x-inbox-origin-exchange": "first", "x-inbox-origin-routing-key": bytearray(b"key")},
            Origin("first", "key"),
        ),
        ({"x-inbox-origin-exchange": "first"}, Origin("here", "now")),
        ({"x-inbox-origin-exchange": "first", "x-inbox-origin-routing-key": b"\xff"}, Origin("here", "now")),
        ({"x-inbox-origin-exchange": "", "x-inbox-origin-routing-key": "orders"}, Origin("", "orders")),
        ({"x-first-death-exchange": 7}, Origin("here", "now")),
    ],
)
def test_the_origin_is_ours_else_the_first_death_else_its_own(headers: dict[str, Any], origin: Origin) -> None:
    assert origin_of(headers, "here", "now") == origin


@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ([death("orders", "delivery_limit", "jobs", "k")], "delivery_limit"),
        ([death("orders", "expired", "jobs", "k"), death("orders", "rejected", "jobs", "k")], "expired"),
        ([death("orders", "<script>", "jobs", "k")], "unknown"),
        ([], "unknown"),
        (None, "unknown"),
    ],
)
def test_a_dead_letter_is_refused_with_the_brokers_reason_as_a_code(deaths: Any, reason: str) -> None:
    delivery = read(message({"x-death": deaths}), queue="orders.dead", is_dead_letter=True, receipt=None)
    assert delivery.refusal is not None
    assert delivery.refusal.code == "dead-lettered"
    assert delivery.refusal.detail.endswith(f"reason {reason}")


def test_unreadable_headers_are_refused_and_kept_for_the_quarantine() -> None:
    marked = UnreadableHeaders(b"\x00<")
    delivery = read(message(marked, redelivered=True), queue="orders", is_dead_letter=True, receipt=None)
    assert isinstance(delivery.refusal, Undecodable)
    assert delivery.refusal.code == "unreadable-header"
    assert delivery.properties["raw_header"] == b"\x00<"
    assert delivery_from(IncomingMessage(delivered(marked))).properties["raw_header"] == b"\x00<"


def test_unreadable_deliveries_are_told_apart_in_the_quarantine() -> None:
    first, again, other = (
        read(message(UnreadableHeaders(raw), body=b""), queue="orders", is_dead_letter=False, receipt=None)
        for raw in (b"\x00<a", b"\x00<a", b"\x00<b")
    )
    assert delivery_digest(b"billing", first) == delivery_digest(b"billing", again)
    assert delivery_digest(b"billing", first) != delivery_digest(b"billing", other)


def test_the_mark_cannot_be_forged() -> None:
    assert read(message({"x-inbox-unreadable": True}), queue="q", is_dead_letter=False, receipt=None).refusal is None


def test_an_unreadable_route_is_refused_and_kept_for_the_quarantine() -> None:
    delivery = read(message(routing_key=UnreadableText(b"a\xff")), queue="q", is_dead_letter=False, receipt=None)
    assert isinstance(delivery.refusal, Undecodable)
    assert delivery.refusal.code == "unreadable-route"
    assert delivery.properties["raw_routing_key"] == b"a\xff"
    delivery.origin.routing_key.encode()  # escaped, so it can be stored
