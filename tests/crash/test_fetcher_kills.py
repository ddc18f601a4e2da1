"""SIGKILL before and after every command, with the Fetcher example: signed events, stored results, and forgeries."""

import asyncio
import json
import random
import time
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import aio_pika
import pytest

from examples.fetcher_billing import models
from examples.fetcher_billing.app import price
from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.core.crashpoints import CrashPoint
from inbox.demo.forgeries import FORGERIES, Forger
from inbox.demo.jobs import Job, Sender, json_body, make_job
from tests.crash import app, fetcher_app
from tests.crash.reached import ONE, note
from tests.crash.test_kill_points import POINTS
from tests.crash.world import World
from tests.pairs import Pair
from tests.unit.fetcher_results import mac, sealed

TENANT = "single-tenant"
KEY = bytes(range(32))
#: Each leads through other commands; `failed` is a job that failed.
KINDS = ["apply"] * 4 + ["failed", "flaky", "reject", "lose_connection", "lose_often", "lose_commit"]


@dataclass
class FetcherWorld(World):
    """One database, one queue, one folder of results, and signed jobs whose charges are counted."""

    folder: Path = Path()
    rows: dict[str, int] = field(default_factory=dict)
    forged: dict[str, str] = field(default_factory=dict)
    _draw: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 - test data
    _numbers: int = 0

    async def publish(self, label: str, kinds: list[str] = KINDS, copies: int = 2) -> None:
        """Publish a job of each kind, each `copies` times, and before them forgeries, two of them under their ids."""
        jobs = [self._make(kind) for kind in kinds]
        async with Publisher(self.pair.amqp_url) as publisher:
            for forgery, job in zip(FORGERIES[:4], jobs, strict=False):
                other = self._make("apply", counts=False)
                forger = Forger(self.exchange, TENANT, KEY, forgery=forgery, victim=job if forgery.borrows else None)
                self.forged[job.event_id if forgery.borrows else other.event_id] = forgery.verdict
                await self._send(publisher, forger, other, self.exchange, other.routing_key)
            for _ in range(copies):
                for job in jobs:
                    await self._send(publisher, self._sender, job, self.exchange, job.routing_key)

    async def wait_copies_back(self, patience: float = 60) -> None:
        """See `World.wait_copies_back`. What is put behind the copies shows another route than it is signed for."""
        await self.wait_drained(patience)
        async with Publisher(self.pair.amqp_url) as publisher:
            for name in self.retry_queues:
                await self._send(publisher, self._sender, self._make("apply"), "", name)
        await self.wait_drained(patience)

    @property
    def _sender(self) -> Sender:
        return Sender(self.exchange, TENANT, KEY)

    async def _send(self, publisher: Publisher, sender: Sender, job: Job, exchange: str, routing_key: str) -> None:
        encoded = sender.encoded(job, time.time())
        await publisher.publish(
            encoded.body,
            exchange=exchange,
            routing_key=routing_key,
            headers=encoded.headers,
            content_type=encoded.content_type,
        )

    def _make(self, kind: str, *, counts: bool = True) -> Job:
        """A job of that kind, and its result in the folder."""
        self._numbers += 1
        status, rows = ("failed", 0) if kind == "failed" else ("completed", self._numbers % 3)
        made = make_job(
            self._numbers, "failed" if status == "failed" else "completed", KEY, self._draw, {"fault": kind}
        )
        if status == "completed":
            plaintext = json.dumps({"db": {"public.t": [{"n": n} for n in range(rows)]}}, indent=2).encode()
            body = json.loads(made.body)
            body["result"] |= {"sizeBytes": len(plaintext), "rowCount": rows, "hmac": mac(plaintext, KEY)}
            body["result"]["integrity"]["signature"] = mac(plaintext, KEY)
            path = self.folder / body["result"]["path"]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(sealed(plaintext, KEY))
            made = Job(made.id, made.status, json_body(body))
        if counts:
            self.published.append((made.event_id, kind))
            self.rows[made.event_id] = rows
        return made

    def _ids(self, *, rejected: bool) -> list[str]:
        return sorted(event_id for event_id, kind in self.published if (kind == "reject") is rejected)

    def _refused(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for event_id, reason in self.query("SELECT event_id, reason FROM inbox_quarantine"):
            found.setdefault(event_id.decode(), set()).add(reason)
        return found

    def _due(self) -> dict[str, set[str]]:
        due = {event_id: {"rejected"} for event_id in self._ids(rejected=True)}
        for event_id, verdict in self.forged.items():
            due[event_id] = due.get(event_id, set()) | {verdict}
        return due

    def _all_ended(self) -> bool:
        return self.count("inbox") >= len(self._ids(rejected=False)) and self._refused() == self._due()

    async def judge(self) -> None:
        """One effect and one row for each genuine job; forgeries and rejects in quarantine; nothing left over."""
        applied = self._ids(rejected=False)
        assert sorted(row[0].decode() for row in self.query("SELECT event_id FROM inbox")) == applied, "one row each"
        jobs = self.query("SELECT job_id, cents FROM charge UNION ALL SELECT job_id, 0 FROM failure")
        entered = sorted(str(uuid.UUID(text_of(job_id))) for job_id, _ in jobs)
        assert entered == sorted(event_id.rpartition(".")[2] for event_id in applied), "effects = distinct jobs"
        completed = [event_id for event_id in applied if ".completed." in event_id]
        owed = sum(price(self.rows[event_id]) for event_id in completed)
        assert self.query("SELECT SUM(cents) FROM account")[0][0] == sum(cents for _, cents in jobs) == owed
        assert self._refused() == self._due()
        assert await self.left_in_queue() == 0, "ready + unacknowledged = 0"
        left = self.query("SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL")
        assert not left, "no start is left open"


def text_of(job_id: str | bytes) -> str:
    """MariaDB has a type for it, MySQL is given 32 hex digits."""
    return job_id.decode() if isinstance(job_id, bytes) else job_id


@pytest.fixture
async def world(pair: Pair, tmp_path: Path) -> FetcherWorld:
    await models.create(pair.database_url)
    with closing(app.connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(next(statement for statement in app.TABLES if "TABLE run" in statement))
    queue, exchange = pair.unique("jobs"), pair.unique("fetcher")
    made = FetcherWorld(
        pair, queue, exchange, [], factory=fetcher_app.make, extra=(KEY.hex(), str(tmp_path)), folder=tmp_path
    )
    for name in (f"{queue}.dead", *made.retry_queues):
        pair.discard(name)
    async with await aio_pika.connect(pair.amqp_url) as broker:
        channel = await broker.channel()
        await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC, durable=True)
    return made


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_the_example_is_killed(world: FetcherWorld, point: CrashPoint) -> None:
    victim = world.worker(crash=point)
    await asyncio.to_thread(victim.wait_ready)
    await world.publish("one")
    await asyncio.to_thread(victim.wait_killed)
    note(ONE, [victim])
    assert victim.reached == [str(point)], "the point was really reached"
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await world.wait_copies_back()
    assert await asyncio.to_thread(survivor.stop) == 0
    await world.judge()
