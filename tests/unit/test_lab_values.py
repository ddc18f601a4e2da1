"""What the lab decides without asking anybody: events, comparisons, which kills there are, and the report."""

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inbox import CloudEvent, ConfigurationError, ConsumerSettings, Delivery, RetryPolicy, RetryRule
from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.lab import Difference, EventLike, Lab, LabError, Matrix, Observation, Result, Scenario
from inbox.testing.lab.comparison import Baseline, baseline, differences, parse_ignored
from inbox.testing.lab.database import Ended, Rows, ended_of, is_disposable, require_disposable
from inbox.testing.lab.events import message_of, read_events
from inbox.testing.lab.matrix import plan, unreached
from inbox.testing.lab.report import Report, as_html
from inbox.testing.lab.workers import hurried, load_target, points_seen


# ------------------------------------------------------------------ names
@pytest.mark.parametrize("name", ["shop_test", "test-shop", "SHOP-LAB.db", "shop.tests", "t_test_1", "lab"])
def test_a_name_with_such_a_word_is_for_tests(name: str) -> None:
    assert is_disposable(name)
    require_disposable("database", name)


@pytest.mark.parametrize("name", ["shop", "latest", "contest", "collaboration", "labels", "available", ""])
def test_any_other_name_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--disposable.*inbox_disposable = true"):
        require_disposable("database", name)


