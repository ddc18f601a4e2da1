"""How throughput grows with `inbox run --workers N`.

    python -m benchmarks.workers --counts 1,2,4 --events 6000

Rounds are interleaved, and each takes a fresh backlog. The clock runs from the moment when all of them consume
and a tenth is done to the last effect, so that nobody's start is in it. Database and broker share the machine: on two
cores they are what two workers wait for, and the processor time that is told says how much of it was the workers' own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.catalog import Load
from benchmarks.database import fresh_database
from benchmarks.machine import commit, machine, versions
from benchmarks.measure import Servers, Wrong, check
from benchmarks.run import DATA, say
from benchmarks.served import served
from benchmarks.workload import fresh_queue, make_batch
from tests.services.session import Services

_PATIENCE: Final = 300.0


@dataclass(frozen=True)
class Growth:
    """What so many workers did, as medians of the rounds.

    Attributes:
        workers: processes.
        msg_per_s: of all together; `ratio` is to one worker's in the same round.
        cpu_us, database_cpu_us, broker_cpu_us: processor time for one event.
    """

    workers: int
    msg_per_s: float
    ratio: float
    cpu_us: float
    database_cpu_us: float | None
    broker_cpu_us: float | None


@dataclass(frozen=True)
class Round:
    """One backlog, consumed by so many workers."""

    rate: float
    cpu_us: float
    servers_us: tuple[float | None, float | None]


async def consume(servers: Servers, workers: int, options: argparse.Namespace, draw: random.Random) -> Round:
    """Publish a backlog, let so many workers apply it, and see that every effect is there once.

    Raises:
        Wrong: something is missing, or there twice; or the backlog was too small.
    """
    queue = f"bench-{secrets.token_hex(4)}"
    batch = make_batch(Load("all-new", options.in_flight), options.events, draw)
    servers.database.reset(batch)
    async with fresh_queue(servers.amqp_url, queue) as channel:
        await channel.publish(batch.deliveries)
        settings = {"INBOX_CONCURRENCY": str(options.in_flight), "INBOX_REPORT_INTERVAL": ""}
        async with (
            served((servers.database.url, servers.amqp_url), queue, workers, settings) as running,
            asyncio.timeout(_PATIENCE),
        ):
            await channel.wait_consumed(workers)
            first = await _until(servers, options.events // 10)
            if first == options.events:
                raise Wrong(f"{workers} workers were not started before the backlog's end: give more --events")
            began, own, others = time.monotonic(), running.cpu_seconds(), servers.cpu_seconds()
            last = await _until(servers, options.events)
            seconds, own_after, others_after = time.monotonic() - began, running.cpu_seconds(), servers.cpu_seconds()
            await running.stop()
        await check(servers.database, channel, batch)
    events = last - first
    database, broker = (
        None if before is None or after is None else 1e6 * (after - before) / events
        for before, after in zip(others, others_after, strict=True)
    )
    return Round(events / seconds, 1e6 * (own_after - own) / events, (database, broker))


async def _until(servers: Servers, rows: int) -> int:
    """Return when the inbox has so many rows; how many it has."""
    while True:
        if (found := await asyncio.to_thread(servers.database.count)) >= rows:
            return found
        await asyncio.sleep(0.02)


async def study(servers: Servers, options: argparse.Namespace) -> list[Growth]:
    """Every number of workers in every round."""
    draw = random.Random(options.seed)  # noqa: S311 - test data
    rounds: list[dict[int, Round]] = []
    for number in range(options.rounds):
        taken = {}
        for workers in draw.sample(options.counts, len(options.counts)):
            taken[workers] = await consume(servers, workers, options, draw)
            say(f"round {number + 1} of {options.rounds}: {workers} workers, {taken[workers].rate:,.0f} events/s")
        rounds.append(taken)
    return [growth_of(workers, rounds, min(options.counts)) for workers in options.counts]


def growth_of(workers: int, rounds: Sequence[dict[int, Round]], least: int) -> Growth:
    """Medians of so many workers' rounds."""
    taken = [each[workers] for each in rounds]

    def middle(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(statistics.median(known), 1) if known else None

    return Growth(
        workers,
        round(statistics.median(each.rate for each in taken), 1),
        round(statistics.median(each[workers].rate / each[least].rate for each in rounds), 2),
        round(statistics.median(each.cpu_us for each in taken), 1),
        middle([each.servers_us[0] for each in taken]),
        middle([each.servers_us[1] for each in taken]),
    )


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--counts", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3, 4])
    parser.add_argument("--events", type=int, default=6000, help="in each backlog")
    parser.add_argument("--in-flight", type=int, default=16, help="events at work at once, in each worker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA, help=f"where the servers' data lie ({DATA})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/workers.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON. Exits 1 where a round went wrong."""
    options = read(words)
    with Services(say=say, data=options.data) as services:
        services.start(["mysql", "rabbit4"])
        database, broker = services["mysql"], services["rabbit4"]
        with fresh_database(database.dsn, f"bench_{secrets.token_hex(4)}") as made:
            try:
                found = asyncio.run(study(Servers(made, broker.dsn, (database, broker)), options))
            except Wrong as wrong:
                say(str(wrong))
                return 1
    print("| workers | events/s | to the first | worker µs | database µs | broker µs |\n|--:|--:|--:|--:|--:|--:|")  # noqa: T201 - the result
    for each in found:
        cells = (each.workers, each.msg_per_s, each.ratio, each.cpu_us, each.database_cpu_us, each.broker_cpu_us)
        print("| " + " | ".join(map(str, cells)) + " |")  # noqa: T201 - the result
    told = {"commit": commit(), "versions": versions(), "machine": machine(), "in_flight": options.in_flight}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**told, "workers": [asdict(each) for each in found]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
