"""The drivers' connections with the guard inside: every command and every error passes here.

aiomysql and asyncmy descend from PyMySQL and share its private seams: each command goes through `_execute_command`,
each packet of an answer through `_read_packet` (asyncmy: `read_packet`). These names are private, so every start proves
that the guard sits on them (`prove_guard`).
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.mysql.classify import is_answer
from inbox.adapters.mysql.guard import COM_QUERY, COM_SET_OPTION, Door, Guard

Rows = Sequence[tuple[Any, ...]]

#: Argument of COM_SET_OPTION (MySQL internals, "COM_SET_OPTION"): MYSQL_OPTION_MULTI_STATEMENTS_OFF.
_MULTI_STATEMENTS_OFF: Final = b"\x01\x00"
#: CR_COMMANDS_OUT_OF_SYNC (MySQL manual, "Client Error Message Reference").
_OUT_OF_SYNC: Final = 2014
#: Octets; below the 128 KiB from which glibc maps memory (mallopt(3), M_MMAP_THRESHOLD).
_READ_SIZE: Final = 64 << 10
#: Status flag of the server (MySQL internals, "SERVER_STATUS_flags_enum"): SERVER_STATUS_NO_BACKSLASH_ESCAPES.
_NO_BACKSLASH_ESCAPES: Final = 0x0200


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """How a session is set up when it connects.

    Attributes:
        lock_wait: seconds to wait for row and metadata locks.
        wait_timeout: seconds the server keeps an idle session.
        silence: seconds of unacknowledged bytes after which the kernel gives the connection up.
    """

    lock_wait: int
    wait_timeout: int
    silence: float

    @classmethod
    def for_deadline(cls, lock_wait: int, deadline: float) -> SessionSetup:
        """For units that take at most `deadline` seconds: a handler may be idle that long, an orphan hardly longer."""
        return cls(lock_wait, math.ceil(deadline) + 5, deadline)

    def statement(self, server_version: str) -> bytes:
        """One SET for all of it. MariaDB knows `transaction_isolation` only since 11.1, MySQL has no `tx_isolation`.

        `completion_type`, for a COMMIT must neither begin another transaction nor end the session (manual, "COMMIT").
        `unique_checks`, see `screen`.
        """
        isolation = "tx_isolation" if "MariaDB" in server_version else "transaction_isolation"
        return (
            f"SET SESSION autocommit = 0, completion_type = 0, unique_checks = 1, {isolation} = 'READ-COMMITTED', "
            f"innodb_lock_wait_timeout = {self.lock_wait:d}, lock_wait_timeout = {self.lock_wait:d}, "
            f"wait_timeout = {self.wait_timeout:d}"
        ).encode()


if TYPE_CHECKING:

    class _Driver:
        """What the two drivers' classes have in common, as the mixin sees it."""

        server_version: str
        server_status: int
        _affected_rows: int
        _next_seq_id: int
        _result: Any
        Error: type[Exception]
        OperationalError: type[Exception]

        def __init__(self, *args: Any, **settings: Any) -> None: ...
        async def _execute_command(self, command: int, sql: bytes | str) -> None: ...
        async def _read_query_result(self, unbuffered: bool = False) -> None: ...
        async def rollback(self) -> None: ...
        async def ping(self, reconnect: bool = True) -> None: ...
        def thread_id(self) -> int: ...
        def insert_id(self) -> int: ...
        def close(self) -> None: ...
        async def ensure_closed(self) -> None: ...

        # What the two do differently, each driver's subclass supplies.
        @property
        def transport(self) -> asyncio.Transport | None:
            """The link; None once it is closed."""

        @property
        def has_ended(self) -> bool:
            """Whether the server's end of the link was closed, as far as this end has noticed."""

        async def open(self) -> None:
            """Connect and log in.

            Raises:
                Exception: the driver's errors, `ssl.SSLError`, `TlsError`.
            """

        async def _next_packet(self) -> Any: ...

else:
    _Driver = object


