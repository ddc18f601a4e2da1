"""What is bounded: settings, waiting for connections, deliveries in hand."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.delivery import Delivery
from inbox.core.policy import RetryPolicy
from inbox.errors import ConfigurationError, SchemaError, StoreUnavailable, TryAgain
from inbox.runtime.intake import LocalIntake
from inbox.testing.memory import MemoryStore, MemoryTransport, MemoryUnit
from tests.unit.engine import FAST, Engine, apply, delivery


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["deadline", "cancel_patience", "shutdown_patience"])
def test_times_are_numbers_of_seconds(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        ConsumerSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["first_delay", "max_delay", "max_hold", "give_up_after"])
def test_delays_are_numbers_of_seconds(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"retry\.{name}"):
        ConsumerSettings(retry=RetryPolicy(**{name: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("max_attempts", 0), ("immediate", -1), ("max_releases", -1)])
def test_counts_are_not_negative(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"retry\.{name}"):
        ConsumerSettings(retry=RetryPolicy(**{name: value}))  # type: ignore[arg-type]


def test_a_connection_has_so_many_seconds_to_be_made() -> None:
    with pytest.raises(ConfigurationError, match="connect_timeout"):
        DatabaseSettings(connect_timeout=math.nan)


# ---------------------------------------------------------------- deliveries in hand
async def test_a_link_that_comes_and_goes_under_a_paused_intake_does_not_pile_deliveries_up() -> None:
    intake = LocalIntake(MemoryStore(), MemoryTransport(), most=4)
    for number in range(100):
        intake.take(delivery(str(number)))
    taken = [await intake.next() for _ in range(4)]
    assert [arrival.headers["ce-id"] for arrival in taken if arrival is not None] == ["96", "97", "98", "99"]


async def test_two_reasons_pause_intake_until_both_are_gone() -> None:
    store = MemoryStore()
    store.writable.clear()
    intake = LocalIntake(store, MemoryTransport(), most=4)
    intake.pause(0, "the quarantine is full")
    waiting = asyncio.create_task(intake.wait_for_store())
    taking = asyncio.create_task(intake.next())
    intake.take(delivery())
    while "the quarantine is full" in intake._pauses or not intake._pauses:
        await asyncio.sleep(0)
    assert intake.is_paused
    assert not taking.done()
    store.writable.set()
    assert await waiting
    assert await taking is not None


async def test_the_end_of_one_pause_does_not_end_another() -> None:
    intake = LocalIntake(MemoryStore(), MemoryTransport(), most=4)
    intake.pause(1000, "a test")
    intake.pause(0, "the quarantine is full")
    while len(intake._pauses) > 1:
        await asyncio.sleep(0)
    assert intake.is_paused
    intake.take(delivery())
    taking = asyncio.create_task(intake.next())
    await asyncio.sleep(0)
    assert not taking.done()
    taking.cancel()


async def test_a_pause_is_not_made_longer_by_whoever_asks_for_it_again() -> None:
    intake = LocalIntake(MemoryStore(), MemoryTransport(), most=4)
    intake.pause(0, "full")
    intake.pause(1000, "full")
    while intake.is_paused:
        await asyncio.sleep(0)


async def test_a_worker_stops_though_intake_is_paused(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(replace(FAST, concurrency=1))
    engine.handle(apply)
    async with engine.running():
        while engine.inbox._consumer is None:
            await asyncio.sleep(0)
        engine.inbox._consumer._intake.pause(1000, "a test")
        engine.transport.publish(delivery("1"), delivery("2"))
        for _ in range(20):
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 2
    assert not engine.store.effects
    assert "resumed" not in caplog.text


async def test_a_store_that_cannot_even_be_waited_for_ends_the_worker() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["begin"] = [StoreUnavailable("gone", code=2003)] * 2

    async def wait_writable() -> None:
        raise ZeroDivisionError

    engine.store.wait_writable = wait_writable  # type: ignore[method-assign]
    engine.transport.publish(delivery("1"), delivery("2"))
    with pytest.raises(ZeroDivisionError):
        await engine.inbox.run()
    assert not engine.transport.acknowledged


# ---------------------------------------------------------------- inbox.transaction
async def test_a_transaction_needs_an_open_inbox() -> None:
    engine = Engine()
    event = await engine.inbox.verify(delivery())
    with pytest.raises(ConfigurationError, match="async with inbox"):
        engine.inbox.transaction(event)
    async with engine.inbox:
        engine.inbox.transaction(event)
    with pytest.raises(ConfigurationError, match="async with inbox"):
        engine.inbox.transaction(event)


async def test_an_inbox_that_cannot_be_opened_leaves_nothing_open() -> None:
    engine = Engine()
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    engine.store.close = close  # type: ignore[method-assign]
    engine.store.faults["open"] = [SchemaError(["no table"])]
    with pytest.raises(SchemaError):
        await engine.inbox.__aenter__()
    assert closed


async def test_a_transaction_inside_of_one_for_the_same_event_does_not_wait_for_itself_for_ever() -> None:
    engine = Engine(replace(FAST, deadline=0.02))
    event = await engine.inbox.verify(delivery())
    session: Any
    async with engine.inbox, engine.inbox.transaction(event) as session:
        with pytest.raises(TryAgain):
            async with engine.inbox.transaction(event):
                raise AssertionError
        session.write("outer")
    assert engine.store.effects == ["outer"]


async def test_waiting_for_a_connection_ends() -> None:
    engine = Engine(replace(FAST, deadline=0.02))
    event = await engine.inbox.verify(delivery())

    async def begin() -> MemoryUnit:
        await asyncio.Event().wait()
        raise AssertionError

    engine.store.begin = begin  # type: ignore[method-assign]
    async with engine.inbox:
        with pytest.raises(TryAgain):
            async with engine.inbox.transaction(event):
                raise AssertionError


async def test_a_cancelled_block_is_undone_and_can_be_entered_again() -> None:
    engine = Engine()
    event = await engine.inbox.verify(delivery())
    entered = asyncio.Event()

    async def block() -> None:
        session: Any
        async with engine.inbox.transaction(event) as session:
            session.write("half")
            entered.set()
            await asyncio.Event().wait()

    async with engine.inbox:
        task = asyncio.create_task(block())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with engine.inbox.transaction(event) as session:
            session.write("whole")  # type: ignore[attr-defined]
    assert engine.store.effects == ["whole"]


async def test_an_abandoned_block_is_undone() -> None:
    engine = Engine()
    event = await engine.inbox.verify(delivery())
    async with engine.inbox:
        manager = engine.inbox.transaction(event)
        session: Any = await manager.__aenter__()
        session.write("half")
        del manager
        while any(lock.locked() for lock in engine.store.locks.values()):
            await asyncio.sleep(0)
    assert not engine.store.rows
    assert not engine.store.effects


async def test_what_arrives_after_the_stop_is_handed_back_before_the_stop_ends() -> None:
    transport = MemoryTransport()
    handed_back = asyncio.Event()

    async def release(delivery: Delivery) -> bool:
        await asyncio.sleep(0)
        handed_back.set()
        return True

    transport.release = release  # type: ignore[method-assign]
    intake = LocalIntake(MemoryStore(), transport, most=4)
    intake.stop()
    intake.take(delivery())
    assert await intake.next() is None
    await intake.wait_released()
    assert handed_back.is_set()
