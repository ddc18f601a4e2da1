"""`inbox schema`: print, apply and check the tables."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from inbox.adapters.mysql import schema
from inbox.adapters.mysql.engine import make_engine
from inbox.cli.options import (
    OK,
    SESSION_DEADLINE,
    DryRunOption,
    JsonOption,
    NoViewOption,
    RequiredDatabaseOption,
    TableOption,
    TlsCaOption,
    TlsOption,
    database_settings,
    explaining,
    make_tables,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from inbox.tables import InboxTables

T = TypeVar("T")

DIFFERENT: Final = 1

app = typer.Typer(
    name="schema",
    no_args_is_help=True,
    help="""The inbox's tables in your own database: print them as SQL, apply them, check them.

    They belong into the database that your handlers write to: an effect and its inbox row share one transaction.

    Three ways to make them, all with the same result: `inbox schema apply`; the SQL of `inbox schema print` in your
    own migrations; or `inbox.tables.define_tables(metadata)`, which puts them into your SQLAlchemy metadata, where
    Alembic's autogenerate finds them.

    Exit codes: 0 all is well; 1 the tables are missing or differ; 2 a wrong option, or no connection.
    """,
)


class DialectName(StrEnum):
    """Kinds of server that there are files for."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


DialectOption = Annotated[DialectName, typer.Option("--dialect", help="The kind of server the SQL is for.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings about the server as well.")]


@app.command("print")
def print_command(
    dialect: DialectOption = DialectName.MYSQL, table: TableOption = None, no_view: NoViewOption = False
) -> None:
    """Print the SQL that makes the tables, for your own migrations. Needs no connection.

    Example: inbox schema print --dialect mariadb --table inbox=events_seen > migrations/0042_inbox.sql
    """
    tables = _tables(table, no_view=no_view)
    typer.echo(schema.render(dialect.value, tables), nl=False)


@app.command("apply")
def apply_command(
    *,
    database: RequiredDatabaseOption,
    table: TableOption = None,
    no_view: NoViewOption = False,
    tls: TlsOption = False,
    tls_ca: TlsCaOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Make the tables, or bring them up to date. Running it again changes nothing.

    Needs the rights CREATE, CREATE VIEW (unless --no-view), SELECT and INSERT on the database. The worker itself needs
    only SELECT, INSERT, UPDATE and DELETE on the tables. Tables that exist and are not the inbox's are never altered:
    the command stops and says what differs.

    Example: INBOX_DATABASE_URL=mysql://admin:…@db/shop inbox schema apply --dry-run
    """
    tables = _tables(table, no_view=no_view)

    async def work(engine: AsyncEngine) -> schema.Plan:
        return await (schema.plan(engine, tables) if dry_run else schema.apply(engine, tables))

    done = _run(_engine(database, tls_ca, tls=tls), work)
    if dry_run:
        for statement in done.statements:
            typer.echo(f"{statement};\n")
    if not done.statements:
        typer.echo("Nothing to do: the schema is up to date.", err=dry_run)
    elif dry_run:
        typer.echo(f"Dry run: {len(done.statements)} statements would be executed; nothing was changed.", err=True)
    else:
        names = ", ".join(file.name for file in done.files) or "nothing but what was missing beside the tables"
        typer.echo(f"Applied {names}. The schema is up to date.")


@app.command("check")
def check_command(
    *,
    database: RequiredDatabaseOption,
    table: TableOption = None,
    no_view: NoViewOption = False,
    tls: TlsOption = False,
    tls_ca: TlsCaOption = None,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Compare the tables in the database with what the promise needs, and say how to mend each difference.

    Changes nothing and needs no right but SELECT on the tables. A worker does the same at its start and refuses to
    run where there is an error. Warnings about the server (such as innodb_flush_log_at_trx_commit) alone leave the
    exit code at 0, unless --strict is given.

    Example: inbox schema check --json | jq '.findings[] | select(.severity == "error") | .fix'
    """
    tables = _tables(table, no_view=no_view)
    findings = _run(_engine(database, tls_ca, tls=tls), lambda engine: schema.check(engine, tables))
    differs = any(_counts(finding, strict=strict) for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": not differs, "findings": [_as_dict(finding) for finding in findings]}, indent=2))
    else:
        _print_findings(findings)
    raise typer.Exit(DIFFERENT if differs else OK)


def _counts(finding: schema.Finding, *, strict: bool) -> bool:
    if finding.severity is schema.Severity.WARNING:
        return strict or finding.is_difference
    return finding.severity is schema.Severity.ERROR


def _as_dict(finding: schema.Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "table": finding.table,
        "problem": finding.problem,
        "fix": finding.fix,
        "sql": list(finding.sql),
    }


def _print_findings(findings: list[schema.Finding]) -> None:
    for finding in findings:
        subject = f"{finding.table}: " if finding.table else ""
        typer.echo(f"{finding.severity.value.upper():<8}{subject}{finding.problem}")
        typer.echo(f"        Fix: {finding.fix}\n")
    if findings:
        counts = [
            f"{number} {severity.value}{'s' if number > 1 else ''}"
            for severity in schema.Severity
            if (number := sum(finding.severity is severity for finding in findings))
        ]
        typer.echo(", ".join(counts) + ".")
    else:
        typer.echo("The tables and the server are as they should be.")


# ------------------------------------------------------------------ running
def _tables(assignments: list[str] | None, *, no_view: bool) -> InboxTables:
    with explaining("schema"):
        return make_tables(assignments, no_view=no_view)


def _engine(database: str, tls_ca: Path | None, *, tls: bool) -> AsyncEngine:
    """An engine as the worker has it, so that a URL is right or wrong for both."""
    with explaining("schema"):
        return make_engine(database, database_settings(tls_ca, tls=tls), SESSION_DEADLINE)


def _run(engine: AsyncEngine, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    async def main() -> T:
        try:
            return await work(engine)
        finally:
            await engine.dispose()

    return run("schema", main, url=engine.url, schema_code=DIFFERENT)
