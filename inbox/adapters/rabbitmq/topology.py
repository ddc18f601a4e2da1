"""Queues, exchanges and bindings: declared or checked each time a connection is made, never fought over."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from inbox.adapters.rabbitmq.arguments import (
    NEVER_CREATE,
    NO_DELIVERY_LIMIT,
    Argument,
    Mismatch,
    QueueFacts,
    closes_cycle,
    parse_mismatch,
    problems_of,
)
from inbox.errors import TopologyError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel, AbstractConnection

    from inbox.adapters.rabbitmq.retry_queues import RetryQueue
    from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings

#: More than a queue can have: each refusal tells one argument.
_MOST_ARGUMENTS = 30


@dataclass(frozen=True, slots=True)
class Topology:
    """What one transport needs on the broker.

    Attributes:
        queue: the queue to consume.
        bindings: its bindings; made only when the settings say `declare`.
        settings: the transport's settings.
        retry_queues: where copies wait.
    """

    queue: str
    bindings: tuple[Binding, ...]
    settings: RabbitMQSettings
    retry_queues: tuple[RetryQueue, ...] = ()

    @property
    def dead_letter_queue(self) -> str | None:
        """The queue of dead letters that is consumed as well; None where there is none."""
        if self.settings.dead_letter_queue is not None:
            return self.settings.dead_letter_queue
        return f"{self.queue}.dead" if self.settings.declare else None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the consumed queue.

        Dead letters of a quorum queue are moved at least once, which needs `reject-publish`
        (rabbitmq.com/docs/quorum-queues, "Activating at-least-once dead-lettering"); by default
        they are lost where their target is missing.
        """
        arguments = self._kind() | {
            "x-dead-letter-exchange": self.settings.dead_letter_exchange,
            "x-dead-letter-routing-key": self.dead_letter_queue,
        }
        if self.settings.queue_type == "quorum":
            arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        return arguments

    @property
    def dead_letter_arguments(self) -> dict[str, Any]:
        """Arguments of the queue of dead letters, which gives nothing up."""
        return self._kind()

    def _kind(self) -> dict[str, Any]:
        if self.settings.queue_type == "quorum":
            return {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}
        return {"x-queue-type": "classic"}

    async def establish(self, connection: AbstractConnection) -> None:
        """Declare, or check, everything.

        Args:
            connection: an open connection. Each question has a channel of its own, because a
                refusal closes the channel (AMQP 0-9-1, 1.2).

        Raises:
            TopologyError: what exists differs from what is asked for, is missing, or would drop
                events; the message says what to do.
            TransportError: the connection was lost, or a queue is locked or its node is down: again later.
        """
        if self.settings.declare:
            await self._declare(connection)
        else:
            await self._check(connection)

    async def _declare(self, connection: AbstractConnection) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - always named when declaring
        if self.settings.dead_letter_exchange:
            await _declare_exchange(connection, self.settings.dead_letter_exchange, "direct")
        await declare_queue(connection, self.dead_letter_queue, self.dead_letter_arguments)
        if self.settings.dead_letter_exchange:
            await _bind(connection, self.dead_letter_queue, self.settings.dead_letter_exchange, self.dead_letter_queue)
        await declare_queue(connection, self.queue, self.arguments)
        for retry in self.retry_queues:
            await declare_queue(connection, retry.name, retry.arguments)
        for binding in self.bindings:
            if binding.declare is not None:
                await _declare_exchange(connection, binding.exchange, binding.declare)
            await _bind(connection, self.queue, binding.exchange, binding.routing_key)

    async def _check(self, connection: AbstractConnection) -> None:
        await _check_exists(connection, self.queue)
        if self.dead_letter_queue is not None:
            await _check_exists(connection, self.dead_letter_queue)
        for retry in self.retry_queues:
            await _check_retry_queue(connection, retry)
        facts = await facts_of(connection, self.queue)
        if facts is None:
            return
        problems = problems_of(facts, dead_letters_by_policy=self.settings.dead_letters_by_policy)
        if problems:
            raise TopologyError(f"queue {self.queue!r} would lose events: {'; '.join(problems)}")
        await self._check_dead_letters(connection, facts)

    async def _check_dead_letters(self, connection: AbstractConnection, facts: QueueFacts) -> None:
        if facts.gives_up and facts.dead_letter_exchange:
            await _check_exchange_exists(connection, facts.dead_letter_exchange, self.queue)
        path = [facts]
        while (following := path[-1].next_queue) is not None:
            if closes_cycle(path, following):
                raise TopologyError(
                    f"dead letters of queue {self.queue!r} come back to {following!r} with no rejection on the way, "
                    "and the broker then drops them: break the cycle, or take its limits and times to live away"
                )
            if following in [known.name for known in path]:
                return
            if path[-1].gives_up:
                await _check_exists(connection, following)
            found = await facts_of(connection, following)
            if found is None:
                return
            path.append(found)


