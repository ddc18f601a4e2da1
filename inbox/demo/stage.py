"""What the demo needs of where it runs, and what a worker process is given there."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from inbox.demo.board import Scribe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from inbox.app import Inbox
    from inbox.demo.board import Board
    from inbox.demo.ledger import Ledger
    from inbox.demo.script import Sending
    from inbox.tables import TableNames

__all__ = ["EXCHANGE", "Stage", "all_of", "enlist"]

#: As the provider calls it. Where a broker is shared, its name here is another one.
EXCHANGE = "fetcher.job.events"


class Stage(Protocol):
    """A database and a queue that are the demo's alone, made by `open` and removed by `close`.

    Attributes:
        ledger: the business's tables.
        tables: names of the inbox's tables.
        exchange: where events are published.
        factory: a module's function that makes a worker's Inbox in the worker's process.
        arguments: what it is called with, before the board and the worker's place on that; must be picklable.
    """

    ledger: Ledger
    tables: TableNames
    exchange: str
    factory: Callable[..., Inbox]
    arguments: tuple[object, ...]

    def describe(self) -> str:
        """Where it is, in a few words without secrets."""
        ...

    async def open(self) -> None:
        """Make what is the demo's own: tables, accounts with nothing on them, a publisher.

        Raises:
            InboxError, sqlalchemy.exc.DBAPIError, OSError: it cannot be had.
        """
        ...

    async def close(self) -> list[str]:
        """Remove everything that `open` and the workers made. No worker may live. After a failed `open` as well.

        Returns:
            What could not be removed, in a sentence each.
        """
        ...

    async def publish(self, sendings: Sequence[Sending]) -> None:
        """Publish all of these; each is known to be in the queue when this returns.

        Raises:
            TransportError: one of them is not known to be there.
        """
        ...

    async def left(self) -> int:
        """Messages in the queue. Exact while no worker lives.

        Raises:
            TransportError: it cannot be asked.
        """
        ...

    async def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """What a query finds in the database.

        Raises:
            sqlalchemy.exc.DBAPIError, sqlite3.Error: it cannot be asked.
        """
        ...


async def all_of(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of these at once, to the end of each, and raise the first error."""
    for error in await asyncio.gather(*works, return_exceptions=True):
        if error is not None:
            raise error


def enlist(inbox: Inbox, board: Board, place: int) -> Inbox:
    """Let a worker's Inbox count on the board and die where that says. For the process that runs it.

    A worker whose parent has died, be it by SIGKILL, ends as well: nobody else would end it.
    """
    inbox.add_probe(Scribe(board, place))
    threading.Thread(target=_end_with_parent, name="orphan", daemon=True).start()
    return inbox


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
