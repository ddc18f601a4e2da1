"""A queue in a SQLite file as a transport: durable, at least once, for any number of processes of one machine."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from inbox.adapters.embedded import messages, wakeups
from inbox.adapters.embedded.connection import FileConnection, require_sqlite
from inbox.adapters.embedded.file import in_transaction
from inbox.adapters.embedded.messages import Batch, Counts, Message, Receipt
from inbox.adapters.embedded.store import file_of
from inbox.adapters.embedded.turns import patiently
from inbox.config import EnvironmentSettings, require
from inbox.core.depths import QueueDepth
from inbox.core.facts import fact
from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import URL

    from inbox.core.delivery import Delivery
    from inbox.ports import Sink

__all__ = ["SQLiteQueue", "SQLiteQueueSettings", "opened"]

_log = logging.getLogger(__name__)

#: Seconds between two looks at a file in which nothing happens, at first and later.
_SHORTEST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05
#: Seconds for which settlements and small rooms wait for company while there is something in hand: each transaction is
#: one more sync of the disk.
_LINGER: Final = 0.01
#: Seconds between two tries to open a file again.
_LONGEST_RETRY: Final = 5.0


@dataclass(frozen=True, slots=True)
class SQLiteQueueSettings(EnvironmentSettings):
    """How a queue is consumed.

    Attributes:
        lease: seconds after which what a dead consumer had in hand is handed out again. A consumer that lives renews
            its leases three times in that time; one whose event loop is blocked for longer loses them. Longer than a
            busy machine keeps a process waiting, and as short as its events can wait after a kill.
        busy_wait: seconds to wait until other processes let one write; far longer than any of theirs takes.
        patience: seconds that a run goes on looking for a file that cannot be used; None never ends, for a worker that
            waits loses nothing.
    """

    environment_area: ClassVar[str] = "SQLITE_QUEUE_"

    lease: float = 10.0
    busy_wait: float = 10.0
    patience: float | None = None

    def __post_init__(self) -> None:
        for name in ("lease", "busy_wait", "patience"):
            given = getattr(self, name)
            is_seconds = isinstance(given, int | float) and 0 < given < 86_400 * 365
            require(is_seconds or (name == "patience" and given is None), f"{name} must be more than 0 seconds")


class SQLiteQueue:
    """Deliveries from a queue that is a SQLite file: `inbox.ports.Transport`.

    ```python
    Inbox(..., store=SQLite("shop.db"), transport=SQLiteQueue("events.db"))
    ```

    One file is one queue, made where it is not there; `SQLitePublisher` fills it. Every message has one consumer at a
    time, and comes again when that has died and its lease has ended. Nothing is routed: exchange and routing key are
    noted as where a message came from.

    Args:
        path: of the file, on a disk of this machine.
        settings: lease, times.
        name: what deliveries call the queue; None takes the file's name without its suffix.

    Raises:
        ConfigurationError: the path names no file; this Python's SQLite is too old.
    """

    def __init__(
        self, path: str | Path | URL, settings: SQLiteQueueSettings | None = None, *, name: str | None = None
    ) -> None:
        problem = require_sqlite()
        require(problem is None, problem or "")
        self.path = file_of(path, 'SQLiteQueue("events.db")')
        self.name = name or self.path.stem
        self._settings = settings or SQLiteQueueSettings()
        self._prefetch = 0
        self._delays: tuple[float, ...] = ()
        self._sink: Sink | None = None
        self._link: _Link | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._work = asyncio.Event()
        self._failure: TransportError | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<SQLiteQueue {self.name}>"

    def describe(self) -> dict[str, str]:
        """See `inbox.ports.Transport.describe`."""
        return {"queue": f"{self.name} in {self.path}", "lease": f"{self._settings.lease:g} s"}

    @property
    def can_delay(self) -> bool:
        """See `inbox.ports.Transport.can_delay`."""
        return True

    @property
    def lease_terms(self) -> None:
        """See `inbox.ports.Transport.lease_terms`: its own leases are renewed, and end nothing."""

    async def depth(self) -> Counts:
        """How many messages there are, asked over a connection of its own.

        Raises:
            TransportError: the file cannot be read.
        """

        async def attempt() -> Counts:
            connection = await FileConnection(self.path).connected()
            try:
                return await connection.own(messages.count)
            finally:
                await connection.finish()

        try:
            return await patiently(attempt, self._settings.busy_wait)
        except (sqlite3.Error, ValueError, OSError) as error:
            raise trouble(self.path, error) from error

    async def depths(self, delays: Sequence[float] = ()) -> list[QueueDepth]:
        """How much waits, as the other transports tell it: what is ready, and the copies that wait.

        Args:
            delays: not heeded: all copies wait in one place.

        Raises:
            TransportError: the file cannot be read.
        """
        counts = await self.depth()
        return [
            QueueDepth(self.name, "main", counts.ready, counts.consumers),
            QueueDepth(f"{self.name} (waiting)", "retry", counts.waiting, 0),
        ]

    # -------------------------------------------------------------- the port
    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """See `inbox.ports.Transport.open`."""
        self._prefetch = prefetch
        self._delays = tuple(sorted(delays))
        self._stopping.clear()
        self._failure, self._is_closing = None, False
        self._link = await self._opened()
        wakeups.listen(self.path, self._work)
        self._pump = asyncio.create_task(self._keep_pumping(), name="queue")

    async def run(self, sink: Sink) -> None:
        """See `inbox.ports.Transport.run`."""
        if not self._stopping.is_set():
            self._sink = sink
            self._work.set()
        try:
            await self._stopping.wait()
        finally:
            self._sink = None
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """See `inbox.ports.Transport.stop`."""
        self._sink = None
        self._stopping.set()

    async def close(self) -> None:
        """See `inbox.ports.Transport.close`. What is in hand is handed back, so that nobody waits for the lease."""
        await self.stop()
        wakeups.forget(self.path, self._work)
        pump, self._pump = self._pump, None
        if pump is not None:
            # In the middle of a transaction nobody knows what was handed out.
            self._is_closing = True
            self._work.set()
            await asyncio.wait({pump}, timeout=self._settings.busy_wait)
            pump.cancel()
            await asyncio.wait({pump})
        link, self._link = self._link, None
        if link is not None:
            await link.leave()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """See `inbox.ports.Transport.acknowledge`.

        It is written a few milliseconds later, with those of others. Where the lease may have ended by then, this
        returns when it is written, and says whether it was in time.
        """
        return await self._settle(delivery, "acknowledged")

    async def release(self, delivery: Delivery) -> bool:
        """See `inbox.ports.Transport.release`. It comes again behind those that are due."""
        return await self._settle(delivery, "released")

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """See `inbox.ports.Transport.delay`. The key is not needed: a copy keeps its event's headers."""
        link = self._link
        if link is None:
            raise TransportError("the queue is closed")
        step = min((step for step in self._delays if step >= seconds), default=max(self._delays, default=seconds))
        kept = link.keep(Message.of(delivery), step, max(seconds - step, 0.0))
        self._work.set()
        if not await kept:
            raise TransportError("the copy is not known to be kept")

    async def _settle(self, delivery: Delivery, how: str) -> bool:
        link = self._link
        if link is None or not isinstance(delivery.receipt, Receipt):
            return False
        settled = link.settle(delivery.receipt, how)
        if settled is None:
            return False
        self._work.set()
        return True if how == "acknowledged" and link.is_safe else await settled

    # -------------------------------------------------------------- the pump
    async def _keep_pumping(self) -> None:
        """Serve the link, and make another one where it breaks."""
        while True:
            try:
                await self._pump_link()
            except (sqlite3.Error, ValueError, OSError) as error:
                told = fact("queue-file-awaited", error=type(error).__name__)
                _log.warning("the queue's file cannot be used (%s); trying again", _words(error), extra=told)
            if self._is_closing:
                return
            link, self._link = self._link, None
            if link is not None:
                await link.leave(is_broken=True)
            try:
                async with asyncio.timeout(self._settings.patience):
                    self._link = await self._reopened()
            except TimeoutError:
                self._failure = TransportError(f"the queue's file {self.path} could not be used for too long")
                await self.stop()
                return

    async def _reopened(self) -> _Link:
        pause = 0.05
        while True:
            try:
                return await self._opened(creates=False)
            except TransportError:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter needs no secrecy
                pause = min(pause * 2, _LONGEST_RETRY)

    async def _pump_link(self) -> None:
        link = self._link
        assert link is not None  # noqa: S101 - made before
        pause = _SHORTEST_PAUSE
        while not self._is_closing:
            self._work.clear()
            served = await link.serve(self._prefetch if self._sink is not None else 0)
            for delivery in served.handed_out:
                if self._sink is None:
                    link.settle(delivery.receipt, "released")  # stopped meanwhile
                else:
                    self._sink(delivery)
            if served.did_something:
                pause = _SHORTEST_PAUSE
                continue
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, served.until_next)):
                    await self._work.wait()
                    pause = _SHORTEST_PAUSE

    async def _opened(self, *, creates: bool = True) -> _Link:
        connection = await opened(self.path, self._settings.busy_wait, creates=creates)
        return _Link(connection, self._settings, self.name)


