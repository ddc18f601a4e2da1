"""What the commands share: their options, where the tables are, how they end, and how they show what takes long."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Protocol, TypeVar, cast

import typer
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError

from inbox.adapters.mysql import MySQL
from inbox.app import Inbox
from inbox.cli.load import load_inbox
from inbox.config import DatabaseSettings, check_consumer_name
from inbox.errors import ConfigurationError, InboxError, SchemaError
from inbox.tables import InboxTables, TableNames, define_tables

if TYPE_CHECKING:
    from sqlalchemy import URL

    from inbox.ports import Store

T = TypeVar("T")

OK: Final = 0
#: Something needs a person, or not everything was done.
ATTENTION: Final = 1
#: A wrong option, or no connection: nothing was done.
UNUSABLE: Final = 2
#: Ended by SIGINT with nothing to report; what a shell makes of it (128 + 2).
INTERRUPTED: Final = 130

#: Seconds; the server ends a session that says nothing for a little longer.
SESSION_DEADLINE: Final = 60

#: Seconds between two lines about work that takes long, where no bar is drawn.
_LINE_EVERY: Final = 5.0

# ------------------------------------------------------------------ options
_DATABASE: Final = typer.Option(
    "--database",
    envvar="INBOX_DATABASE_URL",
    metavar="URL",
    help="mysql://user:password@host:3306/name. Better in the environment, for other users of the machine "
    "can read the options of a command.",
    show_default=False,
    show_envvar=True,
)
_CONSUMER: Final = typer.Option(
    "--consumer",
    envvar="INBOX_CONSUMER",
    metavar="NAME",
    help="The name that duplicates are known under, as in Inbox(name, …).",
    show_default=False,
    show_envvar=True,
)
TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="Your Inbox, as module:attribute, e.g. billing.app:inbox. Stands for --database, --consumer, --table, "
        "--no-view, --tls and --tls-ca.",
        show_default=False,
    ),
]
DatabaseOption = Annotated[str | None, _DATABASE]
RequiredDatabaseOption = Annotated[str, _DATABASE]
ConsumerOption = Annotated[str | None, _CONSUMER]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="KIND=NAME",
        help="Another name for a table; KIND is inbox, attempt, quarantine, worker, schema or view. May be repeated.",
    ),
]
NoViewOption = Annotated[bool, typer.Option("--no-view", help="Do without the view for people.")]
TlsOption = Annotated[
    bool,
    typer.Option("--tls", envvar="INBOX_DATABASE_TLS", show_envvar=True, help="Require an encrypted connection."),
]
TlsCaOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        envvar="INBOX_DATABASE_TLS_CA",
        show_envvar=True,
        metavar="FILE",
        help="Trust this certificate authority, not the system's. Implies --tls.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]
ProgressOption = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Draw how far it is, or say nothing. Neither: draw on a terminal, else a line now and then.",
        show_default=False,
    ),
]


# ------------------------------------------------------------------ where the tables are
@dataclass(frozen=True, slots=True, repr=False)
class Where:
    """The options that stand for a target; see `inbox.cli.option_groups`."""

    database: DatabaseOption = None
    consumer: ConsumerOption = None
    table: TableOption = None
    no_view: NoViewOption = False
    tls: TlsOption = False
    tls_ca: TlsCaOption = None


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """Where a command works: an `Inbox`, or a database and the name of a consumer.

    Attributes:
        inbox: the one that TARGET names; None where options say where.
        database: what the options say; None where TARGET does.
        consumer: the consumer's name; None only where a command may do without.
    """

    inbox: Inbox | None
    database: MySQL | None
    consumer: str | None

    def store(self) -> Store:
        """The store for management work: one unit at a time. Opens nothing."""
        if self.inbox is not None:
            return self.inbox.store
        assert self.database is not None  # noqa: S101 - one of the two, by `choose_place`
        # A name is needed where there is none yet: it is written nowhere.
        name = self.consumer or "inbox"
        return self.database.for_consumer(name, concurrency=1, deadline=float(SESSION_DEADLINE))


def choose_place(
    context: typer.Context, target: str | None, where: Where | None = None, *, needs_consumer: bool = True
) -> Place:
    """Where the command is to work, by TARGET or by the options that stand for it.

    What the environment says (INBOX_DATABASE_URL, INBOX_CONSUMER) gives way to TARGET; what is written beside it
    contradicts it.

    Args:
        context: typer's; says what was written and what came from the environment.
        target: `module:attribute`, or None.
        where: the options that stand for it, where the command has them.
        needs_consumer: whether they must name a consumer.

    Raises:
        ConfigurationError: neither or both are given, one is malformed, or TARGET names no `Inbox`.
    """
    where = where or Where()
    if target is not None:
        given = [field.name for field in fields(Where) if _is_written(context, field.name)]
        if written := [f"--{name.replace('_', '-')}" for name in given]:
            raise ConfigurationError(f"{' and '.join(written)} beside {target!r}: write the target or the options")
        inbox = load_inbox(target)
        return Place(inbox, None, inbox.name)
    if where.database is None:
        raise ConfigurationError("say where: a target such as billing.app:inbox, or --database URL")
    if needs_consumer and where.consumer is None:
        raise ConfigurationError("say whose: --consumer NAME, or a target such as billing.app:inbox")
    name = None if where.consumer is None else check_consumer_name(where.consumer)
    settings = database_settings(where.tls_ca, tls=where.tls)
    return Place(None, MySQL(where.database, settings, make_tables(where.table, no_view=where.no_view)), name)


def _is_written(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def make_tables(assignments: list[str] | None, *, no_view: bool = False) -> InboxTables:
    """The tables, named as `--table` and `--no-view` say.

    Args:
        assignments: `KIND=NAME` each.
        no_view: whether to do without the view.

    Raises:
        ConfigurationError: an assignment is none, or names something that cannot be a table.
    """
    kinds = TableNames.__dataclass_fields__
    names: dict[str, str | None] = {"view": None} if no_view else {}
    for assignment in assignments or ():
        kind, equals, name = assignment.partition("=")
        if not equals or kind not in kinds:
            raise ConfigurationError(f"--table {assignment}: write KIND=NAME, where KIND is one of {', '.join(kinds)}.")
        if kind == "view" and no_view:
            raise ConfigurationError("--no-view and --table view=… contradict each other.")
        names[kind] = name
    return define_tables(MetaData(), TableNames(**cast("dict[str, Any]", names)))


def database_settings(tls_ca: Path | None, *, tls: bool) -> DatabaseSettings:
    """The settings that `--tls` and `--tls-ca` stand for."""
    ca = None if tls_ca is None else str(tls_ca)
    return DatabaseSettings(tls=tls or ca is not None, tls_ca=ca)


@asynccontextmanager
async def open_store(place: Place) -> AsyncIterator[Store]:
    """The store of `place`, opened for the block: connected, its tables checked.

    Raises:
        StartupError: with one message that names the fix.
    """
    store = place.store()
    try:
        await store.open()
        yield store
    finally:
        await store.close()


# ------------------------------------------------------------------ running
def run(command: str, work: Callable[[], Awaitable[T]], *, url: URL | None = None, schema_code: int = UNUSABLE) -> T:
    """Run an asynchronous command on an event loop of its own; see `explaining` for what becomes of its errors.

    Args:
        command: its name, as in `inbox <command>`.
        work: what it does.
        url: of the database, where `work` uses an engine and not a store.
        schema_code: exit code where the tables are not as they should be.
    """

    async def main() -> T:
        asyncio.get_running_loop().set_exception_handler(_leave_out_the_librarys)
        return await work()

    # They repeat, with what the peer wrote, what one line of ours says.
    for library in ("aiormq", "aio_pika"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    with explaining(command, url=url, schema_code=schema_code):
        return asyncio.run(main())


def _leave_out_the_librarys(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of tasks that failed and that nobody awaited, unless they are the client library's on a link that is lost.

    Who waited on that link has been told. Old releases of aiormq (6.8.1) leave some of their own futures behind.
    """
    error = context.get("exception")
    if type(error).__module__.partition(".")[0] not in ("aiormq", "aio_pika") and not isinstance(
        error, ConnectionError
    ):
        loop.default_exception_handler(context)


