"""Where the server keeps what must outlive it: one SQLite file, and rows as values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inbox.errors import ConfigurationError
from inbox.testing.orbit_server.rules import LAST_GENERATION, Standing, State

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CredentialRow", "DeliveryRow", "Store", "SubscriptionRow"]

# Generations and sequences are uint64, for which SQLite has no integer: they are decimal texts.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), ahead REAL NOT NULL);
CREATE TABLE IF NOT EXISTS credential (
  name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, queues TEXT NOT NULL, is_operator INTEGER NOT NULL,
  is_revoked INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS subscription (
  id TEXT PRIMARY KEY, credential TEXT NOT NULL REFERENCES credential (name), queue TEXT NOT NULL,
  is_enabled INTEGER NOT NULL, has_gap INTEGER NOT NULL DEFAULT 0, budget INTEGER NOT NULL, size INTEGER NOT NULL,
  next_sequence TEXT NOT NULL, first_generation TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS delivery (
  number INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE,
  subscription TEXT NOT NULL REFERENCES subscription (id), type TEXT NOT NULL, sequence TEXT NOT NULL,
  occurred_at TEXT NOT NULL, task_id TEXT NOT NULL, snapshot BLOB NOT NULL, holder TEXT, state TEXT NOT NULL,
  generation TEXT NOT NULL, spent INTEGER NOT NULL, budget INTEGER NOT NULL, due_at REAL NOT NULL,
  lease_ends REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS hand_out (
  id TEXT NOT NULL, generation TEXT NOT NULL, number INTEGER NOT NULL REFERENCES delivery (number) ON DELETE CASCADE,
  digest BLOB NOT NULL, PRIMARY KEY (id, generation)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hand_out_number ON hand_out (number);
CREATE INDEX IF NOT EXISTS delivery_open ON delivery (subscription, number) WHERE state <> 'acknowledged';
CREATE INDEX IF NOT EXISTS delivery_held ON delivery (holder, lease_ends) WHERE state = 'leased';
CREATE INDEX IF NOT EXISTS delivery_leased ON delivery (subscription, lease_ends) WHERE state = 'leased';
CREATE INDEX IF NOT EXISTS delivery_due ON delivery (subscription, number) WHERE state = 'due';
CREATE INDEX IF NOT EXISTS delivery_due_at ON delivery (subscription, due_at) WHERE state = 'due';
"""

_STANDING: Final = "budget, state, generation, spent, due_at, lease_ends"
_DELIVERY: Final = (
    f"number, event_id, subscription, type, sequence, occurred_at, task_id, snapshot, holder, {_STANDING}"
)

# What a claim looks at, by indexes alone: leases that ran out, and of what is due as many of the oldest as there is
# room for. A lease lies in the window for as long as it is one, for of the older ones there are only ever fewer.
_CLAIMABLE: Final = f"""
SELECT number, {_STANDING} FROM delivery WHERE subscription = :id AND state = 'leased' AND lease_ends <= :now
UNION ALL
SELECT * FROM (
  SELECT number, {_STANDING} FROM delivery
  WHERE subscription = :id AND state = 'due' AND due_at <= :now AND spent < budget AND generation <> :last
    AND number < COALESCE((
      SELECT number FROM delivery WHERE subscription = :id AND state <> 'acknowledged'
      ORDER BY number LIMIT 1 OFFSET :size
    ), {2**63 - 1})
  ORDER BY number LIMIT :room
) ORDER BY number
"""  # noqa: S608 - ours, values are bound
_NEXT_TIME: Final = """
SELECT MIN(moment) FROM (
  SELECT MIN(lease_ends) AS moment FROM delivery WHERE subscription = :id AND state = 'leased' AND lease_ends > :now
  UNION ALL
  SELECT MIN(due_at) FROM delivery WHERE subscription = :id AND state = 'due' AND due_at > :now
)
"""


