"""What a consumer's tables say about how it does, and what its workers say of themselves: values, no questions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

#: States of a worker; one that is paused says why after a colon.
CONSUMING = "consuming"
PAUSED = "paused"
STOPPED = "stopped"

#: Rows of a time span that are counted before the counting stops: beyond, only an order of magnitude is of use.
MOST_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker process says of itself.

    Attributes:
        worker_id: 16 random octets, drawn anew at each start.
        host: the machine's name.
        pid: the process's number there.
        state: `consuming`, `paused: <why>` or `stopped`.
        counts: ends of deliveries since its start, by outcome; see `inbox.runtime.telemetry.Telemetry.counts`.
    """

    worker_id: bytes
    host: str
    pid: int
    state: str
    counts: Mapping[str, int] = field(default_factory=dict)


def counts_text(counts: Mapping[str, int], length: int) -> str:
    """`counts` as a JSON object of at most `length` characters, in ASCII; the smallest give way.

    Args:
        counts: by outcome.
        length: characters, at least 2.
    """
    kept = sorted(counts.items(), key=lambda item: item[1], reverse=True)
    while len(text := json.dumps(dict(sorted(kept)), separators=(",", ":"))) > length:
        kept.pop()
    return text


def counts_of(text: str) -> dict[str, int]:
    """Read what `counts_text` wrote; whatever else is there, for a person can edit a table, counts for nothing."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: number for name, number in found.items() if type(number) is int}


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """The last report of a worker process.

    Attributes:
        report: what it said.
        started_at: when it first reported; UTC by the database's clock, as every time here, and without a zone.
        seen_at: when it last reported.
        age: seconds since then.
    """

    report: WorkerReport
    started_at: datetime
    seen_at: datetime
    age: float

    @property
    def is_stopped(self) -> bool:
        """Whether it said good-bye."""
        return self.report.state == STOPPED

    def is_silent(self, after: float) -> bool:
        """Whether it has not reported for longer than `after` seconds, and did not say good-bye."""
        return not self.is_stopped and self.age > after


@dataclass(frozen=True, slots=True)
class InboxFigures:
    """The inbox rows of a consumer.

    Attributes:
        last_hour: events processed in the last hour; counting ends at `MOST_COUNTED`, unless it was to be exact.
        last_day: in the last 24 hours, counted the same way.
        oldest: when the oldest row was written; None where there is none.
        newest: when the newest was.
        rows: of this consumer, counted one by one; None unless it was to be exact.
        table_rows: the server's estimate for all consumers in this table; it may be far off.
    """

    last_hour: int = 0
    last_day: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    rows: int | None = None
    table_rows: int = 0


@dataclass(frozen=True, slots=True)
class AttemptFigures:
    """Events in trouble: those that were tried more than once, or are being tried again.

    Attributes:
        events: how many there are.
        open_starts: handlers that were started for them and have not ended.
        oldest: when the first of them got into trouble; None where there is none.
        failed: runs charged as failed.
        crashed: runs charged because the process died in them.
        released: times that one was handed back.
    """

    events: int = 0
    open_starts: int = 0
    oldest: datetime | None = None
    failed: int = 0
    crashed: int = 0
    released: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """Deliveries in quarantine: how many, and the octets of their bodies and headers."""

    rows: int = 0
    octets: int = 0


@dataclass(frozen=True, slots=True)
class QuarantineFigures:
    """The quarantine of a consumer.

    Attributes:
        by_state: what there is, by `open`, `replayed`, `discarded`.
        by_reason: what is open, by reason.
        oldest_open: when the oldest that is open came; None where none is.
        bound_rows: most rows that it may hold, by the settings of whoever asks.
        bound_octets: most octets.
    """

    by_state: Mapping[str, Tally]
    by_reason: Mapping[str, Tally]
    oldest_open: datetime | None
    bound_rows: int
    bound_octets: int

    @property
    def open(self) -> int:
        """Deliveries that nobody has decided about."""
        return self.by_state.get("open", Tally()).rows

    @property
    def share(self) -> float:
        """How full it is, 0 to 1 or a little more: the larger of its rows' and its octets' share."""
        rows = sum(tally.rows for tally in self.by_state.values())
        octets = sum(tally.octets for tally in self.by_state.values())
        return max(rows / self.bound_rows, octets / self.bound_octets)


@dataclass(frozen=True, slots=True)
class Figures:
    """How a consumer does, by its tables.

    Attributes:
        consumer: its name.
        at: when this was read, by the database's clock.
        schema_version: the newest file that was applied; None where that is not recorded.
        inbox: rows of processed events.
        attempts: events in trouble.
        quarantine: refused events.
        workers: last reports, the newest first.
    """

    consumer: str
    at: datetime
    schema_version: int | None
    inbox: InboxFigures
    attempts: AttemptFigures
    quarantine: QuarantineFigures
    workers: Sequence[WorkerFigures] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Ends of deliveries by outcome, of all workers whose reports are kept, those that have stopped included."""
        total: Counter[str] = Counter()
        for worker in self.workers:
            total.update(worker.report.counts)
        return dict(sorted(total.items()))
