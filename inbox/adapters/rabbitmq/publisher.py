"""Publishing one message so that its loss is noticed: for examples, tools and copies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from aio_pika import DeliveryMode, Message
from aio_pika.exceptions import DeliveryError

from inbox.adapters.rabbitmq.connection import apart, connect, hang_up
from inbox.adapters.rabbitmq.settings import RabbitMQSettings, parse_address
from inbox.adapters.rabbitmq.tls import make_context
from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from aio_pika.abc import AbstractChannel, AbstractConnection


class Publisher:
    """Publishes over a connection of its own, an asynchronous context manager.

    Not the consumers' connection: a broker in alarm stops reading from connections that publish,
    and acknowledgements would wait with the publishes (rabbitmq.com/docs/alarms).

    Args:
        url: `amqp://user:password@host:port/vhost`.
        settings: TLS, heartbeat, times.

    Raises:
        ConfigurationError: the address is none.
    """

    def __init__(self, url: str, settings: RabbitMQSettings | None = None) -> None:
        self._settings = settings or RabbitMQSettings()
        self._address = parse_address(url, self._settings.tls)
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    def __repr__(self) -> str:
        return f"<Publisher to {self._address}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            TlsError, ConfigurationError, TransportError: as `RabbitMQ.open`.
        """
        context = make_context(self._settings.tls) if self._address.is_tls else None
        self._connection = await connect(self._address, self._settings, context)
        # Without `on_return_raises` a returned message is no error to the client library.
        self._channel = self._connection.channel(publisher_confirms=True, on_return_raises=True)
        await apart(self._channel.initialize())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await hang_up(self._connection)

    async def publish(
        self,
        body: bytes,
        *,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Publish one persistent message and wait until the broker has it, in a queue.

        Args:
            body: the payload.
            exchange: where to; "" is the default exchange, which routes to the queue named by `routing_key`.
            routing_key: the routing key.
            headers: application headers; `bytes` travel as byte arrays (field type `x`).
            content_type: media type of the body.

        Raises:
            TransportError: no queue took it (it was mandatory and came back), the broker refused it, or nobody
                knows, because no confirmation came in `confirm_timeout`: publish it again, with the same id.
        """
        if self._channel is None:
            raise TransportError("the publisher is not open: use it in `async with`")
        message = Message(
            body,
            headers={name: _field(value) for name, value in (headers or {}).items()},
            content_type=content_type,
            delivery_mode=DeliveryMode.PERSISTENT,
        )
        target = (
            await self._channel.get_exchange(exchange, ensure=False) if exchange else self._channel.default_exchange
        )
        try:
            async with asyncio.timeout(self._settings.confirm_timeout):
                await apart(target.publish(message, routing_key, mandatory=True))
        except DeliveryError as error:
            raise TransportError("no queue took the message, or the broker refused it: is the queue bound?") from error
        except Exception as error:
            raise TransportError("the broker did not confirm the message: it may or may not have it") from error


def _field(value: Any) -> Any:
    """The client library writes byte arrays from `bytearray` only, and refuses `bytes`."""
    return bytearray(value) if isinstance(value, bytes) else value
