"""`inbox demo`: see for yourself that nothing is lost and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from inbox.cli.options import ATTENTION, OK, explaining, run
from inbox.demo.director import DemoSettings, Result, demonstrate
from inbox.demo.script import key_of_seed
from inbox.demo.services import private_servers
from inbox.demo.show import LineShow, LiveShow, print_result
from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inbox.demo.stage import Stage

_COMMAND: Final = "demo"
_SEEDS: Final = 1_000_000

EventsOption = Annotated[int, typer.Option("--events", min=1, max=200_000, metavar="N", help="Different events.")]
DuplicatesOption = Annotated[
    float,
    typer.Option("--duplicates", min=0.0, max=1.0, metavar="SHARE", help="Share of them that is published twice."),
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=16, metavar="N", help="Processes.")]
KillsOption = Annotated[
    int,
    typer.Option("--kills", min=0, max=10_000, metavar="N", help="SIGKILLs; each needs three events."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="The same one gives the same events in the same order, and the same kills. Without it: one at random, "
        "which is told.",
        show_default=False,
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="INBOX_DEMO_DATABASE_URL",
        metavar="URL",
        help="mysql://user:password@host:3306/name, in which tables may be made. Goes with --broker.",
        show_default=False,
        show_envvar=True,
    ),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar="INBOX_DEMO_BROKER_URL",
        metavar="URL",
        help="amqp://user:password@host:5672/vhost. Goes with --database.",
        show_default=False,
        show_envvar=True,
    ),
]
ServicesOption = Annotated[
    bool,
    typer.Option("--services", help="Start MySQL and RabbitMQ for it, as the tests do. Only in a checkout."),
]
FetcherOption = Annotated[
    bool,
    typer.Option(
        "--fetcher",
        help="As a consumer of Fetcher works: each event is verified, and a share of them is forged.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on a line, for programs; all else goes to standard error.")
]


def demo(
    *,
    events: EventsOption = 3000,
    duplicates: DuplicatesOption = 0.25,
    workers: WorkersOption = 2,
    kills: KillsOption = 20,
    seed: SeedOption = None,
    database: DatabaseOption = None,
    broker: BrokerOption = None,
    services: ServicesOption = False,
    fetcher: FetcherOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill workers with SIGKILL again and again, and count what is in the database at the end.

    Events of finished jobs are published, a share of them twice, and shuffled. Workers credit accounts with what they
    say. Most kills meet a worker between COMMIT and acknowledgement, so that its deliveries come again though their
    effect is there; the others meet it anywhere. Each dead worker is replaced. At the end the ledger, the accounts, the
    inbox and the quarantine are read from the database and compared with what was published.

    It needs nothing: database and queue are SQLite files in a folder that is removed. With --database and --broker it
    runs on MySQL or MariaDB and RabbitMQ, in tables, queues and an exchange that begin with demo_ and a number of this
    run, and that are removed at the end or at Ctrl-C.

    With --fetcher the workers verify signatures, and some events are forgeries: without a key, with another body, or
    under the id of a genuine event that comes later. Each must end in quarantine, and cost that event nothing.

    Example: inbox demo --events 10000 --kills 100 --workers 4

    Example for a script: inbox demo --json | tail -n 1 | jq .double

    The object of --json has the numbers events, deliveries, duplicates, kills, effects, lost, double, quarantined,
    sum_expected and sum_found (in cents), and seconds.

    Exit codes: 0 all is as it must be; 1 something is not, or fewer kills took place; 2 it could not be run; 130
    interrupted.
    """
    with explaining(_COMMAND):
        chosen = secrets.randbelow(_SEEDS) if seed is None else seed
        settings = DemoSettings(events, duplicates, chosen, workers, kills, fetcher)
        _check_places(database, broker, services=services)
    result = run(_COMMAND, lambda: _demonstrate(settings, database, broker, services=services))
    print_result(Console(stderr=as_json), result)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    raise typer.Exit(ATTENTION if result.complaints else OK)


def _check_places(database: str | None, broker: str | None, *, services: bool) -> None:
    """Refuse what contradicts itself.

    Raises:
        ConfigurationError: with the fix.
    """
    if services and (database is not None or broker is not None):
        raise ConfigurationError("--services beside --database or --broker: write one of them")
    if (database is None) != (broker is None):
        missing = "--broker" if broker is None else "--database"
        raise ConfigurationError(f"{missing} is missing: --database and --broker go together, or leave out both")


async def _demonstrate(settings: DemoSettings, database: str | None, broker: str | None, *, services: bool) -> Result:
    console = Console(stderr=True)
    show = LiveShow(console) if console.is_terminal and not console.is_dumb_terminal else LineShow(console)
    with _heeding_signals(), show:
        show.say(f"seed {settings.seed}")
        async with AsyncExitStack() as stack:
            if services:
                database, broker = await stack.enter_async_context(private_servers(show.say))
            if not settings.forged:
                return await demonstrate(settings, _stage(database, broker), show)
            return await demonstrate(settings, _stage(database, broker, key_of_seed(settings.seed)), show)


def _stage(database: str | None, broker: str | None, key: bytes | None = None) -> Stage:
    """Where it runs. Each place has libraries of its own, which are imported here.

    Args:
        database: address, or None for a file.
        broker: address; None where `database` is None.
        key: that events are verified with; None trusts them.

    Raises:
        ConfigurationError: an address is none, or a library is missing.
    """
    if database is not None and broker is not None:
        from inbox.demo.servers import ServerStage  # noqa: PLC0415 - see above

        return ServerStage(database, broker, f"demo_{secrets.token_hex(4)}", key)
    try:
        from inbox.demo.embedded import EmbeddedStage  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"without --database and --broker it needs {error.name}: pip install 'idempotent-inbox[cli,embedded]'"
        ) from None
    return EmbeddedStage(key)


@contextmanager
def _heeding_signals() -> Iterator[None]:
    """Let the first signal end the demo, and none its cleaning up, which takes some seconds at most."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine calls this
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    asked = False

    def end() -> None:
        nonlocal asked
        if not asked:
            asked = True
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
