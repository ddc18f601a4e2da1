"""The store on MySQL and MariaDB: what an adopter writes, and what it becomes for one consumer."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import MetaData
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from inbox.adapters.mysql import schema
from inbox.adapters.mysql.attempts import AttemptBook, AttemptSql
from inbox.adapters.mysql.batch import WHY_NO_CALL, BatchUnit
from inbox.adapters.mysql.classify import translated
from inbox.adapters.mysql.engine import Lane, ServerSession, kill_session, make_engine, open_lane, prove_guard
from inbox.adapters.mysql.figures import Ledger
from inbox.adapters.mysql.quarantine import Bounds, QuarantineBook, QuarantineSql
from inbox.adapters.mysql.quarantine_desk import MySQLDesk, QuarantineDeskSql
from inbox.adapters.mysql.resolve import Resolver
from inbox.adapters.mysql.retention import Retention
from inbox.adapters.mysql.side import AdHoc, Answer, Side, Statement
from inbox.adapters.mysql.statements import UnitStatements
from inbox.adapters.mysql.unit import Unit
from inbox.adapters.mysql.workers import WorkerBook, WorkerSql
from inbox.adapters.mysql.writable import WriteGate
from inbox.config import DatabaseSettings, check_consumer_name
from inbox.core.facts import fact
from inbox.errors import ConfigurationError, StartupError, StoreError, StoreUnavailable
from inbox.tables import InboxTables, TableNames, define_tables, qualified
from inbox.units.lanes import LanePool
from inbox.units.limits import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity import RetryCallState

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent, Event
    from inbox.core.figures import Figures, WorkerReport
    from inbox.core.records import Attempts, InboxRecord, Resolution
    from inbox.core.retention import Pruned
    from inbox.ports import UnitOfWork

__all__ = ["MySQL", "MySQLStore"]

_log = logging.getLogger(__name__)

_PORT: Final = 3306  # MySQL manual, "TCP/IP Ports"
#: Seconds in which a start has to be through with its questions.
_START_PATIENCE: Final = 120.0
#: Seconds in which the figures must be read.
_READING_PATIENCE: Final = 60.0
_KNOWS: Final = "SELECT 1 FROM {inbox} WHERE consumer_name = %s AND event_id = %s"


@dataclass(frozen=True, repr=False)
class MySQL:
    """A MySQL or MariaDB database that holds the inbox beside the adopter's own tables.

    ```python
    Inbox(..., store=MySQL("mysql+aiomysql://app@db/app"))
    ```

    Making it checks the settings and opens nothing.

    Args:
        url: SQLAlchemy's, `mysql://` or `mariadb://`, with `+aiomysql` (the default) or `+asyncmy`.
        settings: lock wait, timeouts, TLS, bounds of the quarantine.
        tables: what the inbox's tables are called, or the tables themselves where they are part of the adopter's
            metadata (`Base.inbox_tables`).

    Raises:
        ConfigurationError: the URL cannot be used.
    """

    url: str | URL
    settings: DatabaseSettings = field(default_factory=DatabaseSettings)
    tables: TableNames | InboxTables = field(default_factory=TableNames)

    def __post_init__(self) -> None:
        make_engine(self.url, self.settings, deadline=1.0)

    def __repr__(self) -> str:
        return "MySQL(…)"  # the URL has a password

    def for_consumer(self, name: str, *, concurrency: int, deadline: float) -> MySQLStore:
        """The store of one consumer; opens nothing. See `inbox.ports.StoreFactory`.

        Args:
            name: the name duplicates are known under, at most 128 octets.
            concurrency: units of work at once; as many connections are used, and one beside them.
            deadline: seconds one unit may take; the server drops sessions that are silent for a little longer.

        Raises:
            ConfigurationError: the name is empty or too long.
        """
        return MySQLStore(self, check_consumer_name(name), concurrency, deadline)


class MySQLStore:
    """`inbox.ports.Store` for one consumer. Made by `MySQL.for_consumer`.

    Connections: one for each unit at work (the lanes), one for attempts, quarantine and reports; after trouble, for
    moments, one that asks what became of commits and one that asks whether writes are taken; and one while somebody
    asks for figures.

    Args:
        database: where.
        consumer: the name duplicates are known under.
        concurrency: units of work at once.
        deadline: seconds one unit may take.
    """

    def __init__(self, database: MySQL, consumer: str, concurrency: int, deadline: float) -> None:
        settings = database.settings
        given = database.tables
        self.tables = given if isinstance(given, InboxTables) else define_tables(MetaData(), given)
        self._settings = settings
        self._is_open = False
        self._answer = partial(TimeLimits().within, deadline)
        self._consumer = consumer
        self._engine = make_engine(database.url, settings, deadline)
        self._statements = UnitStatements(
            inbox=qualified(self.tables.names.inbox, self.tables.database),
            attempt=qualified(self.tables.names.attempt, self.tables.database),
        )
        self.lanes = LanePool(self._open_lane, concurrency)
        # A statement may wait for a lock, and a connection may have to be opened first.
        answer = settings.connect_timeout + settings.lock_wait
        self._side = Side(self._connect, patience=2 * answer)
        self._attempts = AttemptBook(self._side, AttemptSql(self.tables), consumer.encode())
        bounds = Bounds(settings.quarantine_rows, settings.quarantine_bytes)
        self._quarantine = QuarantineBook(
            self._side, QuarantineSql(self.tables), consumer.encode(), bounds, time.monotonic
        )
        # Bodies are large: on the connection of the attempts, a replay's handlers would wait for each page of them.
        self._desk_side = Side(self._connect, patience=max(2 * answer, _READING_PATIENCE))
        self.desk = MySQLDesk(self._desk_side, QuarantineDeskSql(self.tables), consumer.encode(), self._quarantine)
        self._resolver = Resolver(AdHoc(self._connect), self._kill, self.tables, patience=2 * answer)
        self._gate = WriteGate(AdHoc(self._connect), self.tables, answer, settings.patience)
        self._retention = Retention(AdHoc(self._connect), self.tables)
        self._workers = WorkerBook(self._side, WorkerSql(self.tables), consumer.encode())
        self._ledger = Ledger(AdHoc(self._connect), self.tables, bounds, patience=_READING_PATIENCE)

    def __repr__(self) -> str:
        return f"<MySQLStore of consumer {self._consumer}>"

    @property
    def why_no_batches(self) -> str | None:
        """See `inbox.ports.Store.why_no_batches`."""
        return WHY_NO_CALL if self._settings.allow_call else None

    def describe(self) -> dict[str, str]:
        """See `inbox.ports.Store.describe`."""
        url = self._engine.url
        return {
            "database": f"{url.host or 'localhost'}:{url.port or _PORT}/{url.database or ''}",
            "driver": url.get_driver_name(),
            "connections": f"{self.lanes.size} for units, 1 beside them, and short ones after trouble",
        }

    async def open(self) -> None:
        """See `inbox.ports.Store.open`."""
        self.lanes.open()
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Unreachable),
            stop=stop_after_delay(self._settings.start_patience),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            before_sleep=self._say_waiting,
            reraise=True,
        )
        findings: list[schema.Finding] = await retrying(self._reached)
        self._is_open = True
        for finding in findings:
            told = fact("schema-finding", severity=finding.severity.value, code=finding.code, table=finding.table)
            _log.warning("%s", finding, extra=told)

    def _say_waiting(self, state: RetryCallState) -> None:
        if state.attempt_number == 1:
            patience = self._settings.start_patience
            told = fact("database-awaited", patience=patience)
            _log.warning("the database cannot be reached; waiting for it up to %g s", patience, extra=told)

    async def _reached(self) -> list[schema.Finding]:
        try:
            async with asyncio.timeout(_START_PATIENCE):
                return await self._checked()
        except (StoreError, TimeoutError) as error:
            raise _Unreachable(self._engine.url) from error
        except DBAPIError as error:
            raise _Unreachable(self._engine.url) from translated(error, "the check of the tables")

    async def _checked(self) -> list[schema.Finding]:
        lane = await self.lanes.take()
        self.lanes.give_back(lane, usable=True)
        await prove_guard(self._engine)
        return await schema.require(self._engine, self.tables)

    async def close(self) -> None:
        """See `inbox.ports.Store.close`."""
        await self.lanes.close()
        await self._side.close()
        await self._desk_side.close()
        await self._engine.dispose()
        # A transport closes its socket in the loop's next turn, and the loop may end with this call.
        await asyncio.sleep(0)

    async def begin(self) -> BatchUnit:
        """See `inbox.ports.Store.begin`."""
        lane = await self.lanes.take()
        return BatchUnit(lane, self._engine, self._statements, self._settings, self._answer, self.lanes.give_back)

    async def resolve(self, record: InboxRecord, unit: UnitOfWork) -> Resolution:
        """See `inbox.ports.Store.resolve`."""
        session = unit.lane.session if isinstance(unit, Unit) else None
        return await self._resolver.resolve(record, session)

    async def knows(self, record: InboxRecord) -> bool:
        """See `inbox.ports.Store.knows`."""
        sql = _KNOWS.format(inbox=self._statements.inbox)
        answer = await self._side.run(Statement(sql, (record.consumer.encode(), record.key)))
        return bool(answer.rows)

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
        """See `inbox.ports.Store.wait_writable`."""
        await self._gate.wait()

    async def prune(
        self, older_than: float, *, batch: int, pause: float, progress: Callable[[Pruned], bool], dry_run: bool = False
    ) -> Pruned:
        """See `inbox.ports.Store.prune`; a batch has at most 900 rows."""
        return await self._retention.prune(
            self._consumer.encode(), older_than, batch=batch, pause=pause, progress=progress, dry_run=dry_run
        )

    async def _open_lane(self) -> Lane:
        try:
            return await open_lane(self._engine)
        except StartupError as error:
            if not self._is_open:
                raise
            # A password or certificate that was changed under a running worker: whoever did it can mend it.
            _log.warning("%s", error, extra=fact("database-refuses", error=type(error).__name__))
            raise StoreUnavailable("the database does not let us in any more") from error

    async def _kill(self, session: ServerSession) -> bool:
        return await kill_session(self._engine, session, self._settings.connect_timeout)

    async def _connect(self) -> _LaneWire:
        lane = await self._open_lane()
        try:
            # Each statement beside the units is a transaction of its own, without a packet for its COMMIT.
            await lane.driver.own(b"SET autocommit = 1")
        except BaseException as error:
            lane.discard()
            if isinstance(error, Exception):
                raise translated(error, "opening a connection") from error
            raise
        return _LaneWire(lane)


class _LaneWire:
    """A lane that is used statement by statement."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    @property
    def is_stale(self) -> bool:
        return self._lane.is_stale

    async def run(self, statement: Statement) -> Answer:
        driver = self._lane.driver
        try:
            if statement.is_query:
                return Answer(rows=await driver.own_rows(statement.text()))
            affected = await driver.own(statement.text())
            return Answer(affected=affected, insert_id=driver.insert_id())
        except Exception as error:
            raise translated(error, "a statement beside the units") from error

    def discard(self) -> None:
        self._lane.discard()

    async def close(self) -> None:
        await self._lane.close()


class _Unreachable(ConfigurationError):
    """Nobody answers at the database's address, or not in time."""

    def __init__(self, url: URL) -> None:
        super().__init__(
            f"cannot connect to the database at {url.host}:{url.port or _PORT}: check host and port in the URL, that "
            "the server runs, and that it takes more connections"
        )
