"""The application that is killed, over files: handlers that lead through every command of the lifecycle."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Contended, Reject

CONSUMER = "ledger"

TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE effect (event_id TEXT NOT NULL);
CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE debt (account INTEGER REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO account VALUES (0, 0);
"""

#: Runs that meet contention. Of up to three deliveries of one event, each to a worker of its own, at least one meets
#: more than are repeated in place, and is released.
LOST = 4

SETTINGS = ConsumerSettings(
    concurrency=4,
    deadline=20,
    shutdown_patience=10,
    retry=RetryPolicy(max_attempts=6, delays=(0.05, 0.1), first_delay=0.02, max_delay=0.1, immediate=1),
)


class Ledger:
    """Handlers by what happens to them the first time."""

    def __init__(self, folder: Path) -> None:
        self._facts = folder / "facts.db"

    def count_run(self, event: Event) -> int:
        """Outside every unit of work: a fact that a rollback must not take back."""
        with closing(sqlite3.connect(self._facts, timeout=10, isolation_level=None)) as raw:
            raw.execute("INSERT INTO run VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1", (event.id,))
            return int(raw.execute("SELECT n FROM run WHERE id = ?", (event.id,)).fetchone()[0])

    async def apply(self, event: Event, session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id})
        await session.execute(text("UPDATE account SET balance = balance + 1"))

    async def flaky(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.count_run(event) == 1:
            raise LookupError("the first time always fails")

    async def reject(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        raise Reject("never wanted")

    async def lose_often(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.count_run(event) <= LOST:
            raise Contended("as if another one had been in the way")

    async def lose_commit(self, event: Event, session: AsyncSession) -> None:
        """What it owes is looked at by COMMIT itself, which fails then."""
        await self.apply(event, session)
        if self.count_run(event) == 1:
            await session.execute(text("INSERT INTO debt VALUES (4711)"))


def make(folder: str) -> Inbox:
    place = Path(folder)
    inbox = Inbox(
        CONSUMER,
        store=SQLite(place / "shop.db"),
        transport=SQLiteQueue(place / "events.db", SQLiteQueueSettings(lease=0.5)),
        settings=SETTINGS,
    )
    ledger = Ledger(place)
    for kind in ("apply", "flaky", "reject", "lose_often", "lose_commit"):
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