# ------------------------------------------------------------------ targets and settings
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "write module:attribute"),
        ("shop_that_is_not_there:inbox", "no module 'shop_that_is_not_there'"),
        ("inbox.errors:inbox", "has no 'inbox'"),
        ("inbox.core.crashpoints:crash_points", "is a generator, not an Inbox"),
        ("inbox:a b", "has no 'a b'"),
    ],
)
def test_a_target_that_is_none_is_told_of(target: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_target(target)


def test_waits_are_cut_and_their_number_stays() -> None:
    rules = (RetryRule(ValueError, delays=(9.0, 0.0)), RetryRule(KeyError, max_attempts=1))
    settings = ConsumerSettings(retry=RetryPolicy(delays=(0.05, 1.0, 60.0), rules=rules), retention=90 * 86_400.0)
    cut = hurried(settings, 0.1)
    assert cut.retry.delays == (0.05, 0.1, 0.1)
    assert [rule.delays for rule in cut.retry.rules] == [(0.1, 0.0), None]
    assert (cut.retry.first_delay, cut.retry.max_delay, cut.retention) == (0.1, 0.1, None)
    assert cut.retry.max_attempts == settings.retry.max_attempts
    assert hurried(settings, None) is settings


def test_points_are_read_back_with_types_that_hold_spaces(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    assert points_seen(file) == set()
    file.write_text("before:decode \nafter:commit a type\nafter:commit a type\n")
    assert points_seen(file) == {("before:decode", ""), ("after:commit", "a type")}


# ------------------------------------------------------------------ events
EVENT = CloudEvent(id="1", source="/s", type="paid", data=b'{"n": 1}', datacontenttype="application/json")


@pytest.mark.parametrize(
    "given",
    [
        {"id": "1", "source": "/s", "type": "paid", "data": {"n": 1}},
        '{"specversion": "1.0", "id": "1", "source": "/s", "type": "paid", "data": {"n": 1}}',
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "paid", "data": {"n": 1}}',
        EVENT,
    ],
)
def test_an_event_may_be_given_in_many_ways(given: EventLike) -> None:
    message = message_of(given)
    assert message.headers["ce-id"] == "1"
    assert json.loads(message.body) == {"n": 1}
    assert message.key("id") == b"1"
    assert len(message.key("source+id") or b"") == 32
    assert message_of(given, "structured").headers == {}


def test_a_delivery_goes_as_it_is_also_where_it_holds_no_event() -> None:
    junk = message_of(Delivery(b"junk", {"x": b"\0"}, "text/plain"))
    assert (junk.body, junk.headers, junk.event, junk.key("id")) == (b"junk", {"x": b"\0"}, None, None)
    headers = {"ce-id": "x" * 600, "ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}
    assert message_of(Delivery(b"", headers)).key("id") is None, "an id that cannot be stored"


def test_two_that_are_the_same_are_one() -> None:
    one, other = message_of({"id": "1", "type": "t"}), message_of({"type": "t", "id": "1"})
    assert {one: None} == {other: None}
    assert message_of({"id": "2", "type": "t"}) != one


@pytest.mark.parametrize(
    ("given", "said"), [({"id": "1"}, "type"), ("[]", "no CloudEvent"), ({"id": 1, "type": "t"}, "no CloudEvent")]
)
def test_what_is_no_event_is_refused(given: EventLike, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        message_of(given)


def test_a_file_is_read_line_by_line_and_routed_as_the_command_publishes(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"specversion":"1.0","id":"1","source":"/s","type":"paid"}\n\n \n')
    routes = [
        (message.exchange, message.routing_key)
        for arguments in ((None, None), ("jobs", None), ("jobs", "k"), ("", "q"))
        for message in read_events(file, "binary", *arguments)
    ]
    assert routes == [(None, None), ("jobs", "paid"), ("jobs", "k"), ("", "q")]
    file.write_text('{"specversion":"1.0","id":"1","source":"/s","type":"paid"}\n{"id": 1}\n')
    with pytest.raises(ConfigurationError, match="line 2"):
        read_events(file)
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match="holds no events"):
        read_events(file)


# ------------------------------------------------------------------ what became of events
def test_what_became_of_events_is_read_from_three_answers() -> None:
    ended = ended_of(
        [(b"a",), (bytearray(b"b"),)],
        [(b"b", b"b", "rejected"), (None, b"c", "crashed"), (None, b"c", "no-handler"), (None, None, "undecodable")],
        [(2,)],
    )
    assert ended == Ended(
        frozenset({b"a", b"b"}), {b"b": "rejected", b"c": "crashed, no-handler"}, keyless=1, open_starts=2
    )
    assert ended.word_for(b"a") == "applied"
    assert ended.word_for(b"b") == "applied and quarantined as rejected"
    assert ended.word_for(b"d") == "neither applied nor in quarantine"


# ------------------------------------------------------------------ comparing
def rows(*values: tuple[Any, ...], columns: tuple[str, ...] = ("id", "who", "at")) -> Rows:
    return Rows(columns, Counter(values))


def seen(*values: tuple[Any, ...], **others: Any) -> Observation:
    return Observation({"entry": rows(*values)}, **others)


def test_the_same_rows_in_another_order_are_the_same() -> None:
    known = baseline(seen((1, "a", 5), (2, "b", 6)), seen((2, "b", 6), (1, "a", 5)))
    assert known.ignored == {}
    assert differences(known, seen((2, "b", 6), (1, "a", 5))) == []


def test_columns_that_two_quiet_runs_differ_in_are_not_compared_and_told_of() -> None:
    known = baseline(seen((1, "a", 5)), seen((1, "a", 7)), surrogates={("entry", "id")})
    assert known.ignored == {("entry", "id"): "the database draws it", ("entry", "at"): "two quiet runs differ in it"}
    assert differences(known, seen((9, "a", 8))) == []
    (difference,) = differences(known, seen((9, "a", 8), (10, "a", 8)))
    assert difference.lines() == ["table entry: 1 row more than in the quiet run", "  + here only   who=a"]


def test_rows_that_differ_say_in_which_column() -> None:
    known = Baseline(seen((1, "a", 5), (2, "b", 6)))
    (difference,) = differences(known, seen((1, "a", 5), (2, "c\x1b[2J", 6)))
    assert difference.changed == ("who",)
    assert difference.lines() == [
        "table entry: 1 row of the quiet run missing, 1 row more than in the quiet run (column who)",
        "  - quiet only  id=2, who=b, at=6",
        "  + here only   id=2, who=c\\x1b[2J, at=6",
    ]
    assert difference.as_dict()["added"] == [["2", "c\\x1b[2J", "6"]]


def test_a_row_that_is_there_twice_is_one_more() -> None:
    assert differences(Baseline(seen((1, "a", 5))), seen((1, "a", 5), (1, "a", 5)))[0].added == Counter([(1, "a", 5)])


def test_many_rows_are_counted_and_long_values_cut() -> None:
    (difference,) = differences(Baseline(seen()), seen(*[(number, "x" * 500, None) for number in range(9)]))
    assert len(difference.lines()) == 1 + 5 + 1
    assert difference.lines()[-1].endswith("and 4 more")
    assert max(map(len, difference.lines())) < 120


def test_events_checks_and_calls_are_compared_too() -> None:
    quiet = seen(events={"1": "applied"}, checks={"SELECT 1": rows((1,), columns=("n",))})
    here = seen(
        events={"1": "quarantined as crashed"},
        checks={"SELECT 1": rows((2,), columns=("n",))},
        calls={"MAIL": rows(("POST", "/", b""), columns=("method", "path", "body"))},
    )
    found = differences(Baseline(quiet), here)
    assert [difference.where for difference in found] == ["event 1", "check SELECT 1", "HTTP MAIL"]
    assert "became=quarantined as crashed" in found[0].lines()[2]
    assert found[2].lines()[0] == "HTTP MAIL: 1 request more than in the quiet run"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (seen((1, "a", 5)), seen((1, "a", 5), (1, "a", 5))),
        (seen((1, "a", 5), (2, "b", 6)), seen((1, "b", 5), (2, "a", 6))),
        (seen(events={"1": "applied"}), seen(events={"1": "quarantined as x"})),
        (seen(checks={"q": rows((1,), columns=("n",))}), seen(checks={"q": rows((2,), columns=("n",))})),
    ],
    ids=["another number of rows", "the same values in other rows", "another end", "another answer"],
)
def test_quiet_runs_that_differ_in_more_than_columns_are_no_baseline(first: Observation, second: Observation) -> None:
    with pytest.raises(LabError, match=r"two quiet runs of the same events differ(?s:.)*--ignore table.column"):
        baseline(first, second)


