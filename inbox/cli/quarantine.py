"""`inbox quarantine`: read, replay, discard, export and import refused events."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inbox.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, configure_logging
from inbox.cli.option_groups import grouped
from inbox.cli.options import (
    ATTENTION,
    OK,
    DryRunOption,
    JsonOption,
    Place,
    ProgressOption,
    TargetArgument,
    Where,
    choose_place,
    explaining,
    interruptible,
    open_store,
    print_json,
    progress,
    run,
    stop,
)
from inbox.cli.quarantine_file import entry_as_dict
from inbox.cli.quarantine_options import (
    AllOption,
    Filters,
    StateOption,
    Which,
    make_filters,
    require_filter,
)
from inbox.cli.quarantine_report import (
    body_text,
    count_lines,
    counts_as_list,
    entries_text,
    entry_lines,
    header_lines,
    print_table,
    replay_text,
    whole_as_dict,
)
from inbox.cli.quarantine_transfer import export_to, import_from
from inbox.core.quarantine import QuarantineCursor, QuarantineState, ReplayReport, Selection
from inbox.errors import ConfigurationError, StopTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.app import Inbox
    from inbox.core.quarantine import QuarantineCount, QuarantinedDelivery, QuarantineEntry

_COMMAND: Final = "quarantine"
_NOTE_LENGTH: Final = 512

app = typer.Typer(
    name="quarantine",
    no_args_is_help=True,
    help="""Refused events, each whole and with its reason: read them, and decide what becomes of them.

    `list` and `show` read. `replay` sends them through your handlers again, once what was wrong is mended. `discard`
    gives them up, with a note. `export` and `import` carry them to a file and back, also to another database.

    What is decided stays listed (`--state`) until `inbox prune` deletes it. A refused event blocks nothing: a new
    delivery of it runs as any other.

    Exit codes: 0 done; 1 something was not done, such as an entry that was refused again; 2 a wrong option, or no
    connection.
    """,
)

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most entries of a page.")]
AfterOption = Annotated[
    str | None,
    typer.Option("--after", metavar="CURSOR", help="Go on where a page ended; the cursor stands at its end."),
]
OldestOption = Annotated[bool, typer.Option("--oldest-first", help="The newest come first without it.")]
DigitsArgument = Annotated[
    str, typer.Argument(metavar="DIGEST", help="First digits of the digest that `list` shows.", show_default=False)
]
BodyOption = Annotated[bool, typer.Option("--body", help="Show the body too: as text, or as base64 where it is none.")]
InboxArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Your Inbox, as module:attribute, e.g. billing.app:inbox: its handlers are needed.",
        show_default=False,
    ),
]
MostOption = Annotated[int | None, typer.Option("--limit", min=1, help="Most entries; all that are meant without it.")]
BecauseOption = Annotated[
    str, typer.Option("--because", metavar="TEXT", help="Why, for whoever asks later.", show_default=False)
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Write there, for its owner's eyes; without it, to standard output."),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote; - reads standard input.")]


# ------------------------------------------------------------------ reading
@app.command("list")
@grouped
def list_command(
    context: typer.Context,
    target: TargetArgument = None,
    *,
    state: StateOption = None,
    which: Which,
    limit: LimitOption = 50,
    after: AfterOption = None,
    oldest_first: OldestOption = False,
    where: Where,
    as_json: JsonOption = False,
) -> None:
    """List entries, without their payload, and how many of them there are by reason.

    Example: inbox quarantine list billing.app:inbox --reason handler-error --since 12h
    """
    with explaining(_COMMAND):
        place = choose_place(context, target, where)
        filters = make_filters(which, state)
        cursor = None if after is None else QuarantineCursor.parse(after)

    async def work() -> tuple[Sequence[QuarantineEntry], Sequence[QuarantineCount]]:
        async with open_store(place) as store:
            selection = filters.selection(await store.desk.now())
            page = await store.desk.list(selection, after=cursor, limit=limit, newest_first=not oldest_first)
            return page, await store.desk.count(selection)

    page, counts = run(_COMMAND, work)
    following = str(page[-1].cursor) if len(page) == limit else None
    if as_json:
        entries = [entry_as_dict(entry) for entry in page]
        print_json({"entries": entries, "next": following, "counts": counts_as_list(counts)})
        return
    if page:
        print_table(page)
        typer.echo()
    for line in count_lines(counts):
        typer.echo(line)
    typer.echo(f"{entries_text(sum(each.entries for each in counts))} in all.")
    if following is not None:
        typer.echo(f"The next page: --after {following}")


@app.command("show")
@grouped
def show_command(
    context: typer.Context,
    digest: DigitsArgument,
    target: TargetArgument = None,
    *,
    body: BodyOption = False,
    where: Where,
    as_json: JsonOption = False,
) -> None:
    """Show one entry: what is known of it, its headers as they came, and how its attempts ended.

    Its body only with --body: it may hold what not everyone at this terminal is to see. Exits with 1 where there is no
    such entry.

    Example: inbox quarantine show 6d763b62b1af billing.app:inbox --body
    """
    with explaining(_COMMAND):
        place = choose_place(context, target, where)
        selection = Selection((*QuarantineState,), digests=(digest,))

    async def work() -> tuple[Sequence[QuarantineEntry], Sequence[QuarantinedDelivery]]:
        async with open_store(place) as store:
            named = await store.desk.list(selection, limit=2)
            return named, await store.desk.get([entry.digest for entry in named[:1]])

    named, found = run(_COMMAND, work)
    if not named:
        stop(_COMMAND, "there is no such entry; look with `inbox quarantine list --state all`", code=ATTENTION)
    if len(named) > 1:
        stop(_COMMAND, "several entries begin with these digits: give more of them")
    if not found:
        stop(_COMMAND, *entry_lines(named[0]), "its headers cannot be read by this version", code=ATTENTION)
    if as_json:
        # Escaped, for a header may hold what has no form in UTF-8.
        typer.echo(json.dumps(whole_as_dict(found[0], with_body=body), indent=2))
        return
    for line in (*entry_lines(found[0].entry), *header_lines(found[0])):
        typer.echo(line)
    if body:
        typer.echo()
        typer.echo(body_text(found[0].delivery.body, is_terminal=sys.stdout.isatty()))


# ------------------------------------------------------------------ deciding
@app.command("replay")
@grouped
def replay_command(
    context: typer.Context,
    target: InboxArgument,
    *,
    which: Which,
    everything: AllOption = False,
    limit: MostOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Send open entries through your handlers again, verification included, the oldest first.

    Each has one run. What is applied, or was applied before, is closed as replayed; what fails is open as before, with
    its new reason. Workers may be at work meanwhile, and another replay too. Interrupted or killed, it has done what it
    has: run it again, an effect comes about once.

    Exits with 1 where an entry is still open.

    Example: inbox quarantine replay billing.app:inbox --reason handler-error --type job.completed
    """
    with explaining(_COMMAND):
        filters = make_filters(which)
        require_filter(filters, everything=everything)
        place = choose_place(context, target)
        assert place.inbox is not None  # noqa: S101 - a target was given
        inbox = place.inbox

    if dry_run:
        _print_counts(_counted(place, filters), "would be replayed", as_json=as_json)
        return
    # What a worker would say, less the line for each refused event: the report counts them, the entries tell why.
    configure_logging(log_level, log_format, leave_out="quarantined")
    report = run(_COMMAND, lambda: _replayed(inbox, filters, limit, show_progress=show_progress))
    if as_json:
        print_json({**asdict(report), "complete": report.is_complete})
    else:
        typer.echo(replay_text(report))
    raise typer.Exit(OK if report.is_complete else ATTENTION)


