"""The demo with handlers that break the promise, each in the place of the right ones: its verdict must be red.

    from tests.acceptance.broken_demo import main; main("doubling", "--events", "60", …)

No option of the product leads here.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pymysql
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings
from inbox.adapters.mysql import MySQL
from inbox.adapters.rabbitmq import Binding, RabbitMQ
from inbox.app import Inbox
from inbox.cli import demo as command
from inbox.cli.main import app
from inbox.core.event import Event
from inbox.demo.board import Board
from inbox.demo.jobs import COMPLETED, FAILED
from inbox.demo.ledger import CONSUMER, SETTINGS, Bookkeeping, Ledger
from inbox.demo.servers import table_names
from inbox.demo.stage import Stage, enlist

INSERT = "INSERT INTO {entry} (event_id, account, kind, cents) VALUES ({mark}, {mark}, {mark}, {mark})"


def line_of(event: Event) -> tuple[str, str, str, int]:
    kind = "completed" if event.type == COMPLETED else "failed"
    return event.id, str(event.extensions["tenantid"]), kind, 0


def doubling_files(folder: str, board: Board, place: int) -> Inbox:
    """Enters the line before the unit, and commits it through a connection of its own. A file has one writer at a time:
    within the unit that connection would wait for ever."""
    here = Path(folder)
    queue = SQLiteQueue(here / "queue.db", SQLiteQueueSettings(lease=1.0))
    inbox = Inbox(CONSUMER, store=SQLite(here / "business.db"), transport=queue, settings=SETTINGS)

    def commit(event: Event) -> None:
        with closing(sqlite3.connect(here / "business.db", timeout=20, isolation_level=None)) as own:
            own.execute(INSERT.format(entry="entry", mark="?"), line_of(event))

    async def enter(event: Event) -> None:
        await asyncio.to_thread(commit, event)

    async def nothing(event: Event, session: AsyncSession, entered: None) -> None: ...

    for kind in (COMPLETED, FAILED):
        inbox.handler(kind, prepare=enter)(nothing)
    return enlist(inbox, board, place)


def doubling_servers(database_url: str, broker_url: str, name: str, board: Board, place: int) -> Inbox:
    """Commits within the unit, but through a connection of its own: what is undone with the unit is there already."""
    url = make_url(database_url)
    bindings = [Binding(name, key, declare="topic") for key in ("job.completed", "job.failed")]
    inbox = Inbox(
        CONSUMER,
        store=MySQL(database_url, tables=table_names(name)),
        transport=RabbitMQ(broker_url, name, bindings),
        settings=SETTINGS,
    )

    own = pymysql.connect(
        host=url.host or "",
        port=url.port or 3306,
        user=url.username,
        password=str(url.password),
        database=url.database,
        autocommit=True,
    )

    async def enter(event: Event, session: AsyncSession) -> None:
        with own.cursor() as cursor:
            cursor.execute(INSERT.format(entry=f"{name}_entry", mark="%s"), line_of(event))

    for kind in (COMPLETED, FAILED):
        inbox.handler(kind)(enter)
    return enlist(inbox, board, place)


def losing_files(folder: str, board: Board, place: int) -> Inbox:
    """Leaves out the effect of one event in sixteen, and says that all went well."""
    here = Path(folder)
    queue = SQLiteQueue(here / "queue.db", SQLiteQueueSettings(lease=1.0))
    inbox = Inbox(CONSUMER, store=SQLite(here / "business.db"), transport=queue, settings=SETTINGS)
    right = Bookkeeping(Ledger())

    async def credit(event: Event, session: AsyncSession) -> None:
        if not event.id.endswith("7"):
            await right.credit(event, session)

    inbox.handler(COMPLETED)(credit)
    inbox.handler(FAILED)(right.note)
    return enlist(inbox, board, place)


FACTORIES: dict[str, Callable[..., Inbox]] = {
    "doubling-files": doubling_files,
    "doubling-servers": doubling_servers,
    "losing-files": losing_files,
}


def main(how: str, *words: str) -> None:
    """`inbox demo <words>`, with other handlers."""
    right = command._stage

    def broken(database: str | None, broker: str | None, key: bytes | None = None) -> Stage:
        stage = right(database, broker, key)
        stage.factory = FACTORIES[how]
        return stage

    command._stage = broken
    app(["demo", *words])
