"""A SQLite database that is used in place, and put back as it was: copies of its two files lie beside them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import Counter
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Final

from inbox.errors import ConfigurationError
from inbox.testing.lab.database import (
    APPLIED,
    OPEN_STARTS,
    REFUSED,
    Ended,
    LabError,
    Row,
    Rows,
    ended_of,
    refused_check,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from inbox.adapters.embedded import SQLite

__all__ = ["SQLiteDatabase"]

_MOST_ROWS: Final = 100_000
_MOST_OCTETS: Final = 256 * 1024 * 1024
_PATIENCE: Final = 30.0


class SQLiteDatabase:
    """See `inbox.testing.lab.database.Database`.

    Args:
        database: what the target was given.
    """

    def __init__(self, database: SQLite) -> None:
        self._names = database.tables
        self._file = database.path
        self._beside = self._file.with_name(f"{self._file.name}-inbox")
        self._mark = self._file.with_name(f"{self._file.name}-lab")
        self._held: IO[bytes] | None = None
        self._is_kept = False

    @property
    def name(self) -> str:
        """See `Database.name`."""
        return self._file.name

    # ------------------------------------------------------------ keeping
    def keep(self) -> None:
        """See `Database.keep`."""
        self._held = self._taken()
        files = (self._file, self._beside)
        if any(file.exists() and file.stat().st_size > _MOST_OCTETS for file in files):
            raise ConfigurationError(
                f"{self._file} holds more than {_MOST_OCTETS >> 20} MiB: give the lab a smaller one"
            )
        with self._refusing():
            self._is_kept = False
            if all(_copy_of(file).exists() for file in files):
                self.put_back()  # what a lab that was killed has left
            for file in files:
                half = file.with_name(f"{file.name}-lab-half")
                half.unlink(missing_ok=True)
                _write(file if file.exists() else None, half)
                half.replace(_copy_of(file))
            self._is_kept = True

    def _taken(self) -> IO[bytes]:
        """A lock that ends with this process."""
        try:
            held = self._mark.open("ab")
        except OSError as error:
            raise ConfigurationError(f"{self._mark} cannot be made: the folder must be there, and writable") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have deleted it just now: then it locks nobody out.
            is_ours = self._mark.exists() and self._mark.stat().st_ino == os.fstat(held.fileno()).st_ino
        except BlockingIOError:
            is_ours = False
        if not is_ours:
            held.close()
            raise ConfigurationError(f"another lab works in {self._file}: wait for its end, or copy the file")
        return held

    def put_back(self) -> None:
        """See `Database.put_back`. Written through SQLite, so that connections that are open see it."""
        copies = [_copy_of(file) for file in (self._file, self._beside)]
        if not all(copy.exists() for copy in copies):
            raise LabError(
                f"{self._file} cannot be put back: somebody has deleted {copies[0].name} or {copies[1].name}"
            )
        is_kept, self._is_kept = self._is_kept, False  # whatever happens now, the copies are needed
        try:
            for file in (self._file, self._beside):
                if file.exists():
                    _write(_copy_of(file), file)
        except sqlite3.Error as error:
            raise LabError(
                f"{self._file} could not be put back as it was ({error.sqlite_errorname}); what was in it is in "
                f"{copies[0].name} and {copies[1].name}, and the next lab tries again"
            ) from error
        self._is_kept = is_kept

    def close(self) -> None:
        """See `Database.close`."""
        if self._held is None:
            return
        if self._is_kept:
            for file in (self._file, self._beside):
                _copy_of(file).unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)
        self._held.close()
        self._held = None

    # ------------------------------------------------------------ reading
    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[tuple[str, ...], list[Row]]:
        """See `Database.query`; placeholders are `?`. The file beside is known as `beside`."""
        return self._asked(sql, arguments)

    def check(self, sql: str) -> tuple[tuple[str, ...], list[Row]]:
        """See `Database.check`."""
        try:
            columns, rows = self._asked(sql, may_write=False)
        except sqlite3.Error as error:
            raise refused_check(sql, str(error)) from error
        if not columns:
            raise refused_check(sql, "it answers nothing")
        return columns, rows

    def _asked(
        self, sql: str, arguments: Sequence[object] = (), *, may_write: bool = True
    ) -> tuple[tuple[str, ...], list[Row]]:
        with closing(sqlite3.connect(self._file, timeout=_PATIENCE, isolation_level=None)) as raw:
            if self._beside.exists():
                raw.execute("ATTACH ? AS beside", (str(self._beside),))
            if not may_write:
                raw.execute("PRAGMA query_only = ON")
            cursor = raw.execute(sql, tuple(arguments))
            return tuple(str(column[0]) for column in cursor.description or ()), cursor.fetchall()

    def rows(self) -> dict[str, Rows]:
        """See `Database.rows`."""
        found: dict[str, Rows] = {}
        for name in self._tables():
            columns, rows = self.query(f"SELECT * FROM main.{_quoted(name)} LIMIT {_MOST_ROWS + 1}")  # noqa: S608 - names that the database gave
            if len(rows) > _MOST_ROWS:
                raise LabError(f"table {name} has more than {_MOST_ROWS:,} rows: compare with checks of your own")
            found[name] = Rows(columns, Counter(rows))
        return found

    def surrogates(self) -> set[tuple[str, str]]:
        """See `Database.surrogates`: an INTEGER PRIMARY KEY is the row's number (sqlite.org/lang_createtable.html)."""
        drawn: set[tuple[str, str]] = set()
        references: set[tuple[str, str, str, str]] = set()
        for name in self._tables():
            columns = self.query(f"SELECT name, upper(type), pk FROM pragma_table_info({_text(name)})")[1]  # noqa: S608 - names that the database gave
            keys = [(column, kind) for column, kind, pk in columns if pk]
            if [kind for _, kind in keys] == ["INTEGER"]:
                drawn.add((name, str(keys[0][0])))
            for to, column, other in self.query(
                f'SELECT "table", "from", "to" FROM pragma_foreign_key_list({_text(name)})'  # noqa: S608 - names that the database gave
            )[1]:
                references.add((name, str(column), str(to), str(other)))
        while more := {(name, column) for name, column, to, other in references if (to, other) in drawn} - drawn:
            drawn |= more
        return drawn

    def ended(self, consumer: str) -> Ended:
        """See `Database.ended`."""
        if not (self._file.exists() and self._beside.exists()):
            return Ended()
        names = self._names

        def asked(question: str, place: str, table: str) -> list[Row]:
            return self.query(question.format(table=f"{place}.{_quoted(table)}", mark="?"), (consumer.encode(),))[1]

        try:
            return ended_of(
                asked(APPLIED, "main", names.inbox),
                asked(REFUSED, "beside", names.quarantine),
                asked(OPEN_STARTS, "beside", names.attempt),
            )
        except sqlite3.OperationalError:  # no worker has made its tables yet
            return Ended()

    def _tables(self) -> list[str]:
        ours = {self._names.inbox, self._names.schema}
        rows = self.query(
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )[1]
        return sorted(str(name) for (name,) in rows if name not in ours)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ConfigurationError(f"{self._file} cannot be copied ({type(error).__name__})") from error


def _copy_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-lab-copy")


def _write(source: Path | None, target: Path) -> None:
    """Let `target` hold what `source` does; None holds nothing."""
    with (
        closing(sqlite3.connect(":memory:" if source is None else source, timeout=_PATIENCE)) as one,
        closing(sqlite3.connect(target, timeout=_PATIENCE)) as other,
    ):
        one.backup(other)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
