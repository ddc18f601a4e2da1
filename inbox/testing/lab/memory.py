"""Unit tests of handlers: the real pipeline, over one file or in memory, without servers and without processes."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from inbox.app import Inbox
from inbox.core.lifecycle import Command, Outcome
from inbox.errors import ConfigurationError
from inbox.testing.lab.database import Row
from inbox.testing.lab.events import EventLike, delivery_of
from inbox.testing.lab.workers import load_target
from inbox.testing.memory import MemoryBroker, MemoryStore, MemoryTransport

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import MetaData

    from inbox.core.delivery import Delivery
    from inbox.ports import Passage

__all__ = ["Delivered", "MemoryLab"]

Became = Literal["applied", "ignored", "duplicate", "quarantined", "delayed", "released"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one delivery.

    Attributes:
        outcome: `applied`; `ignored`, by a policy; `duplicate`; `quarantined`; `delayed`, to be tried again;
            `released`, for it could not be tried.
        reason: stable word, as in the quarantine; empty where all went well.
        detail: one sentence.
        error: what the handler raised, if it did.
        delay: seconds to the next attempt of what is delayed.
    """

    outcome: Became
    reason: str = ""
    detail: str = ""
    error: BaseException | None = None
    delay: float = 0.0

    @property
    def is_applied(self) -> bool:
        """Whether its effect is there from this delivery on."""
        return self.outcome == "applied"


class MemoryLab:
    """Delivers events to the handlers of an `Inbox`, with a database of the test's own.

        lab = MemoryLab("billing.app:inbox")
        lab.create_all(Base.metadata)
        assert (await lab.deliver(event)).outcome == "applied"
        assert (await lab.deliver(event)).outcome == "duplicate"

    Verifier, payloads, `prepare`, policy and guard are the Inbox's own; its database and queue are not touched. SQL has
    to be what SQLite takes too. Each delivery runs on the event loop of its caller, and nothing is left on it.

    Args:
        inbox: the Inbox, or `module:attribute`.
        store: `sqlite`, which needs the extra `embedded`, or `memory`, for handlers that need no SQL: they get a
            `MemorySession`.

    Raises:
        ConfigurationError: there is no such Inbox, or the extra is not installed.
    """

    def __init__(self, inbox: Inbox | str, *, store: Literal["sqlite", "memory"] = "sqlite") -> None:
        self._inbox = load_target(inbox) if isinstance(inbox, str) else inbox
        self._folder = Path(tempfile.mkdtemp(prefix="inbox-lab-"))
        self._file = self._folder / "lab.db"
        self._cleaning = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._store: Any = MemoryStore() if store == "memory" else self._sqlite()

    def _sqlite(self) -> object:
        try:
            from inbox.adapters.embedded import SQLite  # noqa: PLC0415 - needs an extra
        except ModuleNotFoundError:
            self.close()
            raise ConfigurationError(
                "the lab's database needs aiosqlite: pip install 'idempotent-inbox[embedded]'; handlers without SQL "
                'can do with MemoryLab(…, store="memory")'
            ) from None
        return SQLite(self._file)

    def close(self) -> None:
        """Delete the database. May be called twice."""
        self._cleaning()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ the database
    def create_all(self, metadata: MetaData) -> None:
        """Make the tables of `metadata` but the inbox's, in words that SQLite knows.

        Types of other servers become their nearest, a big integer that is drawn becomes an INTEGER, which is the only
        one that SQLite draws, and defaults of the server that SQLite cannot compute are left out.

        Args:
            metadata: the adopter's.
        """
        from inbox.testing.lab.tables import create_tables  # noqa: PLC0415 - only where there are tables

        self._require_sqlite()
        create_tables(self._file, metadata)

    def execute(self, sql: str, *arguments: object) -> list[Row]:
        """Run one statement on the tables, and commit it.

        Args:
            sql: with `?` for placeholders.
            arguments: for them.

        Returns:
            The rows, where it has some.
        """
        self._require_sqlite()
        with closing(sqlite3.connect(self._file, timeout=10, isolation_level=None)) as raw:
            return raw.execute(sql, arguments).fetchall()

    effects = execute

    @property
    def written(self) -> Sequence[object]:
        """What handlers wrote with `session.write`, in the order of their commits; `store="memory"` only."""
        if not isinstance(self._store, MemoryStore):
            raise ConfigurationError('what is written is in the database: lab.effects("SELECT …")')
        return tuple(self._store.effects)

    def _require_sqlite(self) -> None:
        if isinstance(self._store, MemoryStore):
            raise ConfigurationError('store="memory" has no tables: leave it out for a database')

    # ------------------------------------------------------------ deliveries
    async def deliver(self, event: EventLike, *, timeout: float = 30.0) -> Delivered:  # noqa: ASYNC109 - a bound of ours
        """Deliver `event` once, and return when it has ended, or is to be tried again later.

        Args:
            event: a CloudEvent, its JSON as a mapping or text, or a delivery, where headers and route matter.
            timeout: seconds.

        Raises:
            ConfigurationError: it is no CloudEvent.
            StartupError: the Inbox cannot start, as where a handler is missing.
            TimeoutError: it did not end in time.
            RuntimeError: no event loop of asyncio runs here, as under anyio's backend for trio.
        """
        _require_asyncio()
        delivery, ending = delivery_of(event), _Ending()
        transport = _OneDelivery(MemoryBroker(keeps_copies=True))
        given = self._inbox
        settings = replace(given.settings, report_interval=None, retention=None)
        # The Inbox runs once, and its servers are not ours: another one, with all that the handlers see.
        made = Inbox(given.name, store=self._store, transport=transport, settings=settings, verifier=given._verifier)  # noqa: SLF001 - see above
        made.registry = given.registry
        made.add_probe(ending)
        transport.publish(delivery)
        async with asyncio.timeout(timeout):
            running = asyncio.ensure_future(made.run())
            ended = asyncio.ensure_future(ending.ended.wait())
            try:
                await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                made.stop()
                await running
        return replace(ending.result, delay=transport.delayed[-1][1]) if transport.delayed else ending.result


def _require_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "deliver() needs an event loop of asyncio, on which your handlers run: with anyio's plugin for pytest "
            "let the fixture anyio_backend return 'asyncio'"
        ) from None


class _OneDelivery(MemoryTransport):
    """Keeps no copy for later: who asked has been told."""

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        self.delayed.append((delivery, seconds))


_OUTCOMES: dict[tuple[Command, Outcome], Became] = {
    (Command.COMMIT, Outcome.DONE): "applied",
    (Command.RESOLVE, Outcome.DONE): "applied",
    (Command.CLAIM, Outcome.DUPLICATE): "duplicate",
    (Command.QUARANTINE, Outcome.DONE): "quarantined",
    (Command.DELAY, Outcome.DONE): "delayed",
    (Command.RELEASE, Outcome.DONE): "released",
}


class _Ending:
    """A probe that waits for the end of the only delivery."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.result = Delivered("released", "not-run")

    def before(self, command: Command, passage: Passage) -> None:
        """Nothing to see yet."""

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Remember what it came to."""
        became = _OUTCOMES.get((command, outcome))
        if became == "applied" and passage.handler is not None and passage.handler.ignores:
            became = "ignored"
        if became is not None:
            failure = passage.failure if became not in ("applied", "ignored", "duplicate") else None
            self.result = (
                Delivered(became)
                if failure is None
                else Delivered(became, failure.reason, failure.detail, failure.error)
            )
        if command in (Command.ACKNOWLEDGE, Command.RELEASE):
            self.ended.set()
