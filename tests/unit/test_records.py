"""Identity and fingerprint: two different events are never taken for one."""

import unicodedata

import pytest

from inbox.core.event import CloudEvent
from inbox.core.records import EVENT_ID_OCTETS, FingerprintPart, InboxRecord, record_of
from inbox.errors import Refused

DIFFERENT = ["a", "A", "á", "a ", " a", "a\u200b", unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")]


def event(identifier: str = "1", source: str = "/s", data: bytes | None = b"x") -> CloudEvent:
    return CloudEvent(id=identifier, source=source, type="t", data=data)


def test_ids_that_look_alike_are_different() -> None:
    keys = {record_of("c", event(text), "id", None).key for text in DIFFERENT}
    assert len(keys) == len(DIFFERENT)


def test_an_id_that_does_not_fit_is_refused_and_never_cut() -> None:
    fits = "x" * EVENT_ID_OCTETS
    assert record_of("c", event(fits), "id", None).key == fits.encode()
    with pytest.raises(Refused) as caught:
        record_of("c", event("é" * (EVENT_ID_OCTETS // 2 + 1)), "id", None)
    assert caught.value.code == "id-too-long"


def test_source_and_id_make_a_key_of_their_own() -> None:
    pairs = [("a", "bc"), ("ab", "c"), ("", "abc"), ("b", "c")]
    keys = {record_of("c", event(i, source), "source+id", None).key for source, i in pairs}
    assert len(keys) == len(pairs)
    assert {len(key) for key in keys} == {32}
    assert record_of("c", event("x" * 10_000), "source+id", None).key


def test_the_fingerprint_covers_what_it_is_told_to() -> None:
    parts: tuple[FingerprintPart, ...] = ("source", "type", "data")
    first = record_of("c", event(), "id", parts)
    assert record_of("c", event(), "id", parts) == first
    assert record_of("c", event(data=b"y"), "id", parts).fingerprint != first.fingerprint
    assert record_of("c", event(source="/t"), "id", parts).fingerprint != first.fingerprint
    assert record_of("c", event(data=b"y"), "id", ("source", "type")).fingerprint == (
        record_of("c", event(), "id", ("source", "type")).fingerprint
    )
    assert record_of("c", event(data=None), "id", ("subject", "data")).fingerprint is not None


def test_the_order_of_its_parts_does_not_matter() -> None:
    assert record_of("c", event(), "id", ("data", "source")) == record_of("c", event(), "id", ("source", "data"))


@pytest.mark.parametrize(
    ("ours", "stored", "contradicts"),
    [
        (InboxRecord("c", b"1", b"f", 1), (b"f", 1), False),
        (InboxRecord("c", b"1", b"f", 1), (b"g", 1), True),
        (InboxRecord("c", b"1", b"f", 1), (b"g", 2), False),
        (InboxRecord("c", b"1", b"f", 1), (None, None), False),
        (InboxRecord("c", b"1"), (b"g", 1), False),
    ],
)
def test_only_fingerprints_of_one_scheme_are_compared(
    ours: InboxRecord, stored: tuple[bytes | None, int | None], contradicts: bool
) -> None:
    assert ours.contradicts(*stored) is contradicts


def test_nothing_of_the_event_shows_in_a_repr() -> None:
    record = record_of("c", event("secret-id"), "id", ("data",))
    assert "secret" not in repr(record)
    assert "secret" not in repr(event("secret-id", data=b"secret"))
