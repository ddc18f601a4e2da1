"""The store on SQLite: what an adopter writes, and what it becomes for one consumer."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from inbox.adapters.embedded import clock
from inbox.adapters.embedded.attempts import AttemptBook
from inbox.adapters.embedded.batch import BatchUnit
from inbox.adapters.embedded.connection import FileConnection, require_sqlite
from inbox.adapters.embedded.desk import SQLiteDesk
from inbox.adapters.embedded.file import PlainFile
from inbox.adapters.embedded.lane import Lane, make_engine, open_lane, wait_closed
from inbox.adapters.embedded.ledger import Ledger, WorkerBook
from inbox.adapters.embedded.proof import prove_guard
from inbox.adapters.embedded.quarantine import Bounds, QuarantineBook
from inbox.adapters.embedded.retention import Retention
from inbox.adapters.embedded.schema import make_or_check
from inbox.adapters.embedded.statements import UnitStatements, key_of
from inbox.adapters.embedded.turns import Turns, patiently
from inbox.config import DatabaseSettings, check_consumer_name, require
from inbox.core.records import Resolution
from inbox.errors import ConfigurationError, StoreError, StoreUnavailable
from inbox.tables import InboxTables, TableNames
from inbox.units.lanes import LanePool
from inbox.units.limits import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent, Event
    from inbox.core.figures import Figures, WorkerReport
    from inbox.core.records import Attempts, InboxRecord
    from inbox.core.retention import Pruned
    from inbox.ports import UnitOfWork

__all__ = ["SQLite", "SQLiteStore", "file_of"]

#: Seconds in which discarded connections may come back at the close.
_FAREWELL: Final = 1.0


def file_of(place: str | Path | URL, example: str) -> Path:
    """The file that a path or a URL of SQLAlchemy's names.

    Args:
        place: such as `shop.db`, or `sqlite:////srv/shop.db`.
        example: of what to write instead, for the error's text.

    Raises:
        ConfigurationError: it names none, or a database in memory, which no other connection would see.
    """
    try:
        is_url = isinstance(place, URL) or (isinstance(place, str) and "://" in place)
        url = make_url(str(place)) if isinstance(place, str) and is_url else place
    except ArgumentError:
        raise ConfigurationError(f"the database URL cannot be read: write {example}") from None
    if isinstance(url, URL):
        backend = url.get_backend_name()
        require(backend == "sqlite", f"the URL is for {backend}: write {example}")
        require(not url.query, f"parameters of the URL are not heeded: write {example}")
        place = url.database or ""
    require(
        bool(str(place)) and not str(place).startswith((":memory:", "file:")),
        f"a database in memory ends with its connection, and a unit needs several: write {example}",
    )
    return Path(str(place))


@dataclass(frozen=True, init=False)
class SQLite:
    """A SQLite file that holds the inbox beside the adopter's own tables, and a second one beside it.

    ```python
    Inbox(..., store=SQLite("shop.db"))
    ```

    For demonstrations, tests and single machines: units wait for each other, for a file has one writer at a time. What
    is noted while a unit writes (attempts, refused events, reports) lies in a second file, `shop.db-inbox`; the two
    belong together. The tables are made where the file has none. Making it checks the settings and opens nothing.

    Args:
        path: of the file, or SQLAlchemy's URL of it. On a disk of this machine: locks and shared memory do not reach
            across a network (sqlite.org/wal.html).
        settings: lock wait, patience, bounds of the quarantine; what is about servers is not heeded.
        tables: what the inbox's tables are called.
        creates: whether files and tables that are missing are made.

    Raises:
        ConfigurationError: the path names no file; TLS is asked for; this Python's SQLite is too old.
    """

    path: Path
    settings: DatabaseSettings = field(default_factory=DatabaseSettings)
    tables: TableNames = field(default_factory=TableNames)
    creates: bool = True

    def __init__(
        self,
        path: str | Path | URL,
        settings: DatabaseSettings | None = None,
        tables: TableNames | InboxTables | None = None,
        *,
        creates: bool = True,
    ) -> None:
        made = settings or DatabaseSettings()
        require(not made.tls, "a file has no TLS: leave DatabaseSettings(tls=…) out")
        problem = require_sqlite()
        require(problem is None, problem or "")
        names = tables.names if isinstance(tables, InboxTables) else tables
        object.__setattr__(self, "path", file_of(path, 'SQLite("shop.db")'))
        object.__setattr__(self, "settings", made)
        object.__setattr__(self, "tables", names or TableNames())
        object.__setattr__(self, "creates", creates)

    def for_consumer(self, name: str, *, concurrency: int, deadline: float) -> SQLiteStore:
        """The store of one consumer; opens nothing. See `inbox.ports.StoreFactory`.

        Args:
            name: the name duplicates are known under, at most 128 octets.
            concurrency: units of work at once; they write one after the other.
            deadline: seconds one unit may take.

        Raises:
            ConfigurationError: the name is empty or too long.
        """
        return SQLiteStore(self, check_consumer_name(name), concurrency, deadline)


class SQLiteStore:
    """`inbox.ports.Store` for one consumer. Made by `SQLite.for_consumer`.

    Args:
        database: where.
        consumer: the name duplicates are known under.
        concurrency: units of work at once.
        deadline: seconds one unit may take.
    """

    def __init__(self, database: SQLite, consumer: str, concurrency: int, deadline: float) -> None:
        settings, names = database.settings, database.tables
        self._database = database
        self._path = database.path
        self._beside = self._path.with_name(f"{self._path.name}-inbox")
        self._consumer = consumer
        self._answer = partial(TimeLimits().within, deadline)
        self._lock_wait = float(settings.lock_wait)
        self._engine = make_engine(self._path, names.inbox, self._lock_wait)
        self._statements = UnitStatements.of(names)
        self._turns = Turns()
        self.lanes = LanePool(self._open_lane, concurrency)
        octets, bounds = consumer.encode(), Bounds(settings.quarantine_rows, settings.quarantine_bytes)
        #: For what is written beside units; and for what is read, which may take long.
        self._side, self._desk_side = self._plain(self._connect_beside), self._plain(self._connect_beside)
        self._whole = self._plain(self._connect_both)
        self._attempts = AttemptBook(self._side, names, octets)
        self._quarantine = QuarantineBook(self._side, names, octets, bounds)
        self.desk = SQLiteDesk(self._desk_side, names, octets, self._quarantine)
        self._workers = WorkerBook(self._side, names, octets)
        self._ledger = Ledger(self._whole, names, bounds)
        mark = self._path.with_name(f"{self._path.name}-inbox-prune")
        self._retention = Retention(self._plain(self._connect_both), mark, names)

    def __repr__(self) -> str:
        return f"<SQLiteStore of consumer {self._consumer}>"

    @property
    def why_no_batches(self) -> str | None:
        """See `inbox.ports.Store.why_no_batches`: it always may."""
        return None

    def describe(self) -> dict[str, str]:
        """See `inbox.ports.Store.describe`."""
        return {
            "database": str(self._path),
            "beside": self._beside.name,
            "driver": f"aiosqlite, SQLite {sqlite3.sqlite_version}",
            "connections": f"{self.lanes.size} for units, which write one at a time, and 3 beside them",
        }

    # -------------------------------------------------------------- life
    async def open(self) -> None:
        """See `inbox.ports.Store.open`."""
        self.lanes.open()
        await self._made()
        lane = await self.lanes.take()
        self.lanes.give_back(lane, usable=True)
        await patiently(lambda: prove_guard(self._engine), self._lock_wait)

    async def _made(self) -> None:
        names, creates = self._database.tables, self._database.creates

        async def attempt() -> None:
            connection = await FileConnection(self._path, beside=self._beside, creates=creates).connected()
            try:
                await connection.own(lambda raw: make_or_check(raw, names, creates=creates))
            finally:
                await connection.finish()

        try:
            await patiently(attempt, self._lock_wait)
        except (sqlite3.Error, OSError) as error:
            raise _unusable(self._path, error) from error

    async def close(self) -> None:
        """See `inbox.ports.Store.close`."""
        await self.lanes.close()
        for file in (self._side, self._desk_side, self._whole):
            await file.close()
        await wait_closed(_FAREWELL)
        await self._engine.dispose()

    # -------------------------------------------------------------- units
    async def begin(self) -> BatchUnit:
        """See `inbox.ports.Store.begin`."""
        lane = await self.lanes.take()
        return BatchUnit(
            lane,
            self._statements,
            self._turns,
            self._lock_wait,
            self._answer,
            self._attempts.forget,
            self.lanes.give_back,
        )

    async def resolve(self, record: InboxRecord, unit: UnitOfWork) -> Resolution:
        """See `inbox.ports.Store.resolve`.

        Asked with the right to write: as long as the old connection may still commit, it holds that.
        """

        def ask(raw: sqlite3.Connection) -> tuple[bytes | None, int | None] | None:
            row: tuple[bytes | None, int | None] | None
            row = raw.execute(self._statements.fingerprint, key_of(record)).fetchone()
            return row

        try:
            row = await self._whole.write(ask, "asking what became of a commit")
        except StoreError:
            return Resolution.UNRESOLVED
        return Resolution.ABSENT if row is None or record.contradicts(*row) else Resolution.COMMITTED

    async def knows(self, record: InboxRecord) -> bool:
        """See `inbox.ports.Store.knows`."""
        sql = self._statements.is_there
        row = await self._whole.read(lambda raw: raw.execute(sql, key_of(record)).fetchone(), "looking for an event")
        return row is not None

    # -------------------------------------------------------------- beside the units
    async def start_attempt(self, key: bytes, *, alone: bool = False) -> Attempts:
        """See `inbox.ports.Store.start_attempt`."""
        return await self._attempts.start(key, alone=alone)

    async def end_attempt(
        self, key: bytes, *, failed: bool = False, released: bool = False, error: str = ""
    ) -> Attempts:
        """See `inbox.ports.Store.end_attempt`."""
        return await self._attempts.end(key, failed=failed, released=released, error=error)

    async def forget_attempts(self, key: bytes) -> None:
        """See `inbox.ports.Store.forget_attempts`."""
        await self._attempts.forget(key)

    async def quarantine(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """See `inbox.ports.Store.quarantine`."""
        await self._quarantine.store(delivery, event, reason, detail)

    async def report(self, report: WorkerReport) -> None:
        """See `inbox.ports.Store.report`."""
        await self._workers.report(report)

    async def figures(self, consumer: str | None = None, *, exact: bool = False) -> Figures:
        """See `inbox.ports.Store.figures`."""
        name = self._consumer if consumer is None else consumer
        return await self._ledger.figures(name.encode(), exact=exact)

    async def consumers(self) -> list[str]:
        """See `inbox.ports.Store.consumers`."""
        return await self._ledger.consumers()

    async def wait_writable(self) -> None:
        """See `inbox.ports.Store.wait_writable`. Tried by a write in both files that is undone."""
        patience = self._database.settings.patience
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(StoreError), wait=wait_random_exponential(multiplier=0.1, max=5)
        )
        try:
            async with asyncio.timeout(patience):
                await retrying(self._try_to_write)
        except TimeoutError:
            raise StoreUnavailable(
                f"the database file has not taken writes for {patience:g} s (DatabaseSettings.patience): mend it, and "
                "start the worker again"
            ) from None

    async def _try_to_write(self) -> None:
        names = self._database.tables
        now = clock.stamp()

        def attempt(raw: sqlite3.Connection) -> None:
            for table, key in (("main.`{inbox}`", "event_id"), ("beside.`{attempt}`", "attempt_key")):
                place = table.format(inbox=names.inbox, attempt=names.attempt)
                probe = f"INSERT OR REPLACE INTO {place} (consumer_name, {key}) VALUES (x'00', ?)"  # noqa: S608 - names checked when made
                raw.execute(probe, (now.encode(),))
            raise _TakenError

        with suppress(_TakenError):
            await self._whole.write(attempt, "trying to write")

    async def prune(
        self, older_than: float, *, batch: int, pause: float, progress: Callable[[Pruned], bool], dry_run: bool = False
    ) -> Pruned:
        """See `inbox.ports.Store.prune`."""
        return await self._retention.prune(
            self._consumer.encode(), older_than, batch=batch, pause=pause, progress=progress, dry_run=dry_run
        )

    # -------------------------------------------------------------- connections
    def _plain(self, connect: Callable[[], FileConnection]) -> PlainFile:
        return PlainFile(connect, self._lock_wait)

    def _connect_beside(self) -> FileConnection:
        return FileConnection(self._beside)

    def _connect_both(self) -> FileConnection:
        return FileConnection(self._path, beside=self._beside)

    async def _open_lane(self) -> Lane:
        return await open_lane(self._engine)


class _TakenError(StoreError):
    """A write was taken; raised to undo it."""

    def __init__(self) -> None:
        super().__init__("the write was taken")


def _unusable(path: Path, error: Exception) -> ConfigurationError:
    reasons = {
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened: the folder must be there, and this user may write in it",
        sqlite3.SQLITE_NOTADB: "it is no SQLite database",
        sqlite3.SQLITE_READONLY: "this user may not write it",
        sqlite3.SQLITE_BUSY: "another program holds it locked",
    }
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    why = reasons.get(code, f"SQLite refused it (error {code})")
    return ConfigurationError(f"the database file {path} cannot be used: {why}")
