"""A connection with the guard inside: every call of a handler's passes here, every statement by the authorizer.

aiosqlite runs each connection in a thread of its own, and each call on it goes through `Connection._execute`. The name
is private, so every start proves that the guard sits on it (`prove_guard`). The framework's own work goes to the thread
in one piece, several statements at once: each way there and back costs more than a statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import aiosqlite
from aiosqlite.context import contextmanager

from inbox.adapters.embedded.cursor import UnitCursor
from inbox.adapters.embedded.guard import Door, Guard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FileConnection", "require_sqlite"]

T = TypeVar("T")

#: RETURNING (sqlite.org/lang_returning.html).
LEAST_VERSION: Final = (3, 35)
_CHUNK: Final = 64
#: Seconds to wait for the thread of a connection that could not be made.
_FAREWELL: Final = 1.0
_SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    # "In WAL mode [...] FULL: the WAL file is synced after each transaction commit" (sqlite.org/pragma.html).
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # Who waits does so outside of the thread, where it can be cancelled (`turns`).
    "PRAGMA busy_timeout = 0",
)


class FileConnection(aiosqlite.Connection):
    """One connection to a file.

    Args:
        path: the file.
        guard: its doorkeeper.
        beside: a second file, which statements know as `beside`.
        creates: whether a file that is not there is made. Later than at the start it must not be: what was moved away
            would be begun anew, without a row.
    """

    def __init__(
        self, path: Path, guard: Guard | None = None, *, beside: Path | None = None, creates: bool = False
    ) -> None:
        self.guard = guard or Guard("")
        self._address, self._beside = (
            None if file is None else f"{file.absolute().as_uri()}?mode={'rwc' if creates else 'rw'}"
            for file in (path, beside)
        )
        self._submitted = 0  # counted by the loop's thread
        self._finished = 0  # counted by the connection's
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        super().__init__(self._connect_in_thread, _CHUNK)
        # aiosqlite before 0.22 is a thread, later it has one. It must not keep the process alive.
        self._worker: threading.Thread = self if isinstance(self, threading.Thread) else self._thread
        self._worker.daemon = True

    def _connect_in_thread(self) -> sqlite3.Connection:
        raw = sqlite3.connect(str(self._address), uri=True, timeout=0, isolation_level=None)
        try:
            if self._beside is not None:
                raw.execute("ATTACH ? AS beside", (self._beside,)).close()
                raw.execute("PRAGMA beside.journal_mode = WAL").close()
                raw.execute("PRAGMA beside.synchronous = FULL").close()
            for setting in _SETTINGS:
                raw.execute(setting).close()
            raw.set_authorizer(self.guard.authorize)
        except BaseException:
            raw.close()
            raise
        return raw

    # -------------------------------------------------------------- the framework's half
    async def connected(self) -> Self:
        """Open it, once: where that fails, another try needs another object.

        Raises:
            sqlite3.Error: it cannot be opened.
        """
        try:
            await self
        except BaseException:
            # Its thread still has to tell this loop that it has ended.
            await asyncio.to_thread(self._worker.join, _FAREWELL)
            raise
        return self

    @property
    def is_open(self) -> bool:
        """Whether it takes calls."""
        return self._running and self._connection is not None

    @property
    def is_busy(self) -> bool:
        """Whether its thread has not come back from a call."""
        return self._submitted != self._finished

    async def own(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the connection's thread, past the guard. Cancelling the caller does not stop it.

        Raises:
            sqlite3.Error: of a statement.
            ValueError: the connection is closed.
        """
        result: T = await self._send(self._run_own, work)
        return result

    def _run_own(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self.guard.own_thread = threading.get_ident()
        try:
            return work(self._conn)
        finally:
            self.guard.own_thread = None
            self._finished += 1

    def close_cursors(self) -> None:
        """In the connection's thread: let go of what a handler left half-read.

        A connection that is closed lives on until its last statement ends, with the locks of its transaction
        (sqlite.org/c3ref/close.html).
        """
        for cursor in list(self._cursors):
            cursor.close()
        self._cursors.clear()

    def interrupt_now(self) -> None:
        """End the statement that runs, from any thread; it fails with SQLITE_INTERRUPT. Never raises."""
        raw = self._connection
        if raw is not None:
            with contextlib.suppress(sqlite3.Error):
                raw.interrupt()

    async def wait_idle(self) -> None:
        """Return when the thread has come back from all that it was given, interrupting it now and then."""
        while self.is_busy and self.is_open:
            self.interrupt_now()
            await asyncio.sleep(0.002)

    async def finish(self) -> None:
        """Close, whatever is under way; what was not committed is undone. May be called twice. Never raises."""
        self.guard.door = Door.SHUT
        if self._connection is None:
            return
        try:
            await self.wait_idle()
            await self._send(self._run_own, lambda _: self.close_cursors())
            await super().close()
        except Exception:  # noqa: BLE001, S110 - it is to be gone, and SQLite undoes what it left open
            pass

    # -------------------------------------------------------------- the driver's half
    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if self.guard.door is not Door.KEPT:
            return await self._send(self._run, fn, args, kwargs)
        self.guard.admit(fn)
        try:
            return await self._send(self._run, fn, args, kwargs)
        except asyncio.CancelledError as error:
            self.guard.observe(error)
            self.interrupt_now()
            raise
        except Exception as error:
            refusal = self.guard.take_refusal()
            if refusal is not None:
                raise refusal from error
            raise

    async def _send(self, function: Callable[..., Any], *args: Any) -> Any:
        sending = super()._execute(function, *args)  # type: ignore[no-untyped-call]  # it has no types
        self._submitted += 1
        try:
            return await sending
        except ValueError:
            if not self.is_open:  # it was never given to the thread
                self._submitted = self._finished
            raise

    def _run(self, fn: Any, args: Any, kwargs: Any) -> Any:
        failure: BaseException | None = None
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            failure = error
            self.guard.observe(error)
            raise
        else:
            if isinstance(result, sqlite3.Cursor):
                self._cursors.add(result)
            return result
        finally:
            raw = self._connection
            if raw is not None and self.guard.door is Door.KEPT:
                self.guard.observe_transaction(is_open=raw.in_transaction, error=failure)
            self._finished += 1

    @contextmanager
    async def cursor(self) -> aiosqlite.Cursor:
        """As aiosqlite's, for less."""
        return UnitCursor(self)

    async def commit(self) -> None:
        """As aiosqlite's; refused to a unit."""
        if self.guard.door is Door.KEPT:
            self.guard.refuse(
                "refused before anything happened: COMMIT; the unit is committed when the handler returns"
            )
        await super().commit()

    async def rollback(self) -> None:
        """As aiosqlite's; of a unit it is noted, and the unit undone when its handler is out."""
        if self.guard.door is Door.KEPT:
            self.guard.note_rollback()
            return
        await super().rollback()

    async def close(self) -> None:
        """As aiosqlite's; it dooms the unit that runs."""
        if self.guard.door is Door.KEPT:
            self.guard.admit_close(by_driver=False)
        await self.finish()

    def stop(self) -> Any:
        """As aiosqlite's, which has it since 0.22."""
        self.guard.admit_close(by_driver=False)
        return super().stop()


def require_sqlite() -> str | None:
    """Why the SQLite library of this Python is too old; None where it is not."""
    if sqlite3.sqlite_version_info >= LEAST_VERSION:
        return None
    return f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed, and comes with newer builds of Python"
