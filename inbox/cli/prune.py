"""`inbox prune`: delete rows that nothing needs any more."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inbox.cli.option_groups import grouped
from inbox.cli.options import (
    ATTENTION,
    OK,
    SESSION_DEADLINE,
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
)
from inbox.config import ConsumerSettings
from inbox.core.retention import Pruned, why_too_short
from inbox.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from inbox.cli.options import Interruption, Progress
    from inbox.ports import Store

_COMMAND: Final = "prune"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,10})([smhdw])", re.ASCII)
#: Seconds. Where nobody says which consumer it is, its settings are unknown, and may be slower than the defaults.
_LEAST_WITHOUT_TARGET: Final = 86_400.0

OlderThanOption = Annotated[
    str,
    typer.Option(
        "--older-than",
        metavar="DURATION",
        help="Delete what is older, by the database's clock: 90s, 15m, 12h, 30d or 4w.",
        show_default=False,
    ),
]
AllConsumersOption = Annotated[
    bool, typer.Option("--all-consumers", help="For every consumer that has rows, one after the other.")
]
BatchOption = Annotated[int, typer.Option("--batch", min=1, max=900, help="Most rows that one statement deletes.")]
PauseOption = Annotated[
    float,
    typer.Option(
        "--pause",
        min=0.0,
        max=60.0,
        help="Seconds of rest after a batch at least; after a longer one, as long as it took.",
    ),
]
RetryHorizonOption = Annotated[
    str | None,
    typer.Option(
        "--retry-horizon",
        metavar="DURATION",
        help="For how long an event may be under way; a shorter --older-than is refused. Without it: what the settings "
        "of TARGET come to, or a day without TARGET. It can lengthen the first and replace the second.",
        show_default=False,
    ),
]


@grouped
def prune(
    context: typer.Context,
    target: TargetArgument = None,
    *,
    older_than: OlderThanOption,
    where: Where,
    all_consumers: AllConsumersOption = False,
    batch: BatchOption = 500,
    pause: PauseOption = 0.01,
    retry_horizon: RetryHorizonOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    show_progress: ProgressOption = None,
) -> None:
    """Delete old rows: of processed events, of attempts, of decided quarantine, of workers that are gone.

    An id that is forgotten is new when it comes again. So keep rows for longer than any queue, outbox, backup or person
    can bring an event back. Open quarantine stays, and so do the rows that its replay would need.

    Live traffic does not notice: small batches by primary key, with rests. One clean-up works at a time; another one is
    told so and ends. Interrupted or killed, it has deleted what it has; run it again. A worker does the same by itself
    with ConsumerSettings(retention=…).

    Example, a line of a crontab: @daily cd /srv/billing && inbox prune billing.app:inbox --older-than 30d

    Exit codes: 0 done; 1 not everything, for it was interrupted, another clean-up is at work, or others hold rows
    locked; 2 a window that is too short, a wrong option, or no connection.
    """
    with explaining(_COMMAND):
        window = seconds_of("--older-than", older_than)
        horizon = None if retry_horizon is None else seconds_of("--retry-horizon", retry_horizon)
        if all_consumers and (target is not None or _is_written(context, "consumer")):
            raise ConfigurationError("--all-consumers beside a target or --consumer: write one of them")
        if all_consumers:  # also where the environment names one
            where = replace(where, consumer=None)
        place = choose_place(context, target, where, needs_consumer=not all_consumers)
        check_window(place, window, horizon)

    wanted = Wanted(window, batch, pause, dry_run)
    done = run(_COMMAND, lambda: _clean_up(place, wanted, shown=show_progress))
    is_complete = all(each.is_complete for each in done.values())
    if as_json:
        consumers = {name: asdict(each) for name, each in done.items()}
        print_json({"complete": is_complete, "dry_run": dry_run, "consumers": consumers})
    else:
        for name, each in done.items():
            typer.echo(f"{name}: {_words(each, dry_run=dry_run)}")
        if not done:
            typer.echo("No consumer has any rows.")
    raise typer.Exit(OK if is_complete else ATTENTION)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to delete, and how fast; see `inbox.ports.Store.prune`."""

    older_than: float
    batch: int
    pause: float
    dry_run: bool


