"""The tables in their two files: made where a file is new, checked everywhere else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded.file import in_transaction
from inbox.errors import SchemaError
from inbox.schema_files import schema_files

if TYPE_CHECKING:
    import sqlite3

    from inbox.tables import TableNames

__all__ = ["make_or_check"]

_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS (main|beside)\.`([^`]+)` \((.*)\)", re.DOTALL)
_COLUMN: Final = re.compile(r"^  ([a-z_]+) ", re.MULTILINE)
_FIX: Final = "run schema/sqlite/0001_inbox.sql, with the second file attached as `beside`"


def make_or_check(raw: sqlite3.Connection, names: TableNames, *, creates: bool) -> None:
    """In a connection's thread: see that the tables are there, and make them in a file that never had them.

    A file whose schema is recorded has had its tables: made anew they would be empty, and every event a new one.

    Args:
        raw: of the first file, with the other one beside it.
        names: what the tables are called.
        creates: whether anything may be made.

    Raises:
        SchemaError: a table or a column is missing.
        sqlite3.Error: a file cannot be read or written.
    """
    if creates and not _is_recorded(raw, names):
        # The file beside comes first, in a transaction of its own: a commit of two files is none as a whole
        # (sqlite.org/lang_attach.html), and where the schema is recorded everything must be there.
        in_transaction(raw, lambda raw: _make(raw, names, "beside."))
        in_transaction(raw, lambda raw: _make(raw, names, ""))
    problems = _problems(raw, names)
    if problems:
        raise SchemaError(problems)


def _make(raw: sqlite3.Connection, names: TableNames, place: str) -> None:
    # Asked again, for two that start together both come here, one after the other. Whoever made some of the tables by
    # hand gets the others.
    if not _is_recorded(raw, names):
        for file in schema_files("sqlite", names):
            for statement in file.statements:
                if place in statement:
                    raw.execute(statement)


def _is_recorded(raw: sqlite3.Connection, names: TableNames) -> bool:
    sql = "SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = ?"
    return raw.execute(sql, (names.schema,)).fetchone() is not None


def _problems(raw: sqlite3.Connection, names: TableNames) -> list[str]:
    problems: list[str] = []
    for file in schema_files("sqlite", names):
        for statement in file.statements:
            table = _TABLE.match(statement)
            if table is None:
                continue
            place, name, body = table.groups()
            found = {row[1] for row in raw.execute(f"PRAGMA {place}.table_info(`{name}`)")}
            missing = [column for column in _COLUMN.findall(body) if column not in found]
            where = "the database file" if place == "main" else "the file beside it"
            if not found:
                problems.append(f"{where} has no table {name}: put back the file that had it, or {_FIX}")
            elif missing:
                problems.append(f"table {name} in {where} has no column {', '.join(missing)}: {_FIX}")
    return problems
