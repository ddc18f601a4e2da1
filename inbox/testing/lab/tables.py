"""The tables of an adopter's metadata in SQLite, whatever server they were written for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Integer, LargeBinary, MetaData, Table, Text, create_engine
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import CompileError, UnsupportedCompilationError
from sqlalchemy.sql.elements import TextClause
from sqlalchemy.types import NullType

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.types import TypeEngine

__all__ = ["create_tables", "translated"]

_DIALECT = sqlite.dialect()


def create_tables(path: Path, metadata: MetaData) -> None:
    """Make the tables of `metadata` but the inbox's in the file at `path`.

    Raises:
        sqlalchemy.exc.DBAPIError: SQLite does not take one.
    """
    engine = create_engine(f"sqlite:///{path}")
    try:
        translated(metadata).create_all(engine)
    finally:
        engine.dispose()


def translated(metadata: MetaData) -> MetaData:
    """The same tables, in words that SQLite knows, without the inbox's."""
    made = MetaData()
    inboxes = {table.key for tables in metadata.info.get("inbox.tables", {}).values() for table in tables.all}
    for table in metadata.tables.values():
        if table.key not in inboxes:
            _adapt(table.to_metadata(made, schema=cast("str", None)))
    return made


def _adapt(table: Table) -> None:
    for column in table.columns:
        column.type = _known(column.type)
        if column is table.autoincrement_column:
            column.type = (
                Integer()
            )  # "an alias for the rowid" is an INTEGER PRIMARY KEY only (sqlite.org/lang_createtable.html)
        default: Any = column.server_default
        if isinstance(getattr(default, "arg", None), TextClause) and "(" in str(default.arg):
            column.server_default = None
    for index in list(table.indexes):
        index.dialect_kwargs.clear()


def _known(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    with suppress(UnsupportedCompilationError, CompileError, AttributeError):
        kind.compile(dialect=_DIALECT)
        return kind
    generic = kind.as_generic(allow_nulltype=True)
    if not isinstance(generic, NullType):
        return generic
    # Some types of a server have no nearest one in older releases of SQLAlchemy; SQLite stores any value in any column.
    with suppress(NotImplementedError):  # what `python_type` raises where a type names none of Python's
        if kind.python_type is bytes:
            return LargeBinary()
    return Text()
