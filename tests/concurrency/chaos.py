"""A handler that fails in every way, as a seed says, and a diary of its runs that no rollback takes back."""

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pymysql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject, Retry

SEED = int(os.environ.get("INBOX_TEST_CHAOS_SEED", "31"))
MAX_ATTEMPTS = 3
EXIT_CODE = 7
SETTINGS = ConsumerSettings(
    concurrency=8,
    prefetch=50,
    deadline=3,
    shutdown_patience=10,
    retry=RetryPolicy(
        max_attempts=MAX_ATTEMPTS, delays=(0.2, 0.5), first_delay=0.02, max_delay=0.1, immediate=1, max_releases=10
    ),
)

TABLES = ["CREATE TABLE pit (id VARBINARY(512) PRIMARY KEY, n INT NOT NULL DEFAULT 0) ENGINE=InnoDB"]

#: What a run may do, and under which reason that ends in quarantine if it is done every time.
REASONS = {
    "raise": "handler-error",
    "retry": "retries-used-up",
    "reject": "rejected",
    "hang": "deadline",
    "query": "deadline",
    "rollback": "unit-misused",
    "commit": "unit-misused",
    "truncate": "unit-misused",
    "swallow": "unit-misused",
    "deadlock": "contended",
    "kill": "crashed",
    "exit": "crashed",
}
DEADLY = frozenset({"kill", "exit"})
#: What costs no attempt: it is the database's doing, or it is over at once.
FREE = frozenset({"deadlock", "reject"})
_PASSING = {"raise": 3, "retry": 2, "hang": 1, "query": 1, "rollback": 2, "commit": 2, "truncate": 1, "swallow": 1}
_PASSING |= {"deadlock": 4, "kill": 4, "exit": 4}
_LASTING = _PASSING | {"reject": 2, "kill": 3, "exit": 3}


@dataclass(frozen=True)
class Fate:
    """What the runs of one event do: `deeds` one after the other, and then it is well, or `lasting` every time."""

    deeds: tuple[str, ...] = ()
    lasting: str | None = None

    @classmethod
    def of(cls, identifier: str) -> "Fate":
        """Drawn for this event, and always the same one."""
        chance = Random(f"{SEED}:{identifier}")  # noqa: S311 - to be repeated
        if not identifier.startswith("chaos-"):
            return cls()
        (kind,) = chance.choices(["innocent", "recovers", "never"], [62, 24, 14])
        if kind == "innocent":
            return cls()
        if kind == "recovers":
            return cls(tuple(chance.choices([*_PASSING], [*_PASSING.values()], k=chance.randint(1, MAX_ATTEMPTS - 1))))
        return cls(lasting=chance.choices([*_LASTING], [*_LASTING.values()])[0])

    @property
    def is_innocent(self) -> bool:
        return not self.deeds and self.lasting is None

    def deed(self, run: int) -> str | None:
        """What the run number `run`, from 1, does."""
        return self.lasting or (self.deeds[run - 1] if run <= len(self.deeds) else None)

    def __str__(self) -> str:
        if self.lasting:
            return f"always {self.lasting}"
        return f"{', '.join(self.deeds)}, then applied" if self.deeds else "innocent"


@dataclass(frozen=True)
class Run:
    """One run of a handler, by the diary."""

    worker: str
    deed: str
    has_ended: bool


class Diary:
    """One file for each event, a line for each start and each end: what was written outlives the process at once.

    A run of one event waits for the end of any other, by its claim, so lines of two never mix.
    """

    def __init__(self, folder: Path, worker: str = "") -> None:
        self._folder = folder
        self._worker = worker

    def runs(self, identifier: str) -> list[Run]:
        path = self._folder / identifier
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        following = [*lines, ["start"]][1:]
        return [
            Run(line[1], line[2], has_ended=after[0] == "end")
            for line, after in zip(lines, following, strict=True)
            if line[0] == "start"
        ]

    @contextmanager
    def run(self, identifier: str, fate: Fate) -> Iterator[str | None]:
        """Note a run, and say what it does."""
        deed = fate.deed(len(self.runs(identifier)) + 1)
        self._write(identifier, f"start {self._worker} {deed or '-'}\n")
        try:
            yield deed
        finally:
            self._write(identifier, "end\n")

    def _write(self, identifier: str, line: str) -> None:
        descriptor = os.open(self._folder / identifier, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)


