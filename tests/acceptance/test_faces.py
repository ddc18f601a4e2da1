"""The three faces of a unit that a handler may ask for, each end to end, on both servers and over both drivers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from inbox import Binding, ConsumerSettings, Event, Inbox, InboxService, MySQL, RabbitMQ, Reject, handles
from inbox.adapters.rabbitmq.publisher import Publisher
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Driver, Pair

FACES = ("session", "connection", "sync")


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "note"

    n: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str]
    face: Mapped[str]


class Notes(InboxService):
    """Each handler writes one note; the event's second type has it undo everything afterwards."""

    @handles("session", "session.reject")
    async def by_session(self, event: Event, session: AsyncSession) -> None:
        session.add(Note(event_id=event.id, face="session"))
        await session.flush()
        assert (await session.execute(text("SELECT COUNT(*) FROM note"))).scalar_one() >= 1
        refuse(event)

    @handles("connection", "connection.reject")
    async def by_connection(self, event: Event, connection: AsyncConnection) -> None:
        await connection.execute(insert(Note).values(event_id=event.id, face="connection"))
        refuse(event)

    @handles("sync", "sync.reject")
    def by_sync_session(self, event: Event, session: Session) -> None:
        session.add(Note(event_id=event.id, face="sync"))
        with session.begin_nested():
            assert session.query(Note).count() >= 1
        refuse(event)


async def look_up(event: Event) -> str:
    return f"looked up for {event.id}"


def refuse(event: Event) -> None:
    if event.type.endswith(".reject"):
        raise Reject("asked to")


@pytest.fixture
async def running(pair: Pair, driver: Driver) -> AsyncIterator[tuple[Inbox, str]]:
    await create_tables(pair)
    execute(pair, "CREATE TABLE note (n INT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64), face VARCHAR(16))")
    queue, exchange = pair.unique("notes"), pair.unique("events")
    pair.discard(f"{queue}.dead")
    inbox = Inbox(
        "notes",
        store=MySQL(pair.url_for(driver)),
        transport=RabbitMQ(pair.amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=ConsumerSettings(concurrency=2),
    )
    inbox.add_service(Notes())

    @inbox.handler("prepared", prepare=look_up)
    async def prepared(event: Event, session: AsyncSession, found: str) -> None:
        assert found == f"looked up for {event.id}"
        session.add(Note(event_id=event.id, face="prepared"))

    started = asyncio.Event()
    task = asyncio.create_task(inbox.run(started=started.set))
    await started.wait()
    yield inbox, exchange
    inbox.stop()
    await task


async def test_every_face_applies_once_and_undoes_whole(running: tuple[Inbox, str], pair: Pair) -> None:
    inbox, exchange = running
    kinds = [*FACES, *(f"{face}.reject" for face in FACES), "prepared"]
    async with Publisher(pair.amqp_url) as publisher:
        for _ in range(3):
            for kind in kinds:
                await publisher.publish(
                    b"{}",
                    exchange=exchange,
                    routing_key=kind,
                    headers={"ce-id": f"id-{kind}", "ce-source": "/t", "ce-type": kind, "ce-specversion": "1.0"},
                    content_type="application/json",
                )
    counts = inbox.telemetry.counts
    await wait_until(lambda: counts["applied"] + counts["duplicate"] + counts["quarantined"] >= 3 * len(kinds))
    assert (counts["applied"], counts["duplicate"], counts["quarantined"]) == (4, 8, 9)
    notes = execute(pair, "SELECT event_id, face FROM note")
    assert sorted(notes) == sorted((f"id-{face}", face) for face in (*FACES, "prepared"))
    assert [row[0].decode() for row in sorted(execute(pair, "SELECT event_id FROM inbox"))] == sorted(
        f"id-{face}" for face in (*FACES, "prepared")
    )
    assert len(execute(pair, "SELECT reason FROM inbox_quarantine WHERE reason = 'rejected'")) == 3


def execute(pair: Pair, statement: str) -> list[tuple[Any, ...]]:
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
