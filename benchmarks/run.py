"""Events per second of the inbox beside consumers written by hand, in one run: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import random
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from aio_pika.exceptions import AMQPError
from pymysql.err import MySQLError

from benchmarks.catalog import NODE, Cell, estimate, events_of, full_grid, only, quick_grid
from benchmarks.database import Durability, fresh_database
from benchmarks.disk import Place, place_of
from benchmarks.goals import goals_grid, goals_table, judged
from benchmarks.machine import commit, machine, versions
from benchmarks.measure import ROOT, Servers, Wrong, count_run, time_run
from benchmarks.node import why_no_node
from benchmarks.plot import plot
from benchmarks.results import Runs, rows, why_void
from benchmarks.table import table
from inbox import InboxError
from tests.services.catalog import PAIRS
from tests.services.local import LocalService
from tests.services.service import Service, ServiceError
from tests.services.session import Services, names_of

_PUBLISHED: Final = ROOT / "benchmarks/results"
_PARTIAL: Final = ROOT / "build/bench/results"
#: On a disk, short, and open to the user that servers run as; what lies there survives a restart (hier(7)).
DATA: Final = Path("/var/tmp")  # noqa: S108 - a name that nobody can guess is made in it
_GRIDS: Final = {"full": full_grid, "quick": quick_grid, "goals": goals_grid}
_COUNTED: Final = 200
_COUNTED_ALONE: Final = 50

_EPILOG: Final = """\
Each consumer is a process of its own and consumes the same events from a quorum queue that was filled before its clock
started. Rounds are interleaved: in each, all consumers run one after the other under each load, in an order that is
drawn anew. A ratio is taken within a round, to `raw` under the same load; told are medians. After every run it is
checked that each event had its effect once, has its row, and that the queue is empty: whoever is fast and wrong does
not count, and neither does the run. A goal that is missed is told, and voids nothing.

  python -m benchmarks.run --plan                        what would be measured, and how long it takes
  python -m benchmarks.run --quick                       a look, four minutes
  python -m benchmarks.run --goals                       what it is judged by, in full, twenty minutes
  python -m benchmarks.run --only 'inbox-session,.* 8 in' --rounds 3
                                                         a part; `raw` is measured with it, for the ratio
  INBOX_MYSQL_DSN=mysql://… INBOX_RABBIT4_DSN=amqp://… python -m benchmarks.run
                                                         on servers that run already; else they are started

