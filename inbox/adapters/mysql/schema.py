"""Prints, applies and checks the schema: what `inbox schema` does, and the start of every worker.

Meant to be used by the module's name: `await schema.check(engine, tables)`.
"""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from inbox.adapters.mysql import schema_sql
from inbox.adapters.mysql.schema_compare import compare
from inbox.adapters.mysql.schema_facts import read_facts
from inbox.adapters.mysql.schema_findings import Finding, Severity
from inbox.errors import SchemaError
from inbox.schema_files import SchemaFile, schema_files
from inbox.tables import InboxTables, qualified, version_rows, view_definition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from inbox.adapters.mysql.schema_facts import ServerFacts
    from inbox.schema_files import Dialect

__all__ = [
    "Finding",
    "Plan",
    "Severity",
    "apply",
    "check",
    "plan",
    "render",
    "require",
]

#: Seconds to wait for another process that is applying the schema.
LOCK_WAIT: Final = 30


@dataclass(frozen=True, slots=True)
class Plan:
    """What bringing a database up to date takes.

    Attributes:
        files: those that are run, oldest first.
        statements: all that is executed, in order; empty where nothing is to be done.
    """

    files: tuple[SchemaFile, ...]
    statements: tuple[str, ...]


def render(dialect: Dialect, tables: InboxTables) -> str:
    """The SQL files for one kind of server as one text, with the names of `tables` in it.

    Args:
        dialect: `mysql` or `mariadb`.
        tables: whose names to use.

    Raises:
        FileNotFoundError: the installation lacks the files.
    """
    return "\n".join(file.text for file in schema_files(dialect, tables.names, tables.database))


async def check(bind: AsyncConnection | AsyncEngine, tables: InboxTables) -> list[Finding]:
    """Compare the tables in the database with their definition, and the server's settings with what the promise needs.

    Needs no right but SELECT on the tables. Leaves a connection's transaction as it was.

    Args:
        bind: a connection, or an engine to take one from.
        tables: as defined.

    Returns:
        What was found, errors first; empty where all is well.

    Raises:
        sqlalchemy.exc.DBAPIError: the database cannot be reached, or the connection was lost.
    """
    async with _connected(bind) as connection:
        return compare(tables, await read_facts(connection, tables))


async def require(bind: AsyncConnection | AsyncEngine, tables: InboxTables) -> list[Finding]:
    """Check, and refuse to go on where a guarantee would break: what a worker does at its start.

    Args:
        bind: a connection, or an engine to take one from.
        tables: as defined.

    Returns:
        Warnings and notes, for the log.

    Raises:
        SchemaError: at least one finding is an error; it has one sentence for each, with the fix.
        sqlalchemy.exc.DBAPIError: the database cannot be reached, or the connection was lost.
    """
    findings = await check(bind, tables)
    _refuse(findings)
    return findings


async def plan(bind: AsyncConnection | AsyncEngine, tables: InboxTables) -> Plan:
    """What `apply` would do now. Changes nothing.

    Args:
        bind: a connection, or an engine to take one from.
        tables: as defined.

    Raises:
        SchemaError: a table of one of the names exists that the framework did not make, or no database is selected.
        FileNotFoundError: the installation lacks the files.
        sqlalchemy.exc.DBAPIError: the database cannot be reached, or the connection was lost.
    """
    async with _connected(bind) as connection:
        return _plan(tables, await read_facts(connection, tables))


async def apply(bind: AsyncConnection | AsyncEngine, tables: InboxTables, *, lock_wait: int = LOCK_WAIT) -> Plan:
    """Bring the database up to date. Running it again, or twice at once, changes nothing more.

    Each numbered file that is not recorded as applied is run, statement by statement: MySQL and MariaDB commit each
    DDL statement by itself (MySQL manual, "Statements That Cause an Implicit Commit"), so that there is nothing to
    roll back, and every statement is written so that it may be run again. A user lock keeps two appliers apart.
    Tables that Alembic or `create_all` made and that match are taken over as they are.

    Args:
        bind: a connection outside of a transaction, or an engine to take one from.
        tables: as defined.
        lock_wait: seconds to wait for another applier.

    Returns:
        What was done.

    Raises:
        SchemaError: a table of one of the names exists that the framework did not make, no database is selected,
            another applier did not end in time, or the tables still differ afterwards.
        ValueError: the connection is in a transaction, which the first statement would commit.
        FileNotFoundError: the installation lacks the files.
        sqlalchemy.exc.DBAPIError: the database cannot be reached, or refuses a statement, for instance for want of the
            CREATE or CREATE VIEW right.
    """
    if isinstance(bind, AsyncConnection) and bind.in_transaction():
        raise ValueError(
            "the connection is in a transaction, which DDL would commit: pass one outside of a transaction"
        )
    async with _connected(bind) as connection, _alone(connection, tables, lock_wait):
        todo = _plan(tables, await read_facts(connection, tables))
        for statement in todo.statements:
            await connection.execute(text(statement))
        await connection.commit()
        _refuse(compare(tables, await read_facts(connection, tables)))
        return todo