class GuardedConnection(_Driver):
    """A driver's connection and its guard. Stands before the driver's class in the bases.

    Attributes:
        guard: the doorkeeper.
        is_doubtful: an answer was not read to its end; the server may still be at work for us.
        setup: what the session was set up as.
        last_own: when the last statement of the framework's own was answered, in seconds of the monotonic clock.

    Args:
        guard: the doorkeeper.
        settings: what the driver's class takes.
    """

    guard: Guard
    is_doubtful: bool
    last_own: float
    setup: SessionSetup

    def __init__(self, *args: Any, guard: Guard, **settings: Any) -> None:
        # First of all: the drivers' finalizers close, and closing asks the guard.
        self.guard = guard
        self.is_doubtful = False
        self.last_own = time.monotonic()
        self._reading = 0
        self._sending = 0
        super().__init__(*args, **settings)

    # -------------------------------------------------------------- the framework's own statements
    @property
    def is_open(self) -> bool:
        """Whether the link stands, as far as this end knows. Costs no packet."""
        transport = self.transport
        return transport is not None and not transport.is_closing() and not self.has_ended

    @property
    def is_busy(self) -> bool:
        """Whether a task is waiting for an answer right now."""
        return self._reading > 0

    @property
    def is_unread(self) -> bool:
        """Whether a part of the last answer was left unread."""
        return self._result is not None and bool(self._result.unbuffered_active or self._result.has_next)

    async def own(self, sql: bytes) -> int:
        """Send a statement of the framework's own past the guard. Not while a handler runs.

        Args:
            sql: its text.

        Returns:
            The number of rows it affected.

        Raises:
            Exception: the driver's errors, untranslated (`classify.translated` turns them).
        """
        await self._send_own(sql)
        await self._read_query_result()
        self.last_own = time.monotonic()
        return self._affected_rows

    async def own_done(self, sql: bytes, meanwhile: Callable[[], object] | None = None) -> None:
        """As `own`, for a statement of which only is asked that it was done: nothing of the answer is kept.

        The driver takes as long to make a result of an OK packet (MySQL manual, "OK_Packet") as to read it.

        Args:
            sql: its text.
            meanwhile: called between sending and waiting for the answer. Must not use the connection.
        """
        await self._send_own(sql)
        if meanwhile is not None:
            meanwhile()
        self._result = None
        if not (await self._next_packet()).is_ok_packet():
            self.cut()
            raise self.OperationalError(_OUT_OF_SYNC, "another answer than OK")
        self.last_own = time.monotonic()

    async def own_rows(self, sql: bytes) -> Rows:
        """As `own`, for a query; returns its rows, binary columns as `bytes`."""
        await self._send_own(sql)
        await self._read_query_result()
        self.last_own = time.monotonic()
        rows: Rows = self._result.rows or ()
        return rows

    async def own_pair(
        self, query: bytes, command: bytes, *, pipelined: bool
    ) -> tuple[Rows | Exception, Exception | None]:
        """Send a query and a command; where `pipelined`, both are written before either answer is read.

        The protocol lets a server answer one command after the other; both servers do, through both drivers. The
        numbers of the packets begin anew with each command, hence `_next_seq_id`.

        Returns:
            The query's rows or its error, and the command's error or None. After an error that is no answer of the
            server's the connection is doubtful.

        Raises:
            Exception: the driver's errors, where nothing could be sent.
        """
        await self._send_own(query)
        if pipelined:
            await super()._execute_command(COM_QUERY, command)
        rows = await self._answer()
        if pipelined:
            self._next_seq_id = 1
        elif self.is_open:
            await self._send_own(command)
        ended = await self._answer()
        return rows, ended if isinstance(ended, Exception) else None

    async def _send_own(self, sql: bytes) -> None:
        if self.is_unread:
            await self.drain()
        await super()._execute_command(COM_QUERY, sql)

    async def _answer(self) -> Rows | Exception:
        try:
            await self._read_query_result()
        except Exception as error:  # noqa: BLE001 - a torn link shows as AttributeError too, depending on the driver
            return error
        self.last_own = time.monotonic()
        rows: Rows = self._result.rows or ()
        return rows

    async def drain(self) -> None:
        """Read what was left unread of the last answer, so that errors in it are seen.

        Raises:
            Exception: the driver's errors; they have doomed the unit where they must.
        """
        while self.is_unread:
            if self._result.unbuffered_active:
                await self._result._finish_unbuffered_query()  # noqa: SLF001 - the drivers' own way to skip rows
            if self._result.has_next:
                await self._read_query_result()

    async def set_up(self, setup: SessionSetup) -> None:
        """Make a new session what units need, and its socket impatient.

        Raises:
            Exception: the driver's errors.
        """
        self.setup = setup
        self._be_impatient(setup.silence)
        self._read_less()
        # Both drivers ask for multi-statements in the handshake; a second statement in a text could then be a COMMIT.
        await super()._execute_command(COM_SET_OPTION, _MULTI_STATEMENTS_OFF)
        await self._next_packet()
        await self.own(setup.statement(self.server_version))

    def _be_impatient(self, silence: float) -> None:
        """Let the kernel notice a dead peer: neither driver has a timeout of its own while it waits for an answer."""
        link = self.transport.get_extra_info("socket") if self.transport else None
        if link is None or link.family not in (socket.AF_INET, socket.AF_INET6):
            return
        seconds = max(3, math.ceil(silence))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", max(1, seconds // 3)),
            ("TCP_KEEPINTVL", max(1, seconds // 6)),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", seconds * 1000),
        ):
            if hasattr(socket, option):
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def _read_less(self) -> None:
        """Let asyncio ask for 64 KiB at a time: for its 256 KiB glibc maps memory, and unmaps it, each time.

        The attribute is a private name of `asyncio.selector_events`; where a loop has none, nothing is lost.
        """
        transport: Any = self.transport
        if isinstance(getattr(transport, "max_size", None), int):
            transport.max_size = _READ_SIZE

    def cut(self) -> None:
        """Close the socket at once, whoever is using it. May be called twice."""
        self.guard.door = Door.SHUT
        transport = self.transport
        super().close()
        _abort(transport)

    async def say_goodbye(self) -> None:
        """Send COM_QUIT and close.

        Raises:
            Exception: the driver's errors.
        """
        self.guard.door = Door.SHUT
        transport = self.transport
        await super().ensure_closed()
        _abort(transport)

    # -------------------------------------------------------------- what handlers reach
    async def _execute_command(self, command: int, sql: bytes | str) -> None:
        plain = bool(getattr(self, "server_status", 0) & _NO_BACKSLASH_ESCAPES)
        self.guard.admit(command, sql, busy=self._reading > 0, plain_backslashes=plain)
        self._sending += 1
        try:
            # As the drivers do with a stream that was left half-read, without their warning.
            if self.is_unread:
                await self.drain()
            await super()._execute_command(command, sql)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            self._sending -= 1

    async def _read_query_result(self, unbuffered: bool = False) -> None:
        try:
            await super()._read_query_result(unbuffered=unbuffered)
        except self.Error:
            raise
        except Exception:
            # A converter that fails amid the rows leaves the rest unread, to be taken for the next answer.
            self._failed(ConnectionError("an answer could not be read to its end"))
            self.cut()
            raise

    def _failed(self, error: BaseException) -> None:
        if not is_answer(error):
            self.is_doubtful = True
        self.guard.observe(error)

    async def rollback(self) -> None:
        """A rollback of the handler's, or of SQLAlchemy's on its behalf: dooms the unit, sends nothing."""
        if self.guard.door is Door.OPEN:
            await super().rollback()
        else:
            self.guard.note_rollback()

    async def ping(self, reconnect: bool = True) -> None:
        """As the driver's, but a connection that runs units is never made anew."""
        if self.guard.door is Door.OPEN:
            await super().ping(reconnect)
        elif self.is_open:
            await super().ping(False)
        else:
            self.guard.admit_reconnect()

    def close(self) -> None:
        """Close; dooms the unit that runs here, unless the driver does it on account of an error."""
        self.guard.admit_close(by_driver=self._reading > 0 or self._sending > 0)
        super().close()

    async def ensure_closed(self) -> None:
        """As `close`, with a farewell."""
        self.guard.admit_close(by_driver=self._reading > 0 or self._sending > 0)
        await super().ensure_closed()


def _abort(transport: asyncio.Transport | None) -> None:
    """Have done with a link. The drivers only begin to close it, and TLS would then wait for the peer's farewell."""
    if transport is not None:
        transport.abort()


def driver_class(driver: str) -> type[GuardedConnection]:
    """The guarded connection class of a driver.

    Args:
        driver: `aiomysql` or `asyncmy`, as in the URL.

    Raises:
        ImportError: the driver is not installed.
    """
    if driver == "asyncmy":
        from inbox.adapters.mysql.asyncmy_driver import AsyncmyConnection  # noqa: PLC0415 - an extra

        return AsyncmyConnection
    from inbox.adapters.mysql.aiomysql_driver import AiomysqlConnection  # noqa: PLC0415 - beside the other one

    return AiomysqlConnection
