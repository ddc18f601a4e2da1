"""The example as an adopter has it: its tables, its worker's settings, its publisher, and what it is to hold."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import aio_pika
from sqlalchemy.ext.asyncio import create_async_engine

from examples.billing.models import Account, Base, Entry
from tests.acceptance.command import ROOT, run
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Pair

TARGET = "examples.billing.app:inbox"
KEY = "0f" * 32


@dataclass
class Billing:
    """One database, one queue and one exchange."""

    pair: Pair
    queue: str
    exchange: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "BILLING_DATABASE_URL": self.pair.database_url,
            "BILLING_AMQP_URL": self.pair.amqp_url,
            "BILLING_QUEUE": self.queue,
            "BILLING_EXCHANGE": self.exchange,
            "INBOX_DATABASE_URL": self.pair.database_url,
            "FETCHER_EXTERNAL_HMAC_KEY": KEY,
        }

    async def create_tables(self) -> None:
        """The inbox's by its own command, the business's by SQLAlchemy."""
        applied = await run("schema", "apply", env=self.env)
        assert (applied.code, applied.err) == (0, "")
        engine = create_async_engine(self.pair.database_url)
        async with engine.begin() as connection:
            ours = [Account.metadata.tables[model.__tablename__] for model in (Account, Entry)]
            await connection.run_sync(Base.metadata.create_all, tables=ours)
        await engine.dispose()

    async def publish(self, **options: object) -> dict[str, Any]:
        """Run the publisher with `options`; what it says that it published."""
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "examples.billing.publisher", *words,
            cwd=ROOT, env=os.environ | self.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await program.communicate()
        assert program.returncode == 0, errors.decode()
        summary: dict[str, Any] = json.loads(output)
        return summary

    def query(self, sql: str) -> Sequence[tuple[Any, ...]]:
        with closing(connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT COUNT(*) FROM {table}")[0][0])  # noqa: S608 - a name of ours

    async def wait_entered(self, number: int) -> None:
        """Return when so many entries are in the ledger and nothing waits in the queue."""

        async def have() -> bool:
            return self.count("entry") >= number and await self.ready() == 0

        await wait_until(have)

    async def ready(self) -> int:
        """Ready messages by the broker's count; with no consumer left, unacknowledged ones are among them."""
        async with await aio_pika.connect(self.pair.amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(self.queue, passive=True)
            return queue.declaration_result.message_count or 0

    async def judge(self, *summaries: dict[str, Any]) -> None:
        """Effects = distinct jobs, one inbox row each, the account adds up, nothing is left over or quarantined."""
        events = {event for summary in summaries for kind in ("completed", "failed") for event in summary[kind]}
        jobs = {uuid.UUID(event.rpartition(".")[2]) for event in events}
        entered = [uuid.UUID(bytes_or_hex(row[0])) for row in self.query("SELECT job_id FROM entry")]
        assert sorted(entered) == sorted(jobs), "effects = distinct jobs"
        known = [row[0].decode() for row in self.query("SELECT event_id FROM inbox")]
        assert sorted(known) == sorted(events), "one inbox row each"
        ((owed,),) = self.query("SELECT SUM(cents) FROM account")
        ((entries,),) = self.query("SELECT SUM(cents) FROM entry")
        assert owed == entries
        assert await self.ready() == 0
        assert self.count("inbox_quarantine") == 0


def bytes_or_hex(value: object) -> str:
    """MariaDB has a UUID type, MySQL takes 32 hex digits."""
    return value.decode() if isinstance(value, bytes) else str(value)
