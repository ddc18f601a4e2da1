"""What becomes of who waits for the broker when a link is lost, whatever the client library does about it."""

import asyncio
from typing import Any, cast

import pytest

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.bypass import Bypass
from inbox.adapters.rabbitmq.connection import unless
from inbox.adapters.rabbitmq.generation import Generation
from inbox.errors import TransportError


class Mute:
    """A connection of a library that leaves those who wait for an answer alone when the link is lost."""

    def __init__(self) -> None:
        self.close_callbacks: set[Any] = set()
        self.is_asked = asyncio.Event()

    async def channel(self, **_: Any) -> None:
        self.is_asked.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        """At once."""

    def lose(self) -> None:
        for each in self.close_callbacks:
            each(self, None)


def generation_of(connection: Mute) -> Generation:
    return Generation(cast("Any", connection), Bypass(), RabbitMQSettings(), lambda _: None)


async def test_starting_a_consumer_ends_when_the_link_is_lost() -> None:
    connection = Mute()
    generation = generation_of(connection)
    starting = asyncio.create_task(generation.unless_lost(generation.consume("orders", lambda _: None, prefetch=1)))
    await connection.is_asked.wait()
    connection.lose()
    with pytest.raises(TransportError, match="lost before the broker answered"):
        await asyncio.wait_for(starting, 10)


async def test_what_the_sink_raised_meanwhile_is_why() -> None:
    connection = Mute()
    generation = generation_of(connection)
    starting = asyncio.create_task(generation.unless_lost(generation.consume("orders", lambda _: None, prefetch=1)))
    await connection.is_asked.wait()
    generation._fail(LookupError("x"))
    with pytest.raises(LookupError):
        await asyncio.wait_for(starting, 10)


async def test_starting_a_consumer_ends_when_nothing_is_answered_in_time() -> None:
    transport = RabbitMQ("amqp://localhost/", "orders", settings=RabbitMQSettings(connect_timeout=0.05))
    with pytest.raises(TransportError, match="does not answer about its consumers"):
        await asyncio.wait_for(transport._start_consumers(generation_of(Mute()), lambda _: None), 10)


async def test_what_is_done_in_time_is_answered_and_a_cancellation_of_the_librarys_is_a_lost_link() -> None:
    event = asyncio.Event()

    async def answered() -> int:
        return 7

    async def cancelled() -> None:
        raise asyncio.CancelledError

    assert await unless(event, answered(), TimeoutError) == 7
    with pytest.raises(TransportError):
        await unless(event, cancelled(), TimeoutError)
    event.set()
    with pytest.raises(TimeoutError):
        await unless(event, asyncio.sleep(60), TimeoutError)
