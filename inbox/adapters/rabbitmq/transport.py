"""The RabbitMQ transport: consumes one queue, over as many connections, one after the other, as it takes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, stop_never, wait_random_exponential

from inbox.adapters.rabbitmq.bypass import Bypass
from inbox.adapters.rabbitmq.connection import apart, connect, unless
from inbox.adapters.rabbitmq.consumer import Receipt
from inbox.adapters.rabbitmq.copies import make_copy
from inbox.adapters.rabbitmq.depths import depths_of
from inbox.adapters.rabbitmq.generation import Generation
from inbox.adapters.rabbitmq.publisher import Outlet, Returned
from inbox.adapters.rabbitmq.retry_queues import LONGEST_SUFFIX, RetryQueue, choose, milliseconds, retry_queues
from inbox.adapters.rabbitmq.settings import (
    MOST_PREFETCH,
    Address,
    Binding,
    RabbitMQSettings,
    check_queue_name,
    parse_address,
)
from inbox.adapters.rabbitmq.tls import make_context
from inbox.adapters.rabbitmq.topology import Topology, declare_queue
from inbox.adapters.rabbitmq.undecodable import install
from inbox.config import require
from inbox.core.facts import fact
from inbox.errors import ConfigurationError, InboxError, StartupError, TransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Sequence

    from inbox.adapters.rabbitmq.depths import QueueDepth
    from inbox.core.delivery import Delivery
    from inbox.ports import Sink

log = logging.getLogger("inbox.rabbitmq")

T = TypeVar("T")

#: Deliveries of the dead-letter queue in hand at once, beside the prefetch of the main queue.
DEAD_LETTER_PREFETCH = 1


class Stopped(Exception):
    """Not an error: `stop` was called meanwhile."""


class RabbitMQ:
    """A queue of a RabbitMQ broker, 3.10 or newer, as a `inbox.ports.Transport`.

    Opens nothing when it is made. Each connection is a generation of its own: topology is
    declared or checked on it again, and what it delivered can be settled on it alone. The
    broker's `consumer_timeout` (30 minutes by default) must be longer than a unit's deadline and its
    waiting together; it cannot be asked over AMQP.

    Args:
        url: `amqp://user:password@host:port/vhost`; `amqps://` asks for TLS.
        queue: the queue to consume.
        bindings: what the queue is bound to before it is consumed. Only with `settings.declare`.
        settings: everything else.

    Attributes:
        late_settlements: acknowledgements and releases that came after the end of the link that
            had delivered: the broker delivers those events again, and the inbox knows them.
        generation: number of connections made.

    Raises:
        ConfigurationError: a setting is missing, malformed or contradicts another one.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        bindings: Sequence[Binding] = (),
        settings: RabbitMQSettings | None = None,
    ) -> None:
        self.settings = settings or RabbitMQSettings()
        spare = max(len(".dead"), LONGEST_SUFFIX if self.settings.has_retry_queues else 0)
        self.topology = Topology(check_queue_name(queue, spare=spare), tuple(bindings), self.settings)
        require(
            all(isinstance(binding, Binding) for binding in self.topology.bindings),
            "a binding is written Binding('events', 'job.*'): the exchange, and the keys that are wanted",
        )
        require(
            self.settings.declare or not bindings,
            "bindings are made only with RabbitMQSettings(declare=True): with declare=False whoever declares the "
            "queue binds it, before the first event is published",
        )
        require(
            self.topology.dead_letter_queue != queue,
            "dead_letter_queue must not be the consumed queue: the broker drops what comes back to its queue",
        )
        self._address: Address = parse_address(url, self.settings.tls)
        self._context: ssl.SSLContext | None = None
        self._prefetch = 1
        self._current: Generation | None = None
        self._outlet: Outlet | None = None
        self._stopping = asyncio.Event()
        self.late_settlements = 0
        self.generation = 0

    def __repr__(self) -> str:
        return f"<RabbitMQ queue {self.topology.queue!r} at {self._address}>"

    @property
    def is_connected(self) -> bool:
        """Whether there is a link that has not been found lost."""
        return self._current is not None and not self._current.is_lost

    @property
    def is_consuming(self) -> bool:
        """Whether the broker has been asked for deliveries and nothing was lost since: readiness."""
        return self._current is not None and self._current.is_consuming

    def describe(self) -> dict[str, str]:
        """Broker, queue and dead letters, a few words each, without user or password."""
        how = f"{self.settings.queue_type}, declared here" if self.settings.declare else "as it is, checked"
        return {
            "broker": f"RabbitMQ at {self._address}{', TLS' if self._address.is_tls else ''}",
            "queue": f"{self.topology.queue} ({how})",
            "dead letters": self.topology.dead_letter_queue or "none consumed",
            "retries": self._describe_retries(),
        }

    def _describe_retries(self) -> str:
        if not self.can_delay:
            return "held in hand, no copies are made"
        names = ", ".join(retry.name for retry in self.topology.retry_queues) or f"{self.topology.queue}.retry.<time>"
        return f"{names} ({'declared here' if self.settings.declare else 'as they are, checked'})"

    @property
    def can_delay(self) -> bool:
        """Whether it keeps durable copies: where retry queues are set; once it is open, where it was told delays."""
        return self.settings.has_retry_queues and (self._outlet is None or bool(self.topology.retry_queues))

    @property
    def lease_terms(self) -> None:
        """None: the broker waits for as long as the link lasts."""

    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """Connect, and declare or check the topology; consumes nothing yet.

        Args:
            prefetch: most deliveries of the queue in hand at once (`basic.qos`, 1 to 65535). One
                dead letter may be in hand beside them.
            delays: seconds for which copies are to be kept: with `settings.retry_queues`, a queue each.

        Raises:
            ConfigurationError: the prefetch is out of range, or the queue of dead letters is a retry queue, or the
                broker refuses the login or the virtual host, or a certificate file cannot be read.
            TlsError: TLS is asked for, and none came about or the certificate is not trusted.
            TopologyError: a queue or exchange is missing, differs, or would drop events.
            TransportError: the broker cannot be reached, for longer than `start_patience`.
        """
        require(
            1 <= prefetch <= MOST_PREFETCH,
            "prefetch must be between 1 and 65535: AMQP counts it in 16 bits, 0 is no limit",
        )
        self.topology = self._topology_for(delays)
        require(
            self.topology.dead_letter_queue not in [retry.name for retry in self.topology.retry_queues],
            "dead_letter_queue must not be a retry queue: the broker drops what comes back to its queue",
        )
        install()
        self._prefetch = prefetch
        if self._address.is_tls:
            self._context = make_context(self.settings.tls)
        self._outlet = Outlet(self._address, self.settings, self._context)
        try:
            await self._retrying(self.settings.start_patience)(self._connect)
        except Stopped:
            raise TransportError("the transport was stopped while it was opening") from None

    async def run(self, sink: Sink) -> None:
        """Consume into `sink` until `stop`, over as many connections as it takes.

        Args:
            sink: takes one delivery; called on the event loop.

        Raises:
            TransportError: `settings.patience` ended without a broker.
            TopologyError, TlsError: after a reconnect the topology or the encryption is no longer
                what was asked for.
        """
        try:
            while not self._stopping.is_set():
                await self._retrying(self.settings.patience)(self._consume, sink)
        except Stopped:
            return

    async def stop(self) -> None:
        """Take no more deliveries; those in hand can still be settled. May be called twice."""
        self._stopping.set()
        if self._current is not None:
            await self._current.stop()

    async def close(self) -> None:
        """Write the settlements that wait, and close. May be called twice, and after a failed `open`."""
        self._stopping.set()
        generation, self._current = self._current, None
        try:
            if generation is not None:
                await generation.close()
        finally:
            if self._outlet is not None:
                await self._outlet.close()

    async def depths(self, delays: Sequence[float] = ()) -> list[QueueDepth]:
        """How much waits in each queue, asked over a connection of its own: the transport need not be open.

        Args:
            delays: seconds, as for `open`, whose retry queues are asked for; those of an open transport are anyway.

        Returns:
            The consumed queue, then that of dead letters, then the retry queues, the shortest wait first. What is not
            there has no `ready`.

        Raises:
            ConfigurationError: the broker refuses the login or the virtual host, or a certificate cannot be read.
            TlsError: TLS is asked for, and none came about or the certificate is not trusted.
            TopologyError: the user may not look at a queue.
            TransportError: the broker cannot be reached or does not answer, or a queue is locked or its node down.
        """
        context = make_context(self.settings.tls) if self._address.is_tls else None
        topology = self._topology_for(delays) if delays else self.topology
        return await depths_of(topology, self._address, self.settings, context)

    def _topology_for(self, delays: Sequence[float]) -> Topology:
        wanted = retry_queues(self.topology.queue, delays) if self.settings.has_retry_queues else ()
        return replace(self.topology, retry_queues=wanted)

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Settle for good; ends at once.

        Returns:
            Whether it goes out on the link that delivered it. False where that link is gone, or
            where the delivery was settled before. The broker confirms no acknowledgement: one
            that is lost on its way brings the event again.
        """
        receipt = _receipt_of(delivery)
        return await receipt.settler.acknowledge(receipt.tag)

    async def release(self, delivery: Delivery) -> bool:
        """Hand back for redelivery, at once (`basic.nack` with requeue); returns as `acknowledge` does."""
        receipt = _receipt_of(delivery)
        return receipt.settler.release(receipt.tag)

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """Publish a copy into the retry queue for `seconds`, and wait until the broker has it there for good.

        It goes over a connection of its own. A wait between two steps is rounded up; one that is longer than the
        longest comes back after that, with `wait_left`.

        Args:
            delivery: what is to come again; it is not settled.
            seconds: how long it is to wait at least.
            key: what its attempts are counted under.

        Raises:
            TransportError: the copy is not known to be kept: the broker is not there or in alarm, the queue is gone
                or full, or the delivery cannot be copied exactly.
        """
        if self._outlet is None or not self.topology.retry_queues:
            raise TransportError("this transport keeps no copies")
        retry, left = choose(self.topology.retry_queues, milliseconds(seconds))
        try:
            await self._publish_copy(self._outlet, retry, delivery, key, left)
        except Returned:
            if not self.settings.declare:
                raise
            told = fact("retry-queue-gone", queue=retry.name)
            log.warning("retry queue %r is gone; declaring it again", retry.name, extra=told)
            await self._declare_again(self._outlet, retry)
            await self._publish_copy(self._outlet, retry, delivery, key, left)

    async def _publish_copy(self, outlet: Outlet, retry: RetryQueue, delivery: Delivery, key: bytes, left: int) -> None:
        copy = make_copy(delivery, key, waited=retry.ttl, left=left)
        await outlet.publish(delivery.body, exchange="", routing_key=retry.name, properties=copy)

    async def _declare_again(self, outlet: Outlet, retry: RetryQueue) -> None:
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                link = await outlet.link()
                await apart(declare_queue(link.connection, retry.name, retry.arguments))
        except TimeoutError as error:
            raise TransportError(f"the broker did not answer about queue {retry.name!r}") from error
        except StartupError as error:
            raise TransportError(str(error)) from error

    def _retrying(self, patience: float | None) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(TransportError),
            wait=wait_random_exponential(
                multiplier=self.settings.reconnect_min_delay, max=self.settings.reconnect_max_delay
            ),
            stop=stop_never if patience is None else stop_after_delay(patience),
            sleep=self._sleep,
            reraise=True,
        )

    async def _sleep(self, seconds: float) -> None:
        """Wait between two attempts, unless stopped meanwhile."""
        await self._unless_stopped(asyncio.sleep(seconds))

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T:
        """Do `work`, and give it up when `stop` is called.

        Raises:
            Stopped: `stop` was called first.
            TransportError: the connection was lost while it waited for an answer.
        """
        return await unless(self._stopping, work, Stopped)

    async def _connect(self) -> Generation:
        """The link there is, or a new one with its topology in place."""
        if self._current is not None and not self._current.is_lost:
            return self._current
        self._current = None
        made = await self._unless_stopped(self._make_generation())
        self._current = made
        self.generation += 1
        return made

    async def _make_generation(self) -> Generation:
        bypass = Bypass()
        try:
            with bypass.open():
                connection = await connect(self._address, self.settings, self._context)
        except ConfigurationError as error:
            if self.generation == 0:
                raise
            # It logged in before: a broker that is starting refuses logins and virtual hosts for a while.
            raise TransportError(str(error)) from error
        generation = Generation(connection, bypass, self.settings, self._count_late)
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                await self.topology.establish(connection)
        except TimeoutError as error:
            await generation.close()
            raise TransportError(f"the broker at {self._address} does not answer about the topology") from error
        except BaseException:
            await generation.close()
            raise
        return generation

    async def _consume(self, sink: Sink) -> None:
        """Consume over one link until it is lost.

        Raises:
            TransportError: there was no link, or it was lost before it delivered anything or lived for long:
                then the next attempt waits longer.
            Stopped: `stop` was called.
        """
        try:
            generation = await self._connect()
            started = time.monotonic()
            await self._unless_stopped(self._start_consumers(generation, sink))
            told = fact("consuming", queue=self.topology.queue, connection=self.generation)
            log.info("consuming queue %r, connection %d", self.topology.queue, self.generation, extra=told)
            await self._unless_stopped(generation.wait_lost())
        except TransportError as error:
            await self._discard()
            told = fact("broker-awaited", queue=self.topology.queue, error=type(error).__name__)
            log.warning("%s; trying again", error, extra=told)
            raise
        except InboxError:
            await self._discard()
            raise
        queue = self.topology.queue
        log.warning(
            "the link that delivers queue %r is lost; connecting again", queue, extra=fact("link-lost", queue=queue)
        )
        was_useful = generation.has_delivered or time.monotonic() - started >= self.settings.reconnect_max_delay
        await self._discard()
        if not was_useful:
            raise TransportError(f"the broker takes the consumer of queue {self.topology.queue!r} away at once")
        # Jitter, or all the consumers of a restarted broker come back in the same instant.
        await self._sleep(random.uniform(0, self.settings.reconnect_min_delay))  # noqa: S311 - no secret

    async def _start_consumers(self, generation: Generation, sink: Sink) -> None:
        """Ask for deliveries, and wait for the answers no longer than for those about the topology.

        The client library bounds some of these waits, and before aiormq 7 a link that is lost ends not all of them.
        """
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                await generation.unless_lost(self._consume_queues(generation, sink))
        except TimeoutError as error:
            raise TransportError(f"the broker at {self._address} does not answer about its consumers") from error

    async def _consume_queues(self, generation: Generation, sink: Sink) -> None:
        await generation.consume(self.topology.queue, sink, prefetch=self._prefetch)
        if self.topology.dead_letter_queue is not None:
            await generation.consume(
                self.topology.dead_letter_queue, sink, prefetch=DEAD_LETTER_PREFETCH, is_dead_letter=True
            )

    async def _discard(self) -> None:
        generation, self._current = self._current, None
        if generation is not None:
            await generation.close()

    def _count_late(self, settlements: int) -> None:
        self.late_settlements += settlements


def _receipt_of(delivery: Delivery) -> Receipt:
    if not isinstance(delivery.receipt, Receipt):
        raise TypeError("this delivery did not come over the RabbitMQ transport")
    return delivery.receipt
