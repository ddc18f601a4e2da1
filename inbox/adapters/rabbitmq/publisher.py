"""Publishing so that a loss is noticed: for copies, examples and tools.

A publisher has a connection of its own. A broker in alarm stops reading from connections that publish, and
acknowledgements would wait with the publishes (rabbitmq.com/docs/alarms).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Self

from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic

from inbox.adapters.rabbitmq.connection import apart, connect, leave
from inbox.adapters.rabbitmq.encoding import ExactProperties, InexactError, encode_properties
from inbox.adapters.rabbitmq.settings import SHORT_STRING_OCTETS, RabbitMQSettings, parse_address
from inbox.adapters.rabbitmq.tls import make_context
from inbox.errors import InboxError, StartupError, TransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from types import TracebackType

    from aio_pika.abc import AbstractConnection
    from aiormq.abc import AbstractChannel

    from inbox.adapters.rabbitmq.settings import Address

#: Octets of a content header before its properties (AMQP 0-9-1, 4.2.6.1).
_HEADER_OCTETS = 12


class Returned(TransportError):
    """No queue took the message."""


class Link:
    """One connection with one channel that confirms: any number may be on their way at once.

    What is on its way is never cancelled: the client library numbers a message before it sends it, and one that was
    cancelled in between would let all that follow be taken for confirmed by their neighbours' confirmations. It finds
    a returned message by its message id; so each has one that nothing else has, or of two with one id the wrong one
    would be taken for confirmed.

    Args:
        connection: just made.
        channel: of the client library, below aio-pika's objects: in confirm mode, raising what is returned.
        settings: times.
    """

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, settings: RabbitMQSettings) -> None:
        self.connection = connection
        self._channel = channel
        self._settings = settings
        self._sending: set[asyncio.Task[object]] = set()
        self._waiting = 0
        self._is_doubtful = False

    @classmethod
    async def open(cls, address: Address, settings: RabbitMQSettings, context: ssl.SSLContext | None) -> Link:
        """Connect.

        Raises:
            TlsError, ConfigurationError, TransportError: as `RabbitMQ.open`.
        """
        connection = await connect(address, settings, context)
        try:
            # Without `on_return_raises` a returned message is no error to the client library.
            channel = connection.channel(publisher_confirms=True, on_return_raises=True)
            async with asyncio.timeout(settings.connect_timeout):
                await apart(channel.initialize())
                return cls(connection, await channel.get_underlay_channel(), settings)
        except BaseException as error:
            await leave(connection, settings.close_timeout)
            if isinstance(error, Exception) and not isinstance(error, InboxError):
                raise TransportError(f"the broker at {address} does not answer") from error
            raise

    @property
    def is_usable(self) -> bool:
        """Whether it can take another message."""
        return not (self._is_doubtful or self._channel.is_closed or self.connection.is_closed)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a confirmation."""
        return self._waiting == 0

    async def publish(self, body: bytes, *, exchange: str, routing_key: str, properties: ExactProperties) -> None:
        """Publish, and wait until the broker has the message for good, in a queue.

        Raises:
            Returned: no queue took it.
            TransportError: the broker refused it, or nobody knows.
        """
        self._check_room(exchange, routing_key, properties)
        sending = asyncio.ensure_future(
            self._channel.basic_publish(
                body, exchange=exchange, routing_key=routing_key, properties=properties, mandatory=True
            )
        )
        self._sending.add(sending)
        sending.add_done_callback(self._sent)
        self._waiting += 1
        try:
            done, _ = await asyncio.wait([sending], timeout=self._settings.confirm_timeout)
        finally:
            self._waiting -= 1
        if not done:
            # Nothing more goes this way: behind a broker in alarm it would pile up here.
            self._is_doubtful = True
            raise TransportError("the broker did not confirm the message in time: it may or may not have it")
        _check(sending)

    async def close(self) -> None:
        """Close, in an orderly way if that ends in time. Never raises; who still waits is told that nobody knows."""
        self._is_doubtful = True
        await leave(self.connection, self._settings.close_timeout)
        left = tuple(self._sending)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _check_room(self, exchange: str, routing_key: str, properties: ExactProperties) -> None:
        """Beforehand, for the broker would close the connection, and with it what others have on their way."""
        room = self._channel.max_content_size  # type: ignore[attr-defined]  # public, though not in the abstract class
        if 0 < room < _HEADER_OCTETS + len(properties.octets):
            raise TransportError("headers and properties are longer than a frame of this connection")
        if max(len(name.encode()) for name in (exchange, routing_key)) > SHORT_STRING_OCTETS:
            raise TransportError(f"exchange and routing key have at most {SHORT_STRING_OCTETS} octets")

    def _sent(self, task: asyncio.Task[object]) -> None:
        self._sending.discard(task)
        _see(task)


def _see(task: asyncio.Task[Any]) -> None:
    """Look at how it ended, for whoever waited may have gone, and Python would complain."""
    if not task.cancelled():
        task.exception()


