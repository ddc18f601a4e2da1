"""A database in memory, and stores on it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from inbox.config import DatabaseSettings
from inbox.core.event import Event
from inbox.core.handler import Face
from inbox.core.records import Attempts, Claim, InboxRecord, Resolution
from inbox.core.retention import Pruned
from inbox.errors import Contended, SchemaError, StoreUnavailable, UnitMisused
from inbox.testing.memory.figures import figures_of, now
from inbox.testing.memory.quarantine import MemoryDesk, MemoryQuarantined, attempt_line
from inbox.testing.memory.retention import prune

__all__ = [
    "MemoryDatabase",
    "MemoryQuarantined",
    "MemorySession",
    "MemoryStart",
    "MemoryStore",
    "MemoryTables",
    "MemoryUnit",
]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.core.figures import Figures, WorkerReport
    from inbox.core.handler import Handler
    from inbox.core.quarantine import AttemptLine
    from inbox.ports import UnitOfWork


@dataclass(frozen=True, slots=True)
class MemoryStart:
    """A start that has not ended: whose it is, and whether it runs alone."""

    store: MemoryStore
    alone: bool = False


@dataclass(slots=True, repr=False)
class MemoryTables:
    """What a database holds for one consumer.

    Attributes:
        times: when a row was written, by its table and key; asked for a row that a test put there, it is now.
    """

    rows: dict[bytes, InboxRecord] = field(default_factory=dict)
    locks: dict[bytes, asyncio.Lock] = field(default_factory=dict)
    attempts: dict[bytes, Attempts] = field(default_factory=dict)
    open_starts: dict[bytes, MemoryStart] = field(default_factory=dict)
    history: defaultdict[bytes, list[AttemptLine]] = field(default_factory=lambda: defaultdict(list))
    quarantine: dict[bytes, MemoryQuarantined] = field(default_factory=dict)
    workers: dict[bytes, tuple[WorkerReport, datetime, datetime]] = field(default_factory=dict)
    times: dict[tuple[str, bytes], datetime] = field(default_factory=lambda: defaultdict(now))

    @property
    def is_used(self) -> bool:
        """Whether there is any row."""
        return bool(self.rows or self.attempts or self.quarantine or self.workers)


class MemoryDatabase:
    """What outlives a process: give one to several stores.

    Attributes:
        effects: what units wrote, in the order of their commits.
        tables: the tables of each consumer.
        has_tables: whether a store can open.
        writable: whether it takes writes.
        is_cleaning: whether a clean-up of another process is at work.
    """

    def __init__(self) -> None:
        self.effects: list[object] = []
        self.tables: defaultdict[str, MemoryTables] = defaultdict(MemoryTables)
        self.has_tables = True
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_cleaning = False


class MemorySession:
    """What a handler gets for its session: `session.write(effect)`."""

    def __init__(self) -> None:
        self.effects: list[object] = []
        self.is_undone = False

    def write(self, effect: object) -> None:
        """Add a business effect."""
        self.effects.append(effect)

    async def rollback(self) -> None:
        """Misuse the unit: only what leaves the handler by an exception is undone."""
        self.is_undone = True


class Stage(Enum):
    """How far a unit is."""

    BEGUN = "begun"
    CLAIMED = "claimed"
    FAILED = "failed"
    APPLIED = "applied"
    OVER = "over"


class MemoryUnit:
    """One transaction in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.records: list[InboxRecord] = []
        self.effects: list[object] = []
        self.forgotten: list[bytes] = []
        self._stage = Stage.BEGUN
        self._is_batch = False

    @property
    def is_over(self) -> bool:
        """Whether it was committed or undone."""
        return self._stage is Stage.OVER

    async def claim(self, record: InboxRecord) -> Claim:
        """As `ports.UnitOfWork.claim`."""
        self._expect(Stage.BEGUN)
        self.store.fault("claim")
        return (await self._claim([record]))[0]

    async def claim_all(self, records: Sequence[InboxRecord]) -> list[Claim]:
        """As `ports.UnitOfWork.claim_all`."""
        self._expect(Stage.BEGUN)
        self.store.fault("claim_all")
        self._is_batch = True
        return await self._claim(records)

    async def _claim(self, records: Sequence[InboxRecord]) -> list[Claim]:
        for record in sorted(records, key=lambda record: record.key):
            lock = self.store.locks.setdefault(record.key, asyncio.Lock())
            try:
                async with asyncio.timeout(self.store.settings.lock_wait):
                    await lock.acquire()
            except TimeoutError as error:
                raise Contended("another unit held the event for too long") from error
            self.records.append(record)
        claims = [self.store.claim_of(record) for record in records]
        if all(claim is Claim.NEW for claim in claims):
            self._stage = Stage.CLAIMED
        else:
            self._end()
        return claims

    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """As `ports.UnitOfWork.apply`."""
        with self._guarded() as session:
            done = handler.function(*handler.arguments(event, session, prepared))
            if handler.face is not Face.SYNC_SESSION:
                await done

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """As `ports.UnitOfWork.session`."""
        with self._guarded() as session:
            yield session

    @contextmanager
    def _guarded(self) -> Iterator[MemorySession]:
        self._expect(Stage.CLAIMED, *([Stage.APPLIED] if self._is_batch else []))
        self._stage = Stage.FAILED
        session = MemorySession()
        yield session
        self.store.fault("apply")
        if session.is_undone:
            raise UnitMisused("rolled back: raise an exception instead")
        self.effects += session.effects
        self._stage = Stage.APPLIED

    async def forget(self, key: bytes) -> None:
        """As `ports.UnitOfWork.forget`."""
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        self.store.fault("forget")
        self.forgotten.append(key)

    async def commit(self) -> None:
        """As `ports.UnitOfWork.commit`."""
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        try:
            self.store.fault("commit")
            self._make_durable()
            self.store.fault("committed")
        finally:
            self._end()

    async def rollback(self) -> None:
        """As `ports.UnitOfWork.rollback`."""
        self._expect(Stage.BEGUN, Stage.CLAIMED, Stage.FAILED, Stage.APPLIED)
        self._end()

    def _make_durable(self) -> None:
        for record in self.records:
            self.store.rows[record.key] = record
            self.store.tables.times["inbox", record.key] = now()
        self.store.effects.extend(self.effects)
        for key in self.forgotten:
            self.store.drop_attempts(key)

    def _end(self) -> None:
        self._stage = Stage.OVER
        for record in self.records:
            self.store.locks[record.key].release()
        self.store.connections.release()

    def _expect(self, *stages: Stage) -> None:
        if self._stage not in stages:
            raise RuntimeError(f"a unit that is {self._stage.value} cannot do this")


