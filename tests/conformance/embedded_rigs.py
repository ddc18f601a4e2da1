"""Rigs over files: a database and a queue of the test's own."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.embedded import SQLite, SQLitePublisher, SQLiteQueue, SQLiteQueueSettings, SQLiteStore, clock
from inbox.config import DatabaseSettings
from inbox.core.kept import stored_delivery
from inbox.core.quarantine import QuarantineState
from inbox.testing.conformance.store import Quarantined

_QUARANTINED = (
    "SELECT reason, detail, event_id, attempts, times_seen, headers, body "
    "FROM inbox_quarantine WHERE consumer_name = ? ORDER BY first_at"
)
_TIMES = {
    "inbox": ("processed_at",),
    "inbox_attempt": ("first_at", "last_at", "open_since"),
    "inbox_quarantine": ("first_at", "last_at", "state_at"),
    "inbox_worker": ("started_at", "seen_at"),
}


class SQLiteRig:
    """See `inbox.testing.conformance.store.StoreRig`; the questions go past the code under test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        with closing(self.connect()) as raw:
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute("CREATE TABLE effects (n INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT)")

    async def create(self) -> None:
        """What a first start does."""
        store = self.store()
        await store.open()
        await store.close()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def store(self, consumer: str = "billing", **settings: Any) -> SQLiteStore:
        own = {"concurrency": 4, "deadline": 10.0}
        own |= {name: settings.pop(name) for name in own if name in settings}
        made = SQLite(self.path, DatabaseSettings(**{"lock_wait": 1, **settings}))
        return made.for_consumer(consumer, concurrency=int(own["concurrency"]), deadline=own["deadline"])

    async def effect(self, session: AsyncSession, label: str) -> None:
        await session.execute(text("INSERT INTO effects (label) VALUES (:label)"), {"label": label})

    async def effects(self) -> list[str]:
        return [label for (label,) in self.sql("SELECT label FROM effects ORDER BY n")]

    async def keys(self, consumer: str = "billing") -> set[bytes]:
        return {key for (key,) in self.sql("SELECT event_id FROM inbox WHERE consumer_name = ?", consumer.encode())}

    async def quarantined(self, consumer: str = "billing") -> list[Quarantined]:
        rows = self.sql(_QUARANTINED, consumer.encode())
        return [Quarantined(r[0], r[1], r[2], r[3], r[4], stored_delivery(r[5], b"").headers, r[6]) for r in rows]

    async def drop_a_table(self) -> None:
        self.sql("DROP VIEW inbox_view")
        self.sql("DROP TABLE inbox")

    def sql(self, statement: str, *values: object) -> list[Any]:
        """Run one statement on a connection of its own, with both files, and return its rows."""
        with closing(self.connect()) as raw:
            raw.execute("ATTACH ? AS beside", (f"{self.path}-inbox",))
            return raw.execute(statement, values).fetchall()

    # -------------------------------------------------------------- for retention
    async def age(self, seconds: float, consumer: str = "billing") -> None:
        for table, columns in _TIMES.items():
            for column in columns:
                for (stored,) in self.sql(
                    f"SELECT DISTINCT {column} FROM {table} WHERE consumer_name = ? AND {column} IS NOT NULL",  # noqa: S608 - names of ours
                    consumer.encode(),
                ):
                    older = clock.stamp(clock.instant(stored) - timedelta(seconds=seconds))
                    self.sql(
                        f"UPDATE {table} SET {column} = ? WHERE consumer_name = ? AND {column} = ?",  # noqa: S608 - as above
                        older,
                        consumer.encode(),
                        stored,
                    )

    async def decide(self, state: QuarantineState, consumer: str = "billing") -> None:
        self.sql(
            "UPDATE inbox_quarantine SET state = ?, state_at = ? WHERE consumer_name = ?",
            state.value,
            clock.stamp(),
            consumer.encode(),
        )


class SQLiteQueueRig:
    """See `inbox.testing.conformance.transport.TransportRig`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.db"
        self._folder = folder

    def make(self) -> SQLiteQueue:
        return SQLiteQueue(self.path, SQLiteQueueSettings(lease=5.0))

    def make_unreachable(self) -> SQLiteQueue:
        return SQLiteQueue(self._folder / "nowhere" / "events.db")

    async def publish(self, *bodies: bytes) -> None:
        async with SQLitePublisher(self.path) as publisher:
            await publisher.publish_many([(body, {}) for body in bodies])

    async def count_left(self) -> int:
        counts = await self.make().depth()
        return counts.ready + counts.in_hand

    async def cut(self) -> None:
        """No link is there to be lost: the leases end early, as those of consumers that were halted for too long."""
        await asyncio.to_thread(self._end_leases)

    def _end_leases(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as raw:
            raw.execute("UPDATE inbox_message SET lease = NULL, due_at = 0 WHERE lease IS NOT NULL")