@contextmanager
def explaining(command: str, *, url: URL | None = None, schema_code: int = UNUSABLE) -> Iterator[None]:
    """Turn what goes wrong in the block into `inbox <command>: …` on standard error, and an exit code.

    Args:
        command: its name, as in `inbox <command>`.
        url: of the database, where the block uses an engine and not a store.
        schema_code: exit code where the tables are not as they should be.

    Raises:
        typer.Exit: with 2, or with 130 where the block was interrupted.
    """
    try:
        yield
    except SchemaError as error:
        stop(command, *error.problems, code=schema_code)
    except InboxError as error:
        stop(command, str(error))
    except BrokenPipeError:
        raise  # who reads has gone; typer ends quietly
    except (DBAPIError, OSError) as error:
        stop(command, explained(error, url))
    except (KeyboardInterrupt, asyncio.CancelledError):
        stop(command, "interrupted", code=INTERRUPTED)


def stop(command: str, *lines: str, code: int = UNUSABLE) -> NoReturn:
    """Say why, a line each, and end.

    Raises:
        typer.Exit: always, with `code`.
    """
    for line in lines:
        typer.echo(f"inbox {command}: {line}", err=True)
    raise typer.Exit(code)


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


def explained(error: Exception, url: URL | None = None) -> str:
    """What went wrong and what to do; a server's own text is left out, for it may quote what is secret.

    Args:
        error: the driver's or the system's.
        url: of the database that was asked, where that is known.
    """
    if url is None and isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {os.strerror(error.errno or 0)}"
    where = "the database" if url is None else f"{url.host or 'localhost'}:{url.port or 3306}/{url.database or ''}"
    arguments = getattr(getattr(error, "orig", None), "args", ())
    code = arguments[0] if arguments and isinstance(arguments[0], int) else None
    reason = _REASONS.get(code or 0, "the database refused. Look its error number up, and in its log.")
    return f"{where}: {reason}" + (f" (error {code})" if code else f" ({type(error).__name__})")


