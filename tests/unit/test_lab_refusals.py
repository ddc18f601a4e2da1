"""The lab where whoever uses it made a mistake: one line, before anything is killed, that says what to write."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inbox import ConsumerSettings, Inbox, MySQL, RabbitMQ, SQLite
from inbox.cli.main import app
from inbox.testing.lab import LabError, MemoryLab, Observation
from inbox.testing.lab.comparison import baseline, fates, parse_ignored
from inbox.testing.lab.database import Rows
from inbox.testing.lab.sqlite import SQLiteDatabase
from inbox.testing.memory import MemoryStore

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "paid"}


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DELETE FROM entry", "readonly database"),
        ("CREATE TABLE other (a)", "readonly database"),
        ("SELECT absent FROM entry", "no such column"),
        ("SELECT * FROM entry; SELECT 1", "one statement at a time"),
        ("PRAGMA no_such_pragma", "answers nothing"),
        ("", "answers nothing"),
    ],
)
def test_a_check_that_is_no_query_is_refused_and_changes_nothing(tmp_path: Path, sql: str, why: str) -> None:
    file = tmp_path / "shop_test.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE entry (payment TEXT)")
        raw.execute("INSERT INTO entry VALUES ('p-1')")
    database = SQLiteDatabase(SQLite(file))
    with pytest.raises(LabError, match=f"cannot be compared: write one SELECT .*{why}"):
        database.check(sql)
    assert database.check("SELECT payment FROM entry") == (("payment",), [("p-1",)])


def test_a_column_that_is_not_there_cannot_be_ignored() -> None:
    quiet = Observation({"entry": Rows(("id", "at"), Counter())})
    assert ("entry", "at") in baseline(quiet, quiet, parse_ignored(["entry.at"])).ignored
    for name in ("entry.att", "entries.at"):
        with pytest.raises(LabError, match=rf"{name} cannot be ignored: there is no such column"):
            baseline(quiet, quiet, parse_ignored([name]))


def test_a_point_that_is_not_reached_says_what_became_of_the_events_instead() -> None:
    assert fates({"1": "applied", "2": "applied and quarantined as handler-error"}) == ""
    assert fates({"1": "applied", "2": "quarantined as handler-error"}) == " (2 is quarantined as handler-error)"
    assert fates(dict.fromkeys("abcdefg", "gone")).endswith("e is gone, and 2 more)")


@pytest.mark.parametrize("option", ["--html", "--json"])
@pytest.mark.parametrize("place", ["nowhere/report", "."])
def test_a_report_that_cannot_be_written_is_told_of_first(tmp_path: Path, option: str, place: str) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps(EVENT))
    words = ["--events", str(tmp_path / "events.jsonl"), option, str(tmp_path / place)]
    refused = CliRunner().invoke(app, ["crash-test", "no.such:target", *words])
    assert refused.exit_code == 2, refused.output
    assert "no file can be written there" in refused.output


def test_a_line_that_is_no_event_is_shown_what_one_is(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"id": "1", "type": "paid"}))
    words = ["--events", str(tmp_path / "events.jsonl")]
    refused = CliRunner().invoke(app, ["crash-test", f"{__name__}:shop", *words])
    assert refused.exit_code == 2, refused.output
    assert 'specversion is absent; write each as {"specversion": "1.0", "id": ' in refused.output


def shop() -> Inbox:
    """What a lab can be made of, though never opened."""
    return Inbox("shop", store=MySQL("mysql://nowhere/shop_test"), transport=RabbitMQ("amqp://nowhere/", "shop"))


def test_a_delivery_off_asyncio_says_which_loop_it_needs() -> None:
    with MemoryLab(Inbox("shop", store=MemoryStore(), settings=ConsumerSettings()), store="memory") as lab:
        delivering = lab.deliver(EVENT)
        with pytest.raises(RuntimeError, match="let the fixture anyio_backend return 'asyncio'"):
            delivering.send(None)  # as trio would, which has no loop of asyncio's
