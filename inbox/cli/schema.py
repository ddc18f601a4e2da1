"""`inbox schema`: print, apply and check the tables."""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar, cast

import typer
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError

from inbox.adapters.mysql import schema
from inbox.adapters.mysql.engine import make_engine
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError, InboxError, SchemaError
from inbox.tables import InboxTables, TableNames, define_tables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine


T = TypeVar("T")

OK: Final = 0
DIFFERENT: Final = 1
UNUSABLE: Final = 2

#: Seconds; the server ends a session that says nothing for a little longer.
SESSION_DEADLINE: Final = 60

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


DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="INBOX_DATABASE_URL",
        metavar="URL",
        help="mysql://user:password@host:3306/name. Better in the environment, for other users of the machine "
        "can read the options of a command.",
        show_default=False,
        show_envvar=True,
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="KIND=NAME",
        help="Another name for a table; KIND is inbox, attempt, quarantine, worker, schema or view. May be repeated.",
    ),
]
NoViewOption = Annotated[bool, typer.Option("--no-view", help="Do without the view for people.")]
DialectOption = Annotated[DialectName, typer.Option("--dialect", help="The kind of server the SQL is for.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings about the server as well.")]
TlsOption = Annotated[bool, typer.Option("--tls", help="Require an encrypted connection.")]
TlsCaOption = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="Trust this certificate authority, not the system's. Implies --tls."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the statements and change nothing.")]


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
    database: DatabaseOption,
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
    database: DatabaseOption,
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


# ------------------------------------------------------------------ options
def _tables(assignments: list[str] | None, *, no_view: bool) -> InboxTables:
    kinds = TableNames.__dataclass_fields__
    names: dict[str, str | None] = {"view": None} if no_view else {}
    for assignment in assignments or ():
        kind, equals, name = assignment.partition("=")
        if not equals or kind not in kinds:
            _stop(f"--table {assignment}: write KIND=NAME, where KIND is one of {', '.join(kinds)}.")
        if kind == "view" and no_view:
            _stop("--no-view and --table view=… contradict each other.")
        names[kind] = name
    try:
        return define_tables(MetaData(), TableNames(**cast("dict[str, Any]", names)))
    except ConfigurationError as error:
        _stop(str(error))


def _engine(database: str, tls_ca: Path | None, *, tls: bool) -> AsyncEngine:
    """An engine as the worker has it, so that a URL is right or wrong for both."""
    ca = None if tls_ca is None else str(tls_ca)
    try:
        return make_engine(database, DatabaseSettings(tls=tls or ca is not None, tls_ca=ca), SESSION_DEADLINE)
    except ConfigurationError as error:
        _stop(str(error))


# ------------------------------------------------------------------ running
def _run(engine: AsyncEngine, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    async def main() -> T:
        try:
            return await work(engine)
        finally:
            await engine.dispose()

    try:
        return asyncio.run(main())
    except SchemaError as error:
        _stop(*error.problems, code=DIFFERENT)
    except InboxError as error:
        _stop(str(error))
    except (DBAPIError, OSError, TimeoutError) as error:
        _stop(_explained(error, engine.url))


_REASONS: Final = {
    1044: "this user has no right on the database. Fix: GRANT it, or use another user.",
    1045: "user or password was refused. Fix: correct them in the URL.",
    1049: "the database does not exist. Fix: CREATE DATABASE, or correct the name at the end of the URL.",
    1142: "this user lacks a right. Fix: GRANT CREATE, CREATE VIEW, SELECT, INSERT on the database; or use --no-view.",
    1227: "this user lacks a right. Fix: use a user that may do this.",
    1290: "the server is read-only. Fix: use the URL of the primary.",
    1836: "the server is read-only. Fix: use the URL of the primary.",
    2003: "the server cannot be reached. Fix: correct host and port in the URL, or start the server.",
    2006: "the connection was lost. Fix: run this again.",
    2013: "the connection was lost. Fix: run this again.",
    3159: "the server insists on TLS. Fix: --tls, and --tls-ca FILE where its authority is your own.",
}


def _explained(error: Exception, url: URL) -> str:
    """Which server and what to do; the server's own text is left out, for it may quote what is secret."""
    where = f"{url.host or 'localhost'}:{url.port or 3306}/{url.database or ''}"
    arguments = getattr(getattr(error, "orig", None), "args", ())
    code = arguments[0] if arguments and isinstance(arguments[0], int) else None
    reason = _REASONS.get(code or 0, "the database refused. Look its error number up, and in its log.")
    return f"{where}: {reason}" + (f" (error {code})" if code else f" ({type(error).__name__})")


def _stop(*lines: str, code: int = UNUSABLE) -> NoReturn:
    for line in lines:
        typer.echo(f"inbox schema: {line}", err=True)
    raise typer.Exit(code)