async def facts_of(connection: AbstractConnection, queue: str) -> QueueFacts | None:
    """Find out the arguments of a queue. Creates nothing.

    Args:
        connection: an open connection.
        queue: the queue's name.

    Returns:
        What the broker says; None where the user may not ask, which takes the permission to configure.

    Raises:
        TopologyError: there is no such queue, or it does not survive a restart of the broker.
        TransportError: the connection was lost, or the queue is locked or its node down.
    """
    known: dict[str, Any] = {}
    for _ in range(_MOST_ARGUMENTS):
        try:
            async with channel_of(connection, f"queue {queue!r}") as channel:
                await channel.declare_queue(queue, durable=True, arguments=NEVER_CREATE | known)
        except ChannelAccessRefused:
            return None
        except ChannelPreconditionFailed as error:
            mismatch = parse_mismatch(str(error))
            if mismatch is None:
                raise _missing(queue) from error
            if not mismatch.key.startswith("x-"):
                raise TopologyError(
                    f"queue {queue!r} is not what keeps events: {_both(mismatch)}; declare it durable, neither "
                    "exclusive nor auto-deleted"
                ) from error
            if mismatch.key in NEVER_CREATE:
                break
            known[mismatch.key] = mismatch.existing
        else:
            break
    return QueueFacts(queue, known, broker_version(connection))


def broker_version(connection: AbstractConnection) -> tuple[int, int]:
    """Major and minor version of the broker; (0, 0) where it keeps it to itself."""
    transport = connection.transport
    properties = transport.connection.server_properties if transport is not None else {}
    parts = str(properties.get("version", "")).split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 0, 0


@asynccontextmanager
async def channel_of(
    connection: AbstractConnection, what: str, *, keep: bool = False
) -> AsyncIterator[AbstractChannel]:
    """A channel for one question about `what`, a queue or exchange named for people.

    Args:
        connection: an open connection.
        what: begins with the word queue or exchange.
        keep: leave the channel open.

    Raises:
        ChannelPreconditionFailed, ChannelAccessRefused: as the broker answers; the caller says why.
        TopologyError: `what` is not there.
        TransportError: it is locked or its node is down, or the connection was lost.
    """
    try:
        channel = await connection.channel(publisher_confirms=False)
        yield channel
        if not keep:
            await channel.close()
    except (ChannelPreconditionFailed, ChannelAccessRefused):
        raise
    except ChannelNotFoundEntity as error:
        if "inaccessible" in str(error) or "stopped" in str(error):
            raise TransportError(f"{what} is there, but its node is down") from error
        raise TopologyError(f"{what} does not exist: {_create_it(what)}") from error
    except ChannelLockedResource as error:
        raise TransportError(f"{what} is locked: an exclusive connection still holds it") from error
    except TopologyError:
        raise
    except Exception as error:
        raise TransportError(f"the broker did not answer about {what}") from error


def _create_it(what: str) -> str:
    if what.startswith("queue"):
        return "declare it, or let RabbitMQSettings(declare=True) do so"
    return "its owner must declare it first; if it is yours, say so with Binding(..., declare='topic')"


def _missing(queue: str) -> TopologyError:
    return TopologyError(f"queue {queue!r} does not exist: {_create_it('queue')}")


