"""Starting, pausing and stopping a worker, in memory."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import ConfigurationError, Contended, SchemaError, StopTimeout, StoreUnavailable, TransportError
from inbox.testing.memory import MemoryStore, MemoryTransport
from tests.unit.engine import FAST, Engine, apply, delivery


async def test_stopping_finishes_what_runs_and_hands_back_what_does_not() -> None:
    engine = Engine(replace(FAST, concurrency=1, prefetch=3))
    running, free = asyncio.Event(), asyncio.Event()

    async def slow(event: Event, session: Any) -> None:
        running.set()
        await free.wait()
        session.write(event.id)

    engine.handle(slow)
    engine.transport.publish(*(delivery(str(n)) for n in range(3)))
    task = asyncio.create_task(engine.inbox.run())
    await running.wait()
    engine.inbox.stop()
    await engine.transport.wait_settled(lambda: len(engine.transport.released) == 2)
    free.set()
    await task
    assert engine.store.effects == ["0"]
    assert len(engine.transport.acknowledged) == 1
    assert not engine.store.is_open


async def test_a_stopping_worker_does_not_hold_on_to_what_it_wanted_to_repeat() -> None:
    engine = Engine(replace(FAST, retry=RetryPolicy(delays=(1000.0,))))

    async def fail(event: Event, session: Any) -> None:
        raise LookupError

    engine.handle(fail)
    async with engine.running():
        engine.transport.publish(delivery())
        while engine.inbox.telemetry.counts["released"] < 1:
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 1


async def test_a_stopping_worker_does_not_wait_for_contention_to_pass() -> None:
    engine = Engine(replace(FAST, retry=RetryPolicy(first_delay=10_000, max_delay=10_000)))
    engine.handle(apply)
    engine.store.faults["claim"] = [Contended("dead-lock", code=1213)]
    async with engine.running():
        engine.transport.publish(delivery())
        while not any(command.value == "record" for command, _ in engine.probe.seen):
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 1


async def test_a_worker_whose_database_is_away_still_stops() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.writable.clear()
    engine.store.faults["begin"] = [StoreUnavailable("gone", code=2013)] * 9
    async with engine.running():
        engine.transport.publish(*(delivery(str(n)) for n in range(6)))
        while not any(command.value == "record" for command, _ in engine.probe.seen):
            await asyncio.sleep(0)
    assert not engine.store.effects
    assert len(engine.transport.released) == 6


async def test_a_handler_that_does_not_come_back_is_named_and_the_stop_is_hard() -> None:
    engine = Engine(replace(FAST, shutdown_patience=0.05, cancel_patience=0.05, deadline=1000))
    running, free = asyncio.Event(), asyncio.Event()

    async def stuck(event: Event, session: Any) -> None:
        running.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    engine.handle(stuck)
    engine.transport.publish(delivery())
    task = asyncio.create_task(engine.inbox.run())
    await running.wait()
    engine.inbox.stop()
    with pytest.raises(StopTimeout, match="stuck") as caught:
        await task
    assert len(caught.value.handlers) == 1
    assert not engine.transport.acknowledged
    free.set()
    for other in asyncio.all_tasks() - {asyncio.current_task()}:
        other.cancel()


async def test_a_start_that_fails_closes_both_sides_and_consumes_nothing() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["open"] = [SchemaError(["no table inbox: run `inbox schema apply`"])]
    engine.transport.publish(delivery())
    with pytest.raises(SchemaError, match="schema apply"):
        await engine.inbox.run()
    assert not engine.probe.seen


async def test_a_transport_out_of_patience_ends_the_run_after_the_drain() -> None:
    engine = Engine()
    engine.handle(apply)
    task = asyncio.create_task(engine.inbox.run())
    engine.transport.publish(delivery())
    await engine.transport.wait_settled(lambda: bool(engine.transport.acknowledged))
    engine.transport.fail(TransportError("the broker stayed away"))
    with pytest.raises(TransportError, match="stayed away"):
        await task
    assert engine.store.effects == ["1"]


async def test_a_defect_in_a_lane_is_not_hidden() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["quarantine"] = [ZeroDivisionError()]
    task = asyncio.create_task(engine.inbox.run())
    engine.transport.publish(delivery(kind="unknown"))
    with pytest.raises(ZeroDivisionError):
        await task


async def test_a_lost_acknowledgement_ends_the_delivery_all_the_same() -> None:
    engine = Engine()

    async def apply_and_lose_the_link(event: Event, session: Any) -> None:
        await apply(event, session)
        engine.transport.broker.cut()

    engine.handle(apply_and_lose_the_link)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert engine.inbox.telemetry.counts["ack_lost"] == 1
    assert engine.inbox.telemetry.counts["duplicate"] == 1, "it came again"


async def test_an_inbox_runs_once() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(delivery())
    with pytest.raises(ConfigurationError, match="runs once"):
        await engine.inbox.run()


async def test_an_inbox_without_handlers_or_transport_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="no handlers"):
        await Engine().inbox.run()
    with pytest.raises(ConfigurationError, match="no transport"):
        await Inbox("c", store=MemoryStore()).run()


def test_what_runs_is_described_without_secrets() -> None:
    engine = Engine()
    engine.handle(apply)
    facts = engine.inbox.describe()
    assert facts["consumer"] == "c"
    assert "t → " in facts["handlers"]
    assert facts["transport"] == "memory"
    assert "transport" not in Inbox("c", store=MemoryStore()).describe()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"prefetch": 1}, "prefetch"),
        ({"deadline": 0}, "deadline"),
        ({"cancel_patience": 0}, "cancel_patience"),
        ({"shutdown_patience": 0}, "shutdown_patience"),
        ({"retry": RetryPolicy(max_attempts=0)}, "max_attempts"),
        ({"identity": "name"}, "identity"),
        ({"fingerprint": ("colour",)}, "colour"),
    ],
)
def test_settings_are_checked_when_they_are_made(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ConsumerSettings(**wrong)


@pytest.mark.parametrize("name", ["", "x" * 129, "é" * 65])
def test_a_consumer_needs_a_name_that_can_be_stored(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        Inbox(name, store=MemoryStore())


def test_prefetch_is_a_multiple_of_the_concurrency_unless_told() -> None:
    assert ConsumerSettings(concurrency=3).effective_prefetch == 12
    assert ConsumerSettings(concurrency=3, prefetch=5).effective_prefetch == 5
    assert MemoryTransport().describe()
