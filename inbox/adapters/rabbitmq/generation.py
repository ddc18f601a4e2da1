"""One connection from its making to its loss, with the consumers on it. A delivery tag lives and dies with it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from aiormq.exceptions import ChannelAccessRefused

from inbox.adapters.rabbitmq.connection import hang_up, lost, unless
from inbox.adapters.rabbitmq.consumer import Consumer
from inbox.adapters.rabbitmq.topology import channel_of
from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aio_pika.abc import AbstractConnection

    from inbox.adapters.rabbitmq.bypass import Bypass
    from inbox.adapters.rabbitmq.settings import RabbitMQSettings
    from inbox.ports import Sink

T = TypeVar("T")

#: Seconds between looks at whether the broker has taken the consumer away. Older client libraries
#: forget a consumer that the broker cancelled without telling anyone.
_CONSUMER_CHECK = 0.5


class Generation:
    """One connection, from its making to its loss, with the consumers on it.

    Args:
        connection: just made.
        bypass: what it delivers past the client library.
        settings: the transport's.
        late: called with the number of settlements that came after the end.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        bypass: Bypass,
        settings: RabbitMQSettings,
        late: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._bypass = bypass
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
                    await channel.get_underlay_channel(),
                    queue,
                    self._bypass,
                    sink,
                    is_dead_letter=is_dead_letter,
                    fail=self._fail,
                )
                self._consumers.append(consumer)
                await consumer.start(prefetch, self._settings, self._late)
        except ChannelAccessRefused as error:
            raise TransportError(f"queue {queue!r} may not be consumed: is there an exclusive consumer?") from error

    async def unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` over this connection, and give it up when that is lost, whether or not the client library does.

        Raises:
            TransportError: it was lost.
            BaseException: whatever `work` raised, or `sink` meanwhile.
        """
        return await unless(self._is_lost, work, lambda: self.failure or lost())

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
