"""A bench for one unit at a time: a lane, two accounts, and an honest witness beside it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import pymysql
from sqlalchemy import MetaData, String, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox.adapters.mysql.engine import Lane, make_engine, open_lane
from inbox.adapters.mysql.statements import UnitStatements
from inbox.adapters.mysql.unit import Unit
from inbox.config import DatabaseSettings
from inbox.core.event import Event
from inbox.core.handler import Face, Handler
from inbox.core.records import Claim, InboxRecord
from inbox.tables import define_tables
from inbox.units.limits import TimeLimits
from tests.pairs import Driver, create_schema, drop_schema
from tests.services.service import Service

STATEMENTS = UnitStatements("`inbox`", "`inbox_attempt`")
NO_EVENT = cast("Event", None)  # the bench's handlers do not look at it
_numbers = itertools.count(1)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    n: Mapped[int] = mapped_column(default=0)


class Job(Base):
    __tablename__ = "job"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(String(64), unique=True)


@contextmanager
def made_database(service: Service, label: str) -> Iterator[str]:
    """The URL of a database with the inbox's tables and the bench's own."""
    schema = create_schema(service, label)
    url = make_url(service.dsn).set(database=schema).render_as_string(hide_password=False)
    made_tables(url)
    yield url
    drop_schema(service, schema)


def made_tables(url: str) -> None:
    engine = create_engine(make_url(url).set(drivername="mysql+pymysql"))
    define_tables(MetaData()).inbox.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    engine.dispose()


class Witness:
    """A plain connection beside the unit: it holds locks, kills, and says what is there."""

    def __init__(self, url: str) -> None:
        parts = make_url(url)
        self._connection = pymysql.connect(
            host=parts.host,
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            database=parts.database,
            autocommit=True,
            ssl_disabled=True,  # as in `connect` of the kill tests
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    async def run_aside(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """In a thread: for statements that wait for a lock of the unit's."""
        return await asyncio.to_thread(self.run, sql, *values)

    async def wait_until_runs(self, thread_id: int, fragment: str) -> None:
        """Until the server is at a statement with `fragment` for that session."""
        await self._wait(thread_id, lambda rows: bool(rows) and fragment in (rows[0][0] or ""))

    async def wait_until_gone(self, thread_id: int) -> None:
        """Until the server has no such session any more."""
        await self._wait(thread_id, lambda rows: not rows)

    async def _wait(self, thread_id: int, holds: Callable[[list[tuple[Any, ...]]], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds(self.run("SELECT info FROM information_schema.processlist WHERE id = %s", thread_id)):
                await asyncio.sleep(0.01)


@dataclass
class Ending:
    """How a unit ended.

    Attributes:
        error: what `apply` or `commit` raised; None where it was committed.
        reusable: what the lane's owner was told.
        there: whether the row, A's and B's additions are there.
    """

    error: BaseException | None
    reusable: bool
    there: tuple[bool, bool, bool]


class Bench:
    """One lane at a time over one database.

    Args:
        url: of a `made_database`.
        driver: which one.
        settings: of the database.
        port: of a proxy on loopback that the unit's connections are to go through; the witness never does.
        deadline: of a unit, in seconds.
    """

    def __init__(
        self,
        url: str,
        driver: Driver,
        settings: DatabaseSettings | None = None,
        *,
        port: int | None = None,
        deadline: float = 20.0,
    ) -> None:
        self.settings = settings or DatabaseSettings(lock_wait=1)
        self.url = url
        self.deadline = deadline
        target = make_url(url).set(drivername=f"mysql+{driver}")
        if port is not None:
            target = target.set(host="127.0.0.1", port=port)
        self.engine = make_engine(target, self.settings, deadline)
        self.witness = Witness(url)
        self.lane: Lane | None = None
        self.told: list[bool] = []
        self._kept: set[asyncio.Task[None]] = set()

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that runs beside a handler, until the bench closes."""
        self._kept.add(asyncio.create_task(work))

    async def close(self) -> None:
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        if self.lane is not None:
            await self.lane.close()
        await self.engine.dispose()
        self.witness.__exit__(None, None, None)

    async def unit(self) -> Unit:
        """A unit on the lane that the last one left, or on a new one."""
        if self.lane is None or self.lane.is_stale:
            self.lane = await open_lane(self.engine)
        return Unit(
            self.lane,
            self.engine,
            STATEMENTS,
            self.settings,
            partial(TimeLimits().within, self.deadline),
            self._take_back,
        )

    def _take_back(self, lane: Lane, reusable: bool) -> None:
        self.told.append(reusable)
        if not reusable:
            self.lane = None

    def open_accounts(self) -> tuple[str, str]:
        number = next(_numbers)
        names = (f"a{number}", f"b{number}")
        self.witness.run("INSERT INTO account (name, n) VALUES (%s, 0), (%s, 0)", *names)
        return names

    def record(self) -> InboxRecord:
        return InboxRecord("bench", f"event-{next(_numbers)}".encode(), b"f" * 32, 13)

    async def run(
        self,
        function: Callable[..., Any],
        face: Face = Face.SESSION,
        *,
        accounts: tuple[str, str] = ("", ""),
        around: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
    ) -> Ending:
        """Claim, apply, commit or roll back, as the processor does.

        Args:
            function: the handler.
            face: what it gets.
            accounts: whose additions to look for.
            around: wraps `apply`, to cancel it or time it out.
        """
        unit, record = await self.unit(), self.record()
        told = len(self.told)
        assert await unit.claim(record) is Claim.NEW
        error: BaseException | None = None
        applying = unit.apply(Handler("bench.credit", "t", face, function), NO_EVENT, None)
        try:
            await (applying if around is None else around(applying))
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - whatever it was is looked at
            error = raised
            await unit.rollback()
        else:
            try:
                await unit.commit()
            except Exception as raised:  # noqa: BLE001 - likewise
                error = raised
        assert len(self.told) == told + 1, "the lane comes back exactly once"
        return Ending(error, self.told[-1], self.there(record, accounts))

    async def applied(self, unit: Unit, function: Callable[..., Any], face: Face) -> None:
        """Claim, apply and commit on `unit`; what the handler raises is the caller's."""
        await unit.claim(self.record())
        await unit.apply(Handler("bench.credit", "t", face, function), NO_EVENT, None)
        await unit.commit()

    def there(self, record: InboxRecord, accounts: tuple[str, str]) -> tuple[bool, bool, bool]:
        row = self.witness.run("SELECT 1 FROM inbox WHERE consumer_name = 'bench' AND event_id = %s", record.key)
        a, b = (self.witness.run("SELECT n FROM account WHERE name = %s", name) for name in accounts)
        return bool(row), bool(a and a[0][0]), bool(b and b[0][0])


@asynccontextmanager
async def opened(
    url: str,
    driver: Driver,
    settings: DatabaseSettings | None = None,
    *,
    port: int | None = None,
    deadline: float = 20.0,
) -> AsyncIterator[Bench]:
    bench = Bench(url, driver, settings, port=port, deadline=deadline)
    try:
        yield bench
    finally:
        await bench.close()


async def add(session: AsyncSession, name: str) -> None:
    """The business effect: one more on an account."""
    await session.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": name})
