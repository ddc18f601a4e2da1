"""One connection and what hangs on it. A delivery tag lives and dies with it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import aio_pika
from aiormq.exceptions import (
    AuthenticationError,
    ChannelAccessRefused,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from pamqp.exceptions import AMQPInternalError
from yarl import URL

from inbox.adapters.rabbitmq.delivery import read
from inbox.adapters.rabbitmq.settlement import Settler
from inbox.adapters.rabbitmq.tls import tls_error
from inbox.adapters.rabbitmq.topology import channel_of
from inbox.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from aio_pika.abc import AbstractConnection
    from aiormq.abc import AbstractChannel, DeliveredMessage

    from inbox.adapters.rabbitmq.settings import Address, RabbitMQSettings
    from inbox.ports import Sink

T = TypeVar("T")

#: Seconds between looks at whether the broker has taken the consumer away. Older client libraries
#: forget a consumer that the broker cancelled without telling anyone.
_CONSUMER_CHECK = 0.5

_TURNS_AFTER_CLOSE = 5


@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """Settles one delivery, on the channel that delivered it and no other."""

    settler: Settler
    tag: int

    def __repr__(self) -> str:
        return f"<Receipt {self.tag}>"


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
        raise TransportError("the connection was lost before the broker answered")
    return task.result()


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


class Generation:
    """One connection, from its making to its loss, with the consumers on it.

    Args:
        connection: just made.
        settings: the transport's.
        late: called with the number of settlements that came after the end.
    """

    def __init__(self, connection: AbstractConnection, settings: RabbitMQSettings, late: Callable[[int], None]) -> None:
        self._connection = connection
        self._settings = settings
        self._late = late
        self._consumers: list[Consumer] = []
        self._is_lost = asyncio.Event()
        self.failure: BaseException | None = None
        connection.close_callbacks.add(self._on_close)

    @property
    def is_lost(self) -> bool:
        """Whether it was found to be gone."""
        return self._is_lost.is_set()

    @property
    def is_consuming(self) -> bool:
        """Whether every consumer asked for was started, and the connection is not lost."""
        return bool(self._consumers) and not self.is_lost and all(consumer.is_started for consumer in self._consumers)

    @property
    def has_delivered(self) -> bool:
        """Whether anything came over it: then it was worth making."""
        return any(consumer.has_delivered for consumer in self._consumers)

    async def consume(self, queue: str, sink: Sink, *, prefetch: int, is_dead_letter: bool = False) -> None:
        """Start a consumer, on a channel of its own.

        Args:
            queue: an existing queue.
            sink: takes the deliveries.
            prefetch: most deliveries that the broker sends ahead of their settlement.
            is_dead_letter: the queue holds what the broker gave up.

        Raises:
            TransportError: the connection was lost, or someone else consumes the queue exclusively.
            TopologyError: the queue is not there.
        """
        try:
            async with channel_of(self._connection, f"queue {queue!r}", keep=True) as channel:
                channel.close_callbacks.add(self._on_close)
                consumer = Consumer(
                    await channel.get_underlay_channel(), queue, sink, is_dead_letter=is_dead_letter, fail=self._fail
                )
                self._consumers.append(consumer)
                await consumer.start(prefetch, self._settings, self._late)
        except ChannelAccessRefused as error:
            raise TransportError(f"queue {queue!r} may not be consumed: is there an exclusive consumer?") from error

    async def wait_lost(self) -> None:
        """Return when the connection, a channel or a consumer is gone.

        Raises:
            BaseException: what `sink` raised; a sink must not, so it is nobody's to swallow.
        """
        while not self._is_lost.is_set() and all(consumer.is_alive for consumer in self._consumers):
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONSUMER_CHECK):
                    await self._is_lost.wait()
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        """Take no more deliveries: `basic.cancel`, then hand back what came in between."""
        for consumer in self._consumers:
            consumer.drain()
        for consumer in self._consumers:
            await consumer.cancel(self._settings.close_timeout)

    async def close(self) -> None:
        """Write what is settled, then close, in an orderly way if that ends in time. Never raises."""
        goodbye = asyncio.create_task(self._close())
        _, unfinished = await asyncio.wait([goodbye], timeout=self._settings.close_timeout)
        for task in unfinished:
            task.cancel()
        self._end()
        await asyncio.gather(goodbye, return_exceptions=True)

    async def _close(self) -> None:
        if not self._is_lost.is_set():
            for consumer in self._consumers:
                # The channel first: its closing is queued behind the acknowledgements, while closing
                # the connection would overtake them.
                await consumer.close()
        self._end()
        await hang_up(self._connection)

    def _on_close(self, *_: Any) -> None:
        self._end()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._is_lost.set()

    def _end(self) -> None:
        self._is_lost.set()
        for consumer in self._consumers:
            consumer.end()


class Consumer:
    """One consumer of one queue on its own channel.

    Args:
        channel: of the client library, below aio-pika's objects: those parse properties again and
            would lose a message, and its slot in the prefetch, over an odd delivery mode.
        queue: what is consumed.
        sink: takes the deliveries.
        is_dead_letter: the queue holds what the broker gave up.
        fail: told what `sink` raised.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        queue: str,
        sink: Sink,
        *,
        is_dead_letter: bool,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._sink = sink
        self._is_dead_letter = is_dead_letter
        self._fail = fail
        self._tag: str | None = None
        self._settler: Settler | None = None
        self._is_draining = False
        self._held: list[int] = []
        self.has_delivered = False

    @property
    def is_started(self) -> bool:
        """Whether the broker answered to `basic.consume`."""
        return self._tag is not None

    @property
    def is_alive(self) -> bool:
        """Whether the broker still knows the consumer, as far as the client library was told."""
        consumers = self._channel.consumers  # type: ignore[attr-defined]  # public, though not in the abstract class
        return self._is_draining or self._tag in consumers

    async def start(self, prefetch: int, settings: RabbitMQSettings, late: Callable[[int], None]) -> None:
        """`basic.qos`, `basic.consume`."""
        self._settler = Settler(
            self._channel,
            prefetch=prefetch,
            coalesce=settings.coalesce_acks,
            linger=settings.ack_linger,
            late=late,
        )
        await self._channel.basic_qos(prefetch_count=prefetch, timeout=settings.connect_timeout)
        answer = await self._channel.basic_consume(
            self._queue, self._on_message, no_ack=False, timeout=settings.connect_timeout
        )
        self._tag = answer.consumer_tag

    def drain(self) -> None:
        """From now on hold what arrives."""
        self._is_draining = True

    async def cancel(self, timeout: float) -> None:  # noqa: ASYNC109 - the client library's own timeout
        """`basic.cancel`; then hand back what was held. Never raises: a lost channel hands it back too."""
        if self._settler is None or self._tag is None:
            return
        with suppress(Exception):
            await apart(self._channel.basic_cancel(self._tag, timeout=timeout))
        for tag in self._held:
            self._settler.release(tag)
        self._held.clear()

    async def close(self) -> None:
        """Write what is settled and close the channel behind it."""
        if self._settler is not None:
            await self._settler.wait_flushed()
        if not self._channel.is_closed:
            await self._channel.close()

    def end(self) -> None:
        """The channel is gone."""
        if self._settler is not None:
            self._settler.close()

    async def _on_message(self, message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        settler = self._settler
        if tag is None or settler is None:
            return
        settler.delivered(tag)
        self.has_delivered = True
        if self._is_draining:
            # Handed back after the cancel: sooner, and the broker could send it to us again.
            self._held.append(tag)
            return
        try:
            receipt = Receipt(settler, tag)
            self._sink(read(message, queue=self._queue, is_dead_letter=self._is_dead_letter, receipt=receipt))
        except Exception as error:  # noqa: BLE001 - else it would be lost in a task, and the slot with it
            self._fail(error)
