"""What is kept of a refused delivery comes back as it was, and is found again by its digest."""

from dataclasses import replace

import pytest

from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent
from inbox.core.kept import cut_text, delivery_digest, described, places, stored_delivery, stored_headers
from inbox.core.typed_json import dump_headers
from inbox.errors import Refused, Undecodable

GIVEN = Delivery(
    b"\0\xff", {"n": 1, "raw": b"\xff"}, "text/plain", {"message_id": "m"}, Origin("events", "k" * 300), "q" * 300
)


def test_it_comes_back_whole_and_as_a_replay() -> None:
    back = stored_delivery(stored_headers(GIVEN), GIVEN.body)

    assert (back.body, back.headers, back.content_type) == (GIVEN.body, GIVEN.headers, GIVEN.content_type)
    assert (back.properties, back.origin, back.queue) == (GIVEN.properties, GIVEN.origin, GIVEN.queue)
    assert (back.is_replay, back.pristine, back.refusal) == (True, False, None)


def test_only_a_refusal_that_cannot_be_found_again_is_kept() -> None:
    undecodable = replace(GIVEN, refusal=Undecodable("not UTF-8", code="unreadable-route"))
    back = stored_delivery(stored_headers(undecodable), b"")

    assert isinstance(back.refusal, Undecodable)
    assert (back.refusal.code, back.refusal.detail) == ("unreadable-route", "not UTF-8")
    assert stored_delivery(stored_headers(replace(GIVEN, refusal=Refused("gone"))), b"").refusal is None


@pytest.mark.parametrize(
    "lacking",
    [
        {},
        {"headers": {}, "properties": {}, "queue": 1, "origin": ["", ""]},
        {"headers": {}, "properties": {}, "queue": "q", "origin": [""]},
        {"headers": {}, "properties": {}, "queue": "q", "content_type": 7, "origin": ["", ""]},
    ],
)
def test_what_lacks_something_of_a_delivery_is_refused(lacking: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="lack something"):
        stored_delivery(dump_headers(lacking), b"")


def test_the_digest_heeds_what_arrived_and_not_what_a_broker_counts() -> None:
    digest = delivery_digest(b"billing", GIVEN)

    counted = replace(GIVEN, headers={**GIVEN.headers, "x-delivery-count": 3}, properties={}, queue="other")
    assert delivery_digest(b"billing", counted) == digest
    others = [
        replace(GIVEN, body=b"\0"),
        replace(GIVEN, headers={"n": "1", "raw": b"\xff"}),
        replace(GIVEN, content_type=None),
        replace(GIVEN, origin=Origin("events", "k")),
    ]
    assert digest not in [delivery_digest(b"billing", other) for other in others]
    assert delivery_digest(b"mail", GIVEN) != digest


def test_columns_get_what_they_hold_and_an_id_is_never_cut() -> None:
    assert described(None) == (None, None, None)
    cut = described(CloudEvent(id="e", source="s" * 2000, type="é" * 200))
    assert cut == (b"e", "é".encode() * 127, b"s" * 1024)
    assert described(CloudEvent(id="x" * 600, source="s", type="t"))[0] is None
    assert places(GIVEN) == (b"events", b"k" * 255, b"q" * 255)
    assert cut_text("a\ud800b", 2) == "a?"
