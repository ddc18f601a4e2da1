"""Handlers that ask for the payload, end to end: what fits is applied once, what does not is told by its field."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox import Binding, ConsumerSettings, Event, Inbox, InboxService, MySQL, RabbitMQ, handles
from inbox.adapters.rabbitmq.publisher import Publisher
from tests.acceptance.tables import create_tables
from tests.acceptance.test_faces import execute
from tests.facts import wait_until
from tests.pairs import Pair

ENTER = text("INSERT INTO paid (event_id, kind, amount, lines_sum) VALUES (:event_id, :kind, :amount, :lines_sum)")
BIG = 2**60 + 1  # no float has it
PRICE = "12345678901234567.25"  # nor this


@dataclass(frozen=True, slots=True)
class Line:
    amount: int


@dataclass(frozen=True, slots=True)
class Paid:
    order_id: str
    price: Decimal
    lines: tuple[Line, ...] = ()


class ModelLine(BaseModel):
    amount: int


class PaidModel(BaseModel):
    orderId: str  # noqa: N815 - the producer's name
    price: Decimal
    lines: list[ModelLine] = []


def row(kind: str, paid: Paid | PaidModel, event_id: str) -> dict[str, object]:
    total = sum(line.amount for line in paid.lines)
    return {"event_id": event_id, "kind": kind, "amount": paid.price, "lines_sum": total}


async def look_up(paid: Paid) -> str:
    return f"rate of {paid.order_id}"


class Payments(InboxService):
    @handles("method", prepare=look_up)
    async def note(self, paid: Paid, event: Event, connection: AsyncConnection, rate: str) -> None:
        assert rate == f"rate of {paid.order_id}"
        await connection.execute(ENTER, row("method", paid, event.id))


def register(inbox: Inbox) -> None:
    inbox.add_service(Payments())

    @inbox.handler("dataclass")
    async def by_dataclass(paid: Paid, session: AsyncSession) -> None:
        await session.execute(ENTER, row("dataclass", paid, paid.order_id))

    @inbox.handler("model")
    async def by_model(paid: PaidModel, event: Event, session: AsyncSession) -> None:
        await session.execute(ENTER, row("model", paid, event.id))

    @inbox.handler("sync")
    def by_plain_function(paid: Paid, event: Event, session: Session) -> None:
        session.execute(ENTER, row("sync", paid, event.id))


KINDS = ("dataclass", "model", "sync", "method")


@dataclass
class Shop:
    pair: Pair
    queue: str
    exchange: str

    @asynccontextmanager
    async def open(self, consumer: Inbox) -> AsyncIterator[Inbox]:
        started = asyncio.Event()
        task = asyncio.create_task(consumer.run(started=started.set))
        await started.wait()
        try:
            yield consumer
        finally:
            consumer.stop()
            await task

    def consumer(self) -> Inbox:
        return Inbox(
            "payments",
            store=MySQL(self.pair.database_url),
            transport=RabbitMQ(self.pair.amqp_url, self.queue, [Binding(self.exchange, "#", declare="topic")]),
            settings=ConsumerSettings(concurrency=4),
        )

    async def publish(self, *events: tuple[str, str, bytes]) -> None:
        """Each an id, a type and a body."""
        async with Publisher(self.pair.amqp_url) as publisher:
            for identifier, kind, body in events:
                headers = {"ce-id": identifier, "ce-source": "/t", "ce-type": kind, "ce-specversion": "1.0"}
                await publisher.publish(
                    body, exchange=self.exchange, routing_key=kind, headers=headers, content_type="application/json"
                )

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return execute(self.pair, sql)


@pytest.fixture
async def shop(pair: Pair) -> Shop:
    await create_tables(pair)
    execute(
        pair,
        "CREATE TABLE paid (n INT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64), kind VARCHAR(16), "
        "amount DECIMAL(40, 4), lines_sum DECIMAL(40, 0))",
    )
    queue = pair.unique("payments")
    pair.discard(f"{queue}.dead")
    return Shop(pair, queue, pair.unique("events"))


async def wait_counted(inbox: Inbox, number: int) -> None:
    counts = inbox.telemetry.counts
    await wait_until(lambda: counts["applied"] + counts["duplicate"] + counts["quarantined"] >= number)


def body(order_id: str, price: str, lines: object = ()) -> bytes:
    return f'{{"orderId": "{order_id}", "price": {price}, "lines": {json.dumps(lines)}, "more": [1.5]}}'.encode()


async def test_what_fits_is_applied_once_and_exactly(shop: Shop) -> None:
    lines = [{"amount": BIG}, {"amount": 1}]
    # pydantic reads a number through a float, and one that this would change is refused: there it is sent as a text.
    prices = {kind: f'"{PRICE}"' if kind == "model" else PRICE for kind in KINDS}
    inbox = shop.consumer()
    register(inbox)
    async with shop.open(inbox):
        for _ in range(2):
            await shop.publish(*((f"id-{kind}", kind, body(f"id-{kind}", prices[kind], lines)) for kind in KINDS))
        await wait_counted(inbox, 8)
    assert (inbox.telemetry.counts["applied"], inbox.telemetry.counts["duplicate"]) == (4, 4)
    wanted = [(f"id-{kind}", kind, Decimal(PRICE), BIG + 1) for kind in KINDS]
    assert sorted(shop.query("SELECT event_id, kind, amount, lines_sum FROM paid")) == sorted(wanted)


async def test_what_does_not_fit_is_quarantined_by_its_field_and_costs_nothing(shop: Shop) -> None:
    broken = body("?", "1", [{"amount": 1}, {"amount": "secret"}])
    inbox = shop.consumer()
    register(inbox)
    async with shop.open(inbox):
        await shop.publish(*((f"bad-{kind}", kind, broken) for kind in KINDS))
        await shop.publish(
            ("empty", "sync", b""),
            ("list", "method", b"[]"),
            ("lossy", "model", body("?", PRICE)),
        )
        await wait_counted(inbox, 7)
    assert inbox.telemetry.counts["quarantined"] == 7
    told = shop.query("SELECT event_id, reason, detail, attempts FROM inbox_quarantine")
    text_got = "data.lines[1].amount: expected an integer, got a text"
    assert sorted((bytes(identifier).decode(), *rest) for identifier, *rest in told) == [
        ("bad-dataclass", "invalid-payload", text_got, 0),
        ("bad-method", "invalid-payload", text_got, 0),
        ("bad-model", "invalid-payload", "data.lines[1].amount: refused by PaidModel (int_parsing)", 0),
        ("bad-sync", "invalid-payload", text_got, 0),
        ("empty", "invalid-payload", "data: expected a JSON object, got an event without data", 0),
        ("list", "invalid-payload", "data: expected an object, got a list", 0),
        (
            "lossy",
            "invalid-payload",
            "data: holds a number with more digits than pydantic keeps for a Decimal: send it as a text",
            0,
        ),
    ]
    left = shop.query("SELECT 1 FROM paid UNION ALL SELECT 1 FROM inbox UNION ALL SELECT 1 FROM inbox_attempt")
    assert list(left) == []


async def test_a_refused_event_is_applied_when_it_comes_again_to_a_mended_model(shop: Shop) -> None:
    broken = body("?", "1", [{"amount": "7"}])
    first = shop.consumer()
    register(first)
    async with shop.open(first):
        await shop.publish(("id-late", "sync", broken))
        await wait_counted(first, 1)
    assert first.telemetry.counts["quarantined"] == 1

    class Mended(BaseModel):
        lines: list[dict[str, int]]  # pydantic reads "7" as 7 unless it is told to be strict

    second = shop.consumer()

    @second.handler("sync")
    async def by_mended(paid: Mended, event: Event, session: AsyncSession) -> None:
        numbers = {"amount": 0, "lines_sum": sum(line["amount"] for line in paid.lines)}
        await session.execute(ENTER, {"event_id": event.id, "kind": "mended", **numbers})

    async with shop.open(second):
        await shop.publish(("id-late", "sync", broken), ("id-late", "sync", broken))
        await wait_counted(second, 2)
    assert shop.query("SELECT event_id, kind, lines_sum FROM paid") == [("id-late", "mended", Decimal(7))]
    assert second.telemetry.counts["duplicate"] == 1
