"""What the laboratory asks of a queue: to be empty at first, to take events, and to say how much is left."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, Protocol

from aiormq.exceptions import ChannelNotFoundEntity

from inbox.adapters.rabbitmq.connection import connect, leave
from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.adapters.rabbitmq.settings import parse_address
from inbox.adapters.rabbitmq.tls import make_context
from inbox.errors import ConfigurationError, TransportError
from inbox.testing.lab.database import LabError, is_disposable, require_disposable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aio_pika.abc import AbstractChannel, AbstractConnection

    from inbox.adapters.embedded import SQLiteQueue
    from inbox.adapters.rabbitmq.transport import RabbitMQ
    from inbox.core.crashpoints import CrashPoint
    from inbox.core.lifecycle import Command
    from inbox.testing.lab.events import Message
    from inbox.testing.lab.stand_in import StandIn

__all__ = ["EmbeddedQueue", "Queue", "RabbitQueue", "require_point"]

#: Seconds in which a broker notices that a process has died, and puts back what it had.
_PATIENCE: Final = 15.0


class Queue(Protocol):
    """One queue of the adopter's, with those beside it that belong to it."""

    @property
    def name(self) -> str:
        """Of the queue, as people know it."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether what a dead worker had in hand comes back by itself, at once."""
        ...

    @property
    def never(self) -> frozenset[Command]:
        """Commands that no worker over it is ever given, whatever the events: nobody can be killed at them."""
        ...

    @property
    def stand_in(self) -> StandIn | None:
        """Where workers go in the place of what the target names; None where they go there. Only while it is open."""
        ...

    def fit(self, message: Message) -> Message:
        """`message` as this queue brings it to a handler.

        Raises:
            ConfigurationError: it cannot; the message says what to write.
        """
        ...

    async def open(self, *, disposable: bool) -> None:
        """Connect, and see that nothing of anybody's is in it.

        Args:
            disposable: whether everything in it may be deleted.

        Raises:
            ConfigurationError: it holds events, or somebody consumes from it.
            StartupError, TransportError: it cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...

    async def purge(self) -> None:
        """Delete everything in it, and in its retry queues and dead letters.

        Raises:
            LabError: somebody else consumes from it.
        """
        ...

    async def publish(self, messages: Iterable[Message]) -> None:
        """Publish, one after the other, each known to be in a queue.

        Raises:
            TransportError: one is not.
        """
        ...

    async def ready(self) -> int:
        """How much waits in all of them. What a worker has in hand may be missing."""
        ...

    async def given_up(self) -> frozenset[str]:
        """Ids of the events that it brings to nobody any more, though nobody has settled them."""
        ...

    async def bury(self) -> None:
        """Take back at once what workers had in hand, all of which are dead."""
        ...


def require_point(queue: Queue, point: CrashPoint) -> None:
    """Refuse a point that no worker over `queue` comes to, whatever the events.

    Raises:
        ConfigurationError: it is one.
    """
    if point.command in queue.never:
        raise ConfigurationError(f"{point} is no point over {queue.name}: a leased subscription keeps no copies")


class RabbitQueue:
    """See `Queue`.

    Args:
        transport: the target's.
        delays: seconds for which the target's workers keep copies, each list of them that is to be looked at.
    """

    def __init__(self, transport: RabbitMQ, delays: Sequence[Sequence[float]]) -> None:
        # The transport keeps its password to itself, and the lab logs in as it does.
        self._url = transport._address.url  # noqa: SLF001 - see above
        self._settings = transport.settings
        self._queue = transport.topology.queue
        copies = [retry.name for steps in delays for retry in retry_queues(self._queue, steps)]
        dead = transport.topology.dead_letter_queue
        self._beside = [name for name in dict.fromkeys([dead, *copies]) if name is not None]
        self._connection: AbstractConnection | None = None
        self._publisher: Publisher | None = None

    @property
    def name(self) -> str:
        """See `Queue.name`."""
        return self._queue

    @property
    def is_quick(self) -> bool:
        """See `Queue.is_quick`: the broker sees the broken connection."""
        return True

    @property
    def never(self) -> frozenset[Command]:
        """See `Queue.never`."""
        return frozenset()

    @property
    def stand_in(self) -> StandIn | None:
        """See `Queue.stand_in`: workers go where the target says."""
        return None

    def fit(self, message: Message) -> Message:
        """See `Queue.fit`: it brings whatever it is given."""
        return message

    async def open(self, *, disposable: bool) -> None:
        """See `Queue.open`."""
        address = parse_address(self._url, self._settings.tls)
        context = make_context(self._settings.tls) if address.is_tls else None
        self._connection = await connect(address, self._settings, context)
        publisher = Publisher(self._url, self._settings)
        self._publisher = await publisher.__aenter__()
        if not disposable and not is_disposable(address.vhost) and not is_disposable(self._queue):
            ready, consumers = await self._count(self._queue)
            held = ready + sum([(await self._count(name))[0] for name in self._beside])
            if held or consumers:
                facts = [f"holds {held} message{'s' * (held > 1)}"] if held else []
                facts += ["somebody consumes from"] if consumers else []
                require_disposable("queue", self._queue, f", which {' and '.join(facts)},")

    async def close(self) -> None:
        """See `Queue.close`."""
        publisher, self._publisher = self._publisher, None
        connection, self._connection = self._connection, None
        if publisher is not None:
            await publisher.__aexit__(None, None, None)
        if connection is not None:
            await leave(connection, self._settings.close_timeout)

    async def purge(self) -> None:
        """See `Queue.purge`. What a dead worker had in hand comes back only when the broker has noticed its death."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while True:
                    for name in (self._queue, *self._beside):
                        await self._purge(name)
                    if await self._count(self._queue) == (0, 0):
                        return
                    await asyncio.sleep(0.02)
        raise LabError(f"somebody else consumes from queue {self._queue!r}: stop that worker first")

    async def publish(self, messages: Iterable[Message]) -> None:
        """See `Queue.publish`."""
        if self._publisher is None:
            raise TransportError("the lab is not open")
        for message in messages:
            await self._publisher.publish(
                message.body,
                exchange=message.exchange or "",
                routing_key=self._queue if message.routing_key is None else message.routing_key,
                headers=message.headers,
                content_type=message.content_type,
            )

    async def ready(self) -> int:
        """See `Queue.ready`."""
        return sum([(await self._count(name))[0] for name in (self._queue, *self._beside)])

    async def given_up(self) -> frozenset[str]:
        """See `Queue.given_up`: what it drops lies among the dead letters, which count."""
        return frozenset()

    async def bury(self) -> None:
        """See `Queue.bury`: the broker does so itself when the connection breaks."""

    async def _count(self, name: str) -> tuple[int, int]:
        """Ready messages and consumers; none where there is no such queue."""
        channel = await self._channel()
        try:
            answer = (await channel.declare_queue(name, passive=True)).declaration_result
        except ChannelNotFoundEntity:
            return 0, 0
        await channel.close()
        return answer.message_count or 0, answer.consumer_count or 0

    async def _purge(self, name: str) -> None:
        channel = await self._channel()
        try:
            await (await channel.declare_queue(name, passive=True)).purge()
        except ChannelNotFoundEntity:
            return
        await channel.close()

    async def _channel(self) -> AbstractChannel:
        if self._connection is None:
            raise TransportError("the lab is not open")
        return await self._connection.channel()


