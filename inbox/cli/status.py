"""`inbox status`: how consumers, their workers and their queues do."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings, TlsSettings
from inbox.cli.option_groups import grouped
from inbox.cli.options import (
    ATTENTION,
    OK,
    JsonOption,
    Place,
    TargetArgument,
    Where,
    choose_place,
    explaining,
    interruptible,
    open_store,
    print_json,
    run,
)
from inbox.cli.status_report import Status
from inbox.core.policy import RetryPolicy
from inbox.errors import ConfigurationError, InboxError

if TYPE_CHECKING:
    from inbox.ports import Store

#: Reports that a worker may leave out before it counts as silent; and seconds, where nobody knows its interval.
_MISSED: Final = 3
_SILENT_AFTER: Final = 60.0

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar="INBOX_BROKER_URL",
        metavar="URL",
        help="amqp://user:password@host:5672/vhost, with --queue. A target has both.",
        show_default=False,
        show_envvar=True,
    ),
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="The consumed queue; its dead letters are NAME.dead.")
]
BrokerCaOption = Annotated[
    Path | None,
    typer.Option("--broker-ca", metavar="FILE", help="Trust this certificate authority of the broker. Asks for TLS."),
]
ExactOption = Annotated[
    bool, typer.Option("--exact", help="Count every inbox row; takes minutes where there are very many.")
]
WatchOption = Annotated[
    float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="Show it again and again, until Ctrl-C.")
]
SilentOption = Annotated[
    float | None,
    typer.Option(
        "--silent-after",
        min=0,
        metavar="SECONDS",
        help="Mark a worker that has not reported for so long. Else three of the target's intervals, or 60.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown, and from where."""

    place: Place
    broker: RabbitMQ | None
    delays: tuple[float, ...]
    exact: bool
    silent_after: float


@grouped
def status(
    context: typer.Context,
    *,
    target: TargetArgument = None,
    where: Where,
    broker: BrokerOption = None,
    queue: QueueOption = None,
    broker_ca: BrokerCaOption = None,
    as_json: JsonOption = False,
    exact: ExactOption = False,
    watch: WatchOption = None,
    silent_after: SilentOption = None,
) -> None:
    """Show how consumers do: events, trouble, quarantine, workers, queues. Changes nothing.

    Without a target and --consumer it shows every consumer that has rows. Outcomes are the sum over the workers that
    reported within the last week. The quarantine is measured by the target's bounds, otherwise by the default ones.

    Exit codes: 0 all is quiet; 1 something needs a person: open quarantine, a silent worker, dead letters, or events
    that wait and nobody who consumes them; 2 a wrong option, or no connection.

    Example: inbox status billing.app:inbox

    Example: inbox status --json | jq '.consumers[] | {consumer, open: .quarantine.open}'

    **--json** prints one object, with --watch one a line; times are UTC by the database's clock, null where there is
    nothing. `ok`, `attention` (sentences); `consumers`, each with `consumer`, `at`, `schema_version`, `outcomes`,
    `inbox` (`last_hour` and `last_day`, which end at 1000000 unless --exact, `oldest`, `newest`, `rows` with --exact,
    `table_rows_estimate`), `attempts` (`events`, `open_starts`, `oldest`, `failed`, `crashed`, `released`),
    `quarantine` (`open`, `oldest_open`, `share`, `bound_rows`, `bound_bytes`, `by_state`, `by_reason`, these with
    `rows` and `bytes`), `workers` (`id`, `host`, `pid`, `state`, `started_at`, `seen_at`, `age`, `silent`,
    `counts`); `queues` (`name`, `role`, `ready`, `consumers`).
    """
    with explaining("status"):
        place = choose_place(context, target, where, needs_consumer=False)
        link, delays = _broker(place, broker, queue, broker_ca)
    wanted = Wanted(place, link, delays, exact, _patience(place, silent_after))
    raise typer.Exit(run("status", lambda: _show(wanted, watch, as_json=as_json)))


def _broker(
    place: Place, url: str | None, queue: str | None, ca: Path | None
) -> tuple[RabbitMQ | None, tuple[float, ...]]:
    """Whom to ask about queues, and the delays whose retry queues there may be.

    Raises:
        ConfigurationError: an option is missing, malformed or contradicts the target.
    """
    if queue is not None:
        if url is None:
            raise ConfigurationError("--queue needs --broker URL")
        settings = RabbitMQSettings(tls=None if ca is None else TlsSettings(ca=str(ca)))
        return RabbitMQ(url, queue, settings=settings), RetryPolicy().steps
    if ca is not None:
        raise ConfigurationError("--broker-ca needs --broker and --queue")
    if place.inbox is None:
        return None, ()
    transport = place.inbox.transport
    return (transport if isinstance(transport, RabbitMQ) else None), place.inbox.settings.retry.steps


def _patience(place: Place, given: float | None) -> float:
    if given is not None:
        return given
    interval = None if place.inbox is None else place.inbox.settings.report_interval
    return _SILENT_AFTER if interval is None else _MISSED * interval


async def _show(wanted: Wanted, watch: float | None, *, as_json: bool) -> int:
    async with open_store(wanted.place) as store:
        found = await _read(store, wanted)
        _print(found, as_json=as_json, again=watch is not None)
        if watch is not None:
            with interruptible() as interruption:
                while not await interruption.wait(watch):
                    try:
                        found = await _read(store, wanted)
                    except InboxError as error:  # what is watched may go away and come back
                        typer.echo(f"inbox status: {error}; trying again", err=True)
                    else:
                        _print(found, as_json=as_json, again=True)
    return ATTENTION if found.attention else OK


async def _read(store: Store, wanted: Wanted) -> Status:
    name = wanted.place.consumer
    names = await store.consumers() if name is None else [name]
    figures = [await store.figures(each, exact=wanted.exact) for each in names]
    queues = [] if wanted.broker is None else await wanted.broker.depths(wanted.delays)
    return Status(figures, queues, wanted.silent_after)


def _print(found: Status, *, as_json: bool, again: bool) -> None:
    if as_json and again:
        typer.echo(json.dumps(found.as_dict(), ensure_ascii=False))
    elif as_json:
        print_json(found.as_dict())
    else:
        if again and sys.stdout.isatty():
            typer.echo("\x1b[2J\x1b[H", nl=False)  # an empty screen, from its top
        for line in found.lines():
            typer.echo(line)
        for sentence in found.attention:
            typer.secho(f"! {sentence}", fg="red")
