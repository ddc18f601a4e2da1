"""The inbox, with everything that it does, at its default settings but for its reports.

`--handler` names the face: `connection` and `session` run one Core statement, `session-orm` changes an object that it
reads with its row locked, `sync` is a plain `def`, `batch-handler` gets all events of a transaction and runs one
statement for them. With `--batch` above 1 that many deliveries may share a transaction. All read the payload as the
consumers by hand do, but strictly.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from benchmarks.consumers.contract import CONSUMER, Job, Meter, program
from benchmarks.consumers.models import CREDIT, CREDIT_ALL, Account
from inbox import Batch, ConsumerSettings, Event, Inbox, MySQL, RabbitMQ, RabbitMQSettings
from inbox.adapters.mysql.engine import Lane
from inbox.adapters.mysql.store import MySQLStore
from inbox.adapters.rabbitmq.consumer import Receipt
from inbox.core.delivery import Delivery
from inbox.ports import Probe, Sink
from inbox.runtime.worker import set_loaded_aside
from inbox.units.lanes import LanePool


async def with_connection(event: Event, connection: AsyncConnection) -> None:
    """One statement."""
    order = event.json()
    await connection.execute(CREDIT, {"account": order["account"], "amount": order["amount"]})


async def with_session(event: Event, session: AsyncSession) -> None:
    """One statement."""
    order = event.json()
    await session.execute(CREDIT, {"account": order["account"], "amount": order["amount"]})


async def with_objects(event: Event, session: AsyncSession) -> None:
    """Read, and change what was read."""
    order = event.json()
    account = await session.get_one(Account, order["account"], with_for_update=True)
    account.balance += order["amount"]


def with_sync_session(event: Event, session: Session) -> None:
    """One statement."""
    order = event.json()
    session.execute(CREDIT, {"account": order["account"], "amount": order["amount"]})


async def with_all(events: list[Event], session: AsyncSession) -> None:
    """One statement for all of them."""
    gains: Counter[int] = Counter()
    for event in events:
        order = event.json()
        gains[order["account"]] += order["amount"]
    await session.execute(CREDIT_ALL, {"gains": json.dumps(sorted(gains.items()))})


HANDLERS: dict[str, Callable[..., Any]] = {
    "connection": with_connection,
    "session": with_session,
    "session-orm": with_objects,
    "sync": with_sync_session,
    "batch-handler": with_all,
}
#: Transactions at once where events share them, so that one waits for the disk while another one is made.
LANES = 2
#: What the runner declares the queue with.
TRANSPORT = RabbitMQSettings(retry_queues=False)


class Measured(RabbitMQ):
    """The transport, with a stop-watch at its two ends."""

    def __init__(self, job: Job, meter: Meter) -> None:
        super().__init__(job.amqp_url, job.queue, settings=TRANSPORT)
        self._meter = meter
        self._arrived: dict[Delivery, float] = {}
        self.lanes: LanePool[Lane] | None = None

    async def run(self, sink: Sink) -> None:
        """As the transport's, once the runner says so."""

        def take(delivery: Delivery) -> None:
            self._arrived[delivery] = self._meter.arrived()
            sink(delivery)

        if self.lanes is not None:
            await fill(self.lanes)
        self._meter.wait_go()
        await super().run(take)

    async def acknowledge(self, delivery: Delivery) -> bool:
        """As the transport's. The last one counts when it is written, with all that waited for company."""
        settled = await super().acknowledge(delivery)
        if self._meter.is_last and isinstance(delivery.receipt, Receipt):
            await delivery.receipt.settler.wait_flushed()
        self._meter.acknowledged(self._arrived.pop(delivery))
        return settled


async def fill(lanes: LanePool[Lane]) -> None:
    """Open every connection now, as the consumers by hand do: by themselves lanes open when they are first needed."""
    taken = [await lanes.take() for _ in range(lanes.size)]
    for lane in taken:
        lanes.give_back(lane, usable=True)


def make(job: Job, meter: Meter, probes: Sequence[Probe] = ()) -> Inbox:
    """The consumer."""
    transport = Measured(job, meter)
    inbox = Inbox(
        CONSUMER,
        store=MySQL(job.url_for(job.driver)),
        transport=transport,
        settings=settings_of(job),
        probes=probes,
    )
    assert isinstance(inbox.store, MySQLStore)  # noqa: S101 - made of MySQL(...); for the type checker
    transport.lanes = inbox.store.lanes
    register = inbox.batch_handler if job.handler == "batch-handler" else inbox.handler
    register("bench.order")(HANDLERS[job.handler])
    return inbox


def settings_of(job: Job) -> ConsumerSettings:
    """Those of the consumer; without reports, for one statement each ten seconds is no cost of a delivery."""
    if job.batch == 1:
        return ConsumerSettings(concurrency=job.in_flight, report_interval=None)
    return ConsumerSettings(
        concurrency=min(LANES, job.in_flight), prefetch=job.prefetch, batch=Batch(max=job.batch), report_interval=None
    )


async def consume(job: Job, meter: Meter) -> None:
    """Run until the last delivery is acknowledged."""
    logging.basicConfig(level=logging.ERROR)
    inbox = make(job, meter)
    running = asyncio.create_task(inbox.run(started=set_loaded_aside))  # as `inbox run` does
    done = asyncio.create_task(meter.done.wait())
    await asyncio.wait({running, done}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    meter.report()
    inbox.stop()
    await running


if __name__ == "__main__":
    program(consume)
