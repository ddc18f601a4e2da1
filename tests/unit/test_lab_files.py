"""The lab over files: what was in them is in them again, for who has them open too, and after a lab was killed."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inbox import ConfigurationError, SQLite
from inbox.testing.lab.database import Ended, LabError
from inbox.testing.lab.sqlite import SQLiteDatabase

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE entry (id INTEGER PRIMARY KEY, account TEXT REFERENCES account (name), raw BLOB);
CREATE TABLE line (entry INTEGER REFERENCES entry (id));
INSERT INTO account VALUES ('ada', 5);
INSERT INTO entry VALUES (7, 'ada', x'00ff');
"""


def everything(file: Path) -> list[Any]:
    with closing(sqlite3.connect(file)) as raw:
        return [*raw.execute("SELECT * FROM account"), *raw.execute("SELECT * FROM entry")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop_test.db"
    with closing(sqlite3.connect(made)) as raw:
        raw.executescript(SCHEMA)
    return made


def test_files_are_put_back_also_for_who_has_them_open(file: Path) -> None:
    before = everything(file)
    database = SQLiteDatabase(SQLite(file))
    database.keep()
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("DELETE FROM entry")
        raw.execute("CREATE TABLE new (a)")
        database.put_back()
        assert raw.execute("SELECT id FROM entry").fetchall() == [(7,)]
        assert "new" not in database.rows()
        raw.execute("UPDATE account SET cents = 6")
        assert database.rows()["account"].rows == {("ada", 6): 1}
        assert database.surrogates() == {("entry", "id"), ("line", "entry")}
        assert database.ended("shop") == Ended()
        database.put_back()
    database.close()
    database.close()
    assert everything(file) == before
    assert sorted(path.name for path in file.parent.iterdir() if "lab" in path.name) == []


def test_a_second_lab_is_refused_and_leaves_the_first_ones_copies(file: Path) -> None:
    first, second = SQLiteDatabase(SQLite(file)), SQLiteDatabase(SQLite(file))
    first.keep()
    with pytest.raises(ConfigurationError, match="another lab works in"):
        second.keep()
    second.close()
    first.query("DELETE FROM entry")
    first.put_back()
    first.close()
    assert len(everything(file)) == 2


KILLED = """
import os, signal, sys
from inbox import SQLite
from inbox.testing.lab.sqlite import SQLiteDatabase

database = SQLiteDatabase(SQLite(sys.argv[1]))
database.keep()
database.query("DELETE FROM entry")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_lab_has_left_the_next_one_puts_back(file: Path) -> None:
    before = everything(file)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(file)], cwd=Path(__file__).parents[2], env=dict(os.environ), check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert everything(file) != before
    database = SQLiteDatabase(SQLite(file))
    database.keep()
    database.close()
    assert everything(file) == before


def test_without_its_copies_nothing_is_put_back(file: Path) -> None:
    database = SQLiteDatabase(SQLite(file))
    database.keep()
    file.with_name("shop_test.db-lab-copy").unlink()
    with pytest.raises(LabError, match="somebody has deleted"):
        database.put_back()
    database.close()
    assert len(everything(file)) == 2


def test_a_file_that_is_not_there_is_empty_and_then_not_there_for_long(tmp_path: Path) -> None:
    file = tmp_path / "new_test.db"
    database = SQLiteDatabase(SQLite(file))
    database.keep()
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE entry (a)")
    database.put_back()
    assert database.rows() == {}
    database.close()


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the folder must be there"):
        SQLiteDatabase(SQLite(tmp_path / "nowhere" / "shop_test.db")).keep()
