"""Lanes: connections that are kept across units and cost nothing but their units."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from inbox.adapters.mysql.classify import facts, translated
from inbox.adapters.mysql.drivers import GuardedConnection
from inbox.adapters.mysql.guard import Door, outside_units
from inbox.errors import ConfigurationError, InboxError

#: The server does not want us, as opposed to being away: user, database, host, authentication.
_REFUSALS: Final = frozenset({1044, 1045, 1049, 1130, 1251, 1698, 2059})
_FAREWELL: Final = 1.0
_NO_SUCH_THREAD: Final = 1094


@dataclass(frozen=True, slots=True)
class ServerSession:
    """What the server's process list calls a connection of ours.

    Attributes:
        thread_id: the id of the handshake.
        host: our end's address as our socket has it; empty for a Unix socket.
        port: our end's port; 0 for a Unix socket.
    """

    thread_id: int
    host: str
    port: int


class Lane:
    """One connection that runs one unit after the other. Made by `open_lane`.

    Args:
        connection: SQLAlchemy's view of it.
        driver: the guarded driver connection below it; `own()` sends the framework's statements.
        stale_after: seconds of idleness after which the server may have closed it.

    Attributes:
        session: how the server knows it, for KILL decisions.
    """

    def __init__(self, connection: AsyncConnection, driver: GuardedConnection, stale_after: float) -> None:
        self.connection = connection
        self.driver = driver
        self.session = _session_of(driver)
        self._stale_after = stale_after
        self._options = self.sync.get_execution_options()

    @property
    def sync(self) -> Connection:
        """SQLAlchemy's synchronous connection; good for what does no I/O."""
        return cast("Connection", self.connection.sync_connection)

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last answer to a statement of the framework's own. Known without a packet."""
        return time.monotonic() - self.driver.last_own

    @property
    def is_stale(self) -> bool:
        """Idle for more than half of the server's `wait_timeout`, or closed: replace before use."""
        return self.idle_seconds > self._stale_after or not self.driver.is_open

    @property
    def is_whole(self) -> bool:
        """Whether SQLAlchemy's view is still of this connection, as it was at first."""
        return not self.sync.closed and not self.sync.invalidated

    def leave_transaction(self) -> bool:
        """Make SQLAlchemy's own transaction objects fit for the next unit, without a packet.

        As they were at its begin they can stay: to end them and to begin others costs as much as the guard.

        Returns:
            Whether the next unit finds everything as the last one did.
        """
        if not self.is_whole:
            return False
        if self.keeps_transaction():
            return True
        transaction = self.sync.get_transaction()
        if transaction is not None:
            # The unit may have run inside of another unit's handler, whose token is none of ours.
            with outside_units():
                transaction.close()
        self.sync.info.clear()
        # A handler's `execution_options()` change the connection in place (SQLAlchemy manual).
        return self.sync.get_execution_options() is self._options

    def keeps_transaction(self) -> bool:
        """Leave SQLAlchemy's transaction objects as they are to the next handler, without a packet.

        Returns:
            Whether it finds everything as the last one did; else nothing was changed.
        """
        transaction = self.sync.get_transaction() if self.is_whole else None
        is_as_it_was = (
            transaction is not None
            and transaction.is_active
            and not self.sync.in_nested_transaction()
            and self.sync.get_execution_options() is self._options
        )
        if is_as_it_was:
            self.sync.info.clear()
        return is_as_it_was

    def discard(self) -> None:
        """Close the socket at once, without a farewell. May be called twice; never raises."""
        self.driver.cut()
        self._detach()

    async def close(self) -> None:
        """Say goodbye and close, within a second. May be called twice; raises nothing but `asyncio.CancelledError`."""
        try:
            if self.driver.is_open and not self.driver.is_busy:
                async with asyncio.timeout(_FAREWELL):
                    await self.driver.say_goodbye()
        except Exception:  # noqa: BLE001, S110 - drivers show a torn link in many types, and it is to be closed anyway
            pass
        finally:
            self.discard()
        # The loop tells the transport in its next round; it may be the last one before the loop is closed.
        await asyncio.sleep(0)

    def _detach(self) -> None:
        """Let SQLAlchemy forget the connection, so that it does not complain when it is collected."""
        with contextlib.suppress(Exception):
            if not self.sync.closed and not self.sync.invalidated:
                self.sync.invalidate()
        with contextlib.suppress(Exception):
            self.sync.close()


async def open_lane(engine: AsyncEngine) -> Lane:
    """Connect one lane; from here on its connection lets nothing through but units and `own()`.

    Args:
        engine: from `make_engine`.

    Raises:
        Contended, StoreUnavailable: the server cannot be reached now.
        ConfigurationError: it does not let us in.
        TlsError: the connection is not encrypted.
    """
    with outside_units():
        try:
            connection = await engine.connect()
        except InboxError:
            raise
        except (DBAPIError, OSError, RuntimeError, AttributeError) as error:
            raise _why_not(error) from error
        raw = await connection.get_raw_connection()
    driver = cast("GuardedConnection", raw.driver_connection)
    driver.guard.door = Door.KEPT
    return Lane(connection, driver, driver.setup.wait_timeout / 2)


def _why_not(error: BaseException) -> InboxError:
    """The error for a connection that could not be made."""
    code, _ = facts(error)
    if code in _REFUSALS:
        return ConfigurationError(
            f"the database does not let us in (error {code}): check user, password, host and database in the URL, and "
            "the rights of that user"
        )
    return translated(error, "connecting to the database")


# ------------------------------------------------------------------ KILL
async def kill_session(engine: AsyncEngine, session: ServerSession, patience: float = 5.0) -> bool:
    """KILL a connection of ours that the server may still be working for, over a fresh one.

    Only where the process list shows that id with our own address and port: ids are used again after a restart, and
    behind a proxy they are the proxy's.

    Args:
        engine: where to connect.
        session: whom to kill.
        patience: seconds for all of it.

    Returns:
        Whether it is gone: killed, or no longer listed. False where that cannot be told. Raises nothing but
        `asyncio.CancelledError`.
    """
    try:
        async with asyncio.timeout(patience):
            lane = await open_lane(engine)
            try:
                return await _kill(lane.driver, session)
            finally:
                lane.discard()
    except Exception:  # noqa: BLE001 - whatever stands in the way, `wait_timeout` ends the session
        return False


async def _kill(driver: GuardedConnection, session: ServerSession) -> bool:
    listed = await driver.own_rows(
        b"SELECT host FROM information_schema.processlist WHERE id = %d" % session.thread_id,
    )
    if not listed:
        return True
    if not await _is_ours(str(listed[0][0]), session):
        return False
    try:
        await driver.own(b"KILL CONNECTION %d" % session.thread_id)
    except driver.Error as error:
        return facts(error)[0] == _NO_SUCH_THREAD
    return True


async def _is_ours(listed: str, session: ServerSession) -> bool:
    """Whether the process list's `host:port` is our end; servers that resolve names list a name for the host."""
    host, _, port = listed.rpartition(":")
    if not port.isdecimal() or int(port) != session.port:
        return False
    if host in (session.host, "localhost"):
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, None)
        return session.host in {address[4][0] for address in found}
    return False


def _session_of(driver: GuardedConnection) -> ServerSession:
    name: Any = driver.transport.get_extra_info("sockname") if driver.transport else None
    if isinstance(name, tuple) and len(name) >= 2:  # noqa: PLR2004 - host and port, and two more for IPv6
        return ServerSession(driver.thread_id(), str(name[0]), int(name[1]))
    return ServerSession(driver.thread_id(), "", 0)
