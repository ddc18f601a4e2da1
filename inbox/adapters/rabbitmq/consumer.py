"""One consumer of one queue, on a channel of its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inbox.adapters.rabbitmq.connection import apart
from inbox.adapters.rabbitmq.content import Message, message_of
from inbox.adapters.rabbitmq.delivery import read
from inbox.adapters.rabbitmq.settlement import Settler

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiormq.abc import AbstractChannel, DeliveredMessage

    from inbox.adapters.rabbitmq.bypass import Bypass
    from inbox.adapters.rabbitmq.settings import RabbitMQSettings
    from inbox.ports import Sink


@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """Settles one delivery, on the channel that delivered it and no other."""

    settler: Settler
    tag: int

    def __repr__(self) -> str:
        return f"<Receipt {self.tag}>"


class Consumer:
    """One consumer of one queue on its own channel.

    Args:
        channel: of the client library, below aio-pika's objects: those parse properties again and
            would lose a message, and its slot in the prefetch, over an odd delivery mode.
        queue: what is consumed.
        bypass: what the channel's connection delivers past the client library.
        sink: takes the deliveries.
        is_dead_letter: the queue holds what the broker gave up.
        fail: told what `sink` raised.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        queue: str,
        bypass: Bypass,
        sink: Sink,
        *,
        is_dead_letter: bool,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._channel = channel
        self._bypass = bypass
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
        self._bypass.take(self._channel.number, self._on_message)
        await self._channel.basic_qos(prefetch_count=prefetch, timeout=settings.connect_timeout)
        answer = await self._channel.basic_consume(
            self._queue, self._on_delivered, no_ack=False, timeout=settings.connect_timeout
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
        self._bypass.forget(self._channel.number)
        if self._settler is not None:
            self._settler.close()

    async def _on_delivered(self, delivered: DeliveredMessage) -> None:
        """What the client library has read."""
        self._on_message(message_of(delivered))

    def _on_message(self, message: Message) -> None:
        tag, settler = message.route.tag, self._settler
        if settler is None:
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
