"""The embedded adapter without a file: what it takes, what errors mean, what its times are."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings, clock, wakeups
from inbox.adapters.embedded.classify import Trouble, classify, code_of, is_busy, translated
from inbox.adapters.embedded.statements import BEGIN, COMMIT
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError, Contended, StoreUnavailable
from inbox.schema_files import schema_files
from inbox.tables import TableNames, define_tables


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("shop.db", "shop.db"),
        (Path("/srv/shop.db"), "/srv/shop.db"),
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:////srv/shop.db", "/srv/shop.db"),
        ("sqlite+aiosqlite:////srv/shop.db", "/srv/shop.db"),
        (make_url("sqlite:///shop.db"), "shop.db"),
    ],
)
def test_a_file_is_named_by_its_path_or_by_a_url(place: str | Path, path: str) -> None:
    assert SQLite(place).path == Path(path)
    assert SQLiteQueue(place).path == Path(path)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("", "in memory"),
        (":memory:", "in memory"),
        ("sqlite://", "in memory"),
        ("file::memory:?cache=shared", "in memory"),
        ("sqlite:///shop.db?mode=ro", "parameters"),
        ("mysql://u:secret@host/shop", "is for mysql"),
        ("://", "cannot be read"),
    ],
)
def test_what_names_no_file_is_refused_with_what_to_write(place: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        SQLite(place)
    assert 'SQLite("shop.db")' in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_file_has_no_tls() -> None:
    with pytest.raises(ConfigurationError, match="TLS"):
        SQLite("shop.db", DatabaseSettings(tls=True))


def test_tables_of_the_adopters_metadata_give_their_names() -> None:
    from sqlalchemy import MetaData  # noqa: PLC0415 - beside its one use

    names = TableNames(inbox="seen")
    assert SQLite("shop.db", tables=define_tables(MetaData(), names)).tables == names


@pytest.mark.parametrize("settings", [{"lease": 0}, {"lease": "1"}, {"busy_wait": -1}, {"patience": 0}])
def test_a_queues_times_are_seconds(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        SQLiteQueueSettings(**settings)  # type: ignore[arg-type]  # what is tried


def test_a_library_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigurationError, match=r"3\.35"):
        SQLite("shop.db")
    with pytest.raises(ConfigurationError, match=r"3\.35"):
        SQLiteQueue("events.db")


# ------------------------------------------------------------------ errors
@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (sqlite3.SQLITE_BUSY, Trouble.CONTENDED),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Trouble.CONTENDED),
        (sqlite3.SQLITE_LOCKED, Trouble.CONTENDED),
        (sqlite3.SQLITE_INTERRUPT, Trouble.CONTENDED),
        (sqlite3.SQLITE_FULL, Trouble.UNAVAILABLE),
        (sqlite3.SQLITE_IOERR_FSYNC, Trouble.UNAVAILABLE),
        (sqlite3.SQLITE_READONLY_DBMOVED, Trouble.UNAVAILABLE),
        (sqlite3.SQLITE_CANTOPEN, Trouble.UNAVAILABLE),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, None),
        (sqlite3.SQLITE_ERROR, None),
        (0, None),
    ],
)
def test_what_an_error_means(code: int, trouble: Trouble | None) -> None:
    assert classify(code) is trouble


def test_codes_are_found_inside_of_sqlalchemys_errors() -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    wrapped = OperationalError("SELECT 1", {}, error)
    assert code_of(wrapped) == sqlite3.SQLITE_BUSY
    assert is_busy(wrapped)
    assert not is_busy(ValueError())
    assert isinstance(translated(wrapped, "x"), Contended)
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert isinstance(translated(wrapped, "x"), StoreUnavailable)
    assert isinstance(translated(ValueError(), "x"), Contended)


# ------------------------------------------------------------------ times and texts
def test_times_are_utc_and_sort_as_text() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    assert clock.stamp(at) == "2026-01-02 01:04:05.000006"
    assert clock.instant(clock.stamp(at)) == at
    assert clock.instant("2026-01-02 01:04:05.000006").tzinfo is UTC
    assert clock.before(60) < clock.stamp() <= clock.stamp(clock.now())
    assert clock.before(1e12) == "0001-01-01 00:00:00.000000"


def test_the_texts_of_transactions_are_ones_that_nobody_can_write() -> None:
    assert BEGIN.startswith("BEGIN IMMEDIATE -- ")
    assert COMMIT.startswith("COMMIT -- ")
    assert len(COMMIT) > len("COMMIT -- ") + 15


def test_the_schema_takes_names_of_ones_own_and_leaves_the_view_out() -> None:
    (file,) = schema_files("sqlite", TableNames("seen", "tried", "refused", "fleet", "versions", None))
    whole = "\n".join(file.statements)
    assert "CREATE TABLE IF NOT EXISTS main.`seen`" in whole
    assert "CREATE TABLE IF NOT EXISTS beside.`refused`" in whole
    assert "ON `tried` (consumer_name, last_at)" in whole
    assert "VIEW" not in whole
    assert "`inbox`" not in whole


# ------------------------------------------------------------------ wake-ups
async def test_whoever_listens_is_told_at_once_and_then_no_more(tmp_path: Path) -> None:
    path, event = tmp_path / "events.db", asyncio.Event()
    wakeups.listen(path, event)
    wakeups.tell(tmp_path / "other.db")
    await asyncio.sleep(0)
    assert not event.is_set()
    await asyncio.to_thread(wakeups.tell, path)
    await asyncio.wait_for(event.wait(), 5)
    event.clear()
    wakeups.forget(path, event)
    wakeups.forget(path, event)
    wakeups.tell(path)
    await asyncio.sleep(0)
    assert not event.is_set()
