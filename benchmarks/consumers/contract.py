"""What every consumer is told and answers, so that the runner needs to know nothing else of it.

A consumer reads its command line, connects everything that it will use, writes `ready`, and waits for a line on its
input. Then it consumes `--expect` deliveries, writes one line of JSON, the result, and waits for another line before it
closes: what the runner counts on the wire in between is the work and nothing else. The clock runs from the first
delivery to the last acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

#: The name duplicates are known under.
CONSUMER = "bench"
#: Error of MySQL's for a key that is there already (manual, "ER_DUP_ENTRY").
DUPLICATE = 1062

INSERT = "INSERT INTO inbox (consumer_name, event_id) VALUES (%s, %s)"
UPDATE = "UPDATE bench_account SET balance = balance + %s WHERE id = %s"
KNOWN = "SELECT event_id FROM inbox WHERE consumer_name = %s AND event_id IN %s"
#: One statement for as many accounts as there are pairs of id and sum in a JSON array. Each account once, for a join
#: updates a row once, however often it is matched (manual, "UPDATE Statement"); and in the order of the ids, so that
#: two of these take their locks in one order.
UPDATE_ALL = (
    "UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id INT PATH '$[0]', gain BIGINT PATH '$[1]')) AS gained "
    "STRAIGHT_JOIN bench_account ON bench_account.id = gained.id SET balance = balance + gain"
)


@dataclass(frozen=True)
class Job:
    """What to consume, and how.

    Attributes:
        database_url: `mysql://user:password@host:port/database`.
        amqp_url: of the broker.
        queue: a queue that exists.
        in_flight: events at work at once.
        prefetch: deliveries in hand at once; `in_flight` where nothing else is asked for.
        expect: deliveries after which it is done.
        driver, handler: for consumers that have a choice.
        loop: `asyncio` or `uvloop`.
        batch: events of one transaction.
        tells_each: write a line after each acknowledgement, for whoever sends the next event then.
    """

    database_url: str
    amqp_url: str
    queue: str
    in_flight: int
    prefetch: int
    expect: int
    driver: str
    handler: str
    loop: str
    batch: int
    tells_each: bool

    @property
    def login(self) -> dict[str, Any]:
        """What the drivers' own `connect` takes."""
        parts = urlsplit(self.database_url)
        return {
            "host": parts.hostname,
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db": parts.path[1:],
        }

    def url_for(self, driver: str) -> str:
        """SQLAlchemy's URL."""
        return f"mysql+{driver}:{self.database_url.partition(':')[2]}"


class Meter:
    """Takes the times of one run.

    Args:
        job: what is consumed.

    Attributes:
        done: set after the last acknowledgement.
    """

    def __init__(self, job: Job) -> None:
        self._expect = job.expect
        self._tells_each = job.tells_each
        self._latencies: list[float] = []
        self._begin: float | None = None
        self._cpu = 0.0
        self._seconds = 0.0
        self.done = asyncio.Event()

    def wait_go(self) -> None:
        """Say that everything is connected, and wait until the runner has sent the events.

        Blocks the loop on purpose: nothing else may happen meanwhile.
        """
        _say("ready")
        sys.stdin.readline()

    def arrived(self) -> float:
        """A delivery is here.

        Returns:
            When, for `acknowledged`.
        """
        now = time.perf_counter()
        if self._begin is None:
            self._begin, self._cpu = now, _cpu_seconds()
        return now

    @property
    def is_last(self) -> bool:
        """Whether the next acknowledgement is the last one."""
        return len(self._latencies) + 1 == self._expect

    def acknowledged(self, arrived: float) -> None:
        """Its acknowledgement was written.

        Args:
            arrived: what `arrived` returned for it.
        """
        now = time.perf_counter()
        self._latencies.append(now - arrived)
        if self._tells_each:
            _say("acknowledged")
        if len(self._latencies) == self._expect:
            self._seconds = now - (self._begin or now)
            self._cpu = _cpu_seconds() - self._cpu
            self.done.set()

    def report(self) -> None:
        """Write the result, and wait until the runner has seen it."""
        ordered = sorted(self._latencies)
        result = {
            "seconds": self._seconds,
            "deliveries": len(ordered),
            "p50_ms": 1000 * ordered[len(ordered) // 2],
            "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
            "cpu_seconds": self._cpu,
            "peak_rss_mb": _peak_rss_mb(),
        }
        _say(json.dumps(result))
        sys.stdin.readline()


def program(consume: Callable[[Job, Meter], Awaitable[None]]) -> None:
    """The whole life of a consumer's process.

    Args:
        consume: connects, calls `meter.wait_go`, consumes, calls `meter.report`, and closes.
    """
    job = read_job()

    async def run() -> None:
        await consume(job, Meter(job))

    with asyncio.Runner(loop_factory=loop_factory(job.loop)) as runner:
        runner.run(run())


def loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes event loops of this kind."""
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - where it is asked for, which is where it is installed

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def read_job() -> Job:
    """The command line. The addresses have passwords, so they may come from the environment as well."""
    parser = argparse.ArgumentParser(description="Consume --expect events and say how long it took.")
    parser.add_argument("--database-url", default=os.environ.get("BENCH_DATABASE_URL"))
    parser.add_argument("--amqp-url", default=os.environ.get("BENCH_AMQP_URL"))
    parser.add_argument("--queue", required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--prefetch", type=int, help="default: --in-flight")
    parser.add_argument("--expect", type=int, required=True)
    parser.add_argument("--driver", default="aiomysql")
    parser.add_argument("--handler", default="")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--batch", type=int, default=1, help="events of one transaction")
    parser.add_argument("--tells-each", action="store_true")
    given = parser.parse_args()
    if not given.database_url or not given.amqp_url:
        parser.error("set BENCH_DATABASE_URL and BENCH_AMQP_URL")
    given.prefetch = given.prefetch or given.in_flight
    return Job(**vars(given))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _peak_rss_mb() -> float:
    """Mebibytes (proc(5), VmHWM). Not `ru_maxrss`, which a process takes over from the one that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