# ------------------------------------------------------------------ being interrupted
class Interruption:
    """Whether somebody wants a long command to end."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._then: list[Callable[[], object]] = []

    @property
    def is_asked(self) -> bool:
        """Whether it is wanted: finish the running step, report, and exit with 1."""
        return self._asked.is_set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Return as soon as it is wanted, or after so long; whether it is."""
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:
            asked.cancel()
        return self.is_asked

    def then(self, call: Callable[[], object]) -> None:
        """Call `call` as soon as it is wanted; at once where it is already."""
        if self.is_asked:
            call()
        else:
            self._then.append(call)

    def ask(self) -> None:
        """Want it."""
        self._asked.set()
        while self._then:
            self._then.pop(0)()


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Let SIGINT and SIGTERM ask a long command to end; the second one cancels it where it stands.

    Only within `run`: it is the running task that is cancelled, and `run` then exits with 130.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine calls this
    interruption = Interruption()

    def heed() -> None:
        if interruption.is_asked:
            task.cancel()
        interruption.ask()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, heed)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


# ------------------------------------------------------------------ output
def print_json(value: object) -> None:
    """Print one JSON object to standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """`text` without what would steer a terminal: not everything that is stored was written by us."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


class Progress(Protocol):
    """Shows how far long work is."""

    def advance(self, steps: int = 1) -> None:
        """So many steps more are done."""
        ...


@contextmanager
def progress(command: str, what: str, *, total: int | None = None, shown: bool | None = None) -> Iterator[Progress]:
    """Show on standard error how far the block is: a bar on a terminal, elsewhere a line every few seconds.

    Args:
        command: its name, as in `inbox <command>`.
        what: what is counted, such as `events published`.
        total: how many steps there are; None where nobody knows.
        shown: True draws the bar, False shows nothing, None draws it on a terminal only.
    """
    if shown is False:
        yield _Silence()
    elif shown or sys.stderr.isatty():
        with _drawn(what, total) as bar:
            yield bar
    else:
        yield _Lines(command, what, total)


class _Silence:
    def advance(self, steps: int = 1) -> None:
        pass


class _Lines:
    def __init__(self, command: str, what: str, total: int | None) -> None:
        self._command = command
        self._what = what
        self._of = "" if total is None else f" of {total:,}"
        self._done = 0
        self._said_at = self._began_at = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._said_at >= _LINE_EVERY:
            self._said_at = now
            rate = self._done / (now - self._began_at)
            typer.echo(f"inbox {self._command}: {self._done:,}{self._of} {self._what}, {rate:,.0f} a second", err=True)


@contextmanager
def _drawn(what: str, total: int | None) -> Iterator[Progress]:
    from rich import progress as bars  # noqa: PLC0415 - slow to import, and most commands need none
    from rich.console import Console  # noqa: PLC0415 - as above

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=sys.stderr.isatty()) as drawn:
        task = drawn.add_task(what, total=total)

        class Bar:
            def advance(self, steps: int = 1) -> None:
                drawn.advance(task, steps)

        yield Bar()
