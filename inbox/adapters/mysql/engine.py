"""The engine: how its connections are made, so that each is guarded, short of patience and encrypted where asked."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.mysql.drivers import GuardedConnection, SessionSetup, driver_class
from inbox.adapters.mysql.guard import UNIT, Door, Guard
from inbox.adapters.mysql.lane import Lane, ServerSession, kill_session, open_lane
from inbox.adapters.mysql.proof import prove_guard
from inbox.adapters.mysql.url import checked_url
from inbox.errors import ConfigurationError, TlsError, UnitMisused

if TYPE_CHECKING:
    from inbox.config import DatabaseSettings

__all__ = ["Lane", "ServerSession", "kill_session", "make_engine", "open_lane", "prove_guard"]

_CANNOT_CONNECT: Final = 2003


class Connector:
    """Makes the driver connections of one engine; SQLAlchemy calls it as `async_creator_fn`.

    Args:
        driver: `aiomysql` or `asyncmy`.
        settings: TLS, CALL.
        setup: what each session becomes.
    """

    def __init__(self, driver: str, settings: DatabaseSettings, setup: SessionSetup) -> None:
        self._class = driver_class(driver)
        self._settings = settings
        self._setup = setup
        self._context = _tls_context(settings)

    async def __call__(self, *args: Any, **arguments: Any) -> GuardedConnection:
        """Connect one.

        Args:
            args: none are used by SQLAlchemy.
            arguments: of the driver's connection class: user, password, host and so on.

        Raises:
            UnitMisused: a handler reached for a second connection of the engine behind its unit.
            TlsError: TLS was asked for and not given.
            Exception: the driver's errors.
        """
        token = UNIT.get()
        if token is not None:
            token.guard.undo("opened another connection of the unit's engine: its work would not be part of the unit")
            raise UnitMisused("a second connection of the unit's engine", handler=token.handler)
        guard = Guard(allow_call=self._settings.allow_call)
        connection = self._class(*args, guard=guard, ssl=self._context, **arguments)
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                await self._open(connection)
        except TimeoutError as error:
            connection.cut()
            raise connection.OperationalError(_CANNOT_CONNECT, "the connection was not made in time") from error
        except BaseException:
            connection.cut()
            raise
        return connection

    async def _open(self, connection: GuardedConnection) -> None:
        try:
            await connection.open()
        except Exception as error:
            _complain_of_tls(error)
            raise
        await connection.set_up(self._setup)
        if self._context is not None:
            await _require_cipher(connection)


def make_engine(url: str | URL, settings: DatabaseSettings, deadline: float) -> AsyncEngine:
    """The engine that lanes and the store's other connections come from. Connects to nothing yet.

    Its connections are never pooled: a closed one is closed. They come with `autocommit=0`, READ COMMITTED, the short
    lock wait and multi-statements off. Outside of a lane they are not guarded.

    Args:
        url: `mysql://` or `mariadb://`, with `+aiomysql` (the default) or `+asyncmy`.
        settings: lock wait, timeouts, TLS.
        deadline: seconds a unit may take; the server drops sessions that are idle for a little longer.

    Raises:
        ConfigurationError: the URL or the certificate authority cannot be used; the message has no password.
    """
    checked = checked_url(url)
    setup = SessionSetup.for_deadline(settings.lock_wait, deadline)
    connector = Connector(checked.get_driver_name(), settings, setup)
    engine = create_async_engine(
        checked,
        poolclass=NullPool,
        pool_reset_on_return=None,
        hide_parameters=True,
        connect_args={
            "async_creator_fn": connector,
            "connect_timeout": settings.connect_timeout,
            # Set with the rest of the session, in one statement.
            "autocommit": None,
        },
    )
    _let_rollbacks_be_noted(engine)
    return engine


def _let_rollbacks_be_noted(engine: AsyncEngine) -> None:
    """Answer SQLAlchemy's rollbacks on a guarded connection at once: no packet, and no greenlet to send it from.

    `do_rollback` is the dialect's documented hook. With it SQLAlchemy's own transaction objects can be closed at the
    end of a unit from ordinary code.
    """
    dialect: Any = engine.sync_engine.dialect
    send = dialect.do_rollback

    def do_rollback(connection: Any) -> None:
        driver: GuardedConnection = connection.driver_connection
        if driver.guard.door is Door.OPEN:
            send(connection)
        else:
            driver.guard.note_rollback()

    dialect.do_rollback = do_rollback


# ------------------------------------------------------------------ TLS
def _tls_context(settings: DatabaseSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    try:
        return ssl.create_default_context(cafile=settings.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificate authority {settings.tls_ca} cannot be read: name a PEM file in DatabaseSettings(tls_ca=…)"
        ) from error


def _complain_of_tls(error: Exception) -> None:
    """Raise `TlsError` where the handshake of TLS failed; both drivers wrap that as "cannot connect"."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            raise TlsError(
                f"TLS with the database failed ({cause.reason or 'handshake'}): its certificate must be for the host "
                "in the URL and from the authority in DatabaseSettings(tls_ca=…)"
            ) from error
        cause = cause.__cause__ or cause.__context__


async def _require_cipher(connection: GuardedConnection) -> None:
    """Ask the server whether it sees the connection as encrypted (manual, "Server Status Variables": Ssl_cipher)."""
    rows = await connection.own_rows(b"SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    if not rows or not rows[0][1]:
        raise TlsError("TLS was asked for and the connection is in plain text: enable TLS at the server, or tls=False")
