"""`inbox run`: the worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inbox.app import Inbox
from inbox.cli.load import load_inbox
from inbox.errors import StartupError
from inbox.runtime.supervisor import Supervisor
from inbox.runtime.worker import Exit, run_worker

log = logging.getLogger("inbox")

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s[%(process)d] %(message)s"


def run(
    target: Annotated[str, typer.Argument(help="Your Inbox, as module:attribute, e.g. billing.app:inbox.")],
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes, each with its own connections.")] = 1,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    quiet: Annotated[bool, typer.Option("--quiet", help="Leave out the start-up table.")] = False,
) -> None:
    """Consume until SIGTERM or SIGINT; running units are finished first.

    Exit codes: 0 stopped as asked; 1 the broker stayed away past its patience, or a defect;
    2 not started: configuration, schema, topology, or a server that is not there, with one line that names the fix;
    3 stopped hard, because a handler did not come back.
    """
    configure_logging(log_level)
    if workers == 1:
        raise typer.Exit(_run_one(target, quiet=quiet))
    try:
        inbox = load_inbox(target)
    except StartupError as error:
        log.error("not started: %s", error)  # noqa: TRY400 - one line that names the fix, no traceback
        raise typer.Exit(Exit.NOT_STARTED) from None
    if not quiet:
        print_summary(inbox, workers)
    patience = inbox.settings.shutdown_patience + inbox.settings.cancel_patience + 10
    raise typer.Exit(Supervisor(_worker, (target, log_level), count=workers, patience=patience).run())


def configure_logging(level: str) -> None:
    """Log to standard error.

    Raises:
        typer.BadParameter: no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"{level!r} is no log level; use debug, info, warning or error")
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT)
    logging.getLogger("inbox").setLevel(number)
    # They repeat, with what the peer wrote, what one line of ours says.
    for library in ("aiormq", "aio_pika"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def print_summary(inbox: Inbox, workers: int) -> None:
    """What is about to run, for the person who started it: on standard error, without secrets."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in inbox.describe().items():
        table.add_row(name, Text(value))  # as it is: brackets in a name are no markup
    table.add_row("workers", str(workers))
    Console(stderr=True).print(table)


def _run_one(target: str, *, quiet: bool, consuming: Callable[[], None] | None = None) -> Exit:
    try:
        inbox = load_inbox(target)
    except StartupError as error:
        log.error("not started: %s", error)  # noqa: TRY400 - one line that names the fix, no traceback
        return Exit.NOT_STARTED

    if not quiet:
        print_summary(inbox, 1)
    code = run_worker(inbox, started=consuming)
    if code is Exit.NOT_STARTED:
        return code
    counts = " ".join(f"{name}={number}" for name, number in sorted(inbox.telemetry.counts.items()))
    log.info("ended: %s", counts or "nothing came")
    return code


def _worker(consuming: Callable[[], None], target: str, log_level: str) -> Exit:
    """Body of a spawned process."""
    configure_logging(log_level)
    return _run_one(target, quiet=True, consuming=consuming)
