"""`inbox run`: the worker."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inbox.app import Inbox
from inbox.cli.load import folders_of, load_inbox
from inbox.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, configure_logging, log_uncaught
from inbox.cli.reload import Reloader, require_watchfiles
from inbox.core.facts import fact
from inbox.errors import StartupError
from inbox.runtime.loops import LOOP_VARIABLE, EventLoop
from inbox.runtime.supervisor import Supervisor
from inbox.runtime.worker import Exit, run_worker

log = logging.getLogger("inbox")

#: Seconds that whoever stops a worker gives it beyond its own patience.
_GRACE: Final = 10

LoopOption = Annotated[
    EventLoop,
    typer.Option(
        "--loop",
        envvar=LOOP_VARIABLE,
        show_envvar=True,
        case_sensitive=False,
        help="Event loop; auto is uvloop where it is installed, and asyncio's own where not.",
    ),
]
ReloadOption = Annotated[
    bool,
    typer.Option("--reload", help="For development: start again when a Python file of the target's package changes."),
]
ReloadDirOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--reload-dir",
        metavar="FOLDER",
        exists=True,
        file_okay=False,
        help="With --reload: watch this folder too. May be repeated.",
    ),
]


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="Your Inbox, or a function that makes it, as module:attribute.", show_default=False
        ),
    ],
    *,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes, each with its own connections.")] = 1,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
    loop: LoopOption = EventLoop.AUTO,
    quiet: Annotated[bool, typer.Option("--quiet", help="Leave out what is said about the start.")] = False,
    reload: ReloadOption = False,
    reload_dir: ReloadDirOption = None,
) -> None:
    """Consume until SIGTERM or SIGINT; running units are finished first.

    Example: inbox run billing.app:inbox

    Example for a container: INBOX_LOG_FORMAT=json inbox run billing.app:inbox --workers 4

    Example while you write it: inbox run billing.app:inbox --reload --reload-dir ../shared

    The current directory is searched first. A stop takes as long as the settings allow (45 seconds by default); a
    worker of several that dies is started again.

    Environment: INBOX_LOG_LEVEL, INBOX_LOG_FORMAT and INBOX_LOOP stand for the options; what is written as an option
    wins. Everything else, such as where to connect to, your own module says: inbox.env(NAME) reads a variable and
    names the one that is missing; where it says settings=ConsumerSettings.from_env(), each setting has a variable,
    such as INBOX_CONCURRENCY or INBOX_RETRY_DELAYS=1,10,60, and DatabaseSettings and RabbitMQSettings have them too.

    Exit codes: 0 stopped as asked; 1 the broker stayed away past its patience, a platform ended the subscription, or a
    defect; 2 not started: a wrong option, configuration, schema, topology, or a server that is not there, with one
    line that names the fix; 3 stopped hard, because a handler did not come back, or over a leased subscription
    acknowledgements were not confirmed in time: those events come again, and are found.
    """
    if reload and workers > 1:
        raise typer.BadParameter("--reload goes with one worker: leave out one of the two.", param_hint="'--workers'")
    if reload_dir and not reload:
        raise typer.BadParameter("it says what --reload watches: add that.", param_hint="'--reload-dir'")
    configure_logging(log_level, log_format)
    if reload:
        raise typer.Exit(_run_reloaded(target, reload_dir or [], (log_level, log_format, loop), quiet=quiet))
    if workers == 1:
        raise typer.Exit(_run_one(target, log_format, loop, quiet=quiet))
    try:
        inbox, found = load_inbox(target), loop.found()
    except StartupError as error:
        raise typer.Exit(_refuse(error)) from None
    if not quiet:
        _say_start(inbox, workers, log_format, found)
    patience = inbox.stop_patience + _GRACE
    raise typer.Exit(Supervisor(_worker, (target, log_level, log_format, loop), count=workers, patience=patience).run())


def print_summary(inbox: Inbox, workers: int, loop: EventLoop) -> None:
    """What is about to run, for the person who started it: on standard error, without secrets."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in inbox.describe().items():
        table.add_row(name, Text(value))  # as it is: brackets in a name are no markup
    table.add_row("workers", str(workers))
    table.add_row("event loop", loop)
    Console(stderr=True).print(table)


