"""Connecting, and what the client library does to those who wait on a connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import aio_pika
from aiormq.exceptions import (
    AuthenticationError,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from pamqp.exceptions import AMQPInternalError
from yarl import URL

from inbox.adapters.rabbitmq.tls import tls_error
from inbox.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from aio_pika.abc import AbstractConnection

    from inbox.adapters.rabbitmq.settings import Address, RabbitMQSettings

T = TypeVar("T")


_TURNS_AFTER_CLOSE = 5


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Do `work`, calls of the client library, in a task of its own.

    When a connection is lost the library throws `CancelledError` into whoever waits for an
    answer. In a task of its own that cannot be taken for a cancellation of ours.

    Raises:
        TransportError: the library cancelled it: the connection was lost.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
    if task.cancelled():
        raise lost()
    return task.result()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T], otherwise: Callable[[], BaseException]) -> T:
    """Do `work`, calls of the client library, and give it up when `event` is set.

    Args:
        event: what ends the wait.
        work: what is waited for.
        otherwise: makes what is raised when the event came first.

    Raises:
        TransportError: the library cancelled it: the connection was lost.
        BaseException: what `otherwise` makes, or whatever `work` raised.
    """
    running, other = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([running, other], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise otherwise()
        if running.cancelled():
            raise lost()
        return running.result()
    finally:
        for task in (running, other):
            task.cancel()
        await asyncio.gather(running, other, return_exceptions=True)


def lost() -> TransportError:
    """The error for an answer that will not come."""
    return TransportError("the connection was lost before the broker answered")


async def connect(address: Address, settings: RabbitMQSettings, context: ssl.SSLContext | None) -> AbstractConnection:
    """Connect and log in.

    Args:
        address: where.
        settings: heartbeat, names, times.
        context: of TLS; given exactly where `address.is_tls`.

    Raises:
        TlsError: TLS is asked for, and none came about or the certificate is not trusted.
        ConfigurationError: the broker refuses the login or the virtual host.
        TransportError: the broker cannot be reached in time.
    """
    url = URL(address.url).with_query(heartbeat=str(settings.heartbeat), name=settings.connection_name)
    try:
        async with asyncio.timeout(settings.connect_timeout):
            return await apart(aio_pika.connect(url, ssl_context=context))
    except Exception as error:
        raise _translated(error, address) from error


def _translated(error: Exception, address: Address) -> Exception:
    """The client library's error in words of ours; its text came from the peer and stays the cause."""
    refused = tls_error(error, address) if address.is_tls else None
    if refused is not None:
        return refused
    if isinstance(error, ProbableAuthenticationError | AuthenticationError):
        return ConfigurationError(f"the broker at {address} refuses the login: check user and password in its address")
    if isinstance(error, InvalidFrameError | AMQPInternalError):
        return ConfigurationError(
            f"the broker at {address} refuses the virtual host: it must exist, and the user must have permissions in it"
        )
    return TransportError(
        f"the broker at {address} cannot be reached: check host and port in its address, and that the broker runs"
    )


async def hang_up(connection: AbstractConnection) -> None:
    """Close, and let the client library's last tasks end.

    It starts them a turn or two of the loop after its `close` returned; a loop that ends at once
    would report them as destroyed while pending.
    """
    await connection.close()
    for _ in range(_TURNS_AFTER_CLOSE):
        await asyncio.sleep(0)


async def leave(connection: AbstractConnection, patience: float) -> None:
    """As `hang_up`, in an orderly way if that ends in `patience` seconds. Raises nothing of the client library's."""
    goodbye = asyncio.ensure_future(hang_up(connection))
    try:
        await asyncio.wait([goodbye], timeout=patience)
    finally:
        goodbye.cancel()
    await asyncio.gather(goodbye, return_exceptions=True)
