"""Deleting what is old: small batches by primary key, one at a time, so that live traffic does not notice.

Keys are read without locks, in the order of the index by time, and deleted by a statement that asks again whether they
are old. Both are short whatever the table's size: each page begins where the last one ended, and not at the front,
where what was just deleted lies until the server has purged it. Under READ COMMITTED a delete by primary key locks the
rows that it names and no gaps (InnoDB manual, "Locks Set by Different SQL Statements in InnoDB"), so that a claim never
waits, unless it is a duplicate of a row that is being deleted.

An inbox row stays while the quarantine has a row that stays under its key: while that is open, a replay of it must find
the inbox row, or it would be applied twice; and when it was replayed, its copy may be under way for as long as anything
may. The delete asks that by itself, in the same statement and with a locking read, which waits for a row that is just
being inserted there. One that is inserted later belongs to a delivery that came, or was still under way, when the event
had been processed for longer than the window: it is a new event, as any that comes so late.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from inbox.adapters.mysql.side import Answer, Statement
from inbox.core.facts import fact
from inbox.core.retention import Pruned
from inbox.errors import ConfigurationError, Contended, SchemaError, StoreError, StoreUnavailable
from inbox.tables import QuarantineState, qualified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inbox.adapters.mysql.side import AdHoc, Wire
    from inbox.tables import InboxTables

__all__ = ["MOST_IN_BATCH", "Retention", "RetentionSql", "Sweep"]

_log = logging.getLogger(__name__)

#: MariaDB turns a longer list of values into a join with a table of them, and then reads the whole index by time
#: (knowledge base, "Conversion of Big IN Predicates Into Subqueries": from 1,000).
MOST_IN_BATCH: Final = 900
#: Octets of quarantined deliveries that one statement deletes: a binary log by rows carries each as a whole.
_BATCH_OCTETS: Final = 8 << 20
#: Seconds; after a batch that took very long, because it waited for a lock, nobody needs as much room as that.
_LONGEST_REST: Final = 1.0
#: Seconds, a hundred years: a calendar has no time that is much longer ago.
_LONGEST_WINDOW: Final = 100 * 365 * 86_400.0
#: Seconds in which the database has to answer; a batch that is read from a slow disk takes a few.
_ANSWER: Final = 60.0
#: How often a batch is tried that a dead-lock or a lock stands in the way of. It is left to the next run then.
_TRIES: Final = 5
_LOCKED: Final = frozenset({1205, 1213})
_NO_RIGHT: Final = frozenset({1142, 1143})
#: No such table, column, index.
_NO_SUCH: Final = frozenset({1146, 1054, 1176})

# A short lock wait, for while it waits for a lock it holds others: one second is the least that both servers take. And
# time for the longest rest that the command takes, a minute, for which a unit's session would not be kept.
_SET_UP: Final = "SET SESSION innodb_lock_wait_timeout = 1, wait_timeout = 120"
_TAKE_LOCK: Final = "SELECT GET_LOCK(%s, 0)"
_RELEASE_LOCK: Final = "SELECT RELEASE_LOCK(%s)"
_DATABASE: Final = "SELECT DATABASE()"
_CUT_OFF: Final = "SELECT UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND"
_PAGE: Final = """\
SELECT {order}, {kept}
  FROM {table} AS old FORCE INDEX (`{index}`)
 WHERE old.consumer_name = %s AND {is_old}{after}
 ORDER BY {order}
 LIMIT %s"""

# Of several tables, though it deletes from one: only so both servers take an alias, an index by name, and a join. Left
# to choose, they read a few times by another index, and MariaDB reads all of the quarantine for a NOT EXISTS.
_DELETE: Final = """\
DELETE old
  FROM {table} AS old FORCE INDEX (PRIMARY){unless}
 WHERE old.consumer_name = %s AND old.{key} IN ({keys}) AND {is_old}{still}"""

_NEEDED: Final = """\
refused.consumer_name = old.consumer_name AND refused.record_key = old.event_id
   AND (refused.state = 'open' OR refused.state_at IS NULL OR refused.state_at >= %s)"""

_IS_NEEDED: Final = f"""\
EXISTS (
SELECT 1
  FROM {{quarantine}} AS refused FORCE INDEX (`inbox_quarantine_by_record`)
 WHERE {_NEEDED})"""  # noqa: S608 - texts of ours

_UNLESS_NEEDED: Final = f"""
  LEFT JOIN {{quarantine}} AS refused FORCE INDEX (`inbox_quarantine_by_record`)
    ON {_NEEDED}"""

Parameter = bytes | str | int | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """How the old rows of one table are found and deleted. `%s` of a condition is the cut-off, each time.

    Attributes:
        counts: the field of `Pruned` that counts them.
        table: its quoted name.
        index: the one that they are read in the order of.
        order: its columns behind those that are constant, down to the key's own, which comes last.
        is_old: the condition, for reading and deleting alike.
        read_kept: answers 1 for a row, called `old`, that is old and stays.
        unless: joins, as `refused`, what such a row stays for.
        octets_at: which column of `order` is a row's size; None where rows are small.
    """

    counts: str
    table: str
    index: str
    order: tuple[str, ...]
    is_old: str
    read_kept: str = "0"
    unless: str = ""
    octets_at: int | None = None

    def page(self, consumer: bytes, cut_off: str, after: Sequence[Parameter], size: int) -> Statement:
        """Reads the keys of up to `size` rows that come after `after`: the columns of `order`, and whether it is kept.

        Args:
            consumer: whose.
            cut_off: what is older is old.
            after: the last row's columns of `order`; empty at the beginning.
            size: how many rows.
        """
        further, place = _after(self.order, after)
        sql = _PAGE.format(
            order=", ".join(self.order),
            kept=self.read_kept,
            table=self.table,
            index=self.index,
            is_old=self.is_old,
            after=further,
        )
        kept = (cut_off,) * self.read_kept.count("%s")
        return Statement(sql, (*kept, consumer, *self._cut_offs(cut_off), *place, size))

    def delete(self, consumer: bytes, cut_off: str, keys: Sequence[Parameter]) -> Statement:
        """Deletes the rows of `keys` that are still old, and still not kept.

        Args:
            consumer: whose.
            cut_off: what is older is old.
            keys: the last columns of `order`; at least one.
        """
        sql = _DELETE.format(
            table=self.table,
            key=self.order[-1],
            keys=", ".join(["%s"] * len(keys)),
            is_old=self.is_old,
            unless=self.unless,
            still="\n   AND refused.consumer_name IS NULL" if self.unless else "",
        )
        kept = (cut_off,) * self.unless.count("%s")
        return Statement(sql, (*kept, consumer, *keys, *self._cut_offs(cut_off)))

    def fitting(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """As many of the first `rows` as one statement may delete; at least one."""
        if self.octets_at is None:
            return rows
        octets = 0
        for number, row in enumerate(rows):
            octets += row[self.octets_at]
            if octets > _BATCH_OCTETS and number:
                return rows[:number]
        return rows

    def _cut_offs(self, cut_off: str) -> tuple[Parameter, ...]:
        return (cut_off,) * self.is_old.count("%s")


def _after(order: tuple[str, ...], place: Sequence[Parameter]) -> tuple[str, tuple[Parameter, ...]]:
    """The condition for what comes after `place`, and its parameters.

    Not `(a, b) > (x, y)`: neither server takes that for a range of an index (MySQL manual, "Range Optimization of Row
    Constructor Expressions"), and where a million rows have one time, each page would read all of them.
    """
    if not place:
        return "", ()
    parts, parameters = [], []
    for number, column in enumerate(order):
        equal = [f"{name} = %s" for name in order[:number]]
        parts.append(" AND ".join([*equal, f"{column} > %s"]))
        parameters += [*place[:number], place[number]]
    return f"\n   AND ({' OR '.join(f'({part})' for part in parts)})", tuple(parameters)


class RetentionSql:
    """The statements, for the tables as they are called.

    Attributes:
        sweeps: one for each table, and for each state of the quarantine that is a decision.
    """

    def __init__(self, tables: InboxTables) -> None:
        names = tables.names
        inbox, attempt, quarantine, worker = (
            qualified(name, tables.database) for name in (names.inbox, names.attempt, names.quarantine, names.worker)
        )
        self.sweeps = (
            *(
                Sweep(
                    "quarantine",
                    quarantine,
                    "inbox_quarantine_by_state",
                    ("first_at", "total_bytes", "digest"),
                    f"old.state = '{state.value}' AND old.state_at < %s",
                    octets_at=1,
                )
                for state in QuarantineState
                if state is not QuarantineState.OPEN
            ),
            Sweep(
                "inbox",
                inbox,
                "inbox_by_time",
                ("processed_at", "event_id"),
                "old.processed_at < %s",
                read_kept=_IS_NEEDED.format(quarantine=quarantine),
                unless=_UNLESS_NEEDED.format(quarantine=quarantine),
            ),
            Sweep(
                "attempts",
                attempt,
                "inbox_attempt_by_time",
                ("last_at", "attempt_key"),
                "old.last_at < %s AND (old.open_since IS NULL OR old.open_since < %s)",
            ),
            Sweep("workers", worker, "inbox_worker_by_time", ("seen_at", "worker_id"), "old.seen_at < %s"),
        )


class Retention:
    """Cleans the tables up.

    Args:
        adhoc: where a connection of its own comes from.
        tables: which.
    """

    def __init__(self, adhoc: AdHoc, tables: InboxTables) -> None:
        self._adhoc = adhoc
        self._tables = tables
        self.sql = RetentionSql(tables)

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
        """See `inbox.ports.Store.prune`.

        Args:
            consumer: octets of the consumer's name.
            older_than: as there.
            batch: as there; at most 900 are deleted at once.
            pause: as there.
            progress: as there.
            dry_run: as there.

        Raises:
            StartupError, Contended, StoreUnavailable: as there.
        """
        async with self._adhoc.connected() as wire:
            pace = _Pace(min(batch, MOST_IN_BATCH), pause, dry_run)
            run = _Run(wire, self.sql.sweeps, consumer, pace, progress)
            with _explaining():
                await run.ask(Statement(_SET_UP))
                lock = lock_name(await self._database(run), self._tables.names.inbox)
                # Who only counts disturbs nobody.
                if not dry_run and not (await run.ask(Statement(_TAKE_LOCK, (lock,)))).rows[0][0]:
                    return Pruned(is_skipped=True, is_complete=False)
                await run.begin(older_than)
            try:
                with _explaining():
                    await run.finish()
                    # Closing gives it back too, but perhaps only after the next clean-up has asked for it.
                    await run.ask(Statement(_RELEASE_LOCK, (lock,)))
            except (Contended, StoreUnavailable) as error:
                # With the connection the lock has gone, or goes now: another clean-up may take it.
                wire.discard()
                told = fact("clean-up-cut-short", error=type(error).__name__)
                _log.warning("the clean-up ended early, and the next one goes on from there: %s", error, extra=told)
                run.is_ended_early = True
            return run.result

    async def _database(self, run: _Run) -> str:
        return self._tables.database or str((await run.ask(Statement(_DATABASE))).rows[0][0])


def lock_name(database: str, inbox: str) -> str:
    """The user lock that is held while the tables are cleaned up.

    A digest: a name has at most 64 characters on MySQL, and is one for the whole server.

    Args:
        database: that has the tables.
        inbox: what the first of them is called.
    """
    return "inbox.prune." + hashlib.sha256(f"{database}.{inbox}".encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class _Pace:
    batch: int
    pause: float
    dry_run: bool

    def rest(self, took: float) -> float:
        """Seconds to rest after a batch that took so long: a busy server takes longer, and gets as much more room."""
        return 0.0 if self.dry_run else max(self.pause, min(took, _LONGEST_REST))


class _Run:
    """One clean-up of one consumer's rows, over one connection."""

    def __init__(
        self,
        wire: Wire,
        sweeps: Sequence[Sweep],
        consumer: bytes,
        pace: _Pace,
        progress: Callable[[Pruned], bool],
    ) -> None:
        self._wire = wire
        self._sweeps = sweeps
        self._consumer = consumer
        self._pace = pace
        self._progress = progress
        self._cut_off = ""
        self._done = Pruned()
        self.is_ended_early = False

    @property
    def result(self) -> Pruned:
        return replace(self._done, is_complete=not self.is_ended_early)

    async def begin(self, older_than: float) -> None:
        """Read the database's clock, once: what grows old meanwhile is the next run's."""
        microseconds = int(min(older_than, _LONGEST_WINDOW) * 1_000_000)
        self._cut_off = str((await self.ask(Statement(_CUT_OFF, (microseconds,)))).rows[0][0])

    async def finish(self) -> None:
        """Go through all tables.

        Raises:
            StoreError: the connection was lost, or the server refused.
        """
        for sweep in self._sweeps:
            if not await self._sweep(sweep):
                self.is_ended_early = True
                return

    async def _sweep(self, sweep: Sweep) -> bool:
        """Go through one table; False where it was to end."""
        place: Sequence[Parameter] = ()
        is_last = False
        while not is_last:
            began = time.monotonic()
            found = await self.ask(sweep.page(self._consumer, self._cut_off, place, self._pace.batch))
            rows = sweep.fitting(found.rows)
            if not rows:
                return True
            is_last = len(found.rows) < self._pace.batch and len(rows) == len(found.rows)
            place = [_parameter(value) for value in rows[-1][:-1]]
            await self._delete(sweep, rows)
            if not self._progress(self._done):
                return False
            if not is_last:
                await asyncio.sleep(self._pace.rest(time.monotonic() - began))
        return True

    async def _delete(self, sweep: Sweep, rows: Sequence[Sequence[Any]]) -> None:
        keys = [_parameter(row[-2]) for row in rows if not row[-1]]
        deleted = len(keys)
        if keys and not self._pace.dry_run:
            try:
                deleted = (await self.ask(sweep.delete(self._consumer, self._cut_off, keys))).affected
            except StoreError as error:
                if error.code not in _LOCKED:
                    raise
                told = fact("clean-up-locked-out", rows=len(keys))
                _log.warning(
                    "the clean-up left %d rows to the next one: others hold them locked", len(keys), extra=told
                )
                self.is_ended_early, deleted = True, 0
        change = {sweep.counts: getattr(self._done, sweep.counts) + deleted}
        self._done = replace(self._done, kept=self._done.kept + len(rows) - len(keys), **change)

    async def ask(self, statement: Statement) -> Answer:
        """Send `statement`; again, for some time, where a dead-lock or a lock stands in its way.

        Raises:
            StoreError: it did not run.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_locked),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        return await retrying(self._send, statement)

    async def _send(self, statement: Statement) -> Answer:
        try:
            async with asyncio.timeout(_ANSWER):
                return await self._wire.run(statement)
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time") from None


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, StoreError) and error.code in _LOCKED


def _parameter(value: object) -> Parameter:
    """What a driver read, as a statement takes it. A time is written as the server reads it."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value if isinstance(value, int) else str(value)


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn what only a person can mend into an error that says how."""
    try:
        yield
    except StoreError as error:
        if error.code in _NO_RIGHT:
            raise ConfigurationError(
                "this user may not clean up: GRANT SELECT and DELETE on the inbox's tables"
            ) from error
        if error.code in _NO_SUCH:
            raise SchemaError(
                ["a table, a column or an index of the inbox is missing: run `inbox schema check`, and do what it says"]
            ) from error
        raise
