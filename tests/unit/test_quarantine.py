"""Entries of the quarantine as values: what is meant, what is shown, and texts that come back as they were."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from inbox.core.delivery import ATTEMPT_KEY, ORIGIN_EXCHANGE, Delivery, Origin
from inbox.core.quarantine import (
    AttemptLine,
    QuarantineCursor,
    QuarantinedDelivery,
    QuarantineEntry,
    QuarantineState,
    ReplayReport,
    Selection,
    cut_octets,
    history_lines,
    history_text,
    kept_delivery,
    portions,
)
from inbox.errors import ConfigurationError, Refused, Undecodable

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

ENTRY = QuarantineEntry(
    digest=bytes(range(32)),
    state=QuarantineState.OPEN,
    reason="handler-error",
    detail="ValueError",
    event_id="é".encode(),
    event_type="t",
    source="/s",
    record_key=b"k",
    origin=Origin("events", "t"),
    queue="q",
    attempts=1,
    history=(),
    times_seen=2,
    first_at=AT,
    last_at=AT,
    state_at=None,
    state_note=None,
    body_bytes=1,
    total_bytes=10,
)


# ------------------------------------------------------------------ what is meant
@pytest.mark.parametrize(
    ("selection", "is_meant"),
    [
        (Selection(), True),
        (Selection((QuarantineState.REPLAYED,)), False),
        (Selection(("open", "replayed")), True),
        (Selection(reasons=("a", "handler-error")), True),
        (Selection(reasons=("a",)), False),
        (Selection(types=("t",)), True),
        (Selection(types=("T",)), False),
        (Selection(ids=("é",)), True),
        (Selection(ids=("e",)), False),
        (Selection(digests=("0001",)), True),
        (Selection(digests=("000",)), True),
        (Selection(digests=("0002", "00010203")), True),
        (Selection(digests=("1",)), False),
        (Selection(since=AT), True),
        (Selection(since=AT + timedelta(microseconds=1)), False),
        (Selection(until=AT), False),
        (Selection(until=AT + timedelta(microseconds=1)), True),
        (Selection(reasons=("handler-error",), types=("u",)), False),
    ],
)
def test_a_selection_covers_what_meets_every_condition(selection: Selection, is_meant: bool) -> None:
    assert selection.covers(ENTRY) is is_meant


def test_what_was_never_decoded_has_no_type_to_be_found_by() -> None:
    assert not Selection(types=("t",)).covers(replace(ENTRY, event_type=None))


def test_a_type_is_found_by_what_is_stored_of_it() -> None:
    long = "é" * 300
    stored = cut_octets(long, 255).decode()
    assert len(stored) == 127
    assert Selection(types=(long,)).covers(replace(ENTRY, event_type=stored))


@pytest.mark.parametrize(
    "wrong",
    [
        {"states": ()},
        {"states": ("closed",)},
        {"states": "open"},
        {"reasons": "handler-error"},
        {"types": "t"},
        {"ids": "e-1"},
        {"digests": "ab"},
        {"digests": ("",)},
        {"digests": ("xy",)},
        {"digests": ("a" * 65,)},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is wrong with it
        {"until": datetime(2026, 1, 1)},  # noqa: DTZ001 - as above
    ],
)
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Selection(**wrong)  # type: ignore[arg-type]


def test_a_selection_shows_no_ids() -> None:
    assert "e-1" not in repr(Selection(ids=("e-1",)))


# ------------------------------------------------------------------ what is shown
def test_neither_keys_nor_payload_show() -> None:
    whole = QuarantinedDelivery(replace(ENTRY, event_id=b"secret", detail="secret"), Delivery(b"secret", {}))
    assert repr(whole) == "<QuarantinedDelivery 000102030405>"
    assert repr(whole.entry) == "<QuarantineEntry 000102030405 open>"


def test_a_report_says_whether_all_of_it_is_out() -> None:
    assert ReplayReport(4, applied=1, duplicates=2, ignored=1).is_complete
    assert ReplayReport(4, applied=1, duplicates=2, ignored=1).settled == 4
    assert not ReplayReport(1, quarantined_again=1).is_complete
    assert not ReplayReport(1, kept=1).is_complete


# ------------------------------------------------------------------ places in a list
def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = ENTRY.cursor
    assert str(cursor) == f"20260102T030405.000006Z-10-{bytes(range(32)).hex()}"
    assert QuarantineCursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "x", "20260102T030405.000006Z-10", "20260102T030405.000006Z-x-00", "1-2-3", "--"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        QuarantineCursor.parse(text)


# ------------------------------------------------------------------ the history
HISTORY = (
    "ValueError at app.py:3\n"
    "2026-01-02 03:04:05.000006 failed: handler-error ValueError at app.py:3\n"
    "2026-01-02 03:04:06.000000 released: \n"
    "2026-99-02 03:04:06.000000 failed: no such day\n"
)


def test_a_history_is_read_by_its_lines() -> None:
    assert history_lines(HISTORY) == (
        AttemptLine(None, "", "ValueError at app.py:3"),
        AttemptLine(AT, "failed", "handler-error ValueError at app.py:3"),
        AttemptLine(AT.replace(second=6, microsecond=0), "released", ""),
        AttemptLine(None, "", "2026-99-02 03:04:06.000000 failed: no such day"),
    )


def test_a_history_comes_back_as_it_was() -> None:
    assert history_text(history_lines(HISTORY)) == HISTORY
    assert history_lines(None) == history_lines("") == ()
    assert history_text(()) is None


def test_times_of_a_history_are_written_in_utc() -> None:
    line = AttemptLine(AT.astimezone(timezone(timedelta(hours=5))), "failed", "x")
    assert history_text([line]) == "2026-01-02 03:04:05.000006 failed: x\n"


# ------------------------------------------------------------------ what is kept
def test_a_delivery_is_kept_without_what_the_way_added() -> None:
    came = {"a": 1, "x-death": [1], "x-delivery-count": 2}
    original = Delivery(b"1", came, "text/plain", {"priority": 1}, Origin("e", "k"), "q", receipt=object())
    kept = kept_delivery(original)
    assert (kept.headers, kept.body, kept.origin, kept.receipt) == (came, b"1", Origin("e", "k"), None)
    assert kept.is_replay
    assert not kept.pristine
    copy = replace(original, headers={**came, ATTEMPT_KEY: b"k", ORIGIN_EXCHANGE: "e"}, waited=1.0, wait_left=2.0)
    assert kept_delivery(copy).headers == {"a": 1}
    assert (kept_delivery(copy).waited, kept_delivery(copy).wait_left) == (0, 0)


def test_only_what_could_not_be_parsed_stays_refused() -> None:
    refusal = Undecodable("no", code="unreadable-header")
    assert kept_delivery(Delivery(b"", {}, refusal=refusal)).refusal is refusal
    assert kept_delivery(Delivery(b"", {}, refusal=Refused("no", code="dead-lettered"))).refusal is None


@pytest.mark.parametrize("octets", range(8))
def test_text_is_cut_between_characters(octets: int) -> None:
    cut = cut_octets("aé€", octets)
    assert len(cut) <= octets
    assert "aé€".startswith(cut.decode())
    assert cut_octets("aé€", 6) == "aé€".encode()


def test_portions_are_bounded_by_number_and_by_octets() -> None:
    sizes = [10, 10, 10, 100, 10, 30, 1]
    entries = [replace(ENTRY, total_bytes=size) for size in sizes]
    assert [[entry.total_bytes for entry in part] for part in portions(entries, 2, 40)] == [
        [10, 10],
        [10],
        [100],
        [10, 30],
        [1],
    ]
    assert [*portions([], 2, 40)] == []
