"""Watch it: a worker is killed with SIGKILL again and again under load, and every job is billed once.

    make demo        or, with the servers of your own in BILLING_DATABASE_URL and BILLING_AMQP_URL:
    python -m examples.billing.demo

It creates a database `billing_demo_…` and a queue of the same name, and removes both at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aio_pika
import pymysql
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

console = Console()

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


@dataclass(frozen=True)
class Place:
    """Where the demo runs, and under which name."""

    server_url: str
    amqp_url: str
    name: str

    @property
    def environment(self) -> dict[str, str]:
        """What the example's own programs are told."""
        server = self.server_url.rsplit("/", 1)[0]
        return os.environ | {
            "BILLING_DATABASE_URL": f"mysql+aiomysql:{server.partition(':')[2]}/{self.name}",
            "BILLING_AMQP_URL": self.amqp_url,
            "BILLING_QUEUE": self.name,
            "BILLING_EXCHANGE": self.name,
            "FETCHER_EXTERNAL_HMAC_KEY": secrets.token_hex(32),
        }

    def query(self, sql: str, *, inside: bool = True) -> tuple[tuple[Any, ...], ...]:
        """Ask the database."""
        parts = urlsplit(self.server_url)
        connection = pymysql.connect(
            host=parts.hostname or "",
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            database=self.name if inside else None,
            autocommit=True,
        )
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def count(self, table: str) -> int:
        """Rows of a table."""
        return int(self.query(f"SELECT COUNT(*) FROM {table}")[0][0])  # noqa: S608 - a name of ours


class Worker:
    """`inbox run` as a user starts it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it; where one runs, that one goes on."""
        command = [sys.executable, "-m", "inbox.cli", "run", "examples.billing.app:inbox", *options]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment)  # noqa: S603 - a command of ours

    def kill(self) -> None:
        """SIGKILL: no handler, no farewell."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)


def main() -> int:
    """Run the demo; the exit code says whether every job was billed once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=2000, help="different jobs (default 2000)")
    parser.add_argument("--duplicates", type=int, default=1000, help="further publishes of them (default 1000)")
    parser.add_argument("--kills", type=int, default=3, help="how often the worker is killed (default 3)")
    options = parser.parse_args()
    with _place() as place:
        return _run(place, options)


def _run(place: Place, options: argparse.Namespace) -> int:
    _tell("creating the tables, the inbox's beside the business's")
    _program(place, "examples.billing.models")
    worker = Worker(place.environment)
    worker.start()
    _wait("the worker binds its queue", lambda: _publish(place, 1, 0).returncode == 0)
    _tell(f"publishing {options.jobs} jobs and {options.duplicates} duplicates while the worker is killed")
    publisher = _start_publisher(place, options.jobs, options.duplicates)
    for kill in range(1, options.kills + 1):
        goal = 1 + options.jobs * kill // (options.kills + 1)
        _wait(f"{goal} jobs are billed", lambda goal=goal: place.count("entry") >= goal)
        worker.kill()
        _tell(f"  SIGKILL number {kill}, with {place.count('entry')} jobs billed; starting it again")
        worker.start("--quiet")
    output, _ = publisher.communicate()
    report = json.loads(output)
    jobs = 1 + len(report["completed"]) + len(report["failed"])
    _wait("everything has been billed", lambda: place.count("entry") >= jobs)
    code = worker.stop()
    return _judge(place, jobs, report["published"] + 1, code)


def _judge(place: Place, jobs: int, published: int, exit_code: int) -> int:
    ((entries, distinct, cents),) = place.query("SELECT COUNT(*), COUNT(DISTINCT job_id), SUM(cents) FROM entry")
    ((owed,),) = place.query("SELECT SUM(cents) FROM account")
    table = Table(title="what is in the database", show_header=False)
    for name, value in {
        "deliveries published": published,
        "distinct jobs": jobs,
        "ledger entries": entries,
        "jobs with more than one entry": entries - distinct,
        "jobs without an entry": jobs - distinct,
        "inbox rows": place.count("inbox"),
        "in quarantine": place.count("inbox_quarantine"),
        "cents in the ledger / on the accounts": f"{cents} / {owed}",
        "exit code of the last worker": exit_code,
    }.items():
        table.add_row(name, str(value))
    console.print(table)
    good = entries == distinct == jobs == place.count("inbox") and cents == owed and exit_code == 0
    _tell("every job was billed exactly once" if good else "THIS IS WRONG: please report it")
    return 0 if good else 1


# ------------------------------------------------------------------ steps
def _program(place: Place, module: str) -> None:
    subprocess.run([sys.executable, "-m", module], cwd=ROOT, env=place.environment, check=True)  # noqa: S603


def _publisher(count: int, duplicates: int) -> list[str]:
    command = [sys.executable, "-m", "examples.billing.publisher", "--failed-share", "0.1"]
    return [*command, "--count", str(count), "--duplicates", str(duplicates)]


def _publish(place: Place, count: int, duplicates: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - a command of ours
        _publisher(count, duplicates), cwd=ROOT, env=place.environment, capture_output=True, check=False
    )


def _start_publisher(place: Place, count: int, duplicates: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a command of ours
        _publisher(count, duplicates), cwd=ROOT, env=place.environment, stdout=subprocess.PIPE
    )


def _wait(what: str, condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"demo: gave up waiting until {what}")
        time.sleep(0.05)


def _tell(text: str) -> None:
    console.print(f"[bold]demo:[/] {text}")


@contextmanager
def _place() -> Iterator[Place]:
    with _servers() as (database_url, amqp_url):
        place = Place(database_url, amqp_url, f"billing_demo_{secrets.token_hex(3)}")
        place.query(f"CREATE DATABASE {place.name} CHARACTER SET utf8mb4", inside=False)
        try:
            yield place
        finally:
            place.query(f"DROP DATABASE {place.name}", inside=False)
            asyncio.run(_delete_queue(place))


async def _delete_queue(place: Place) -> None:
    async with await aio_pika.connect(place.amqp_url) as connection:
        channel = await connection.channel()
        for queue in (place.name, f"{place.name}.dead"):
            await channel.queue_delete(queue)
        await channel.exchange_delete(place.name)


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    """The servers that the environment names, or ones of our own for as long as the demo lasts."""
    if "BILLING_DATABASE_URL" in os.environ and "BILLING_AMQP_URL" in os.environ:
        yield os.environ["BILLING_DATABASE_URL"], os.environ["BILLING_AMQP_URL"]
        return
    from tests.services.session import Services  # noqa: PLC0415 - only where the demo brings its own servers

    with Services(say=lambda line: _tell(re.sub(r"^services: ", "", line))) as services:
        services.start(["mysql", "rabbit4"])
        yield services["mysql"].dsn, services["rabbit4"].dsn


if __name__ == "__main__":
    sys.exit(main())
