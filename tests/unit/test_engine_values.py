"""The values of the core: what they show, and what they keep to themselves."""

from datetime import UTC, datetime

import pytest

from inbox.core.delivery import COPY_HEADERS, Delivery, Origin, digest, is_bookkeeping, is_broker_counter
from inbox.core.event import CloudEvent, Event
from inbox.core.records import record_of
from inbox.errors import Undecodable

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def event(data: bytes | None = b'{"secret": 1}') -> Event:
    cloudevent = CloudEvent(
        id="secret-id", source="/s", type="t", subject="secret", time=TIME, extensions={"tenant": "secret"}, data=data
    )
    return Event(cloudevent, record_of("c", cloudevent, "id", ("source", "subject", "data")), Origin("x", "k"))


def test_an_event_gives_its_attributes() -> None:
    given = event()
    assert (given.id, given.source, given.type, given.subject) == ("secret-id", "/s", "t", "secret")
    assert given.time == TIME
    assert given.extensions == {"tenant": "secret"}
    assert given.data == b'{"secret": 1}'
    assert given.json() == {"secret": 1}
    assert event(None).json() is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"NaN", b"-Infinity", b'{"a":1,"a":2}', b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000, b"1" * 5000],
)
def test_what_is_no_strict_json_is_refused_without_being_shown(data: bytes) -> None:
    with pytest.raises(Undecodable) as caught:
        event(data).json()
    assert str(caught.value) == "bad-json: the data is not strict JSON"


def test_no_repr_shows_what_came() -> None:
    given = event()
    arrival = Delivery(b"secret", {"secret": "secret"}, properties={"secret": 1}, origin=Origin("x", "k"), queue="q")
    shown = f"{given!r} {given.cloudevent!r} {given.record!r} {arrival!r}"
    assert "secret" not in shown
    assert shown == "<Event of consumer c> <CloudEvent with data> <InboxRecord of consumer c> <Delivery from 'q'>"


def test_a_digest_knows_where_a_part_ends() -> None:
    assert digest({"a": b"bc"}) == digest({"a": b"bc"})
    assert len({digest(parts) for parts in ({"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {})}) == 4


def test_the_brokers_own_headers_are_known() -> None:
    assert is_broker_counter("x-death")
    assert is_broker_counter("x-first-death-queue")
    assert not is_broker_counter("x-deaths")


def test_what_copies_carry_is_no_part_of_the_event() -> None:
    assert all(is_bookkeeping(name) for name in (*COPY_HEADERS, "x-death", "x-first-death-queue"))
    assert not is_bookkeeping("x-inbox-of-someone-else")
