"""The quarantine of one consumer in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inbox.core.event import Event
from inbox.core.kept import delivery_digest, stored_headers
from inbox.core.quarantine import (
    AttemptLine,
    QuarantineCount,
    QuarantinedDelivery,
    QuarantineEntry,
    QuarantineState,
    kept_delivery,
)
from inbox.core.records import EVENT_ID_OCTETS
from inbox.errors import QuarantineFull
from inbox.testing.memory.figures import now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inbox.config import DatabaseSettings
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.core.quarantine import QuarantineCursor, Selection


@dataclass(slots=True, repr=False)
class MemoryQuarantined:
    """A delivery in quarantine; see `inbox.core.quarantine.QuarantineEntry`. Its times have no zone, and are UTC."""

    delivery: Delivery
    reason: str
    detail: str
    event_id: bytes | None
    attempts: int
    event_type: str | None = None
    source: str | None = None
    record_key: bytes | None = None
    history: tuple[AttemptLine, ...] = ()
    times_seen: int = 1
    first_at: datetime = field(default_factory=now)
    last_at: datetime = field(default_factory=now)
    state: QuarantineState = QuarantineState.OPEN
    state_at: datetime | None = None
    state_note: str | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        #: Octets that it counts against the bound.
        self.size = len(self.delivery.body) + len(stored_headers(self.delivery))

    def entry(self, digest: bytes) -> QuarantineEntry:
        """What a person is shown of it."""
        return QuarantineEntry(
            digest=digest,
            state=self.state,
            reason=self.reason,
            detail=self.detail,
            event_id=self.event_id,
            event_type=self.event_type,
            source=self.source,
            record_key=self.record_key,
            origin=self.delivery.origin,
            queue=self.delivery.queue,
            attempts=self.attempts,
            history=self.history,
            times_seen=self.times_seen,
            first_at=self.first_at.replace(tzinfo=UTC),
            last_at=self.last_at.replace(tzinfo=UTC),
            state_at=None if self.state_at is None else self.state_at.replace(tzinfo=UTC),
            state_note=self.state_note,
            body_bytes=len(self.delivery.body),
            total_bytes=self.size,
        )

    def decide(self, state: QuarantineState, note: str | None) -> None:
        """Give it a state."""
        self.state, self.state_at, self.state_note = state, now(), note


class MemoryDesk:
    """As `ports.QuarantineDesk`, in memory.

    Args:
        consumer: octets of the consumer's name.
        rows: its entries, by digest.
        settings: of them it heeds the bounds.
    """

    def __init__(self, consumer: bytes, rows: dict[bytes, MemoryQuarantined], settings: DatabaseSettings) -> None:
        self._consumer = consumer
        self._rows = rows
        self._settings = settings

    def store(
        self,
        delivery: Delivery,
        event: Event | CloudEvent | None,
        why: tuple[str, str],
        cost: tuple[int, tuple[AttemptLine, ...]],
    ) -> None:
        """As `ports.Store.quarantine`.

        Args:
            delivery: what was refused.
            event: what it holds, as far as that is known.
            why: reason and detail.
            cost: attempts and their history.
        """
        digest = delivery_digest(self._consumer, delivery)
        stored = self._rows.get(digest)
        if stored is not None:
            _see_again(stored, event, why, cost)
            return
        row = MemoryQuarantined(
            kept_delivery(delivery),
            *why,
            event_id=_stored_id(event),
            attempts=cost[0],
            event_type=None if event is None else event.type,
            source=None if event is None else event.source,
            record_key=_record_key(event),
            history=cost[1],
        )
        self._expect_room(row)
        self._rows[digest] = row

    def _expect_room(self, row: MemoryQuarantined) -> None:
        octets = sum(each.size for each in (*self._rows.values(), row))
        if len(self._rows) >= self._settings.quarantine_rows or octets > self._settings.quarantine_bytes:
            raise QuarantineFull("the quarantine is full")

    async def now(self) -> datetime:
        """As `ports.QuarantineDesk.now`."""
        return now().replace(tzinfo=UTC)

    async def count(self, selection: Selection) -> Sequence[QuarantineCount]:
        """As `ports.QuarantineDesk.count`."""
        groups: dict[tuple[QuarantineState, str], list[QuarantineEntry]] = {}
        for entry in self._selected(selection):
            groups.setdefault((entry.state, entry.reason), []).append(entry)
        return [
            QuarantineCount(*key, len(of), sum(each.total_bytes for each in of), min(each.first_at for each in of))
            for key, of in sorted(groups.items())
        ]

    async def list(
        self,
        selection: Selection,
        *,
        after: QuarantineCursor | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[QuarantineEntry]:
        """As `ports.QuarantineDesk.list`."""
        found = sorted(self._selected(selection), key=_place, reverse=newest_first)
        if after is not None:
            place = (after.first_at, after.total_bytes, after.digest)
            found = [each for each in found if (_place(each) < place if newest_first else _place(each) > place)]
        return found[:limit]

    def _selected(self, selection: Selection) -> Sequence[QuarantineEntry]:
        return [entry for digest, row in self._rows.items() if selection.covers(entry := row.entry(digest))]

    async def get(self, digests: Sequence[bytes]) -> Sequence[QuarantinedDelivery]:
        """As `ports.QuarantineDesk.get`."""
        return [
            QuarantinedDelivery(self._rows[digest].entry(digest), replace(self._rows[digest].delivery))
            for digest in digests
            if digest in self._rows
        ]

    async def mark_replayed(self, entries: Sequence[QuarantineEntry]) -> int:
        """As `ports.QuarantineDesk.mark_replayed`."""
        return self._decide(entries, QuarantineState.REPLAYED, None)

    async def discard(self, selection: Selection, note: str, *, progress: Callable[[int], None] | None = None) -> int:
        """As `ports.QuarantineDesk.discard`."""
        discarded = self._decide(self._selected(selection), QuarantineState.DISCARDED, note)
        if progress is not None and discarded:
            progress(discarded)
        return discarded

    def _decide(self, entries: Sequence[QuarantineEntry], state: QuarantineState, note: str | None) -> int:
        decided = 0
        for entry in entries:
            row = self._rows.get(entry.digest)
            if row is not None and row.state is QuarantineState.OPEN and row.times_seen == entry.times_seen:
                row.decide(state, note)
                decided += 1
        return decided

    async def restore(self, entries: Sequence[QuarantinedDelivery], *, dry_run: bool = False) -> int:
        """As `ports.QuarantineDesk.restore`."""
        restored = 0
        for each in entries:
            digest = delivery_digest(self._consumer, each.delivery)
            if digest not in self._rows:
                restored += 1
                if not dry_run:
                    row = _restored(each)
                    self._expect_room(row)
                    self._rows[digest] = row
        return restored


def attempt_line(kind: str, words: str) -> AttemptLine:
    """One line of a history, written now."""
    return AttemptLine(now().replace(tzinfo=UTC), kind, " ".join(words[:512].split()))


def _see_again(
    stored: MemoryQuarantined,
    event: Event | CloudEvent | None,
    why: tuple[str, str],
    cost: tuple[int, tuple[AttemptLine, ...]],
) -> None:
    stored.reason, stored.detail = why
    stored.times_seen += 1
    stored.last_at = now()
    stored.record_key = _record_key(event) or stored.record_key
    if cost[0] or cost[1]:
        stored.attempts, stored.history = cost
    if stored.state is not QuarantineState.OPEN:
        stored.decide(QuarantineState.OPEN, None)


def _restored(each: QuarantinedDelivery) -> MemoryQuarantined:
    entry = each.entry
    return MemoryQuarantined(
        kept_delivery(each.delivery),
        entry.reason,
        entry.detail,
        event_id=entry.event_id,
        attempts=entry.attempts,
        event_type=entry.event_type,
        source=entry.source,
        record_key=entry.record_key,
        history=entry.history,
        times_seen=entry.times_seen,
        first_at=_naive(entry.first_at),
        last_at=_naive(entry.last_at),
        state=entry.state,
        state_at=None if entry.state_at is None else _naive(entry.state_at),
        state_note=entry.state_note,
    )


def _naive(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None)


def _place(entry: QuarantineEntry) -> tuple[datetime, int, bytes]:
    return entry.first_at, entry.total_bytes, entry.digest


def _record_key(event: Event | CloudEvent | None) -> bytes | None:
    return event.record.key if isinstance(event, Event) else None


def _stored_id(event: Event | CloudEvent | None) -> bytes | None:
    """The id if its column holds it: a cut one would be another's."""
    octets = b"" if event is None else event.id.encode()
    return octets if 0 < len(octets) <= EVENT_ID_OCTETS else None
