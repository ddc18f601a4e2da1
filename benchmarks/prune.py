"""What `inbox prune` does to live traffic: it deletes millions of rows while units claim and commit at a steady rate.

    BENCH_DATABASE_URL=mysql://… python -m benchmarks.prune --rows 2000000 --rate 200

The rows are of one consumer, under random ids, older than the window; the units are the same consumer's, each with a
handler that updates one row. The lock wait is one second, the shortest there is: whoever waited for a lock for longer
would be counted. The clean-up is the command itself, in a process of its own. The tables have names of their own, and
are dropped afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inbox.adapters.mysql import MySQL
from inbox.config import DatabaseSettings, env
from inbox.core.delivery import Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.handler import Face, Handler
from inbox.core.records import Claim, InboxRecord
from inbox.errors import StoreError
from inbox.tables import TableNames, define_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.ports import Store

NAMES = TableNames(
    inbox="bench_prune",
    attempt="bench_prune_attempt",
    quarantine="bench_prune_quarantine",
    worker="bench_prune_worker",
    schema="bench_prune_schema",
    view=None,
)
CONSUMER = "bench"
ACCOUNTS = 1000
CHUNK = 20_000

_DIGITS = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
_NUMBERS = (
    f"(SELECT a.n * 10000 + b.n * 1000 + c.n * 100 + d.n * 10 + e.n AS n FROM {_DIGITS} a JOIN {_DIGITS} b "  # noqa: S608 - digits
    f"JOIN {_DIGITS} c JOIN {_DIGITS} d JOIN {_DIGITS} e) AS numbers"
)
#: A row a millisecond, from sixty days ago, under ids that are as random as a UUID.
_FILL = text(
    f"INSERT INTO {NAMES.inbox} (consumer_name, event_id, fingerprint, fingerprint_scheme, processed_at) "  # noqa: S608 - names of ours
    "SELECT 'bench', LEFT(SHA2(CONCAT('old-', n + :start), 256), 36), UNHEX(SHA2(n, 256)), 11, "
    "UTC_TIMESTAMP(6) - INTERVAL 60 DAY + INTERVAL (n + :start) * 1000 MICROSECOND "
    f"FROM {_NUMBERS} WHERE n < :rows"
)
_UPDATE = text("UPDATE bench_prune_account SET balance = balance + 1 WHERE id = :id")


@dataclass
class Phase:
    """What live units did during one part of the run.

    Attributes:
        seconds: of each unit, from its claim's beginning to the end of its commit.
        errors: of the store, by number.
        late: units that could not begin in time, for all connections were in use.
    """

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    late: int = 0

    def summary(self) -> dict[str, object]:
        """Milliseconds, and what went wrong."""
        ordered = sorted(self.seconds)

        def share(part: float) -> float:
            return round(1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1) if ordered else 0.0

        return {
            "units": len(ordered),
            "p50_ms": share(0.5),
            "p99_ms": share(0.99),
            "p999_ms": share(0.999),
            "max_ms": share(1.0),
            "errors": dict(self.errors),
            "late": self.late,
        }


class Traffic:
    """Units at a steady rate, whatever each takes.

    Args:
        store: where; open.
        rate: units a second.
        most: units at once.
    """

    def __init__(self, store: Store, rate: float, most: int) -> None:
        self._store = store
        self._rate = rate
        self._most = most
        self._running: set[asyncio.Task[None]] = set()
        self.phase = Phase()

    async def run(self) -> None:
        """Begin one unit after the other, until cancelled."""
        began = time.monotonic()
        for number in count():
            await asyncio.sleep(max(0.0, began + number / self._rate - time.monotonic()))
            if len(self._running) >= self._most:
                self.phase.late += 1
                continue
            task = asyncio.create_task(self._unit(self.phase))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _unit(self, phase: Phase) -> None:
        key = secrets.token_hex(18)
        record = InboxRecord(CONSUMER, key.encode(), b"f" * 32, 11)
        event = Event(CloudEvent(id=key, source="/bench", type="bench"), record, Origin("", "bench"))
        began = time.perf_counter()
        unit = await self._store.begin()
        try:
            assert await unit.claim(record) is Claim.NEW  # noqa: S101 - a random id
            await unit.apply(_HANDLER, event, None)
        except StoreError as error:
            phase.errors[str(error.code)] += 1
            await unit.rollback()
            return
        try:
            await unit.commit()
        except StoreError as error:
            phase.errors[str(error.code)] += 1
        else:
            phase.seconds.append(time.perf_counter() - began)

    async def wait_ended(self) -> None:
        """Return when no unit runs. After `run` was cancelled."""
        while self._running:
            await asyncio.wait(self._running)


async def _credit(event: Event, session: AsyncSession) -> None:
    await session.execute(_UPDATE, {"id": int(event.id[:8], 16) % ACCOUNTS})


_HANDLER = Handler("credit", "bench", Face.SESSION, _credit)


async def prepare(url: str, rows: int) -> float:
    """Make the tables and fill them; seconds that took."""
    await drop(url)
    engine = create_async_engine(_async(url))
    metadata = MetaData()
    define_tables(metadata, NAMES)
    began = time.monotonic()
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(text("CREATE TABLE bench_prune_account (id INT PRIMARY KEY, balance INT)"))
        accounts = ", ".join(f"({number}, 0)" for number in range(ACCOUNTS))
        await connection.execute(text(f"INSERT INTO bench_prune_account VALUES {accounts}"))  # noqa: S608 - numbers
        await connection.commit()
        for start in range(0, rows, CHUNK):
            await connection.execute(_FILL, {"start": start, "rows": min(CHUNK, rows - start)})
            await connection.commit()
    await engine.dispose()
    return time.monotonic() - began


async def drop(url: str) -> None:
    """Drop the tables."""
    engine = create_async_engine(_async(url))
    async with engine.begin() as connection:
        await connection.execute(
            text("SET SESSION sql_notes = 0")
        )  # the driver would make a warning of "unknown table"
        for name in (NAMES.inbox, NAMES.attempt, NAMES.quarantine, NAMES.worker, NAMES.schema, "bench_prune_account"):
            await connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    await engine.dispose()


async def prune(url: str, words: Sequence[str]) -> tuple[dict[str, Any], float]:
    """The command; what it reports, and the seconds it took."""
    names = [
        f"--table={kind}={getattr(NAMES, kind)}" for kind in ("inbox", "attempt", "quarantine", "worker", "schema")
    ]
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inbox.cli", "prune", "--consumer", CONSUMER, "--older-than", "30d", "--json"),
        *("--no-view", *names, *words),
        env={**os.environ, "INBOX_DATABASE_URL": url},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return json.loads(out), time.monotonic() - began


async def measure(url: str, options: argparse.Namespace) -> dict[str, object]:
    """Fill, run live traffic, clean up beside it, and say what both saw."""
    filled = await prepare(url, options.rows)
    database = MySQL(url, DatabaseSettings(lock_wait=1), NAMES)
    store = database.for_consumer(CONSUMER, concurrency=options.concurrency, deadline=30.0)
    await store.open()
    traffic = Traffic(store, options.rate, 4 * options.concurrency)
    running = asyncio.create_task(traffic.run())
    phases: dict[str, Phase] = {}
    try:
        await asyncio.sleep(2)
        traffic.phase = phases["quiet before"] = Phase()
        await asyncio.sleep(options.quiet)
        traffic.phase = phases["while pruning"] = Phase()
        report, took = await prune(url, ["--batch", str(options.batch), "--pause", str(options.pause)])
        traffic.phase = phases["quiet after"] = Phase()
        await asyncio.sleep(options.quiet)
    finally:
        running.cancel()
        await traffic.wait_ended()
        await store.close()
        if not options.keep:
            await drop(url)
    rows = report["consumers"][CONSUMER]["inbox"]
    return {
        "rows": options.rows,
        "filled_in_s": round(filled),
        "pruned": rows,
        "complete": report["complete"],
        "pruned_in_s": round(took, 1),
        "rows_per_s": round(rows / took),
        **{name: phase.summary() for name, phase in phases.items()},
    }


def _async(url: str) -> str:
    return f"mysql+aiomysql:{url.partition(':')[2]}"


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=float, default=200.0, help="live units a second")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds of live traffic alone, before and after")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--keep", action="store_true", help="leave the tables")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    print(json.dumps(asyncio.run(measure(env("BENCH_DATABASE_URL"), options)), indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
