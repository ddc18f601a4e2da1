"""One database, one subscription of a platform in a process of its own, and events whose effects are counted."""

import asyncio
import json
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from inbox.adapters.mysql.schema import apply
from inbox.tables import define_tables
from inbox.testing.crash import CrashWorker
from tests.crash import app, orbit_app
from tests.crash.orbit_process import OrbitProcess
from tests.pairs import Pair

#: What is published for each crash point: each kind leads through other commands.
KINDS = ["apply"] * 6 + ["flaky", "reject", "lose_connection", "lose_often", "lose_commit"]


@dataclass
class OrbitWorld:
    """What was published, and what became of it."""

    pair: Pair
    platform: OrbitProcess
    queue: str
    subscription: str
    published: dict[str, str] = field(default_factory=dict)
    workers: list[CrashWorker] = field(default_factory=list)

    def worker(self, *more: object, **options: Any) -> CrashWorker:
        where = (self.pair.database_url, self.platform.url, self.subscription, self.platform.credential)
        worker = CrashWorker(orbit_app.make, (*where, *more), **options)
        worker.start()
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """Kill what is left: who is stopped heeds nothing else, and would be waited for without end."""
        for worker in self.workers:
            worker.kill()

    async def publish(self, kinds: list[str] = KINDS) -> list[str]:
        """One event of each kind, by their ids."""
        made = []
        for kind in kinds:
            snapshot = json.dumps({"task_id": secrets.token_hex(16), "status": "succeeded", "fault": kind})
            event_id = await asyncio.to_thread(self.platform.publish, self.queue, snapshot.encode())
            self.published[event_id] = kind
            made.append(event_id)
        return made

    async def wait_for(self, condition: Callable[[], bool], *, patience: float = 60, ends_leases: bool = False) -> None:
        """Return when `condition` holds; where that is said, leases end meanwhile."""
        async with asyncio.timeout(patience):
            while not await asyncio.to_thread(condition):
                if ends_leases:
                    await asyncio.to_thread(self.platform.end_leases)
                    await asyncio.sleep(0.2)
                await asyncio.sleep(0.02)

    def is_done(self) -> bool:
        """Whether the platform has every event acknowledged."""
        return self.platform.states(self.subscription) == {"acknowledged": len(self.published)}

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT COUNT(*) FROM {table}")[0][0])  # noqa: S608 - a name of ours

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        with closing(app.connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def runs(self, event_id: str) -> int:
        """How often its handler was begun, commits or not."""
        found = [n for id_, n in self.query("SELECT event_id, n FROM run") if id_ == event_id.encode()]
        return found[0] if found else 0

    def judge(self) -> None:
        """One effect, one row, one balance for each event; rejects in quarantine; the platform waits for nothing."""
        applied = sorted(id_.encode() for id_, kind in self.published.items() if kind != "reject")
        rejected = sorted(id_.encode() for id_, kind in self.published.items() if kind == "reject")
        assert sorted(id_ for (id_,) in self.query("SELECT event_id FROM effect")) == applied, "effects = events"
        assert sorted(id_ for (id_,) in self.query("SELECT event_id FROM inbox")) == applied, "one inbox row each"
        assert self.query("SELECT SUM(balance) FROM account")[0][0] == len(applied)
        quarantined = self.query("SELECT event_id FROM inbox_quarantine")
        assert sorted(id_ for (id_,) in quarantined) == rejected, "one quarantine row each"
        assert self.is_done(), "the platform waits for no acknowledgement"
        left = self.query("SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL")
        assert not left, "no start is left open"


async def make_orbit_world(pair: Pair, platform: OrbitProcess) -> OrbitWorld:
    """Tables in this test's database, and a subscription of its own."""
    engine = create_async_engine(pair.database_url)
    try:
        await apply(engine, define_tables(MetaData()))
    finally:
        await engine.dispose()
    queue = f"q{secrets.token_hex(8)}"
    world = OrbitWorld(pair, platform, queue, await asyncio.to_thread(platform.subscribe, queue))
    with closing(app.connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in app.TABLES:
            cursor.execute(statement)
    return world
