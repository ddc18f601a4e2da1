"""How much waits in the queues of a transport, asked over a connection that is there for the question alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed

from inbox.adapters.rabbitmq.connection import apart, connect, leave
from inbox.adapters.rabbitmq.topology import channel_of
from inbox.core.depths import QueueDepth, Role
from inbox.errors import TopologyError, TransportError

__all__ = ["QueueDepth", "Role", "depths_of"]

if TYPE_CHECKING:
    import ssl

    from aio_pika.abc import AbstractConnection

    from inbox.adapters.rabbitmq.settings import Address, RabbitMQSettings
    from inbox.adapters.rabbitmq.topology import Topology


async def depths_of(
    topology: Topology, address: Address, settings: RabbitMQSettings, context: ssl.SSLContext | None
) -> list[QueueDepth]:
    """Ask for every queue of `topology`; see `RabbitMQ.depths`."""
    wanted: list[tuple[str, Role]] = [(topology.queue, "main")]
    if topology.dead_letter_queue is not None:
        wanted.append((topology.dead_letter_queue, "dead"))
    wanted += [(retry.name, "retry") for retry in topology.retry_queues]
    connection = await connect(address, settings, context)
    try:
        async with asyncio.timeout(settings.connect_timeout):
            return await apart(_ask(connection, wanted))
    except TimeoutError as error:
        raise TransportError(f"the broker at {address} does not answer about its queues") from error
    finally:
        await leave(connection, settings.close_timeout)


async def _ask(connection: AbstractConnection, wanted: list[tuple[str, Role]]) -> list[QueueDepth]:
    return [await _depth(connection, name, role) for name, role in wanted]


async def _depth(connection: AbstractConnection, name: str, role: Role) -> QueueDepth:
    try:
        async with channel_of(connection, f"queue {name!r}") as channel:
            answer = (await channel.declare_queue(name, passive=True)).declaration_result
    except (ChannelAccessRefused, ChannelPreconditionFailed) as error:
        raise TopologyError(f"the broker's user may not look at queue {name!r}: grant it a permission on it") from error
    except TopologyError:
        return QueueDepth(name, role, None, 0)
    return QueueDepth(name, role, answer.message_count, answer.consumer_count or 0)
