"""The values behind `inbox status`."""

import json
from datetime import datetime

import pytest

from inbox.core.disposition import FailureKind
from inbox.core.figures import (
    AttemptFigures,
    Figures,
    InboxFigures,
    QuarantineFigures,
    Tally,
    WorkerFigures,
    WorkerReport,
    counts_of,
    counts_text,
)

AT = datetime(2031, 5, 6, 7, 8, 9)  # noqa: DTZ001 - as the databases give their times


def test_counts_are_a_json_object() -> None:
    assert counts_text({"b": 2, "a": 1}, 4000) == '{"a":1,"b":2}'
    assert counts_of('{"a":1,"b":2}') == {"a": 1, "b": 2}


def test_the_smallest_counts_give_way_where_there_is_no_room() -> None:
    assert counts_text({"applied": 9, "é": 1, "duplicate": 5}, 29) == '{"applied":9,"duplicate":5}'
    assert counts_text({"applied": 9}, 2) == "{}"


def test_every_count_there_can_be_has_room() -> None:
    outcomes = ["applied", "ignored", "duplicate", "quarantined", "delayed", "released", "repeated", "resolved"]
    counts = dict.fromkeys([*outcomes, "ack_lost", *(f"failed:{kind.value}" for kind in FailureKind)], 10**15)
    assert json.loads(counts_text(counts, 4000)) == counts


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"a": "1", "b": true, "c": 1.5, "d": null}'])
def test_what_nobody_of_us_wrote_counts_for_nothing(text: str) -> None:
    assert counts_of(text) == {}


def worker(state: str, age: float, **counts: int) -> WorkerFigures:
    return WorkerFigures(WorkerReport(b"w" * 16, "h", 1, state, counts), AT, AT, age)


def test_a_worker_is_silent_after_its_time_unless_it_stopped() -> None:
    assert [worker(*of).is_silent(30) for of in (("consuming", 30.0), ("consuming", 31.0), ("stopped", 99.0))] == [
        False,
        True,
        False,
    ]
    assert worker("stopped", 0).is_stopped
    assert not worker("paused: stopped", 0).is_stopped


def test_the_share_of_the_bounds_is_the_larger_one() -> None:
    states = {"open": Tally(3, 500), "replayed": Tally(1, 300)}
    assert QuarantineFigures(states, {}, AT, 10, 10_000).share == 0.4
    assert QuarantineFigures(states, {}, AT, 1000, 1000).share == 0.8
    assert QuarantineFigures(states, {}, AT, 10, 10).open == 3
    assert QuarantineFigures({}, {}, None, 10, 10).open == 0


def test_counts_of_all_workers_are_summed() -> None:
    quarantine = QuarantineFigures({}, {}, None, 1, 1)
    workers = [worker("stopped", 0, applied=1, released=2), worker("consuming", 0, applied=3)]
    figures = Figures("c", AT, 1, InboxFigures(), AttemptFigures(), quarantine, workers)
    assert figures.counts == {"applied": 4, "released": 2}