Exit codes: 0 the run stands; 1 it is void, and why is said; 2 it could not be made; 130 interrupted.
"""


@dataclass
class Session:
    """One run of the whole: what is measured, and what is said about it.

    Attributes:
        cells: in the order in which they are listed.
        rounds: timed ones; one that counts on the wire comes before.
        events: deliveries of each timed run; None leaves them to the load.
        grid: `full`, `quick` or `goals`.
        draw: decides everything that is drawn.
        machine: what it runs on, and how busy that was before.
        void: reasons for which nothing of it may be quoted.
        notes: what a reader should know beside the figures.
        data: by pair, where the database's data lies and what that server promises.
        brokers: by pair, version and where the data lies.
    """

    cells: Sequence[Cell]
    rounds: int
    events: int | None
    grid: str
    draw: random.Random
    machine: dict[str, Any] = field(default_factory=machine)
    void: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def measure(self, servers: Mapping[str, Servers]) -> list[Runs]:
        """Every round of every cell."""
        measured = {cell: Runs(cell) for cell in self.cells}
        loads = list(dict.fromkeys(cell.load for cell in self.cells))
        for number in range(self.rounds + 1):
            for load in loads:
                beside = [runs for runs in measured.values() if runs.cell.load == load]
                self.draw.shuffle(beside)
                for runs in beside:
                    if runs.wrong is None:
                        await self._run(number, runs, servers[load.pair])
        return list(measured.values())

    async def _run(self, number: int, runs: Runs, servers: Servers) -> None:
        cell = runs.cell
        count = self.events or events_of(cell.load, quick=self.grid == "quick")
        try:
            if number == 0:
                together = max(3 * cell.load.in_flight, 6 * cell.consumer.batch)
                few = _COUNTED_ALONE if cell.load.kind == "one alone" else max(_COUNTED, together)
                runs.wire = await count_run(cell, servers, min(count, few), self.draw)
                told = f"{runs.wire.commands:.2f} packets, {runs.wire.acks:.2f} acks an event"
            else:
                timing = runs.timings[number] = await time_run(cell, servers, count, self.draw)
                told = f"{timing.rate:,.0f}/s, half of them in {timing.p50_ms:.1f} ms"
        except (Wrong, TimeoutError) as error:
            runs.wrong = str(error) or "it did not get ready in time"
            told = f"WRONG: {runs.wrong}"
        say(f"round {number} of {self.rounds}: {cell}: {told}")

    def look_at_database(self, pair: str, durability: Durability, *, memory_is_fine: bool) -> None:
        """Note what it promises, and where its data lies."""
        place = place_of(Path(durability.folder))
        self.data[pair] = {**asdict(durability), **asdict(place)}
        product = _product(durability.version)
        if not durability.is_full:
            self.void.append(f"{product} answers a COMMIT before that is on the disk")
        self._look_at(product, place, memory_is_fine=memory_is_fine)

    def look_at_broker(self, pair: str, broker: Service, *, memory_is_fine: bool) -> None:
        """Note where its data lies. It tells nobody over AMQP, so of one that is given nothing is known."""
        place = place_of(broker.home / "data") if isinstance(broker, LocalService) else Place(None)
        version = ".".join(map(str, broker.version))
        self.brokers[pair] = {"version": version, **asdict(place)}
        self._look_at(f"RabbitMQ {version}", place, memory_is_fine=memory_is_fine)

    def _look_at(self, product: str, place: Place, *, memory_is_fine: bool) -> None:
        if place.is_in_memory and not memory_is_fine:
            self.void.append(f"{product} has its data in memory: give it a disk with --data")
        if place.folder is None:
            self.notes.append(f"{product}: where its data lies is not to be seen from here")

    def header(self, options: argparse.Namespace) -> dict[str, Any]:
        """What the figures were taken on, and whether they stand."""
        return {
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "grid": self.grid,
            "is_whole": is_whole(options),
            "rounds": self.rounds,
            "seed": options.seed,
            "machine": self.machine,
            "versions": versions(),
            "databases": self.data,
            "brokers": self.brokers,
            "void": self.void,
            "notes": self.notes,
        }


def is_whole(options: argparse.Namespace) -> bool:
    """Whether a whole grid is measured, as it is meant to be: only then may it replace figures that are published."""
    return not options.only and options.rounds is None and options.events is None and not options.allow_memory


@contextmanager
def running(session: Session, options: argparse.Namespace) -> Iterator[dict[str, Servers]]:
    """Servers for every pair that the cells ask for, each with a fresh database."""
    pairs = list(dict.fromkeys(cell.load.pair for cell in session.cells))
    with Services(say=say, data=options.data) as services, ExitStack() as stack:
        services.start(names_of(pairs))
        if services.warning:
            session.notes.append(services.warning)
        servers = {}
        for pair in pairs:
            database, broker = services[PAIRS[pair].database], services[PAIRS[pair].broker]
            made = stack.enter_context(fresh_database(database.dsn, f"bench_{secrets.token_hex(4)}"))
            session.look_at_database(pair, made.durability(), memory_is_fine=options.allow_memory)
            session.look_at_broker(pair, broker, memory_is_fine=options.allow_memory)
            servers[pair] = Servers(made, broker.dsn, (database, broker))
        yield servers


def choose(options: argparse.Namespace) -> Session:
    """What is to be measured, without what is not installed."""
    grid = "quick" if options.quick else "goals" if options.goals else "full"
    cells = only(_GRIDS[grid](), options.only)
    missing = {cell.consumer.id for cell in cells if not cell.consumer.is_installed}
    session = Session((), options.rounds or (3 if options.quick else 5), options.events, grid, _draw(options))
    if missing:
        session.notes.append(f"left out, for their libraries are not installed: {', '.join(sorted(missing))}")
    if not options.plan and any(cell.consumer == NODE for cell in cells) and (why := why_no_node()) is not None:
        session.notes.append(f"left out: node, for {why}; that raw is no straw man was not shown")
        missing.add(NODE.id)
    session.cells = [cell for cell in cells if cell.consumer.id not in missing]
    return session


def _draw(options: argparse.Namespace) -> random.Random:
    return random.Random(options.seed)  # noqa: S311 - test data


def write(session: Session, measured: Sequence[Runs], options: argparse.Namespace) -> str:
    """Write what came of it; the table."""
    found = judged(measured)
    header = session.header(options) | {"goals": [each.row() for each in found]}
    listed = rows(measured, {pair: _product(found["version"]) for pair, found in session.data.items()})
    shown = "\n".join(part for part in (table(listed), goals_table(found)) if part)
    folder: Path = options.results or (_PUBLISHED if header["is_whole"] else _PARTIAL)
    history = folder / "history"
    history.mkdir(parents=True, exist_ok=True)
    name = f"{header['date'][:19].replace(':', '')}-{header['commit'].rstrip('+')}.json"
    (history / name).write_text(_json({"header": header, "results": listed}))
    if session.void and options.results is None:
        say(f"void, so that only {history / name} was written")
        return shown
    caption = ", ".join(
        [
            *(_product(found["version"]) for found in session.data.values()),
            f"RabbitMQ {' and '.join(found['version'] for found in session.brokers.values())}",
            f"{header['machine']['cores']} cores",
            header["date"][:10],
        ]
    )
    (folder / "latest.json").write_text(_json(listed))
    (folder / "header.json").write_text(_json(header))
    (folder / "latest.md").write_text(f"{caption}\n\n{shown}")
    (folder / "latest.svg").write_text(plot(listed, caption))
    say(f"written: {folder}/latest.json, header.json, latest.md, latest.svg and history/{name}")
    return shown


def _product(version: str) -> str:
    product = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    return f"{product} {version.partition('-')[0]}"


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


def say(line: str) -> None:
    """Progress, apart from the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__.partition(":")[0] + "." if __doc__ else None,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer cells, events and rounds: four minutes")
    parser.add_argument(
        "--goals", action="store_true", help="the cells by which the inbox is judged, in full: twenty minutes"
    )
    parser.add_argument("--only", action="append", default=[], metavar="REGEX", help="only cells whose name matches")
    parser.add_argument(
        "--plan", action="store_true", help="list the cells and the time they take, and measure nothing"
    )
    parser.add_argument("--rounds", type=int, help="timed rounds (5, or 3 with --quick)")
    parser.add_argument("--events", type=int, help="deliveries of each run, instead of one to three seconds' worth")
    parser.add_argument("--seed", type=int, default=1, help="the same seed draws the same events and orders")
    parser.add_argument("--data", type=Path, default=DATA, help=f"where servers that are started put data ({DATA})")
    parser.add_argument("--allow-memory", action="store_true", help="take data that lies in memory; never to be quoted")
    parser.add_argument(
        "--results", type=Path, help="folder for what is written (benchmarks/results; of a part: build/bench/results)"
    )
    options = parser.parse_args(words)
    if options.quick and options.goals:
        parser.error("--quick or --goals, not both")
    for name in ("rounds", "events"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the rest.

    Returns:
        The exit code: 0 where the run stands, 1 where it is void, 2 where it could not be made, 130 interrupted.
    """
    options = read(words)
    session = choose(options)
    if not session.cells:
        say("no cell has such a name: --plan lists them")
        return 2
    minutes = estimate(session.cells, session.rounds, quick=options.quick) / 60
    if options.plan:
        sys.stdout.write("".join(f"{cell}\n" for cell in session.cells))
    say(f"{len(session.cells)} cells, {session.rounds} rounds and one that counts: about {minutes:.0f} minutes")
    if options.plan:
        return 0
    begun = time.monotonic()
    try:
        with running(session, options) as servers:
            measured = asyncio.run(session.measure(servers))
    except ServiceError as error:
        say(f"no servers: {error}")
        return 2
    except (OSError, MySQLError, AMQPError, InboxError) as error:
        say(f"a server is out of reach, or refuses: {type(error).__name__}: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted: nothing is written")
        return 130
    session.void += why_void(measured)
    sys.stdout.write(write(session, measured, options))
    for note in session.notes:
        say(f"note: {note}")
    for reason in session.void:
        say(f"VOID: {reason}")
    say(f"{time.monotonic() - begun:.0f} s")
    return 1 if session.void else 0


if __name__ == "__main__":
    sys.exit(main())
