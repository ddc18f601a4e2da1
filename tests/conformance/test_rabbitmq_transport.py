"""The transport conformance suite over RabbitMQ: both brokers, both kinds of queue."""

from collections.abc import AsyncIterator
from typing import cast
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.adapters.rabbitmq.settings import QueueKind
from inbox.testing.conformance.transport import DELAYS, TransportConformance
from inbox.testing.faults import AmqpFraming, FaultProxy
from tests.pairs import Pair


class RabbitRig:
    def __init__(self, pair: Pair, proxy: FaultProxy, connection: AbstractConnection, kind: QueueKind) -> None:
        self._pair = pair
        self._proxy = proxy
        self._connection = connection
        self._queue = pair.unique("orders")
        pair.discard(f"{self._queue}.dead")
        for retry in retry_queues(self._queue, DELAYS):
            pair.discard(retry.name)
        self._settings = RabbitMQSettings(queue_type=kind, reconnect_max_delay=0.5)

    def url(self, port: int) -> str:
        parts = urlsplit(self._pair.amqp_url)
        return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()

    def make(self) -> RabbitMQ:
        return RabbitMQ(self.url(self._proxy.port), self._queue, settings=self._settings)

    def make_unreachable(self) -> RabbitMQ:
        return RabbitMQ(self.url(1), self._queue, settings=self._settings)

    async def prepare(self) -> None:
        transport = self.make()
        await transport.open(prefetch=1)
        await transport.close()

    async def publish(self, *bodies: bytes) -> None:
        async with self._connection.channel() as channel:
            for body in bodies:
                await channel.default_exchange.publish(
                    aio_pika.Message(body, delivery_mode=2), self._queue, mandatory=True
                )

    async def count_left(self) -> int:
        async with self._connection.channel() as channel:
            queue = await channel.declare_queue(self._queue, passive=True)
            return cast("int", queue.declaration_result.message_count)

    async def cut(self) -> None:
        self._proxy.cut()


class TestRabbitMQ(TransportConformance):
    @pytest.fixture(params=["quorum", "classic"])
    async def rig(self, pair: Pair, request: pytest.FixtureRequest) -> AsyncIterator[RabbitRig]:
        broker = pair.broker
        async with (
            FaultProxy(broker.host, broker.port, framing=AmqpFraming) as proxy,
            await aio_pika.connect(pair.amqp_url) as connection,
        ):
            rig = RabbitRig(pair, proxy, connection, request.param)
            await rig.prepare()
            yield rig