class MemoryStore:
    """As `ports.Store`, in memory; stands for one process.

    Args:
        database: where it stores; None makes one of its own.
        settings: of them it heeds the lock wait and the bounds of the quarantine.

    Attributes:
        tables: of its consumer.
        desk: its quarantine, as `ports.QuarantineDesk`.
        rows, attempts, open_starts: what is stored for its consumer, by the event's key; of an open start, whose it is.
        effects: what units wrote, in the order of their commits.
        locks: held by units that have claimed a key and not ended.
        connections: as many as units may be at work.
        faults: errors to raise, by step, each once: `store.faults["commit"] = [CommitUnknown(…)]`.
    """

    def __init__(self, database: MemoryDatabase | None = None, settings: DatabaseSettings | None = None) -> None:
        self.database = database or MemoryDatabase()
        self.settings = settings or DatabaseSettings()
        self.effects = self.database.effects
        self.writable = self.database.writable
        self.faults: dict[str, list[BaseException]] = {}
        self.is_open = False
        self._started: dict[bytes, MemoryStart] = {}
        self.for_consumer("", concurrency=1, deadline=1.0)

    def for_consumer(self, name: str, *, concurrency: int, deadline: float) -> MemoryStore:
        """As `ports.StoreFactory.for_consumer`; this very store, so that a test sees what the engine does."""
        self._name = name
        self.tables = tables = self.database.tables[name]
        self.rows, self.locks = tables.rows, tables.locks
        self.attempts, self.open_starts = tables.attempts, tables.open_starts
        self.desk = MemoryDesk(name.encode(), tables.quarantine, self.settings)
        self.connections = asyncio.Semaphore(concurrency)
        return self

    @property
    def quarantined(self) -> list[MemoryQuarantined]:
        """What is in quarantine, the oldest first."""
        return [*self.tables.quarantine.values()]

    def fault(self, step: str) -> None:
        """Raise the next fault that a test set for `step`."""
        if waiting := self.faults.get(step):
            raise waiting.pop(0)

    def claim_of(self, record: InboxRecord) -> Claim:
        """What the stored rows say of a record."""
        known = self.rows.get(record.key)
        if known is None:
            return Claim.NEW
        return Claim.CONFLICT if record.contradicts(known.fingerprint, known.scheme) else Claim.DUPLICATE

    @property
    def why_no_batches(self) -> str | None:
        """As `ports.Store.why_no_batches`."""
        return None

    def describe(self) -> dict[str, str]:
        """As `ports.Store.describe`."""
        return {"store": "memory"}

    async def open(self) -> None:
        """As `ports.Store.open`."""
        self.fault("open")
        if not self.database.has_tables:
            raise SchemaError(["the database has no tables"])
        self.is_open = True

    async def close(self) -> None:
        """As `ports.Store.close`."""
        self.is_open = False

    async def begin(self) -> MemoryUnit:
        """As `ports.Store.begin`."""
        self.fault("begin")
        await self.connections.acquire()
        if not self.is_open:
            self.connections.release()
            raise StoreUnavailable("the store is not open")
        return MemoryUnit(self)

    async def resolve(self, record: InboxRecord, unit: UnitOfWork) -> Resolution:
        """As `ports.Store.resolve`."""
        if self.faults.get("resolve"):
            self.faults["resolve"].pop()
            return Resolution.UNRESOLVED
        known = self.rows.get(record.key)
        is_ours = known is not None and not record.contradicts(known.fingerprint, known.scheme)
        return Resolution.COMMITTED if is_ours else Resolution.ABSENT

    async def knows(self, record: InboxRecord) -> bool:
        """As `ports.Store.knows`."""
        self.fault("knows")
        return record.key in self.rows

    async def start_attempt(self, key: bytes, *, alone: bool = False) -> Attempts:
        """As `ports.Store.start_attempt`."""
        self.fault("start_attempt")
        known = self.attempts.get(key, Attempts())
        found = self.open_starts.get(key)
        suspect = found is not None and found.store is not self
        reopened = suspect and found is not None and found.alone
        self.attempts[key] = replace(known, crashed=known.crashed + reopened)
        if reopened:
            self.tables.history[key].append(attempt_line("crashed", "the process died in it"))
        self.tables.times.setdefault(("attempt", key), now())
        self.tables.times["last attempt", key] = now()
        self.open_starts[key] = self._started[key] = MemoryStart(self, alone)
        return replace(self.attempts[key], suspect=suspect, reopened=reopened)

    async def end_attempt(
        self, key: bytes, *, failed: bool = False, released: bool = False, error: str = ""
    ) -> Attempts:
        """As `ports.Store.end_attempt`."""
        self.fault("end_attempt")
        known = self.attempts.get(key, Attempts())
        mine, found = self._started.pop(key, None), self.open_starts.get(key)
        is_taken_over = mine is not None and found is not None and found.store is not self
        # Another store took our start for that of a dead process: this takes its charge back.
        is_mistaken = is_taken_over and mine is not None and mine.alone and known.crashed > 0
        known = Attempts(known.failed + failed, known.crashed - is_mistaken, known.released + released)
        if found is not None and found.store is self:
            del self.open_starts[key]
        if failed or released:
            self.tables.history[key].append(attempt_line("failed" if failed else "released", error))
        if failed or released or key in self.attempts:
            self.attempts[key] = known
            self.tables.times.setdefault(("attempt", key), now())
            self.tables.times["last attempt", key] = now()
        return known

    async def forget_attempts(self, key: bytes) -> None:
        """As `ports.Store.forget_attempts`."""
        self.fault("forget_attempts")
        self.drop_attempts(key)

    def drop_attempts(self, key: bytes) -> None:
        """Delete what is counted under `key`."""
        self.attempts.pop(key, None)
        self.open_starts.pop(key, None)
        self.tables.history.pop(key, None)
        self.tables.times.pop(("attempt", key), None)

    async def quarantine(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """As `ports.Store.quarantine`."""
        self.fault("quarantine")
        key = event.record.key if isinstance(event, Event) else b""
        counts, history = self.attempts.get(key, Attempts()), self.tables.history.get(key, ())
        self.desk.store(delivery, event, (reason, detail), (counts.charged, tuple(history)))

    async def report(self, report: WorkerReport) -> None:
        """As `ports.Store.report`."""
        self.fault("report")
        at = now()
        _, started_at, _ = self.tables.workers.get(report.worker_id, (report, at, at))
        self.tables.workers[report.worker_id] = (report, started_at, at)

    async def figures(self, consumer: str | None = None, *, exact: bool = False) -> Figures:
        """As `ports.Store.figures`."""
        self.fault("figures")
        name = self._name if consumer is None else consumer
        return figures_of(name, self.database.tables[name], self.settings, exact=exact)

    async def consumers(self) -> list[str]:
        """As `ports.Store.consumers`."""
        self.fault("consumers")
        return sorted(name for name, tables in self.database.tables.items() if tables.is_used)

    async def wait_writable(self) -> None:
        """As `ports.Store.wait_writable`."""
        self.fault("wait_writable")
        await self.writable.wait()

    async def prune(
        self, older_than: float, *, batch: int, pause: float, progress: Callable[[Pruned], bool], dry_run: bool = False
    ) -> Pruned:
        """As `ports.Store.prune`, without pauses."""
        self.fault("prune")
        if self.database.is_cleaning:
            return Pruned(is_skipped=True, is_complete=False)
        return prune(self.tables, now() - timedelta(seconds=older_than), batch, progress, dry_run=dry_run)
