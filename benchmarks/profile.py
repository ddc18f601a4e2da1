"""Where the time of one worker goes: microseconds of each step, each layer and each function, for one event.

    python -m benchmarks.profile --handler session --events 2000

One inbox worker runs in this process, twice over the same number of events: first with a stop-watch at every step of
the lifecycle, then under cProfile, which makes calls dearer than they are: its shares are right and its sums are not.
With one event in flight a step's processor time is its own; with more, what runs between is in it too. Servers are
found or started as by `benchmarks.run`; where data lies matters to the wall time alone.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import secrets
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.catalog import Load
from benchmarks.consumers.contract import Job, Meter, loop_factory
from benchmarks.consumers.inbox_worker import HANDLERS, make
from benchmarks.database import Database, fresh_database
from benchmarks.run import DATA, say
from benchmarks.workload import fresh_queue, make_batch
from inbox.core.delivery import Delivery
from inbox.core.lifecycle import Command, Outcome
from inbox.ports import Passage
from tests.services.catalog import PAIRS
from tests.services.session import Services, names_of

#: Parts of a path that tell whose a function is, the most telling first.
_LAYERS: Final = (
    *("benchmarks", "inbox/core", "inbox/runtime", "inbox/units", "inbox/adapters/mysql", "inbox/adapters/rabbitmq"),
    *("inbox", "sqlalchemy", "aiomysql", "asyncmy", "pymysql", "aio_pika", "aiormq", "pamqp", "uvloop", "asyncio"),
    *("json", "logging", "site-packages"),
)


class StopWatch:
    """A probe that adds up what each step takes.

    Attributes:
        wall, cpu: seconds, by command.
        times: how often it was carried out.
    """

    def __init__(self) -> None:
        self.wall: defaultdict[Command, float] = defaultdict(float)
        self.cpu: defaultdict[Command, float] = defaultdict(float)
        self.times: Counter[Command] = Counter()
        self._begun: dict[Delivery, tuple[float, float]] = {}

    def before(self, command: Command, passage: Passage) -> None:
        """Start."""
        self._begun[passage.delivery] = (time.perf_counter(), time.thread_time())

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Stop."""
        wall, cpu = self._begun.pop(passage.delivery)
        self.wall[command] += time.perf_counter() - wall
        self.cpu[command] += time.thread_time() - cpu
        self.times[command] += 1

    def lines(self, events: int) -> list[str]:
        """Microseconds of one event, in the order of the lifecycle."""
        told = [f"{'step':<14}{'CPU us':>10}{'wall us':>10}{'times':>8}"]
        for command in (command for command in Command if self.times[command]):
            cpu, wall = (1e6 * sums[command] / events for sums in (self.cpu, self.wall))
            told.append(f"{command.value:<14}{cpu:>10.1f}{wall:>10.1f}{self.times[command]:>8}")
        return told


class Quiet(Meter):
    """A meter that has nobody to talk to.

    Attributes:
        ready: set when everything is connected, and consuming begins.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.ready = asyncio.Event()

    def wait_go(self) -> None:
        """At once: the events are there."""
        self.ready.set()


async def consume(job: Job, watch: StopWatch | None, profile: cProfile.Profile | None) -> tuple[float, float]:
    """Run one worker until the last delivery is acknowledged.

    Returns:
        Seconds of wall and of processor time, of all of it but opening and closing.
    """
    meter = Quiet(job)
    inbox = make(job, meter, [watch] if watch is not None else [])
    running = asyncio.create_task(inbox.run())
    await asyncio.wait({running, asyncio.create_task(meter.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    wall, cpu = time.perf_counter(), time.thread_time()
    if profile is not None:
        profile.enable()
    await asyncio.wait({running, asyncio.create_task(meter.done.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if profile is not None:
        profile.disable()
    took = (time.perf_counter() - wall, time.thread_time() - cpu)
    inbox.stop()
    await running
    return took


def layer_of(path: str) -> str:
    """Whose a file is: a package, a layer of ours, or `python`."""
    parts = f"/{path}"
    if path == "~":
        return "built in"
    for layer in _LAYERS:
        if f"/{layer}/" in parts or f"/{layer}." in parts:
            return layer
    return "python"


def told_by(profile: cProfile.Profile, events: int, functions: int) -> list[str]:
    """Microseconds of one event, by layer and by function; each function's own, without what it calls."""
    layers: defaultdict[str, float] = defaultdict(float)
    own: list[tuple[float, float, str]] = []
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # documented in the module only
    for (path, line, name), (_, calls, seconds, _, _) in stats.items():
        if "select.epoll" in name:
            continue  # waiting
        layers[layer_of(path)] += seconds
        where = f"{'/'.join(Path(path).parts[-3:])}:{line} " if path != "~" else ""
        own.append((1e6 * seconds / events, calls / events, f"{where}{name}"))
    told = [f"{'layer':<26}{'us':>10}"]
    told += [
        f"{layer:<26}{1e6 * seconds / events:>10.1f}"
        for layer, seconds in sorted(layers.items(), key=lambda found: -found[1])
    ]
    told += ["", f"{'us':>10}{'calls':>8}  function"]
    told += [
        f"{microseconds:>10.1f}{calls:>8.1f}  {name}"
        for microseconds, calls, name in sorted(own)[: -functions - 1 : -1]
    ]
    return told


async def measure(database: Database, amqp_url: str, options: argparse.Namespace) -> list[str]:
    """Both passes."""
    watch, profile, told = StopWatch(), cProfile.Profile(), list[str]()
    load = Load(in_flight=options.in_flight, body=options.body)
    for probe, profiler in ((watch, None), (None, profile)):
        batch = make_batch(load, options.events, random.Random(1))  # noqa: S311 - test data
        database.reset(batch)
        queue = f"bench-{secrets.token_hex(4)}"
        async with fresh_queue(amqp_url, queue) as channel:
            await channel.publish(batch.deliveries)
            job = Job(
                *(database.url, amqp_url, queue, load.in_flight, 4 * load.in_flight, options.events),
                *(options.driver, options.handler, options.loop, options.batch, False),
            )
            wall, cpu = await consume(job, probe, profiler)
        each = f"{1e6 * cpu / options.events:.0f} us CPU, {1e6 * wall / options.events:.0f} us wall, each event"
        if probe is not None:
            told += [
                f"{options.handler} on {options.driver} and {options.loop}: {each}",
                "",
                *watch.lines(options.events),
            ]
        else:
            told += ["", f"under cProfile: {each}", "", *told_by(profile, options.events, options.functions)]
    return told


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print. The exit code is 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--handler", choices=[*HANDLERS], default="connection")
    parser.add_argument("--driver", choices=("aiomysql", "asyncmy"), default="aiomysql")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="events of one transaction")
    parser.add_argument("--body", type=int, default=512, help="octets")
    parser.add_argument("--functions", type=int, default=25, help="how many of the dearest are listed")
    parser.add_argument("--pair", choices=[*PAIRS], default="newest", help="newest is MySQL, oldest MariaDB")
    options = parser.parse_args(words)
    names = PAIRS[options.pair]
    with Services(say, DATA) as services:
        services.start(names_of([options.pair]))
        url, amqp_url = services[names.database].dsn, services[names.broker].dsn
        runner = asyncio.Runner(loop_factory=loop_factory(options.loop))
        with fresh_database(url, f"bench_{secrets.token_hex(4)}") as database, runner:
            lines = runner.run(measure(database, amqp_url, options))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
