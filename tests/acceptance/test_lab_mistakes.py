"""`inbox crash-test` where nothing can be learned from it: it says so, and does not call that safe."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from inbox import ConfigurationError, MySQL
from inbox.testing.lab.database import LabError
from inbox.testing.lab.mysql import MySQLDatabase
from tests.acceptance.command import ROOT, run
from tests.acceptance.tables import create_tables
from tests.pairs import Pair


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """Of a command whose only event is of a type that has no handler."""
    with closing(sqlite3.connect(tmp_path / "shop_test.db")) as raw:
        raw.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, payment TEXT)")
    (tmp_path / "events.jsonl").write_text('{"specversion": "1.0", "id": "1", "source": "/s", "type": "unknown"}')
    return ("crash-test", "tests.acceptance.lab_app:files", "--events", str(tmp_path / "events.jsonl"))


async def test_events_that_no_handler_can_apply_are_not_called_safe(words: tuple[str, ...], tmp_path: Path) -> None:
    env = {"LAB_FILE": str(tmp_path / "shop_test.db")}
    found = await run(*words, env=env, cwd=ROOT)
    assert found.code == 2, found.out
    assert "event 1 is quarantined as no-handler" in found.out
    assert "no event was applied in the quiet runs" in found.err
    meant = await run(*words, "--points", "after:quarantine", "--workers", "1", env=env, cwd=ROOT)
    assert meant.code == 0, meant.err
    assert "The same after 1 kill as without" in meant.out


def database_of(url: str) -> MySQLDatabase:
    store = MySQL(url)
    return MySQLDatabase(store, store.for_consumer("c", concurrency=1, deadline=1).tables)


async def test_a_check_may_not_write(pair: Pair) -> None:
    await create_tables(pair)
    database = database_of(pair.database_url)
    database.keep()
    try:
        for sql in ("INSERT INTO inbox (consumer_name, event_id) VALUES ('c', 'e')", "DROP TABLE inbox", "DO 1", "SEL"):
            with pytest.raises(LabError, match=r"cannot be compared: write one SELECT"):
                database.check(sql)
        assert database.check("SELECT COUNT(*) AS n FROM inbox WHERE event_id LIKE 'e%'") == (("n",), [(0,)])
        database.query("INSERT INTO inbox (consumer_name, event_id) VALUES ('c', 'e')")
        assert database.check("SELECT COUNT(*) FROM inbox")[1] == [(1,)], "what comes after a check is not read-only"
    finally:
        database.close()


def test_a_database_that_is_not_there_is_to_be_made(pair: Pair) -> None:
    database = database_of(f"{pair.database_url.rpartition('/')[0]}/nobody_made_this_test")
    with pytest.raises(ConfigurationError, match=r"1049: make it with CREATE DATABASE"):
        database.keep()
    database.close()