def _plan(tables: InboxTables, facts: ServerFacts) -> Plan:
    """Which files to run, and how to take over tables that were made by other means."""
    findings = compare(tables, facts)
    recorded = facts.versions or frozenset()
    if not recorded:
        # Nothing of ours has run here: what has one of our names must be what we would have made.
        _refuse(finding for finding in findings if finding.code != "missing-table")
    taken = [str(finding) for finding in findings if finding.code == "not-a-view"]
    if taken:
        raise SchemaError(taken)
    files = schema_files(facts.dialect, tables.names, tables.database)
    pending = [file for file in files if file.version not in recorded]
    complete = all(table.name in facts.tables for table in tables.all)
    if pending and not recorded and complete:
        return Plan((), (version_rows(tables, [file.version for file in pending]), *_view(tables, facts)))
    if not pending and not complete:
        # Recorded, and yet a table is gone: the files make it anew and leave the others alone.
        pending = files
    statements = [
        statement for file in pending for statement in file.statements if not _is_made(statement, tables, facts)
    ]
    return Plan(tuple(pending), tuple(statements or _view(tables, facts)))


def _is_made(statement: str, tables: InboxTables, facts: ServerFacts) -> bool:
    """Whether it would only answer that its table exists, which the drivers turn into a Python warning."""
    names = [qualified(table.name, tables.database) for table in tables.all if table.name in facts.tables]
    return any(statement.startswith(f"CREATE TABLE IF NOT EXISTS {name} ") for name in names)


def _view(tables: InboxTables, facts: ServerFacts) -> tuple[str, ...]:
    """The view, where it is wanted and not there: Alembic makes tables only."""
    wanted = tables.names.view
    return () if wanted is None or wanted in facts.tables else (view_definition(tables),)


def _refuse(findings: Iterable[Finding]) -> None:
    errors = [str(finding) for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SchemaError(errors)


@asynccontextmanager
async def _connected(bind: AsyncConnection | AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection, whose transaction is ended only if it was begun in here."""
    if isinstance(bind, AsyncEngine):
        async with bind.connect() as connection:
            yield connection
        return
    outside = not bind.in_transaction()
    try:
        yield bind
    finally:
        if outside and bind.in_transaction():
            await bind.rollback()


@asynccontextmanager
async def _alone(connection: AsyncConnection, tables: InboxTables, seconds: int) -> AsyncIterator[None]:
    """Hold the applier's lock of this database and these names.

    A user lock belongs to the session and not to a transaction, so that the commits of DDL do not give it back (MySQL
    manual, "Locking Functions"); a session that dies gives it back. It holds on one server: on a cluster that
    replicates DDL two appliers may meet, and find that everything can be run twice.
    """
    database = tables.database or (await connection.execute(text("SELECT DATABASE()"))).scalar_one() or ""
    # At most 64 characters, on MySQL, for the whole server: a digest.
    name = "inbox.schema." + hashlib.sha256(f"{database}.{tables.names.schema}".encode()).hexdigest()[:40]
    taken = await connection.execute(text(schema_sql.TAKE_LOCK), {"name": name, "seconds": seconds})
    if taken.scalar_one() != 1:
        raise SchemaError(
            [f"Another process has been applying the schema for {seconds} s. Fix: Run this again when it has ended."]
        )
    try:
        yield
    finally:
        # A session that was lost or cancelled gave the lock back already; the reason for leaving must not be hidden.
        with suppress(DBAPIError):
            await connection.execute(text(schema_sql.RELEASE_LOCK), {"name": name})