def _check(sending: asyncio.Task[object]) -> None:
    """Raise unless the broker confirmed."""
    doubt = "the broker did not confirm the message: it may or may not have it"
    if sending.cancelled():
        raise TransportError(doubt)
    error = sending.exception()
    if isinstance(error, PublishError):
        raise Returned("no queue took the message: is the queue there, and bound?") from error
    if isinstance(error, DeliveryError):
        raise TransportError("the broker refused the message: is a queue that it was bound for full?") from error
    if isinstance(error, ChannelNotFoundEntity):  # who is told may be a neighbour on the channel that this closed
        raise TransportError(f"{doubt}; is there no such exchange?") from error
    if error is not None:
        raise TransportError(doubt) from error
    if not isinstance(sending.result(), Basic.Ack):
        raise TransportError(doubt)


class Outlet:
    """Publishes over a link that is made when it is first needed, and anew when it was lost or is in doubt.

    Args:
        address: where.
        settings: heartbeat, times.
        context: of TLS; given exactly where `address.is_tls`.
    """

    def __init__(self, address: Address, settings: RabbitMQSettings, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._settings = settings
        self._context = context
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._leaving: dict[Link, asyncio.Task[None]] = {}
        self._doubtful: set[Link] = set()
        self._is_closed = False

    async def link(self) -> Link:
        """The link there is, or a new one, which all who ask meanwhile share.

        Raises:
            TlsError, ConfigurationError, TransportError: as `RabbitMQ.open`.
        """
        if self._is_closed:
            raise TransportError("the publisher is closed")
        if self._link is not None and self._link.is_usable:
            return self._link
        self._tidy()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="open publisher")
            self._opening.add_done_callback(_see)
        opening = self._opening
        await asyncio.wait([opening])  # which goes on when one of those who wait is cancelled
        if opening.cancelled():
            raise TransportError("the publisher is closed")
        return opening.result()

    async def publish(self, body: bytes, *, exchange: str, routing_key: str, properties: ExactProperties) -> None:
        """Publish one message and wait until the broker has it, in a queue.

        Raises:
            Returned: no queue took it.
            TransportError: the broker refused it, or is not there, or nobody knows.
        """
        try:
            link = await self.link()
        except StartupError as error:
            raise TransportError(str(error)) from error
        try:
            await link.publish(body, exchange=exchange, routing_key=routing_key, properties=properties)
        finally:
            self._tidy()

    async def close(self) -> None:
        """Close. Who still waits is told that nobody knows. May be called twice."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        for link in self._doubtful | ({self._link} if self._link is not None else set()):
            self._leave(link)
        self._link = None
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    async def _open(self) -> Link:
        try:
            self._link = await Link.open(self._address, self._settings, self._context)
        finally:
            self._opening = None
        return self._link

    def _tidy(self) -> None:
        """Let go of links that take nothing more, as soon as nobody waits on them."""
        if self._link is not None and not self._link.is_usable:
            self._doubtful.add(self._link)
            self._link = None
        for link in [link for link in self._doubtful if link.is_idle]:
            self._leave(link)

    def _leave(self, link: Link) -> None:
        self._doubtful.discard(link)
        task = self._leaving[link] = asyncio.create_task(link.close(), name="close publisher")
        task.add_done_callback(lambda _: self._leaving.pop(link))


class Publisher:
    """Publishes over a connection of its own, an asynchronous context manager.

    A connection that was lost is made anew for the next message.

    Args:
        url: `amqp://user:password@host:port/vhost`.
        settings: TLS, heartbeat, times.

    Raises:
        ConfigurationError: the address is none.
    """

    def __init__(self, url: str, settings: RabbitMQSettings | None = None) -> None:
        self._settings = settings or RabbitMQSettings()
        self._address = parse_address(url, self._settings.tls)
        self._outlet: Outlet | None = None

    def __repr__(self) -> str:
        return f"<Publisher to {self._address}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            TlsError, ConfigurationError, TransportError: as `RabbitMQ.open`.
        """
        context = make_context(self._settings.tls) if self._address.is_tls else None
        outlet = Outlet(self._address, self._settings, context)
        try:
            await outlet.link()
        except BaseException:
            await outlet.close()
            raise
        self._outlet = outlet
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outlet is not None:
            await self._outlet.close()

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
        if self._outlet is None:
            raise TransportError("the publisher is not open: use it in `async with`")
        id_ = secrets.token_hex(16)
        fields = {name: _field(value) for name, value in (headers or {}).items()}
        try:
            octets = encode_properties({"content_type": content_type, "delivery_mode": 2}, fields, id_)
        except InexactError as error:
            raise TransportError("a header cannot be written in AMQP") from error
        await self._outlet.publish(
            body, exchange=exchange, routing_key=routing_key, properties=ExactProperties(octets, id_)
        )


def _field(value: Any) -> Any:
    """`bytes` would travel as a text."""
    return bytearray(value) if isinstance(value, bytes) else value