def seconds_of(option: str, text: str) -> float:
    """What `90s`, `15m`, `12h`, `30d` or `4w` say, in seconds.

    Args:
        option: where it was written.
        text: a number and a unit.

    Raises:
        ConfigurationError: it says nothing like that.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise ConfigurationError(f"{option} {text}: write a number and a unit, such as 90s, 15m, 12h, 30d or 4w")
    return float(int(found[1]) * _UNITS[found[2]])


def check_window(place: Place, window: float, horizon: float | None) -> None:
    """Refuse to forget what may still be under way.

    Args:
        place: whose rows; by its settings, where those are known.
        window: seconds for which rows are kept.
        horizon: what `--retry-horizon` says; None where it is not written.

    Raises:
        ConfigurationError: the window is too short; with the number, and what to do.
    """
    settings = ConsumerSettings() if place.inbox is None else place.inbox.settings
    own = settings.retry.horizon(settings.deadline)
    if place.inbox is not None:
        least = max(own, horizon or 0.0)
        advice = "lengthen it, or shorten what the consumer's settings allow (retry, deadline)"
    else:
        least = max(own, _LEAST_WITHOUT_TARGET) if horizon is None else horizon
        advice = (
            "lengthen it, or name a TARGET whose settings say better, or say with --retry-horizon for how long an "
            "event may be under way"
        )
    problem = why_too_short(window, least)
    if problem is not None:
        raise ConfigurationError(f"--older-than: {problem}: {advice}")


def _is_written(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


async def _clean_up(place: Place, wanted: Wanted, *, shown: bool | None) -> dict[str, Pruned]:
    """Clean up for the consumer of `place`, or for all that have rows; what each came to.

    One that is not reached, for it was to end or the connection was lost, is not complete.
    """
    what = "old rows found" if wanted.dry_run else "rows deleted"
    with interruptible() as interruption, progress(_COMMAND, what, shown=shown) as bar:
        async with open_store(place) as store:
            if place.consumer is not None:
                return {place.consumer: await _clean(store, wanted, bar, interruption)}
            done = dict.fromkeys(await store.consumers(), Pruned(is_complete=False))
        assert place.database is not None  # noqa: S101 - a target has a name
        for number, name in enumerate(done):
            if interruption.is_asked:
                break
            each = place.database.for_consumer(name, concurrency=1, deadline=float(SESSION_DEADLINE))
            try:
                done[name] = await _clean(each, wanted, bar, interruption)
            except StoreError as error:
                if not number:
                    raise
                typer.echo(f"inbox {_COMMAND}: {error}", err=True)
                break
            finally:
                await each.close()
        return done


async def _clean(store: Store, wanted: Wanted, bar: Progress, interruption: Interruption) -> Pruned:
    """Clean up for one consumer."""
    told = 0

    def tell(done: Pruned) -> bool:
        nonlocal told
        bar.advance(done.rows - told)
        told = done.rows
        return not interruption.is_asked

    return await store.prune(
        wanted.older_than, batch=wanted.batch, pause=wanted.pause, progress=tell, dry_run=wanted.dry_run
    )


def _words(done: Pruned, *, dry_run: bool) -> str:
    if done.is_skipped:
        return "another clean-up of these tables is at work; nothing was done."
    parts = {"inbox": done.inbox, "attempts": done.attempts, "quarantine": done.quarantine, "workers": done.workers}
    found = ", ".join(f"{rows:,} {kind}" for kind, rows in parts.items())
    words = f"{'would delete' if dry_run else 'deleted'} {done.rows:,} rows ({found})"
    if done.kept:
        words += f"; {'would keep' if dry_run else 'kept'} {done.kept:,} old inbox rows whose events are in quarantine"
    return f"{words}." if done.is_complete else f"{words}. Not complete: run it again."