class Chaos:
    """The handler, and everything that it does."""

    def __init__(self, url: str, diary: Diary) -> None:
        self._url = url
        self._diary = diary
        self._innocents = 0
        self._deeds: dict[str, Callable[[Event, AsyncSession], Awaitable[None]]] = {
            deed: getattr(self, f"_{deed}") for deed in REASONS
        }

    async def handle(self, event: Event, session: AsyncSession) -> None:
        fate = Fate.of(event.id)
        with self._diary.run(event.id, fate) as deed:
            await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id.encode()})
            if deed is not None:
                await self._deeds[deed](event, session)
                return
            self._innocents += fate.is_innocent
            try:
                await session.execute(text("SELECT SLEEP(0.3)"))
            finally:
                self._innocents -= fate.is_innocent

    # ------------------------------------------------------------ what may be done
    async def _raise(self, event: Event, session: AsyncSession) -> None:
        raise LookupError("a payload that no log may show")

    async def _retry(self, event: Event, session: AsyncSession) -> None:
        raise Retry(after=0.3)

    async def _reject(self, event: Event, session: AsyncSession) -> None:
        raise Reject("not one of ours")

    async def _hang(self, event: Event, session: AsyncSession) -> None:
        await asyncio.Event().wait()

    async def _query(self, event: Event, session: AsyncSession) -> None:
        await session.execute(text("SELECT SLEEP(10)"))

    async def _rollback(self, event: Event, session: AsyncSession) -> None:
        await session.rollback()

    async def _commit(self, event: Event, session: AsyncSession) -> None:
        await session.execute(text("COMMIT"))

    async def _truncate(self, event: Event, session: AsyncSession) -> None:
        await session.execute(text("TRUNCATE effect"))

    async def _swallow(self, event: Event, session: AsyncSession) -> None:
        with suppress(Exception):
            await session.execute(text("/* for good */ COMMIT"))

    async def _deadlock(self, event: Event, session: AsyncSession) -> None:
        """Against a session that has changed more: InnoDB undoes the smaller transaction, which is the handler's."""
        ours, theirs = b"ours " + event.id.encode(), b"theirs " + event.id.encode()
        await session.execute(text("UPDATE pit SET n = n + 1 WHERE id = :id"), {"id": ours})
        other = await asyncio.to_thread(self._opponent, theirs)
        threading.Thread(target=_ask_and_leave, args=(other, ours), daemon=True).start()
        await session.execute(text("UPDATE pit SET n = n + 1 WHERE id = :id"), {"id": theirs})

    def _opponent(self, row: bytes) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        other = connect(self._url)
        with other.cursor() as cursor:
            cursor.execute("UPDATE pit SET n = n + 1 WHERE id = %s", (row,))
            ballast = [(row + b" ballast %d" % number,) for number in range(100)]
            cursor.executemany("INSERT INTO pit (id) VALUES (%s)", ballast)
        return other

    async def _kill(self, event: Event, session: AsyncSession) -> None:
        await self._wait_for_company(event)
        os.kill(os.getpid(), signal.SIGKILL)

    async def _exit(self, event: Event, session: AsyncSession) -> None:
        await self._wait_for_company(event)
        os._exit(EXIT_CODE)

    async def _wait_for_company(self, event: Event) -> None:
        """Until innocents run beside it, for as long as that may still come: later on it runs alone."""
        is_early = len(self._diary.runs(event.id)) <= 2
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0 if is_early else 0.05):
                while self._innocents < 4:
                    await asyncio.sleep(0.002)


def _ask_and_leave(other: "pymysql.Connection[pymysql.cursors.Cursor]", row: bytes) -> None:
    with closing(other), suppress(pymysql.MySQLError), other.cursor() as cursor:
        cursor.execute("UPDATE pit SET n = n + 1 WHERE id = %s", (row,))
        other.rollback()


def connect(url: str) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """A connection with a transaction of its own, beside the units."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
        ssl_disabled=True,  # as in `connect` of the kill tests
    )


def make(database_url: str, amqp_url: str, queue: str, exchange: str, folder: str) -> Inbox:
    inbox = Inbox(
        "ledger",
        store=MySQL(database_url, DatabaseSettings(lock_wait=1)),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=SETTINGS,
    )
    chaos = Chaos(database_url, Diary(Path(folder), worker=secrets.token_hex(8)))
    for kind in ("chaos", "apply"):
        inbox.handler(kind)(chaos.handle)
    return inbox