def _say_start(inbox: Inbox, workers: int, log_format: LogFormat, loop: EventLoop) -> None:
    if log_format is LogFormat.TEXT:
        print_summary(inbox, workers, loop)
    else:
        told = fact("starting", settings=inbox.describe(), workers=workers, loop=loop.value)
        log.info("starting consumer %r", inbox.name, extra=told)


def _run_one(
    target: str, log_format: LogFormat, loop: EventLoop, *, quiet: bool, consuming: Callable[[], None] | None = None
) -> Exit:
    try:
        inbox, found = load_inbox(target), loop.found()
    except StartupError as error:
        return _refuse(error)
    if not quiet:
        _say_start(inbox, 1, log_format, found)
    return _run_loaded(inbox, found, consuming)


def _run_loaded(inbox: Inbox, loop: EventLoop, consuming: Callable[[], None] | None = None) -> Exit:
    code = run_worker(inbox, started=consuming, loop=loop)
    if code is Exit.NOT_STARTED:
        return code
    counts = dict(sorted(inbox.telemetry.counts.items()))
    line = " ".join(f"{name}={number}" for name, number in counts.items())
    log.info("ended: %s", line or "nothing came", extra=fact("ended", counts=counts))
    return code


def _refuse(error: StartupError) -> Exit:
    log.error("not started: %s", error, extra=fact("not-started", error=type(error).__name__))
    return Exit.NOT_STARTED


# ------------------------------------------------------------------ spawned processes
def _worker(
    consuming: Callable[[], None], target: str, log_level: LogLevel, log_format: LogFormat, loop: EventLoop
) -> Exit:
    """Body of one of several."""
    configure_logging(log_level, log_format)
    try:
        return _run_one(target, log_format, loop, quiet=True, consuming=consuming)
    except Exception as error:
        if log_format is LogFormat.TEXT:
            raise  # multiprocessing prints its traceback, which is what they need
        log_uncaught(type(error), error.__traceback__)
        sys.exit(1)


def _run_reloaded(
    target: str, more: list[Path], options: tuple[LogLevel, LogFormat, EventLoop], *, quiet: bool
) -> Exit:
    try:
        require_watchfiles()
        folders = [*folders_of(target), *more]
    except StartupError as error:
        return _refuse(error)
    return Reloader(_reloaded, (target, *options, quiet), folders=folders).run()


def _reloaded(  # noqa: PLR0917 - called in one place, by what spawns the process
    allow: Callable[[float], None],
    target: str,
    log_level: LogLevel,
    log_format: LogFormat,
    loop: EventLoop,
    quiet: bool,
) -> Exit:
    """Body of one that is started anew after an edit. A module that cannot be imported is told in one line too."""
    configure_logging(log_level, log_format)
    try:
        inbox, found = load_inbox(target), loop.found()
    except StartupError as error:
        return _refuse(error)
    except Exception as error:  # noqa: BLE001 - whatever an edit has broken
        name, place = type(error).__name__, _place_of_edit(error)
        log.error("not started: %s at %s", name, place, extra=fact("not-started", error=name))  # noqa: TRY400 - one line
        return Exit.NOT_STARTED
    allow(inbox.stop_patience + _GRACE)
    if not quiet:
        _say_start(inbox, 1, log_format, found)
    return _run_loaded(inbox, found)


def _place_of_edit(error: Exception) -> str:
    """Where an import failed: in a file of the project, if any of those was on the way."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{_relative(error.filename)}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if _is_theirs(Path(frame.filename))] or frames
    return f"{_relative(theirs[-1].filename)}:{theirs[-1].lineno}"


def _is_theirs(file: Path) -> bool:
    ours = Path(__file__).parents[1]
    return file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts and not file.is_relative_to(ours)


def _relative(name: str) -> str:
    file = Path(name)
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else name
