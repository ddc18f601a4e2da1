"""Deleting what is old: small batches, one at a time, so that live traffic waits for milliseconds.

One transaction over both files decides and deletes, with the right to write in both: an inbox row stays while the
quarantine has a row that stays under its key, and nobody can put one there meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.embedded import clock
from inbox.adapters.embedded.classify import is_busy
from inbox.adapters.embedded.statements import BEGIN, ROLLBACK
from inbox.core.retention import Pruned
from inbox.errors import Contended, SchemaError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from inbox.adapters.embedded.file import PlainFile
    from inbox.tables import TableNames

__all__ = ["Retention"]

#: Seconds; after a batch that took very long nobody needs as much room as that.
_LONGEST_REST: Final = 1.0

_STAYS: Final = """\
EXISTS (
         SELECT 1
           FROM beside.`{quarantine}` AS refused
          WHERE refused.consumer_name = old.consumer_name AND refused.record_key = old.event_id
            AND (refused.state = 'open' OR refused.state_at IS NULL OR refused.state_at >= ?2))"""

_PAGE: Final = """\
SELECT {time}, {key}, {stays}
  FROM {table} AS old
 WHERE consumer_name = ?1 AND {is_old} AND ({time}, {key}) > (?3, ?4)
 ORDER BY {time}, {key}
 LIMIT ?5"""

_DELETE: Final = "DELETE FROM {table} WHERE consumer_name = ? AND {key} = ?"


@dataclass(frozen=True, slots=True)
class _Sweep:
    """How the old rows of one table are found: `?2` of a condition is the cut-off."""

    counts: str
    table: str
    time: str
    key: str
    is_old: str
    stays: str = "0"

    def page(self, names: dict[str, str]) -> str:
        """Reads the keys of rows that come after a place, and whether each stays."""
        parts = {"time": self.time, "key": self.key, "is_old": self.is_old}
        return _PAGE.format(table=self.table.format(**names), stays=self.stays.format(**names), **parts)

    def delete(self, names: dict[str, str]) -> str:
        """Deletes one row."""
        return _DELETE.format(table=self.table.format(**names), key=self.key)


_SWEEPS: Final = (
    _Sweep(
        "quarantine",
        "beside.`{quarantine}`",
        "first_at",
        "digest",
        "state IN ('replayed', 'discarded') AND state_at < ?2",
    ),
    _Sweep("inbox", "main.`{inbox}`", "processed_at", "event_id", "processed_at < ?2", _STAYS),
    _Sweep(
        "attempts",
        "beside.`{attempt}`",
        "last_at",
        "attempt_key",
        "last_at < ?2 AND (open_since IS NULL OR open_since < ?2)",
    ),
    _Sweep("workers", "beside.`{worker}`", "seen_at", "worker_id", "seen_at < ?2"),
)


class Retention:
    """Cleans the tables up.

    Args:
        file: the first file, with the other one beside it; of its own.
        mark: a file whose lock says that a clean-up is at work.
        names: what the tables are called.
    """

    def __init__(self, file: PlainFile, mark: Path, names: TableNames) -> None:
        self._file = file
        self._mark = mark
        self._names = {kind: getattr(names, kind) for kind in ("inbox", "attempt", "quarantine", "worker")}

    async def prune(
        self,
        consumer: bytes,
        older_than: float,
        *,
        batch: int,
        pause: float,
        progress: Callable[[Pruned], bool],
        dry_run: bool = False,
    ) -> Pruned:
        """See `inbox.ports.Store.prune`."""
        run = _Run(self._file, self._names, consumer, clock.before(older_than), batch, dry_run=dry_run)
        try:
            await self._file.read(run.look, "looking for the tables")
        except StoreError as error:
            if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
                raise SchemaError(["a table of the inbox is missing: start the worker once, or restore it"]) from error
            raise
        try:
            async with self._one_at_a_time(is_needed=not dry_run) as is_ours:
                if not is_ours:
                    return Pruned(is_skipped=True, is_complete=False)
                return await self._swept(run, pause, progress, dry_run=dry_run)
        finally:
            await self._file.close()

    async def _swept(self, run: _Run, pause: float, progress: Callable[[Pruned], bool], *, dry_run: bool) -> Pruned:
        for sweep in _SWEEPS:
            place: tuple[Any, Any] | None = ("", b"")
            while place is not None:
                began = time.monotonic()
                try:
                    place = await run.step(sweep, place)
                except (Contended, StoreUnavailable):
                    return replace(run.done, is_complete=False)
                if run.has_found and not progress(run.done):
                    return replace(run.done, is_complete=False)
                if place is not None and not dry_run:
                    await asyncio.sleep(max(pause, min(time.monotonic() - began, _LONGEST_REST)))
        return run.done

    @asynccontextmanager
    async def _one_at_a_time(self, *, is_needed: bool) -> AsyncIterator[bool]:
        """Whether this is the only clean-up, for as long as the block lasts.

        A file of its own, whose lock as a database goes with the process that holds it.
        """
        if not is_needed:  # who only counts disturbs nobody
            yield True
            return
        # The lock may be asked for and given back by whatever threads serve the loop.
        lock = await asyncio.to_thread(_locked, self._mark)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                await asyncio.to_thread(_unlock, lock)


def _locked(mark: Path) -> sqlite3.Connection | None:
    raw = sqlite3.connect(mark, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        raw.execute(BEGIN)
    except sqlite3.Error as error:
        raw.close()
        if is_busy(error):
            return None
        raise StoreUnavailable("the file that marks a clean-up cannot be written") from error
    return raw


def _unlock(lock: sqlite3.Connection) -> None:
    lock.execute(ROLLBACK)
    lock.close()


class _Run:
    """One clean-up of one consumer's rows."""

    def __init__(
        self, file: PlainFile, names: dict[str, str], consumer: bytes, cut_off: str, batch: int, *, dry_run: bool
    ) -> None:
        self._file = file
        self._names = names
        self._consumer = consumer
        # Read once: what grows old meanwhile is the next run's.
        self._cut_off = cut_off
        self._batch = batch
        self._dry_run = dry_run
        self.done = Pruned()
        self.has_found = False

    def look(self, raw: sqlite3.Connection) -> None:
        """In the connection's thread: see that the tables are there."""
        for sweep in _SWEEPS:
            raw.execute(sweep.page(self._names), (self._consumer, self._cut_off, "", b"", 0)).fetchall()

    async def step(self, sweep: _Sweep, place: tuple[Any, Any]) -> tuple[Any, Any] | None:
        """Delete one batch.

        Returns:
            Where to go on; None behind the last one.

        Raises:
            Contended, StoreUnavailable: nothing of it was deleted.
        """

        def work(raw: sqlite3.Connection) -> list[Any]:
            values = (self._consumer, self._cut_off, *place, self._batch)
            rows = raw.execute(sweep.page(self._names), values).fetchall()
            if not self._dry_run:
                keys = [(self._consumer, key) for _, key, stays in rows if not stays]
                raw.executemany(sweep.delete(self._names), keys)
            return rows

        reading = self._file.read if self._dry_run else self._file.write
        rows = await reading(work, "cleaning up")
        kept = sum(stays for *_, stays in rows)
        deleted = {sweep.counts: getattr(self.done, sweep.counts) + len(rows) - kept}
        self.done = replace(self.done, kept=self.done.kept + kept, **deleted)
        self.has_found = bool(rows)
        return rows[-1][:2] if len(rows) == self._batch else None
