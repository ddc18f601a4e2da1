"""Handlers without servers: the pipeline is the real one, and what it came to is told."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, String, func, text
from sqlalchemy.dialects.mysql import DATETIME, MEDIUMBLOB, VARBINARY
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from inbox import (
    ConfigurationError,
    ConsumerSettings,
    Delivery,
    Event,
    Inbox,
    MySQL,
    RabbitMQ,
    Reject,
    Retry,
    Unauthentic,
    UnitMisused,
    define_tables,
)
from inbox.testing.lab import MemoryLab


class Base(DeclarativeBase):
    pass


TABLES = define_tables(Base.metadata)


class Account(Base):
    __tablename__ = "account"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)


class Entry(Base):
    __tablename__ = "entry"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("account.name"))
    raw: Mapped[bytes | None] = mapped_column(VARBINARY(64))
    whole: Mapped[bytes | None] = mapped_column(MEDIUMBLOB)
    at: Mapped[Any] = mapped_column(DATETIME(fsp=6), server_default=text("(UTC_TIMESTAMP(6))"), nullable=True)
    made: Mapped[Any] = mapped_column(DATETIME(fsp=6), server_default=func.now())


async def enter(event: Event, session: AsyncSession) -> None:
    session.add(Entry(account=event.json()["account"], raw=b"\0\xff"))


def note(event: Event, session: Session) -> None:
    session.add(Entry(account="ada"))


async def break_down(event: Event, session: AsyncSession) -> None:
    session.add(Entry(account="ada"))
    await session.flush()
    raise LookupError("of the test")


async def reject(event: Event, session: AsyncSession) -> None:
    raise Reject("never wanted")


async def put_off(event: Event, session: AsyncSession) -> None:
    raise Retry(after=30)


async def commit(event: Event, session: AsyncSession) -> None:
    await session.execute(text("COMMIT"))


class NotForged:
    async def verify(self, delivery: Delivery, event: Any) -> None:
        if event.type == "forged":
            raise Unauthentic("the signature is another one")


HANDLERS: dict[str, Any] = {
    "paid": enter,
    "noted": note,
    "broken": break_down,
    "rejected": reject,
    "later": put_off,
    "commit": commit,
}


def make_inbox() -> Inbox:
    inbox = Inbox(
        "shop",
        store=MySQL("mysql://user:password@nowhere/shop", tables=TABLES),
        transport=RabbitMQ("amqp://nowhere/", "shop"),
        settings=ConsumerSettings(unknown_types={"other.*": "ignore"}),
        verifier=NotForged(),
    )
    for event_type, function in HANDLERS.items():
        inbox.handler(event_type)(function)
    return inbox


@pytest.fixture
def lab() -> Iterator[MemoryLab]:
    with MemoryLab(f"{__name__}:make_inbox") as made:
        made.create_all(Base.metadata)
        made.execute("INSERT INTO account VALUES (?)", "ada")
        yield made


PAID = {"id": "1", "type": "paid", "data": {"account": "ada"}}


async def test_an_event_is_applied_once_and_then_a_duplicate(lab: MemoryLab) -> None:
    first, again = await lab.deliver(PAID), await lab.deliver(PAID)
    assert (first.outcome, first.is_applied, again.outcome, again.is_applied) == ("applied", True, "duplicate", False)
    assert lab.effects("SELECT id, account, raw, made IS NOT NULL FROM entry") == [(1, "ada", b"\0\xff", 1)]
    assert (await lab.deliver({"id": "2", "type": "noted"})).is_applied, "a plain def gets a plain session"
    assert lab.effects("SELECT event_id FROM inbox ORDER BY 1") == [(b"1",), (b"2",)]


@pytest.mark.parametrize(
    ("event", "outcome", "reason"),
    [
        ({"id": "1", "type": "rejected"}, "quarantined", "rejected"),
        ({"id": "1", "type": "nobody"}, "quarantined", "no-handler"),
        ({"id": "1", "type": "forged"}, "quarantined", "unauthentic"),
        ({"id": "1", "type": "other.thing"}, "ignored", ""),
        (Delivery(b"junk", {}), "quarantined", "no-cloudevent"),
    ],
)
async def test_what_becomes_of_the_others_is_told_with_its_reason(
    lab: MemoryLab, event: Any, outcome: str, reason: str
) -> None:
    delivered = await lab.deliver(event)
    assert (delivered.outcome, delivered.reason, delivered.error) == (outcome, reason, delivered.error)
    assert lab.effects("SELECT COUNT(*) FROM entry") == [(0,)]


async def test_the_same_id_with_other_content_is_a_conflict(lab: MemoryLab) -> None:
    await lab.deliver(PAID)
    delivered = await lab.deliver(PAID | {"data": {"account": "grace"}})
    assert (delivered.outcome, delivered.reason) == ("quarantined", "identity-conflict")


async def test_a_handler_that_fails_is_undone_and_tried_as_often_as_the_policy_says(lab: MemoryLab) -> None:
    event = {"id": "1", "type": "broken"}
    delivered = [await lab.deliver(event) for _ in range(5)]
    assert [each.outcome for each in delivered] == ["delayed"] * 4 + ["quarantined"]
    assert [each.delay for each in delivered] == [1.0, 10.0, 60.0, 300.0, 0.0]
    assert isinstance(delivered[0].error, LookupError)
    assert lab.effects("SELECT COUNT(*) FROM entry") == [(0,)]


async def test_what_a_handler_asks_for_and_what_it_may_not_do_are_told(lab: MemoryLab) -> None:
    later, refused = await lab.deliver({"id": "1", "type": "later"}), await lab.deliver({"id": "2", "type": "commit"})
    assert (later.outcome, later.delay) == ("delayed", 30)
    assert (refused.outcome, type(refused.error)) == ("delayed", UnitMisused)


async def test_a_violated_key_is_the_handlers_failure(lab: MemoryLab) -> None:
    delivered = await lab.deliver(PAID | {"data": {"account": "nobody"}})
    assert delivered.outcome == "delayed"
    assert lab.effects("SELECT COUNT(*) FROM entry") == [(0,)]


async def test_without_sql_the_memory_store_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inbox.adapters.embedded", None)
    with pytest.raises(ConfigurationError, match=r"idempotent-inbox\[embedded\]"):
        MemoryLab(make_inbox())

    async def write(event: Event, session: AsyncSession) -> None:
        session.write(event.id)  # type: ignore[attr-defined]  # a MemorySession

    inbox = Inbox("plain", store=MySQL("mysql://nowhere/shop"))
    inbox.handler("paid")(write)
    with MemoryLab(inbox, store="memory") as lab:
        assert (await lab.deliver(PAID)).is_applied
        assert (await lab.deliver(PAID)).outcome == "duplicate"
        assert lab.written == ("1",)
        with pytest.raises(ConfigurationError, match="has no tables"):
            lab.effects("SELECT 1")


async def test_a_lab_says_what_it_was_asked_for_in_vain(lab: MemoryLab) -> None:
    with pytest.raises(ConfigurationError, match="in the database"):
        assert lab.written
    with pytest.raises(ConfigurationError, match="no CloudEvent"):
        await lab.deliver({"id": "1"})
