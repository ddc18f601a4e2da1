"""`inbox.transaction` in memory: what each outcome raises."""

import asyncio
from typing import Any

import pytest

from inbox.app import Inbox
from inbox.core.delivery import Delivery
from inbox.core.event import Event
from inbox.errors import (
    AlreadyProcessed,
    CommitUnknown,
    CommitUnresolved,
    ConfigurationError,
    Contended,
    IdentityConflict,
    NoHandler,
    NotApplied,
    StoreError,
    StoreUnavailable,
    Torn,
    TryAgain,
    Undecodable,
)
from inbox.testing.memory.store import MemoryUnit
from tests.unit.engine import Engine, delivery


async def event_of(engine: Engine, arrival: Delivery | None = None) -> Event:
    return await engine.inbox.verify(arrival or delivery())


async def write(engine: Engine, event: Event, *, error: Exception | None = None) -> None:
    session: Any
    async with engine.inbox, engine.inbox.transaction(event) as session:
        session.write(event.id)
        if error is not None:
            raise error


async def test_the_block_is_applied_once() -> None:
    engine = Engine()
    event = await event_of(engine)
    await write(engine, event)
    with pytest.raises(AlreadyProcessed):
        await write(engine, event)
    assert engine.store.effects == ["1"]
    assert not engine.store.is_open


async def test_another_content_under_one_id_is_a_conflict() -> None:
    engine = Engine()
    await write(engine, await event_of(engine))
    with pytest.raises(IdentityConflict):
        await write(engine, await event_of(engine, delivery(body=b"[]")))


async def test_an_exception_undoes_the_block() -> None:
    engine = Engine()
    event = await event_of(engine)
    with pytest.raises(LookupError):
        await write(engine, event, error=LookupError())
    assert not engine.store.effects
    await write(engine, event)


@pytest.mark.parametrize("step", ["begin", "claim", "apply"])
@pytest.mark.parametrize("error", [Contended("dead-lock", code=1213), StoreUnavailable("gone", code=2013)])
async def test_contention_says_try_again_and_leaves_nothing_behind(step: str, error: StoreError) -> None:
    engine = Engine()
    event = await event_of(engine)
    engine.store.faults[step] = [error]
    with pytest.raises(TryAgain) as caught:
        await write(engine, event)
    assert caught.value.__cause__ is error
    await write(engine, event)
    assert engine.store.effects == ["1"]


async def test_a_cancelled_claim_gives_its_connection_back() -> None:
    engine = Engine()
    event = await event_of(engine)
    engine.store.faults["claim"] = [asyncio.CancelledError()]
    with pytest.raises(asyncio.CancelledError):
        await write(engine, event)
    await write(engine, event)


async def test_a_commit_under_way_is_carried_through_though_its_owner_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine()
    event = await event_of(engine)
    sent, answered, commit = asyncio.Event(), asyncio.Event(), MemoryUnit.commit

    async def slow_commit(unit: MemoryUnit) -> None:
        sent.set()
        await answered.wait()
        await commit(unit)

    monkeypatch.setattr(MemoryUnit, "commit", slow_commit)
    writing = asyncio.create_task(write(engine, event))
    await sent.wait()
    writing.cancel()
    await asyncio.sleep(0)
    writing.cancel()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert engine.store.effects == ["1"]


async def test_a_commit_that_took_place_is_a_normal_exit() -> None:
    engine = Engine()
    engine.store.faults["committed"] = [CommitUnknown("lost")]
    await write(engine, await event_of(engine))
    assert engine.store.effects == ["1"]


async def test_a_commit_that_did_not_take_place_says_so() -> None:
    engine = Engine()
    engine.store.faults["commit"] = [CommitUnknown("lost")]
    with pytest.raises(NotApplied):
        await write(engine, await event_of(engine))
    assert not engine.store.effects


async def test_a_commit_that_nobody_can_tell_of_says_so() -> None:
    engine = Engine()
    engine.store.faults["commit"] = [CommitUnknown("lost")]
    engine.store.faults["resolve"] = [Exception()]
    with pytest.raises(CommitUnresolved):
        await write(engine, await event_of(engine))


async def test_a_torn_unit_is_no_reason_to_try_again() -> None:
    engine = Engine()
    engine.store.faults["commit"] = [Torn("procedure")]
    with pytest.raises(Torn):
        await write(engine, await event_of(engine))


async def test_only_a_verified_delivery_becomes_an_event() -> None:
    engine = Engine()
    with pytest.raises(Undecodable):
        await event_of(engine, Delivery(body=b"", headers={}))
    with pytest.raises(NoHandler):
        await event_of(engine, Delivery(body=b"", headers={}, refusal=NoHandler("x")))


async def test_an_event_of_another_consumer_is_refused() -> None:
    engine = Engine()
    other = Inbox("other", store=engine.store)
    with pytest.raises(ConfigurationError, match="'other'"):
        await write(engine, await other.verify(delivery()))
    assert not engine.store.rows
