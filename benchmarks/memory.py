"""What a worker keeps in memory before a backlog that is far larger than it.

    python -m benchmarks.memory                        # a million small events, ten thousand of 64 KiB
    python -m benchmarks.memory --small 20000 --large 500 --seconds 10

Each case is a backlog of small or of large bodies, before a database that answers at once or late. The worker is
`inbox run`; its resident size is looked at ten times a second, and drawn beside what it may at most hold: what it had
before the first event, eight mebibytes for the connections and compiled statements that come with the first ones, and
its prefetch times a body, twice, for the client library has read what it has not handed on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.database import Database, fresh_database
from benchmarks.machine import commit, machine, versions
from benchmarks.measure import at_port
from benchmarks.plot import lines
from benchmarks.run import DATA, say
from benchmarks.served import Served, served
from benchmarks.workload import Batch, Channel, fresh_queue, make_events
from inbox.testing.faults import ByteFraming, FaultProxy
from tests.services.session import Services

CONCURRENCY: Final = 32
PREFETCH: Final = 128
FIRST_EVENTS_MB: Final = 8
#: Seconds by which a slow database's answers are late.
LATE: Final = 0.05
SETTINGS: Final = {"INBOX_CONCURRENCY": str(CONCURRENCY), "INBOX_PREFETCH": str(PREFETCH), "INBOX_DEADLINE": "60"}
_PART: Final = 5000
_EVERY: Final = 0.1


@dataclass(frozen=True)
class Case:
    """What waits, and how quick the database is.

    Attributes:
        events: in the backlog.
        body: octets of each.
        slow: the database answers late.
    """

    events: int
    body: int
    slow: bool

    def __str__(self) -> str:
        return f"{self.events:,} of {self.body:,} octets, {'slow' if self.slow else 'quick'} database"


@dataclass
class Course:
    """How a worker's resident size went.

    Attributes:
        case: what it consumed.
        idle_mb: its size when it was connected to an empty queue.
        applied: events while it was looked at.
        samples: seconds since the first event, and mebibytes.
    """

    case: Case
    idle_mb: float
    applied: int = 0
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def bound_mb(self) -> float:
        """What it may hold."""
        return self.idle_mb + FIRST_EVENTS_MB + 2 * PREFETCH * self.case.body / 2**20

    @property
    def peak_mb(self) -> float:
        """The most that was seen."""
        return max(size for _, size in self.samples)

    @property
    def growth_mb(self) -> float:
        """From the second half's smallest to its largest: a leak would show."""
        late = [size for _, size in self.samples[len(self.samples) // 2 :]]
        return max(late) - min(late)


async def publish(channel: Channel, case: Case, draw: random.Random) -> None:
    """The backlog, a part at a time."""
    for start in range(0, case.events, _PART):
        await channel.publish(make_events(min(_PART, case.events - start), case.body, draw))
        if start and start % 100_000 == 0:
            say(f"{start:,} published")


async def idle_size(urls: tuple[str, str]) -> float:
    """Of a worker that has nothing to do."""
    queue = f"bench-{secrets.token_hex(4)}"
    async with fresh_queue(urls[1], queue) as channel, served(urls, queue, 1, SETTINGS) as running:
        await channel.wait_consumed(1)
        return running.resident_mb()


async def watch(case: Case, urls: tuple[str, str], database: Database, options: argparse.Namespace) -> Course:
    """Consume of a backlog for so long, and note the worker's size."""
    database.reset(Batch((), ()))
    queue = f"bench-{secrets.token_hex(4)}"
    course = Course(case, await idle_size(urls))
    async with fresh_queue(urls[1], queue) as channel:
        await publish(channel, case, random.Random(options.seed))  # noqa: S311 - test data
        async with served(urls, queue, 1, SETTINGS) as running:
            await channel.wait_consumed(1)
            await _sample(course, running, options.seconds)
            course.applied = database.count()
    return course


async def _sample(course: Course, running: Served, seconds: float) -> None:
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds and running.is_running():
        course.samples.append((round(passed, 2), round(running.resident_mb(), 2)))
        await asyncio.sleep(_EVERY)


async def study(database: Database, amqp_url: str, options: argparse.Namespace) -> list[Course]:
    """Every case."""
    parts = urlsplit(database.url)
    courses = []
    for events, body in ((options.small, 512), (options.large, 65536)):
        for slow in (False, True):
            case = Case(events, body, slow)
            say(str(case))
            async with FaultProxy(parts.hostname or "", parts.port or 3306, ByteFraming) as proxy:
                proxy.delay(LATE)
                url = at_port(database.url, proxy.port) if slow else database.url
                course = await watch(case, (url, amqp_url), database, options)
            say(f"  idle {course.idle_mb:.0f} MiB, peak {course.peak_mb:.0f}, bound {course.bound_mb:.0f}")
            courses.append(course)
    return courses


def markdown(courses: Sequence[Course]) -> str:
    """A table of them."""
    rows = ["| backlog | applied meanwhile | idle MiB | peak MiB | may hold MiB | second half's span MiB |"]
    rows.append("|---|--:|--:|--:|--:|--:|")
    rows += [
        f"| {each.case} | {each.applied:,} | {each.idle_mb:.1f} | {each.peak_mb:.1f} | {each.bound_mb:.1f} "
        f"| {each.growth_mb:.1f} |"
        for each in courses
    ]
    return "\n".join(rows)


def read(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--small", type=int, default=1_000_000, help="events of 512 octets")
    parser.add_argument("--large", type=int, default=10_000, help="events of 64 KiB")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each worker is watched")
    parser.add_argument("--data", type=Path, default=DATA, help=f"where the servers' data lie ({DATA})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/memory"), help="without a suffix")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Watch, print a table, and write JSON and a plot. Exits 1 where a worker held more than it may."""
    options = read(words)
    with Services(say=say, data=options.data) as services:
        services.start(["mysql", "rabbit4"])
        with fresh_database(services["mysql"].dsn, f"bench_{secrets.token_hex(4)}") as made:
            courses = asyncio.run(study(made, services["rabbit4"].dsn, options))
    print(markdown(courses))  # noqa: T201 - the result
    options.out.parent.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"commit": commit(), "versions": versions(), "machine": machine()}
    told["courses"] = [asdict(each) | {"bound_mb": each.bound_mb, "peak_mb": each.peak_mb} for each in courses]
    options.out.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    drawn = [(str(each.case), each.samples, each.bound_mb) for each in courses]
    options.out.with_suffix(".svg").write_text(lines(drawn, "Resident MiB of one worker; dashed: what it may hold"))
    return int(any(each.peak_mb > each.bound_mb for each in courses))


if __name__ == "__main__":
    sys.exit(main())
