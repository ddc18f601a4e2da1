"""The events of one run: made, published and confirmed before the clock starts."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel

from benchmarks.catalog import Load
from benchmarks.consumers.contract import CONSUMER
from benchmarks.consumers.inbox_worker import TRANSPORT
from inbox import RabbitMQ
from inbox.core import cloudevents
from inbox.core.delivery import Delivery
from inbox.core.records import DEFAULT_FINGERPRINT, InboxRecord, record_of

#: Enough that row locks are not what is measured.
ACCOUNTS: Final = 10_000
SHARE_OF_DUPLICATES: Final = 0.1
_CONFIRMED_TOGETHER: Final = 500
#: Seconds in which what a closed consumer had in hand is back in its queue.
_PATIENCE: Final = 3.0


@dataclass(frozen=True)
class Sent:
    """One event, as a producer sends it."""

    id: str
    account: int
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {"ce-id": self.id, "ce-source": "/bench", "ce-type": "bench.order", "ce-specversion": "1.0"}

    @property
    def record(self) -> InboxRecord:
        """Its row in the inbox."""
        event = cloudevents.decode(Delivery(self.body, self.headers, "application/json"))
        return record_of(CONSUMER, event, "id", DEFAULT_FINGERPRINT)


def make_events(count: int, body: int, draw: random.Random) -> list[Sent]:
    """`count` different events whose bodies have `body` octets."""
    made = []
    for _ in range(count):
        account = draw.randrange(ACCOUNTS)
        order = {"account": account, "amount": 1, "note": ""}
        order["note"] = "x" * max(0, body - len(json.dumps(order)))
        made.append(Sent(f"{draw.getrandbits(128):032x}", account, json.dumps(order).encode()))
    return made


@dataclass(frozen=True)
class Batch:
    """What one run consumes.

    Attributes:
        known: events that the inbox knows before.
        deliveries: in their order.
    """

    known: Sequence[Sent]
    deliveries: Sequence[Sent]

    @property
    def ids(self) -> set[str]:
        """Whose rows the inbox must have afterwards."""
        return {event.id for event in (*self.known, *self.deliveries)}

    @property
    def effects(self) -> Counter[int]:
        """What each account must have gained."""
        fresh = {event.id: event for event in self.deliveries}
        for event in self.known:
            fresh.pop(event.id, None)
        return Counter(event.account for event in fresh.values())


def make_batch(load: Load, count: int, draw: random.Random) -> Batch:
    """`count` deliveries of the kind that `load` asks for.

    Args:
        load: of a run.
        count: deliveries, repeated ones included.
        draw: decides everything that is drawn.
    """
    if load.kind == "10% duplicates":
        again = int(count * SHARE_OF_DUPLICATES)
        events = make_events(count - again, load.body, draw)
        # Each comes again somewhere behind its first place, as after a producer's time-out or a consumer's crash.
        order = [(float(place), event) for place, event in enumerate(events)]
        places = [draw.randrange(len(events)) for _ in range(again)]
        order += [(draw.uniform(place + 0.5, len(events)), events[place]) for place in places]
        return Batch((), [event for _, event in sorted(order, key=lambda entry: entry[0])])
    events = make_events(count, load.body, draw)
    return Batch(events if load.kind == "all-duplicates" else (), events)


class Channel:
    """The runner's own channel, which sees to the queue.

    Args:
        channel: with publisher confirms.
        queue: the queue's name.
    """

    def __init__(self, channel: AbstractChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue

    async def publish(self, events: Sequence[Sent]) -> None:
        """Publish, and return when the broker has confirmed each."""
        exchange = self._channel.default_exchange
        for start in range(0, len(events), _CONFIRMED_TOGETHER):
            part = events[start : start + _CONFIRMED_TOGETHER]
            await asyncio.gather(*(exchange.publish(_message(event), self._queue) for event in part))

    async def wait_consumed(self, consumers: int) -> None:
        """Return when the broker hands messages to so many."""
        while True:
            found = await self._channel.declare_queue(self._queue, passive=True)
            if (found.declaration_result.consumer_count or 0) >= consumers:
                return
            await asyncio.sleep(0.02)

    async def left(self) -> int:
        """Messages that are still in the queue, or were given up, after the consumer has closed."""
        left = 0
        for _ in range(int(_PATIENCE / 0.05)):
            found = await self._channel.declare_queue(self._queue, passive=True)
            dead = await self._channel.declare_queue(f"{self._queue}.dead", passive=True)
            left = (found.declaration_result.message_count or 0) + (dead.declaration_result.message_count or 0)
            if left == 0 and not found.declaration_result.consumer_count:
                return 0
            await asyncio.sleep(0.05)
        return max(left, 1)


@asynccontextmanager
async def fresh_queue(amqp_url: str, queue: str) -> AsyncIterator[Channel]:
    """A quorum queue of this name, declared as the inbox declares its own, and deleted afterwards."""
    transport = RabbitMQ(amqp_url, queue, settings=TRANSPORT)
    await transport.open(prefetch=1)
    await transport.close()
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        try:
            yield Channel(channel, queue)
        finally:
            for name in (queue, f"{queue}.dead"):
                await channel.queue_delete(name)


def _message(event: Sent) -> aio_pika.Message:
    return aio_pika.Message(
        event.body,
        headers=dict(event.headers),
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
