"""SIGKILL before and after every command, over files: what the dead worker had in hand comes back with its lease."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inbox.adapters.embedded import SQLitePublisher, SQLiteQueue
from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash import embedded_app as app

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]
#: Where two that race for one event die of it one after the other.
RACED = [pytest.param(CrashPoint.parse(name), id=name) for name in ("after:claim", "after:commit", "after:acknowledge")]
KINDS = ["apply"] * 6 + ["flaky", "reject", "lose_often", "lose_commit"]


class Files:
    """A database, a queue, and events whose effects are counted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.published: dict[str, str] = {}
        self._run("shop.db", app.TABLES)
        self._run("facts.db", "CREATE TABLE run (id TEXT PRIMARY KEY, n INTEGER NOT NULL)")

    def _run(self, name: str, script: str) -> None:
        with closing(sqlite3.connect(self._folder / name)) as raw:
            raw.executescript(script)

    def worker(self, **options: Any) -> CrashWorker:
        worker = CrashWorker(app.make, (str(self._folder),), **options)
        worker.start()
        return worker

    async def publish(self, copies: int = 2) -> None:
        """Each kind, and each of them `copies` times under one id."""
        self.published = {f"event-{number}": kind for number, kind in enumerate(KINDS)}
        headers = [
            {"ce-id": id_, "ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"}
            for id_, kind in self.published.items()
        ]
        async with SQLitePublisher(self._folder / "events.db") as publisher:
            await publisher.publish_many([(b"{}", each) for each in headers * copies], content_type="application/json")

    async def recover(self) -> None:
        """Let a worker that lives finish, and judge."""
        survivor = self.worker()
        await asyncio.to_thread(survivor.wait_ready)
        queue = SQLiteQueue(self._folder / "events.db")
        async with asyncio.timeout(60):
            while (await queue.depth()).total:
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(survivor.stop) == 0
        self.judge()

    def judge(self) -> None:
        """One effect, one row, one balance for each distinct event; rejects in quarantine; nothing left over."""
        applied = sorted(id_ for id_, kind in self.published.items() if kind != "reject")
        rejected = sorted(id_ for id_, kind in self.published.items() if kind == "reject")
        assert sorted(id_ for (id_,) in self.query("SELECT event_id FROM effect")) == applied, "effects = events"
        assert sorted(id_.decode() for (id_,) in self.query("SELECT event_id FROM inbox")) == applied, "one row each"
        assert self.query("SELECT SUM(balance) FROM account") == [(len(applied),)]
        quarantined = self.query("SELECT event_id FROM inbox_quarantine")
        assert sorted(id_.decode() for (id_,) in quarantined) == rejected, "one quarantine row each"
        left = self.query("SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL")
        assert not left, "no start is left open"

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self._folder / "shop.db")) as raw:
            raw.execute("ATTACH ? AS beside", (str(self._folder / "shop.db-inbox"),))
            return raw.execute(sql).fetchall()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_is_killed(files: Files, point: CrashPoint) -> None:
    victim = files.worker(crash=point)
    await files.publish()
    await asyncio.to_thread(victim.wait_killed)
    assert victim.reached == [str(point)], "the point was really reached"
    await files.recover()


@pytest.mark.parametrize("point", RACED)
async def test_two_racing_workers_are_killed(files: Files, point: CrashPoint) -> None:
    victims = [files.worker(crash=point) for _ in range(2)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    await files.publish(copies=3)
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    assert [str(point)] in [victim.reached for victim in victims]
    await files.recover()


async def test_a_worker_is_killed_from_outside_again_and_again(files: Files) -> None:
    """Wherever that meets it, in the middle of a statement or of a commit as well."""
    await files.publish(copies=20)
    for effects in range(1, 7):
        victim = files.worker()
        async with asyncio.timeout(30):
            # Where it is by then is not ours to choose.
            while files.query("SELECT COUNT(*) FROM effect")[0][0] < effects:
                await asyncio.sleep(0.001)
        victim.kill()
    await files.recover()