@dataclass(frozen=True, slots=True)
class CredentialRow:
    """Who may do what.

    Attributes:
        name: of the credential. Its bearer is kept as a digest only.
        queues: that it may use; `*` is every one.
        is_operator: whether it may make others, turn the clock and set switches.
    """

    name: str
    queues: tuple[str, ...]
    is_operator: bool
    is_revoked: bool

    def covers(self, queue: str) -> bool:
        """Whether `queue` is in its scope."""
        return "*" in self.queues or queue in self.queues


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription, bound to the credential that made it and to a queue.

    Attributes:
        size: how many open events its window holds.
        has_gap: whether events were dropped that it never got.
    """

    id: str
    credential: str
    queue: str
    is_enabled: bool
    has_gap: bool
    budget: int
    size: int
    next_sequence: int
    first_generation: int


@dataclass(frozen=True, slots=True, repr=False)
class DeliveryRow:
    """One event on its way to one subscription.

    Attributes:
        number: order in which events came, over all subscriptions.
        snapshot: of the task, the octets that were published.
        holder: session that had the last hand-out.
    """

    number: int
    event_id: str
    subscription: str
    type: str
    sequence: int
    occurred_at: str
    task_id: str
    snapshot: bytes
    standing: Standing
    holder: str | None = None

    def __repr__(self) -> str:
        return f"<DeliveryRow {self.number} {self.standing.state} generation {self.standing.generation}>"


class Store:
    """The server's tables. Every method is a few statements; nothing here decides anything.

    It is called on the event loop: with WAL and synchronous=NORMAL a commit is a write to the page cache and no sync of
    the disk ("WAL mode is always consistent with synchronous=NORMAL, but WAL mode does lose durability": a commit may
    be undone by a power loss, never by the end of the process). That is what a SIGKILL asks for, in tens of
    microseconds.

    Args:
        file: that it keeps; None keeps everything in memory.

    Raises:
        ConfigurationError: another server uses the file, or it is none of ours.
        OSError: it cannot be opened.
    """

    def __init__(self, file: Path | None) -> None:
        if file is not None and not file.parent.is_dir():
            raise ConfigurationError(f"{file}: the folder is not there")
        self._raw = sqlite3.connect(":memory:" if file is None else file, timeout=0.5, isolation_level=None)
        try:
            # One server at a time: what one hands out, another one's connections would not be told of.
            self._raw.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._raw.execute("PRAGMA journal_mode = WAL")
            self._raw.execute("PRAGMA synchronous = NORMAL")
            self._raw.execute("PRAGMA foreign_keys = ON")
            with self.transaction():
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._raw.execute(statement)
                self._raw.execute("INSERT OR IGNORE INTO clock VALUES (1, 0)")
        except sqlite3.Error as error:
            self._raw.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            why = "another server uses it" if busy else "it cannot be used as the server's SQLite file"
            raise ConfigurationError(f"{file}: {why} (SQLite error {code})") from error

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing of it."""
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._raw.execute("ROLLBACK")
            raise
        self._raw.execute("COMMIT")

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._raw.execute(sql, values).fetchall()

    def _run(self, sql: str, *values: object) -> int:
        return self._raw.execute(sql, values).rowcount

    # ------------------------------------------------------------ the clock
    def ahead(self) -> float:
        """Seconds by which the server's clock was turned."""
        return float(self._rows("SELECT ahead FROM clock")[0][0])

    def turn(self, seconds: float) -> None:
        """Turn it by so many more."""
        self._run("UPDATE clock SET ahead = ahead + ?", seconds)

    # ------------------------------------------------------------ credentials
    def add_credential(self, row: CredentialRow, digest: bytes) -> bool:
        """Add one; False where the name is taken."""
        sql = "INSERT OR IGNORE INTO credential VALUES (?, ?, ?, ?, 0)"
        return self._run(sql, row.name, digest, json.dumps(row.queues), row.is_operator) == 1

    def credential_by(self, column: str, value: object) -> CredentialRow | None:
        """The one with that `name` or `digest`."""
        sql = f"SELECT name, queues, is_operator, is_revoked FROM credential WHERE {column} = ?"  # noqa: S608 - ours
        for name, queues, is_operator, is_revoked in self._rows(sql, value):
            return CredentialRow(name, tuple(json.loads(queues)), bool(is_operator), bool(is_revoked))
        return None

    def change_credential(self, name: str, *, queues: tuple[str, ...] | None = None, is_revoked: bool = False) -> None:
        """Give it other queues, or take it back for good."""
        if queues is not None:
            self._run("UPDATE credential SET queues = ? WHERE name = ?", json.dumps(queues), name)
        if is_revoked:
            self._run("UPDATE credential SET is_revoked = 1 WHERE name = ?", name)

    def replace_digest(self, name: str, digest: bytes) -> None:
        """Give it another bearer."""
        self._run("UPDATE credential SET digest = ?, is_revoked = 0 WHERE name = ?", digest, name)

    # ------------------------------------------------------------ subscriptions
    def add_subscription(self, row: SubscriptionRow) -> None:
        """Add one."""
        self._run(
            "INSERT INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(row.id, row.credential, row.queue, row.is_enabled, row.has_gap, row.budget, row.size),
            *(str(row.next_sequence), str(row.first_generation)),
        )

    def subscription(self, subscription_id: str) -> SubscriptionRow | None:
        """The one with that id."""
        return next(iter(self._subscriptions("id", subscription_id)), None)

    def subscriptions_of(self, queue: str) -> list[SubscriptionRow]:
        """Those of a queue, in the order of their ids."""
        return self._subscriptions("queue", queue)

    def subscriptions_by(self, credential: str) -> list[SubscriptionRow]:
        """Those that a credential made."""
        return self._subscriptions("credential", credential)

    def _subscriptions(self, column: str, value: str) -> list[SubscriptionRow]:
        rows = self._rows(f"SELECT * FROM subscription WHERE {column} = ? ORDER BY id", value)  # noqa: S608 - ours
        return [
            SubscriptionRow(
                *(row_id, credential, queue, bool(enabled), bool(gap), budget, size, int(sequence), int(generation))
            )
            for row_id, credential, queue, enabled, gap, budget, size, sequence, generation in rows
        ]

    def enable(self, subscription_id: str, *, is_enabled: bool) -> None:
        """Pause a subscription or let it go on."""
        self._run("UPDATE subscription SET is_enabled = ? WHERE id = ?", is_enabled, subscription_id)

    def note_gap(self, subscription_id: str) -> None:
        """Note for good that it missed events."""
        self._run("UPDATE subscription SET has_gap = 1 WHERE id = ?", subscription_id)

    def move_sequence(self, subscription_id: str, next_sequence: int) -> None:
        """The number of its next event."""
        self._run("UPDATE subscription SET next_sequence = ? WHERE id = ?", str(next_sequence), subscription_id)

    # ------------------------------------------------------------ deliveries
    def add_delivery(self, row: DeliveryRow) -> None:
        """Add one; its number is given here."""
        places = ", ".join("?" * 14)
        self._run(
            f"INSERT INTO delivery ({_DELIVERY}) VALUES (NULL, {places})",  # noqa: S608 - ours
            *(row.event_id, row.subscription, row.type, str(row.sequence), row.occurred_at, row.task_id, row.snapshot),
            *(row.holder, *_values(row.standing)),
        )

    def change_standing(self, number: int, standing: Standing) -> None:
        """Write how a delivery stands."""
        columns = ", ".join(f"{column} = ?" for column in _STANDING.split(", "))
        self._run(f"UPDATE delivery SET {columns} WHERE number = ?", *_values(standing), number)  # noqa: S608 - ours

    def note_hand_out(self, delivery_id: str, generation: int, number: int, digest: bytes, holder: str) -> None:
        """Note one for good: its id, generation, the digest of its secret, and who has it."""
        self._run("INSERT INTO hand_out VALUES (?, ?, ?, ?)", delivery_id, str(generation), number, digest)
        self._run("UPDATE delivery SET holder = ? WHERE number = ?", holder, number)

    def hand_outs(self, delivery_id: str) -> dict[int, tuple[int, bytes]]:
        """Those with that id, by generation: the delivery's number, and the digest of the secret."""
        rows = self._rows("SELECT generation, number, digest FROM hand_out WHERE id = ?", delivery_id)
        return {int(generation): (number, digest) for generation, number, digest in rows}

    def last_id(self, number: int) -> str | None:
        """An id that hand-outs of a delivery had; None before the first."""
        rows = self._rows("SELECT id FROM hand_out WHERE number = ? LIMIT 1", number)
        return str(rows[0][0]) if rows else None

    def claimable(self, subscription: SubscriptionRow, room: int, now: float) -> list[tuple[int, Standing]]:
        """What of the window a claim may change, by its numbers, the oldest first.

        That is what was leased and ran out, and the oldest of what is due.

        Args:
            subscription: whose; its window is its oldest open deliveries, `size` of them.
            room: how many of those that are due are wanted at most.
            now: the time.
        """
        values = {"id": subscription.id, "size": subscription.size, "room": room, "now": now}
        rows = self._raw.execute(_CLAIMABLE, values | {"last": str(LAST_GENERATION)})
        return [(number, _standing(*standing)) for number, *standing in rows]

    def next_time(self, subscription_id: str, now: float) -> float | None:
        """When after `now` the first lease ends or the first back-off; None where neither runs."""
        ((moment,),) = self._raw.execute(_NEXT_TIME, {"id": subscription_id, "now": now})
        return None if moment is None else float(moment)

    def delivery(self, column: str, value: str | int) -> DeliveryRow | None:
        """The one with that `number` or `event_id`."""
        return next(iter(self._deliveries(f"{column} = ?", value)), None)

    def deliveries(self, subscription: str, state: State | None = None) -> list[DeliveryRow]:
        """All of a subscription, or those in a state, oldest event first."""
        if state is None:
            return self._deliveries("subscription = ? ORDER BY number", subscription)
        return self._deliveries("subscription = ? AND state = ? ORDER BY number", subscription, state)

    def counts(self, subscription: str) -> dict[State, int]:
        """How many of a subscription are in each state."""
        rows = self._rows("SELECT state, COUNT(*) FROM delivery WHERE subscription = ? GROUP BY state", subscription)
        return dict.fromkeys(State, 0) | {State(state): count for state, count in rows}

    def held(self, holder: str, now: float) -> tuple[int, float | None]:
        """How many leases of a session run, and when the first of them ends."""
        sql = "SELECT COUNT(*), MIN(lease_ends) FROM delivery WHERE holder = ? AND state = 'leased' AND lease_ends > ?"
        ((count, first_end),) = self._rows(sql, holder, now)
        return count, first_end

    def drop_beyond_window(self, subscription: SubscriptionRow) -> int:
        """Drop what was published and is not in the window yet; how many events."""
        sql = (
            "DELETE FROM delivery WHERE number IN (SELECT number FROM delivery WHERE subscription = ? "
            "AND state <> 'acknowledged' ORDER BY number LIMIT -1 OFFSET ?)"
        )
        return self._run(sql, subscription.id, subscription.size)

    def _deliveries(self, condition: str, *values: object) -> list[DeliveryRow]:
        sql = f"SELECT {_DELIVERY} FROM delivery WHERE {condition}"  # noqa: S608 - conditions are ours, values are bound
        return [_delivery(*row) for row in self._rows(sql, *values)]


def _values(standing: Standing) -> tuple[object, ...]:
    """In the order of `_STANDING`."""
    return (
        *(standing.budget, standing.state, str(standing.generation)),
        *(standing.spent, standing.due_at, standing.lease_ends),
    )


def _standing(budget: int, state: str, generation: str, *rest: Any) -> Standing:
    spent, due_at, lease_ends = rest
    return Standing(budget, State(state), int(generation), spent, due_at, lease_ends)


def _delivery(number: int, *values: Any) -> DeliveryRow:
    event_id, subscription, kind, sequence, occurred_at, task_id, snapshot, holder, *standing = values
    return DeliveryRow(
        *(number, event_id, subscription, kind, int(sequence), occurred_at, task_id, snapshot),
        *(_standing(*standing), holder),
    )