def test_a_table_that_only_one_run_has_is_a_difference() -> None:
    known = Baseline(Observation({}))
    assert [found.where for found in differences(known, seen((1, "a", 5)))] == ["table entry"]
    assert differences(known, seen()) == []


def test_columns_to_ignore_are_named_with_their_table() -> None:
    assert parse_ignored(["entry.at", "a.b.c"]) == {("entry", "at"): "you said so", ("a", "b.c"): "you said so"}
    for wrong in ("entry", ".at", "entry."):
        with pytest.raises(ValueError, match=re.escape("write table.column")):
            parse_ignored([wrong])


# ------------------------------------------------------------------ which kills
def passed(*types: str, without: tuple[str, ...] = ()) -> set[tuple[str, str]]:
    early = {"before:decode", "after:decode", "before:verify"}
    names = {str(point) for point in crash_points()} - {*without}
    return {(name, event_type) for name in names - early for event_type in types} | {(name, "") for name in early}


def test_each_type_has_a_kill_where_its_handler_has_run_and_the_first_one_before() -> None:
    scenarios = plan(passed("a", "b"), (1,))
    of = {str(point): [s.event_type for s in scenarios if s.point == point] for point in crash_points()}
    assert of["before:decode"] == of["after:claim"] == of["before:apply"] == [None]
    assert of["after:apply"] == of["before:commit"] == of["after:acknowledge"] == of["before:delay"] == ["a", "b"]
    assert [str(s.point) for s in plan(passed("a"), (1,))] == [str(point) for point in crash_points()]


def test_only_what_is_reached_and_wanted_is_run_and_the_rest_is_told() -> None:
    points = [CrashPoint.parse("before:commit"), CrashPoint.parse("after:quarantine")]
    found = passed("a", without=("before:quarantine", "after:quarantine"))
    assert [str(scenario) for scenario in plan(found, (1, 3), points)] == [
        "before:commit, 1 worker, a",
        "before:commit, 3 workers, a",
    ]
    assert [scenario.copies for scenario in plan(found, (1, 3), points)] == [2, 3]
    assert [str(point) for point in unreached(found)] == ["before:quarantine", "after:quarantine"]


# ------------------------------------------------------------------ the report
def report(*results: Result, planned: int | None = None) -> Report:
    stands_in = SimpleNamespace(
        database=SimpleNamespace(name="shop_test"), queue=SimpleNamespace(name="q<1>", never=frozenset())
    )
    quiet = seen((1, "<b>", 5), events={"1": "applied"})
    matrix = Matrix(cast("Lab", stands_in), [], known=Baseline(quiet, {("entry", "at"): "you said so"}))
    matrix.seen = passed("a", without=("before:quarantine",))
    matrix.results = list(results)
    return Report(matrix, "shop:inbox", len(results) if planned is None else planned, 1.5)


SAFE = Result(Scenario(CrashPoint.parse("before:commit"), "a"), "same", 0.5)
UNSAFE = Result(
    Scenario(CrashPoint.parse("after:apply"), "a", 3),
    "different",
    0.5,
    (Difference("table <script>", ("x",), added=Counter([("<script>alert(1)</script>",)])),),
)


def test_the_report_for_programs_says_all() -> None:
    told = report(SAFE, UNSAFE, planned=3).as_dict()
    assert json.loads(json.dumps(told)) == told
    assert (told["safe"], told["complete"]) == (False, False)
    assert told["not_reached"] == ["before:quarantine"]
    assert told["scenarios"][1]["differences"][0]["added_rows"] == 1
    assert told["quiet"]["ignored"] == {"entry.at": "you said so"}
    assert report(SAFE).as_dict()["safe"]


def test_the_report_for_people_loads_nothing_and_runs_nothing() -> None:
    page = as_html(report(SAFE, UNSAFE), datetime(2030, 1, 2, tzinfo=UTC))
    assert "Not safe: 1 of 2 kills" in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"<script|<img|<link|https?://|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert "The same everywhere" in as_html(report(SAFE))
    assert "Ended early" in as_html(report(SAFE, planned=2))