def _both(mismatch: Mismatch) -> str:
    return f"{mismatch.key} is {_shown(mismatch.existing)} on the broker, asked for is {_shown(mismatch.asked)}"


def _shown(value: Argument) -> str:
    """An argument's value for people: a name or number of the operator's, cut to a sane length."""
    return "not set" if value is None else repr(value)[:80]


async def declare_queue(connection: AbstractConnection, name: str, arguments: dict[str, Any]) -> None:
    """Declare a durable queue.

    Raises:
        TopologyError: it exists with other properties, or the user may not declare it.
        TransportError: the connection was lost, or the queue is locked or its node down.
    """
    try:
        async with channel_of(connection, f"queue {name!r}") as channel:
            await channel.declare_queue(name, durable=True, arguments=arguments)
    except ChannelPreconditionFailed as error:
        mismatch = parse_mismatch(str(error))
        told = _both(mismatch) if mismatch else "the broker refuses its arguments"
        raise TopologyError(
            f"queue {name!r} exists with other properties: {told}. Delete or rename it, set RabbitMQSettings to what "
            "it is, or take it as it is with RabbitMQSettings(declare=False)"
        ) from error
    except ChannelAccessRefused as error:
        raise _refused(f"declare queue {name!r}", "configure") from error


async def _declare_exchange(connection: AbstractConnection, name: str, kind: str) -> None:
    try:
        async with channel_of(connection, f"exchange {name!r}") as channel:
            await channel.declare_exchange(name, kind, durable=True)
    except ChannelPreconditionFailed as error:
        mismatch = parse_mismatch(str(error))
        told = _both(mismatch) if mismatch else "the broker refuses its arguments"
        raise TopologyError(f"exchange {name!r} exists with other properties: {told}. Do not declare it") from error
    except ChannelAccessRefused as error:
        raise _refused(f"declare exchange {name!r}", "configure") from error


async def _bind(connection: AbstractConnection, queue: str, exchange: str, routing_key: str) -> None:
    try:
        async with channel_of(connection, f"exchange {exchange!r}") as channel:
            underlay = await channel.get_underlay_channel()
            await underlay.queue_bind(queue, exchange, routing_key)
    except (ChannelAccessRefused, ChannelPreconditionFailed) as error:
        raise _refused(
            f"bind queue {queue!r} to exchange {exchange!r}", "write on the queue and read on the exchange"
        ) from error


async def _check_exists(connection: AbstractConnection, queue: str) -> None:
    try:
        async with channel_of(connection, f"queue {queue!r}") as channel:
            await channel.declare_queue(queue, passive=True)
    except (ChannelAccessRefused, ChannelPreconditionFailed) as error:
        raise _refused(f"look at queue {queue!r}", "configure, write or read") from error


async def _check_retry_queue(connection: AbstractConnection, retry: RetryQueue) -> None:
    in_hand = "set RabbitMQSettings(retry_queues=False), which holds in hand what is to wait"
    try:
        await _check_exists(connection, retry.name)
    except TopologyError as error:
        raise TopologyError(f"{error}. It keeps what waits for {retry.ttl} ms; or {in_hand}") from error
    facts = await facts_of(connection, retry.name)
    lacking = retry.problems(facts) if facts is not None else []
    if lacking:
        raise TopologyError(
            f"queue {retry.name!r} would not bring back, or not in time, what waits in it: {'; '.join(lacking)}. "
            f"Declare it so, by arguments and not by a policy; or {in_hand}"
        )


async def _check_exchange_exists(connection: AbstractConnection, exchange: str, queue: str) -> None:
    try:
        async with channel_of(
            connection, f"exchange {exchange!r}, where queue {queue!r} sends its dead letters,"
        ) as channel:
            await channel.declare_exchange(exchange, passive=True)
    except (ChannelAccessRefused, ChannelPreconditionFailed):
        return


def _refused(what: str, permission: str) -> TopologyError:
    return TopologyError(f"the broker's user may not {what}: grant it the permission to {permission}")
