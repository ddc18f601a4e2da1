"""Files, or a queue in a file beside a server's database; and events whose effects are counted."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from inbox.adapters.embedded import SQLitePublisher, SQLiteQueue
from inbox.testing.crash import CrashWorker
from tests.crash import embedded_app as app

KINDS = ["apply"] * 6 + ["flaky", "reject", "lose_often", "lose_commit"]


class Files:
    """A database, a queue, and events whose effects are counted."""

    kinds: Sequence[str] = KINDS

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published: dict[str, str] = {}
        self._run("shop.db", app.TABLES)
        self._run("facts.db", "CREATE TABLE run (id TEXT PRIMARY KEY, n INTEGER NOT NULL)")

    def _run(self, name: str, script: str) -> None:
        with closing(sqlite3.connect(self.folder / name)) as raw:
            raw.executescript(script)

    def worker(self, **options: Any) -> CrashWorker:
        worker = CrashWorker(app.make, (str(self.folder),), **options)
        worker.start()
        return worker

    async def publish(self, copies: int = 2) -> None:
        """Each kind, and each of them `copies` times under one id."""
        self.published = {f"event-{number}": kind for number, kind in enumerate(self.kinds)}
        headers = [
            {"ce-id": id_, "ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"}
            for id_, kind in self.published.items()
        ]
        async with SQLitePublisher(self.folder / "events.db") as publisher:
            await publisher.publish_many([(b"{}", each) for each in headers * copies], content_type="application/json")

    async def recover(self) -> None:
        """Let a worker that lives finish, and judge."""
        survivor = self.worker()
        await asyncio.to_thread(survivor.wait_ready)
        queue = SQLiteQueue(self.folder / "events.db")
        async with asyncio.timeout(60):
            while (await queue.depth()).total:
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(survivor.stop) == 0
        self.judge()

    def judge(self) -> None:
        """One effect, one row, one balance for each distinct event; rejects in quarantine; nothing left over."""
        applied = sorted(id_ for id_, kind in self.published.items() if kind != "reject")
        rejected = sorted(id_ for id_, kind in self.published.items() if kind == "reject")
        assert self.ids("effect") == applied, "effects = events"
        assert self.ids("inbox") == applied, "one row each"
        assert self.query("SELECT SUM(balance) FROM account")[0][0] == len(applied)
        assert self.ids("inbox_quarantine") == rejected, "one quarantine row each"
        left = self.query("SELECT attempt_key, open_alone, history FROM inbox_attempt WHERE open_since IS NOT NULL")
        assert not left, f"no start is left open: {left}"

    def ids(self, table: str) -> list[str]:
        """Of the events that it has rows for; bytes or text, as the store keeps them."""
        found = [id_ for (id_,) in self.query(f"SELECT event_id FROM {table}")]  # noqa: S608 - a name of ours
        return sorted(id_.decode() if isinstance(id_, bytes) else id_ for id_ in found)

    def query(self, sql: str) -> list[Any]:
        return self.query_file(sql)

    def query_file(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as raw:
            raw.execute("ATTACH ? AS beside", (str(self.folder / "shop.db-inbox"),))
            return raw.execute(sql).fetchall()