class EmbeddedQueue:
    """See `Queue`.

    Args:
        transport: the target's.
    """

    def __init__(self, transport: SQLiteQueue) -> None:
        from inbox.adapters.embedded import SQLitePublisher  # noqa: PLC0415 - needs an extra, as its caller does

        self._transport = transport
        self._publisher = SQLitePublisher(transport.path)
        self._is_open = False

    @property
    def name(self) -> str:
        """See `Queue.name`."""
        return self._transport.path.name

    @property
    def is_quick(self) -> bool:
        """See `Queue.is_quick`: a lease has to end first, and `bury` ends those of all workers."""
        return False

    @property
    def never(self) -> frozenset[Command]:
        """See `Queue.never`."""
        return frozenset()

    @property
    def stand_in(self) -> StandIn | None:
        """See `Queue.stand_in`: workers go where the target says."""
        return None

    def fit(self, message: Message) -> Message:
        """See `Queue.fit`: it brings whatever it is given."""
        return message

    async def open(self, *, disposable: bool) -> None:
        """See `Queue.open`."""
        await self._publisher.__aenter__()
        self._is_open = True
        if not disposable and (await self._transport.depth()).total:
            require_disposable("queue", self.name)

    async def close(self) -> None:
        """See `Queue.close`."""
        if self._is_open:
            self._is_open = False
            await self._publisher.__aexit__(None, None, None)

    async def purge(self) -> None:
        """See `Queue.purge`."""
        await asyncio.to_thread(self._run, "DELETE FROM inbox_message")

    async def publish(self, messages: Iterable[Message]) -> None:
        """See `Queue.publish`."""
        for message in messages:
            await self._publisher.publish(
                message.body,
                exchange=message.exchange or "",
                routing_key=message.routing_key or "",
                headers=message.headers,
                content_type=message.content_type,
            )

    async def ready(self) -> int:
        """See `Queue.ready`. What is in hand is counted too."""
        return (await self._transport.depth()).total

    async def given_up(self) -> frozenset[str]:
        """See `Queue.given_up`: it drops nothing."""
        return frozenset()

    async def bury(self) -> None:
        """See `Queue.bury`: their leases end now."""
        await asyncio.to_thread(self._run, "UPDATE inbox_message SET due_at = 0 WHERE lease IS NOT NULL")

    def _run(self, sql: str) -> None:
        try:
            with closing(sqlite3.connect(self._transport.path, timeout=_PATIENCE, isolation_level=None)) as raw:
                raw.execute(sql)
        except sqlite3.Error as error:
            raise ConfigurationError(f"the queue {self._transport.path} cannot be written") from error
