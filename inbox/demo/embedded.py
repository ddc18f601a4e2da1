"""The demo in a folder of its own: SQLite as database and as queue. Needs the extra `embedded`."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine

from inbox.adapters.embedded import SQLite, SQLitePublisher, SQLiteQueue, SQLiteQueueSettings
from inbox.demo.fetcher import make_fetcher_inbox
from inbox.demo.ledger import Ledger, make_inbox
from inbox.demo.stage import EXCHANGE, all_of, enlist
from inbox.tables import TableNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.app import Inbox
    from inbox.demo.board import Board
    from inbox.demo.script import Sending

__all__ = ["EmbeddedStage", "make", "make_verifying"]

#: Seconds until what a killed worker had in hand comes again: short, for that is what the demo waits for.
_QUEUE: Final = SQLiteQueueSettings(lease=0.6)


class EmbeddedStage:
    """`inbox.demo.stage.Stage` over files, which `close` removes with their folder.

    Args:
        key: that the events are signed with, where the workers are to verify them.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="inbox-demo-"))
        self._publisher: SQLitePublisher | None = None
        self.ledger = Ledger()
        self.tables = TableNames()
        self.exchange = EXCHANGE
        self.factory = make if key is None else make_verifying
        self.arguments: tuple[object, ...] = (str(self._folder),) if key is None else (str(self._folder), key)

    def describe(self) -> str:
        """See `Stage.describe`."""
        return f"SQLite {sqlite3.sqlite_version}, database and queue in {self._folder}"

    async def open(self) -> None:
        """See `Stage.open`."""
        await asyncio.to_thread(self._make_tables)
        self._publisher = await SQLitePublisher(_queue_file(self._folder), _QUEUE).__aenter__()

    async def close(self) -> list[str]:
        """See `Stage.close`."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.__aexit__(None, None, None)
        with suppress(FileNotFoundError):
            try:
                shutil.rmtree(self._folder)
            except OSError as error:
                return [f"the folder {self._folder} could not be removed ({type(error).__name__})"]
        return []

    async def publish(self, sendings: Sequence[Sending]) -> None:
        """See `Stage.publish`. All of them share a transaction."""
        assert self._publisher is not None  # noqa: S101 - open
        await all_of([_publish(self._publisher, sending) for sending in sendings])

    async def left(self) -> int:
        """See `Stage.left`. Exact at any time."""
        return (await SQLiteQueue(_queue_file(self._folder), _QUEUE).depth()).total

    async def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """See `Stage.rows`."""
        return await asyncio.to_thread(self._read, sql)

    def _read(self, sql: str) -> Sequence[tuple[Any, ...]]:
        file = _database_file(self._folder)
        with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as raw:
            raw.execute("ATTACH ? AS beside", (f"{file}-inbox",))
            return raw.execute(sql).fetchall()

    def _make_tables(self) -> None:
        engine = create_engine(f"sqlite:///{_database_file(self._folder)}")
        try:
            with engine.begin() as connection:
                self.ledger.metadata.create_all(connection)
                connection.execute(self.ledger.opening())
        finally:
            engine.dispose()


async def _publish(publisher: SQLitePublisher, sending: Sending) -> None:
    encoded = sending.encoded()
    await publisher.publish(
        encoded.body,
        exchange=sending.sender.exchange,
        routing_key=sending.job.routing_key,
        headers=encoded.headers,
        content_type=encoded.content_type,
    )


def _database_file(folder: Path) -> Path:
    return folder / "business.db"


def _queue_file(folder: Path) -> Path:
    return folder / "queue.db"


def make(folder: str, board: Board, place: int) -> Inbox:
    """A worker's Inbox. Called in the worker's process."""
    here = Path(folder)
    inbox = make_inbox(Ledger(), SQLite(_database_file(here)), SQLiteQueue(_queue_file(here), _QUEUE))
    return enlist(inbox, board, place)


def make_verifying(folder: str, key: bytes, board: Board, place: int) -> Inbox:
    """The same for a worker that verifies what it gets."""
    here = Path(folder)
    store, queue = SQLite(_database_file(here)), SQLiteQueue(_queue_file(here), _QUEUE)
    return enlist(make_fetcher_inbox(Ledger(), store, queue, key=key, exchange=EXCHANGE), board, place)
