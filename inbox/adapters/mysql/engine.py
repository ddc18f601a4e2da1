"""The engine and its lanes: connections that are kept across units and cost nothing but their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from inbox.adapters.mysql.drivers import GuardedConnection
    from inbox.config import DatabaseSettings


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

    Attributes:
        connection: SQLAlchemy's view of it.
        driver: the guarded driver connection below it; `own()` sends the framework's statements.
        session: how the server knows it, for KILL decisions.
    """

    connection: AsyncConnection
    driver: GuardedConnection
    session: ServerSession

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last command or answer. Known locally, without a packet."""
        raise NotImplementedError

    @property
    def is_stale(self) -> bool:
        """Idle for more than half the server's `wait_timeout`, or closed: replace before use."""
        raise NotImplementedError

    def discard(self) -> None:
        """Close the socket at once, without a farewell. May be called twice; never raises."""
        raise NotImplementedError

    async def close(self) -> None:
        """Say goodbye and close; bounded in time. May be called twice; never raises."""
        raise NotImplementedError


def make_engine(url: str | URL, settings: DatabaseSettings, deadline: float) -> AsyncEngine:
    """The engine that lanes and the store's other connections come from. Connects to nothing yet.

    Its connections are never pooled: a closed one is closed. They come with `autocommit=0`, READ
    COMMITTED, the short lock wait, multi-statements off. Outside of a lane they are not guarded.

    Args:
        url: `mysql://` or `mariadb://`, with `+aiomysql` (the default) or `+asyncmy`.
        settings: lock wait, timeouts, TLS.
        deadline: seconds a unit may take; the server drops sessions idle for a little longer.

    Raises:
        ConfigurationError: the URL cannot be used; the message names the fix and no password.
    """
    raise NotImplementedError


async def open_lane(engine: AsyncEngine) -> Lane:
    """Connect one lane; from here on its connection lets nothing through but units and `own()`.

    Raises:
        Contended, StoreUnavailable: the server cannot be reached now.
        ConfigurationError: it does not let us in; TlsError: the connection is not encrypted.
    """
    raise NotImplementedError


async def prove_guard(engine: AsyncEngine) -> None:
    """Show on a connection of its own that the guard sees what it must. Run at every start.

    Raises:
        GuardError: a command went through that must not.
        Contended, StoreUnavailable, ConfigurationError, TlsError: as `open_lane`.
    """
    raise NotImplementedError


async def kill_session(engine: AsyncEngine, session: ServerSession, patience: float = 5.0) -> bool:
    """KILL a connection of ours that the server may still be working for, over a fresh one.

    Only where the process list shows that id with our own address and port: ids are used again
    after a restart, and behind a proxy they are the proxy's.

    Args:
        engine: where to connect.
        session: whom to kill.
        patience: seconds for all of it.

    Returns:
        Whether it is gone: killed, or no longer listed. False where that cannot be told. Never raises
        but `asyncio.CancelledError`.
    """
    raise NotImplementedError
