"""How a consumer does, by its tables in memory."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from inbox.core.figures import (
    MOST_COUNTED,
    AttemptFigures,
    Figures,
    InboxFigures,
    QuarantineFigures,
    Tally,
    WorkerFigures,
)
from inbox.core.quarantine import QuarantineState
from inbox.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inbox.config import DatabaseSettings
    from inbox.testing.memory.quarantine import MemoryQuarantined
    from inbox.testing.memory.store import MemoryTables


def now() -> datetime:
    """UTC without a zone, as the databases give their times."""
    return datetime.now(UTC).replace(tzinfo=None)


def figures_of(name: str, tables: MemoryTables, settings: DatabaseSettings, *, exact: bool) -> Figures:
    """As `ports.Store.figures`."""
    at = now()
    workers = [
        WorkerFigures(report, started_at, seen_at, (at - seen_at).total_seconds())
        for report, started_at, seen_at in tables.workers.values()
    ]
    return Figures(
        consumer=name,
        at=at,
        schema_version=SCHEMA_VERSION,
        inbox=_inbox(tables, at, exact=exact),
        attempts=_attempts(tables),
        quarantine=_quarantine(tables, settings),
        workers=sorted(workers, key=lambda worker: worker.age),
    )


def _inbox(tables: MemoryTables, at: datetime, *, exact: bool) -> InboxFigures:
    times = sorted(tables.times["inbox", key] for key in tables.rows)

    def since(hours: int) -> int:
        found = sum(time >= at - timedelta(hours=hours) for time in times)
        return found if exact else min(found, MOST_COUNTED)

    oldest, newest = (times[0], times[-1]) if times else (None, None)
    return InboxFigures(since(1), since(24), oldest, newest, len(times) if exact else None, len(times))


def _attempts(tables: MemoryTables) -> AttemptFigures:
    counts = tables.attempts.values()
    return AttemptFigures(
        events=len(counts),
        open_starts=len(tables.open_starts),
        oldest=min((tables.times["attempt", key] for key in tables.attempts), default=None),
        failed=sum(each.failed for each in counts),
        crashed=sum(each.crashed for each in counts),
        released=sum(each.released for each in counts),
    )


def _quarantine(tables: MemoryTables, settings: DatabaseSettings) -> QuarantineFigures:
    rows = [*tables.quarantine.values()]
    undecided = [row for row in rows if row.state is QuarantineState.OPEN]
    return QuarantineFigures(
        by_state=_tallies((row.state.value, row) for row in rows),
        by_reason=_tallies((row.reason, row) for row in undecided),
        oldest_open=min((row.first_at for row in undecided), default=None),
        bound_rows=settings.quarantine_rows,
        bound_octets=settings.quarantine_bytes,
    )


def _tallies(rows: Iterable[tuple[str, MemoryQuarantined]]) -> dict[str, Tally]:
    found: defaultdict[str, Tally] = defaultdict(Tally)
    for word, row in rows:
        found[word] = Tally(found[word].rows + 1, found[word].octets + row.size)
    return dict(found)
