"""A store and a transport in memory, with the contracts of the real ones: for tests of the engine.

They pass the same conformance suites. Nothing here survives the process; that is their use.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from inbox.core.handler import Face
from inbox.core.records import Attempts, Claim, InboxRecord, Resolution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent, Event
    from inbox.core.handler import Handler
    from inbox.ports import Sink, UnitOfWork


@dataclass(slots=True)
class MemoryUnit:
    """One transaction in memory. Handlers get it as their session: `unit.write(effect)`."""

    store: MemoryStore
    record: InboxRecord | None = None
    effects: list[object] = field(default_factory=list)
    forgotten: list[bytes] = field(default_factory=list)
    is_over: bool = False

    def write(self, effect: object) -> None:
        """Add a business effect."""
        self.effects.append(effect)

    async def claim(self, record: InboxRecord) -> Claim:
        """As `ports.UnitOfWork.claim`."""
        self._expect_open()
        self.store.fault("claim")
        lock = self.store.locks.setdefault(record.key, asyncio.Lock())
        await lock.acquire()
        known = self.store.rows.get(record.key)
        if known is None:
            self.record = record
            return Claim.NEW
        lock.release()
        self.is_over = True
        return Claim.CONFLICT if record.contradicts(known.fingerprint, known.scheme) else Claim.DUPLICATE

    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """As `ports.UnitOfWork.apply`."""
        self.store.fault("apply")
        done = handler.function(*handler.arguments(event, self, prepared))
        if handler.face is not Face.SYNC_SESSION:
            await done

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """As `ports.UnitOfWork.session`."""
        yield self
        self.store.fault("apply")

    async def forget(self, key: bytes) -> None:
        """As `ports.UnitOfWork.forget`."""
        self.store.fault("forget")
        self.forgotten.append(key)

    async def commit(self) -> None:
        """As `ports.UnitOfWork.commit`."""
        self._expect_open()
        self.is_over = True
        try:
            self.store.fault("commit")
            self._make_durable()
            self.store.fault("committed")
        finally:
            self._unlock()

    async def rollback(self) -> None:
        """As `ports.UnitOfWork.rollback`."""
        self._expect_open()
        self.is_over = True
        self._unlock()

    def _make_durable(self) -> None:
        assert self.record is not None  # noqa: S101 - the contract: claim comes first
        self.store.rows[self.record.key] = self.record
        self.store.effects.extend(self.effects)
        for key in self.forgotten:
            self.store.attempts.pop(key, None)
            self.store.open_starts.discard(key)

    def _unlock(self) -> None:
        if self.record is not None:
            self.store.locks[self.record.key].release()
        self.record = None

    def _expect_open(self) -> None:
        if self.is_over:
            raise RuntimeError("the unit is over")


class MemoryStore:
    """As `ports.Store`, in memory.

    Attributes:
        rows, effects, attempts, open, quarantined: what was stored.
        faults: errors to raise, by step, each once: `store.faults["commit"] = [CommitUnknown(…)]`.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, InboxRecord] = {}
        self.effects: list[object] = []
        self.attempts: dict[bytes, Attempts] = {}
        self.open_starts: set[bytes] = set()
        self.quarantined: list[tuple[Delivery, str, str]] = []
        self.faults: dict[str, list[BaseException]] = {}
        self.locks: dict[bytes, asyncio.Lock] = {}
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_open = False

    def for_consumer(self, name: str, *, concurrency: int, deadline: float) -> MemoryStore:
        """As `ports.StoreFactory.for_consumer`."""
        return self

    def describe(self) -> dict[str, str]:
        """As `ports.Store.describe`."""
        return {"store": "memory"}

    def fault(self, step: str) -> None:
        """Raise the next fault that a test set for `step`."""
        if waiting := self.faults.get(step):
            raise waiting.pop(0)

    async def open(self) -> None:
        """As `ports.Store.open`."""
        self.fault("open")
        self.is_open = True

    async def close(self) -> None:
        """As `ports.Store.close`."""
        self.is_open = False

    async def begin(self) -> MemoryUnit:
        """As `ports.Store.begin`."""
        self.fault("begin")
        return MemoryUnit(self)

    async def resolve(self, record: InboxRecord, unit: UnitOfWork) -> Resolution:
        """As `ports.Store.resolve`."""
        if self.faults.get("resolve"):
            self.faults["resolve"].pop()
            return Resolution.UNRESOLVED
        return Resolution.COMMITTED if record.key in self.rows else Resolution.ABSENT

    async def knows(self, record: InboxRecord) -> bool:
        """As `ports.Store.knows`."""
        self.fault("knows")
        return record.key in self.rows

    async def start_attempt(self, key: bytes) -> Attempts:
        """As `ports.Store.start_attempt`."""
        self.fault("start_attempt")
        known = self.attempts.get(key, Attempts())
        reopened = key in self.open_starts
        known = replace(known, crashed=known.crashed + reopened)
        self.open_starts.add(key)
        self.attempts[key] = known
        return replace(known, reopened=reopened)

    async def end_attempt(
        self, key: bytes, *, failed: bool = False, released: bool = False, error: str = ""
    ) -> Attempts:
        """As `ports.Store.end_attempt`."""
        self.fault("end_attempt")
        known = self.attempts.get(key, Attempts())
        known = replace(known, failed=known.failed + failed, released=known.released + released)
        self.open_starts.discard(key)
        if failed or released or key in self.attempts:
            self.attempts[key] = known
        return known

    async def quarantine(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """As `ports.Store.quarantine`."""
        self.fault("quarantine")
        self.quarantined.append((delivery, reason, detail))

    async def wait_writable(self) -> None:
        """As `ports.Store.wait_writable`."""
        await self.writable.wait()


class MemoryTransport:
    """As `ports.Transport`, in memory: `publish` puts a delivery in, settling takes it out."""

    def __init__(self) -> None:
        self.ready: deque[Delivery] = deque()
        self.acknowledged: list[Delivery] = []
        self.released: list[Delivery] = []
        self.settled = asyncio.Event()
        self.is_cut = False
        self.error: BaseException | None = None
        self._prefetch = 0
        self._out = 0
        self._sink: Sink | None = None
        self._done = asyncio.Event()

    def describe(self) -> dict[str, str]:
        """As `ports.Transport.describe`."""
        return {"transport": "memory"}

    def publish(self, *deliveries: Delivery) -> None:
        """Make deliveries available."""
        self.ready.extend(deliveries)
        self._feed()

    def fail(self, error: BaseException) -> None:
        """Let `run` end with `error`."""
        self.error = error
        self._done.set()

    async def wait_settled(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds, asked after each settlement."""
        while not condition():
            self.settled.clear()
            await self.settled.wait()

    async def open(self, *, prefetch: int) -> None:
        """As `ports.Transport.open`."""
        self._prefetch = prefetch

    async def run(self, sink: Sink) -> None:
        """As `ports.Transport.run`."""
        self._sink = sink
        self._feed()
        await self._done.wait()
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        """As `ports.Transport.stop`."""
        self._sink = None
        self._done.set()

    async def close(self) -> None:
        """As `ports.Transport.close`."""
        self._sink = None

    async def acknowledge(self, delivery: Delivery) -> bool:
        """As `ports.Transport.acknowledge`."""
        return self._settle(self.acknowledged, delivery)

    async def release(self, delivery: Delivery) -> bool:
        """As `ports.Transport.release`; it comes again, marked as redelivered."""
        if not self.is_cut and self._sink is not None:
            self.ready.append(replace(delivery, pristine=False))
        return self._settle(self.released, delivery)

    def _settle(self, where: list[Delivery], delivery: Delivery) -> bool:
        if self.is_cut:
            return False
        where.append(delivery)
        self._out -= 1
        self.settled.set()
        self._feed()
        return True

    def _feed(self) -> None:
        while self._sink is not None and self.ready and self._out < self._prefetch:
            self._out += 1
            self._sink(self.ready.popleft())