async def opened(path: Path, busy_wait: float, *, creates: bool = True) -> FileConnection:
    """A connection to a queue's file, with its table.

    Raises:
        TransportError: the file cannot be used.
    """

    async def attempt() -> FileConnection:
        connection = await FileConnection(path, creates=creates).connected()
        try:
            await connection.own(lambda raw: in_transaction(raw, messages.make_table))
        except BaseException:
            await connection.finish()
            raise
        return connection

    try:
        return await patiently(attempt, busy_wait)
    except (sqlite3.Error, ValueError, OSError) as error:
        raise trouble(path, error) from error


@dataclass(frozen=True, slots=True)
class _Served:
    """What one look at the file came to; `until_next` are seconds after which it is to be looked at again."""

    handed_out: Sequence[Delivery]
    did_something: bool
    until_next: float


class _Link:
    """One connection, and what was handed out over it.

    Args:
        connection: open.
        settings: lease, times.
        queue: the queue's name.
    """

    def __init__(self, connection: FileConnection, settings: SQLiteQueueSettings, queue: str) -> None:
        self._connection = connection
        self._settings = settings
        self._queue = queue
        self._lease = secrets.token_bytes(16)
        self._in_hand: dict[int, Receipt] = {}
        self._settling: list[tuple[Receipt, str, asyncio.Future[bool]]] = []
        self._keeping: list[tuple[Message, float, float, asyncio.Future[bool]]] = []
        self._renewed_at = self._written_at = 0.0
        self._next_due = 0.0
        self._version: int | None = None
        self._is_over = False

    # -------------------------------------------------------------- asked for
    @property
    def is_safe(self) -> bool:
        """Whether the leases of all that is in hand last for a good while."""
        return asyncio.get_running_loop().time() - self._renewed_at < self._settings.lease / 2

    def settle(self, receipt: object, how: str) -> asyncio.Future[bool] | None:
        """Ask for a settlement; None where the hand-out is not, or no longer, this link's."""
        if not isinstance(receipt, Receipt) or self._is_over or self._in_hand.get(receipt.id) != receipt:
            return None
        del self._in_hand[receipt.id]
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._settling.append((receipt, how, future))
        return future

    def keep(self, message: Message, wait: float, left: float) -> asyncio.Future[bool]:
        """Ask for a copy."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._is_over:
            future.set_result(False)
        else:
            self._keeping.append((message, wait, left, future))
        return future

    # -------------------------------------------------------------- done
    async def serve(self, prefetch: int) -> _Served:
        """Do all that was asked for in one transaction, renew what is in hand, and hand out what is due.

        Args:
            prefetch: most that may be in hand; 0 hands out nothing.

        Raises:
            sqlite3.Error: nothing of it is known to have been done.
        """
        now = asyncio.get_running_loop().time()
        room = max(prefetch - len(self._in_hand), 0)
        renews = bool(self._in_hand) and now - self._renewed_at >= self._settings.lease / 3
        lingers = bool(self._in_hand) and now - self._written_at < _LINGER
        enough = max(prefetch // 4, 1)
        is_urgent = bool(self._keeping) or renews or any(how == "released" for _, how, _ in self._settling)
        if not (is_urgent or (self._settling and (not lingers or len(self._settling) >= enough))):
            until = self._until_renewal(now)
            if (room or self._settling) and lingers and room < enough:
                return _Served((), False, min(self._written_at + _LINGER - now, until))
            if not room:
                return _Served((), False, until)
            version = await self._connection.own(_version)
            if version == self._version and now < self._next_due:
                return _Served((), False, min(self._next_due - now, until, _LINGER if self._settling else until))
            self._version = version
        return await self._write(now, room, renews=renews)

    async def _write(self, now: float, room: int, *, renews: bool) -> _Served:
        settling, self._settling = self._settling, []
        keeping, self._keeping = self._keeping, []
        self._written_at = now
        batch = Batch(
            acknowledged=[receipt for receipt, how, _ in settling if how == "acknowledged"],
            released=[receipt for receipt, how, _ in settling if how == "released"],
            copies=[(message, wait, left) for message, wait, left, _ in keeping],
            renewed=list(self._in_hand.values()) if renews else [],
            room=room,
            in_hand=list(self._in_hand),
        )
        try:
            done = await patiently(
                lambda: self._connection.own(
                    lambda raw: in_transaction(
                        raw, lambda raw: messages.serve(raw, batch, self._lease, self._settings.lease, self._queue)
                    )
                ),
                self._settings.busy_wait,
            )
        except BaseException:
            # What was settled may be or not: the inbox knows what comes again.
            for future in (*(future for *_, future in settling), *(future for *_, future in keeping)):
                _answer(future, False)
            raise
        ordered = sorted(settling, key=lambda asked: asked[1] != "acknowledged")
        for (_, _, future), is_settled in zip(ordered, done.settled, strict=True):
            _answer(future, is_settled)
        for *_, future in keeping:
            _answer(future, True)
        for receipt in done.lost:
            self._in_hand.pop(receipt.id, None)
        if renews or not self._in_hand:
            self._renewed_at = now
        for delivery in done.handed_out:
            if isinstance(delivery.receipt, Receipt):
                self._in_hand[delivery.receipt.id] = delivery.receipt
        self._next_due = now + (3600.0 if done.next_due is None else done.next_due)
        is_full = len(done.handed_out) == room > 0
        did_something = bool(settling or keeping or done.handed_out or done.lost)
        if is_full or (room == 0 and did_something):
            self._next_due = now  # there may be more that is due already
        return _Served(done.handed_out, did_something, self._until_renewal(now))

    def _until_renewal(self, now: float) -> float:
        if not self._in_hand:
            return 3600.0
        return max(self._renewed_at + self._settings.lease / 3 - now, 0.0)

    async def leave(self, *, is_broken: bool = False) -> None:
        """Close, and hand back what is in hand. Never raises."""
        self._is_over = True
        left = [*self._in_hand.values()]
        settling, self._settling = self._settling, []
        keeping, self._keeping = self._keeping, []
        self._in_hand.clear()
        if (left or settling) and not is_broken:
            batch = Batch(
                acknowledged=[receipt for receipt, how, _ in settling if how == "acknowledged"],
                released=[receipt for receipt, how, _ in settling if how == "released"] + left,
            )
            with suppress(sqlite3.Error, ValueError, TimeoutError):
                async with asyncio.timeout(self._settings.busy_wait):
                    await patiently(
                        lambda: self._connection.own(
                            lambda raw: in_transaction(
                                raw, lambda raw: messages.serve(raw, batch, b"", 0.0, self._queue)
                            )
                        ),
                        self._settings.busy_wait,
                    )
        for future in (*(future for *_, future in settling), *(future for *_, future in keeping)):
            _answer(future, False)
        await self._connection.finish()


def _version(raw: sqlite3.Connection) -> int:
    """A number that changes when another connection has changed the file; read from shared memory."""
    (version,) = raw.execute("PRAGMA data_version").fetchone()
    return int(version)


def _answer(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)


def _words(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def trouble(path: Path, error: Exception) -> TransportError:
    """What is to be said of a file that cannot be used."""
    return TransportError(
        f"the queue's file {path} cannot be used ({_words(error)}): the folder must be there, and this user may write "
        "in it"
    )