async def _replayed(inbox: Inbox, filters: Filters, limit: int | None, *, show_progress: bool | None) -> ReplayReport:
    async with open_store(Place(inbox, None, inbox.name)) as store:
        selection = filters.selection(await store.desk.now())
        total = sum(each.entries for each in await store.desk.count(selection))
    total = total if limit is None else min(total, limit)
    with (
        interruptible() as interruption,
        progress(_COMMAND, "entries replayed", total=total, shown=show_progress) as shown,
    ):
        told = 0

        def tell(report: ReplayReport) -> None:
            nonlocal told
            shown.advance(report.settled - told)
            told = report.settled

        interrupted = asyncio.ensure_future(interruption.wait())
        interrupted.add_done_callback(lambda asked: None if asked.cancelled() else inbox.stop())
        try:
            return await inbox.replay(selection, limit=limit, progress=tell)
        except StopTimeout as error:
            # Leaving the event loop would wait for the handlers that do not come back.
            typer.echo(f"inbox {_COMMAND}: {error}", err=True)
            sys.stdout.flush()
            os._exit(ATTENTION)
        finally:
            interrupted.cancel()


@app.command("discard")
@grouped
def discard_command(
    context: typer.Context,
    target: TargetArgument = None,
    *,
    because: BecauseOption,
    which: Which,
    everything: AllOption = False,
    where: Where,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """Give open entries up, and keep why. They stay listed as discarded until `inbox prune` deletes them.

    Nothing is asked: look with `list` or --dry-run first. An entry that is refused again is open again. Exits with 1
    where one was refused again just now, and stays open.

    Example: inbox quarantine discard billing.app:inbox --type job.test --because "a test of the producer"
    """
    with explaining(_COMMAND):
        if not because.strip() or len(because) > _NOTE_LENGTH:
            raise ConfigurationError(f"--because: say why, in at most {_NOTE_LENGTH} characters")
        filters = make_filters(which)
        require_filter(filters, everything=everything)
        place = choose_place(context, target, where)
    if dry_run:
        _print_counts(_counted(place, filters), "would be discarded", as_json=as_json)
        return

    async def work() -> tuple[int, int]:
        async with open_store(place) as store:
            selection = _until_now(filters, await store.desk.now())
            wanted = sum(each.entries for each in await store.desk.count(selection))
            with progress(_COMMAND, "entries discarded", total=wanted, shown=show_progress) as shown:
                return wanted, await store.desk.discard(selection, because, progress=shown.advance)

    wanted, discarded = run(_COMMAND, work)
    if as_json:
        print_json({"selected": wanted, "discarded": discarded})
    else:
        typer.echo(f"{entries_text(discarded)} discarded.")
    raise typer.Exit(OK if discarded >= wanted else ATTENTION)


def _until_now(filters: Filters, now: datetime) -> Selection:
    """What comes from here on was not meant."""
    selection = filters.selection(now)
    return replace(selection, until=now if selection.until is None else min(now, selection.until))


def _counted(place: Place, filters: Filters) -> Sequence[QuarantineCount]:
    async def work() -> Sequence[QuarantineCount]:
        async with open_store(place) as store:
            return await store.desk.count(filters.selection(await store.desk.now()))

    return run(_COMMAND, work)


def _print_counts(counts: Sequence[QuarantineCount], what: str, *, as_json: bool) -> None:
    total = sum(each.entries for each in counts)
    if as_json:
        print_json({"selected": total, "dry_run": True, "counts": counts_as_list(counts)})
        return
    for line in count_lines(counts):
        typer.echo(line)
    typer.echo(f"Dry run: {entries_text(total)} {what}; nothing was changed.")


# ------------------------------------------------------------------ files
@app.command("export")
@grouped
def export_command(
    context: typer.Context,
    target: TargetArgument = None,
    *,
    output: OutputOption = None,
    state: StateOption = None,
    which: Which,
    where: Where,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """Write entries whole, one JSON object a line, the oldest first. Changes nothing.

    A line has what `list` knows, the headers as they are stored and the body in base64. Its digest covers what arrived,
    so that `import` finds what was changed since. A file appears when it is complete. With --json a summary goes to
    standard output, so name the file by --output then.

    Example: inbox quarantine export billing.app:inbox --reason handler-error --output refused.jsonl
    """
    with explaining(_COMMAND):
        if as_json and output is None:
            raise ConfigurationError("--json beside an export to standard output: name a file by --output")
        place = choose_place(context, target, where)
        filters = make_filters(which, state)

    async def work() -> tuple[int, int]:
        async with open_store(place) as store:
            selection = filters.selection(await store.desk.now())
            total = sum(each.entries for each in await store.desk.count(selection))
            with progress(_COMMAND, "entries exported", total=total, shown=show_progress) as shown:
                return await export_to(output, place.consumer or "", store.desk, selection, shown.advance)

    exported, missed = run(_COMMAND, work)
    if as_json:
        print_json({"exported": exported, "unreadable": missed})
    else:
        typer.echo(f"{entries_text(exported)} exported.", err=True)
    if missed:
        stop(_COMMAND, f"{entries_text(missed)} gone meanwhile, or not readable by this version", code=ATTENTION)


@app.command("import")
@grouped
def import_command(
    context: typer.Context,
    file: FileArgument,
    target: TargetArgument = None,
    *,
    where: Where,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """Put exported entries back, with all that is known of them. What is there already stays as it is.

    Every line is checked first; where one is wrong, its number is told and nothing is put back. The entries become
    this consumer's, whosever they were. The bounds of the quarantine hold. Doing it again does no harm.

    Exits with 1 where a line is wrong, or there was no room for all.

    Example: inbox quarantine import refused.jsonl --consumer billing --dry-run
    """
    with explaining(_COMMAND):
        place = choose_place(context, target, where)

    async def work() -> tuple[int, int, str | None]:
        with import_from(file) as source:
            for line in source.problems:
                typer.echo(f"inbox {_COMMAND}: {line}", err=True)
            if source.problems:
                stop(_COMMAND, "nothing was imported", code=ATTENTION)
            async with open_store(place) as store:
                with progress(_COMMAND, "entries read", total=source.lines, shown=show_progress) as shown:
                    restored, why = await source.put_back(store.desk, shown.advance, dry_run=dry_run)
            return source.lines, restored, why

    lines, restored, why = run(_COMMAND, work)
    if as_json:
        print_json({"lines": lines, "imported": restored, "dry_run": dry_run, "complete": why is None})
    else:
        done = "would be imported; nothing was changed" if dry_run else "imported"
        there = "" if why is not None else f", {lines - restored:,} there already"
        typer.echo(f"{entries_text(restored)} {done}{there}.")
    if why is not None:
        stop(_COMMAND, why, code=ATTENTION)
