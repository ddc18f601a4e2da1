"""Handlers that leave in odd ways: no one of them takes the worker, a neighbour or an event with it."""

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.core.disposition import Failure, FailureKind
from inbox.core.event import CloudEvent, Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import LONGEST_WAIT, RetryPolicy
from inbox.core.records import Attempts, record_of
from inbox.errors import (
    CommitUnknown,
    Contended,
    Reject,
    Retry,
    StoreUnavailable,
    Torn,
    Unauthentic,
    Undecodable,
    UnitMisused,
)
from inbox.testing.memory import MemoryStore, MemoryUnit
from tests.unit.engine import FAST, Engine, apply, delivery

KEY = record_of("c", CloudEvent(id="1", source="/s", type="t"), "id", None).key


def raising(error: Callable[[], BaseException]) -> Callable[..., Any]:
    async def handler(event: Event, session: Any) -> None:
        session.write("half")
        raise error()

    return handler


class Silent(Reject):
    def __init__(self) -> None: ...


class SilentRetry(Retry):
    def __init__(self) -> None: ...


class SilentRefusal(Undecodable):
    def __init__(self) -> None: ...


class SilentMisuse(UnitMisused):
    def __init__(self) -> None: ...


class Fatal(BaseException): ...


async def judge(engine: Engine, reason: str, detail: str) -> None:
    """The odd one ends in quarantine, and the worker goes on to the next event."""
    engine.handle(apply, kind="next")
    await engine.settle(delivery("1"), delivery("2", kind="next"))
    assert [(row.reason, row.detail) for row in engine.store.quarantined] == [(reason, detail)]
    assert engine.store.effects == ["2"]


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (lambda: Reject(42), "rejected", "int"),  # type: ignore[arg-type]
        (lambda: Reject(None), "rejected", "NoneType"),  # type: ignore[arg-type]
        (Silent, "rejected", ""),
        (SilentRetry, "retries-used-up", "the handler asked for another try: SilentRetry"),
        (SilentRefusal, "undecodable", ""),
        (SilentMisuse, "unit-misused", "the unit was misused"),
        (lambda: Undecodable(b"secret", code=7), "int", "bytes"),  # type: ignore[arg-type]
        (SystemExit, "handler-error", "the handler raised SystemExit"),
        (KeyboardInterrupt, "handler-error", "the handler raised KeyboardInterrupt"),
        (Fatal, "handler-error", "the handler raised Fatal"),
        (asyncio.CancelledError, "handler-error", "the handler's task was cancelled from inside"),
        (lambda: BaseExceptionGroup("g", [Fatal()]), "handler-error", "the handler raised BaseExceptionGroup"),
    ],
)
async def test_whatever_a_handler_raises_is_decided_upon(
    error: Callable[[], BaseException], reason: str, detail: str
) -> None:
    engine = Engine()
    engine.handle(raising(error))
    await judge(engine, reason, detail)


async def test_a_verifier_may_say_no_in_odd_ways_too() -> None:
    class Odd:
        async def verify(self, arrival: object, event: CloudEvent) -> None:
            if event.id == "1":
                raise Unauthentic(42)  # type: ignore[arg-type]

    engine = Engine(verifier=Odd())
    engine.handle(apply)
    await judge(engine, "unauthentic", "int")


async def test_a_prepare_that_wants_to_end_the_process_is_a_failure_like_any_other() -> None:
    engine = Engine()

    async def prepare(event: Event) -> None:
        raise SystemExit(0)

    async def handler(event: Event, session: Any, prepared: object) -> None:
        raise AssertionError

    engine.handle(handler, prepare=prepare)
    await judge(engine, "handler-error", "the handler raised SystemExit")


@pytest.mark.parametrize("after", [-1, float("-inf"), 0.001, True])
async def test_a_short_wait_that_a_handler_asks_for_is_kept(after: Any) -> None:
    engine = Engine(replace(FAST, retry=replace(FAST.retry, max_hold=0.01)))
    engine.handle(raising(lambda: Retry(after)))
    await judge(engine, "retries-used-up", "the handler asked for another try")
    assert engine.store.attempts[KEY].failed == FAST.retry.max_attempts


@pytest.mark.parametrize(
    "after", [float("nan"), float("inf"), pytest.param(10**400, id="huge"), timedelta(seconds=3), "3", b"", object()]
)
async def test_an_odd_wait_that_a_handler_asks_for_keeps_no_place_for_ever(after: Any) -> None:
    engine = Engine(replace(FAST, retry=replace(FAST.retry, max_hold=0.01)))
    engine.handle(raising(lambda: Retry(after)))
    await judge(engine, "retries-used-up", "the handler asked for another try")


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (3, 3.0),
        (-1, 0.0),
        pytest.param(10**400, LONGEST_WAIT, id="huge"),
        pytest.param(-(10**400), 0.0, id="tiny"),
        (float("nan"), LONGEST_WAIT),
        ("3", LONGEST_WAIT),
        (False, 0.0),
    ],
)
def test_a_wait_that_is_asked_for_is_a_number_within_bounds(wanted: Any, held: float) -> None:
    asked = Failure(FailureKind.RETRY, "why", after=wanted)
    assert RetryPolicy().wait_of(None, asked, Attempts(failed=1)) == held
    assert RetryPolicy().hold(held) == min(held, 900.0)


# ---------------------------------------------------------------- handlers that do not come back
async def test_what_a_handler_that_was_given_up_raises_in_the_end_is_printed_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = Engine(replace(FAST, deadline=0.01, cancel_patience=0.01, retry=replace(FAST.retry, max_attempts=1)))
    free = asyncio.Event()
    task: list[asyncio.Task[Any]] = []

    async def stuck(event: Event, session: Any) -> None:
        current = asyncio.current_task()
        assert current is not None
        task.append(current)
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        raise LookupError("a secret of the payload")

    engine.handle(stuck)
    async with engine.running():
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
        free.set()
        await asyncio.wait(task)
    task.clear()
    gc.collect()
    assert "did not come back" in caplog.text
    assert "stuck" in caplog.text
    assert "secret" not in caplog.text


async def test_handlers_of_other_workers_on_the_loop_are_none_of_ours() -> None:
    engine, other = Engine(), Engine()
    running, free = asyncio.Event(), asyncio.Event()

    async def slow(event: Event, session: Any) -> None:
        running.set()
        await free.wait()
        session.write(event.id)

    engine.handle(apply)
    other.handle(slow)
    async with other.running():
        other.transport.publish(delivery())
        await running.wait()
        await engine.settle(delivery())  # stops in order, though a handler runs
        free.set()
        await other.transport.wait_settled(lambda: bool(other.transport.acknowledged))
    assert other.store.effects == ["1"]


# ---------------------------------------------------------------- whom a failure is charged to
async def test_a_handler_without_time_left_is_not_started_and_not_charged() -> None:
    engine = Engine(replace(FAST, deadline=0.02))
    started: list[str] = []
    slow_starts = 1

    async def start_attempt(key: bytes, *, alone: bool = False) -> Attempts:
        nonlocal slow_starts
        if slow_starts:
            slow_starts -= 1
            ends = asyncio.get_running_loop().time() + 0.02
            while asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(0.001)
        return await MemoryStore.start_attempt(engine.store, key, alone=alone)

    engine.store.start_attempt = start_attempt  # type: ignore[method-assign]

    async def handler(event: Event, session: Any) -> None:
        started.append(event.id)
        session.write(event.id)

    engine.handle(handler)
    await engine.settle(delivery(pristine=False))
    assert started == ["1"]
    assert engine.inbox.telemetry.counts["failed:contended"] == 1
    assert engine.inbox.telemetry.counts["failed:deadline"] == 0


async def test_a_database_that_does_not_answer_after_the_handler_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(replace(FAST, deadline=0.3))
    engine.handle(apply)
    silent = 1

    async def forget(unit: MemoryUnit, key: bytes) -> None:
        nonlocal silent
        if silent:
            silent -= 1
            await asyncio.Event().wait()
        unit.forgotten.append(key)

    monkeypatch.setattr(MemoryUnit, "forget", forget)
    await engine.settle(delivery(pristine=False))
    assert engine.store.effects == ["1"]
    assert engine.inbox.telemetry.counts["failed:contended"] == 1


async def test_a_verifier_that_hangs_is_given_up_and_asked_again() -> None:
    class Hangs:
        asked = 0

        async def verify(self, arrival: object, event: CloudEvent) -> None:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()

    engine = Engine(replace(FAST, deadline=0.02), verifier=Hangs())
    engine.handle(apply)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]


@pytest.mark.parametrize("error", [Contended("dead-lock", code=1213), StoreUnavailable("read-only", code=1290)])
async def test_what_a_stopping_worker_hands_back_is_not_left_as_started(error: Exception) -> None:
    """Open, the start would be charged as a crash by whoever gets the event next."""
    engine = Engine(replace(FAST, retry=RetryPolicy(delays=(1000.0,), first_delay=1000, max_delay=1000)))
    engine.handle(raising(lambda: error))
    engine.store.writable.clear()
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        while (Command.RECORD, Outcome.AGAIN) not in engine.probe.seen:
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 1
    assert not engine.store.open_starts


async def test_a_repeated_run_is_not_left_as_started_while_it_waits() -> None:
    engine = Engine(replace(FAST, retry=RetryPolicy(delays=(1000.0,), first_delay=1000, max_delay=1000)))
    engine.handle(raising(lambda: Contended("dead-lock", code=1213)))
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        while (Command.RECORD, Outcome.AGAIN) not in engine.probe.seen:
            await asyncio.sleep(0)
        assert not engine.store.open_starts


async def test_a_start_that_cannot_be_closed_does_not_keep_a_stopping_worker() -> None:
    engine = Engine()
    engine.handle(raising(lambda: StoreUnavailable("gone", code=2003)))
    engine.store.writable.clear()
    engine.store.faults["end_attempt"] = [StoreUnavailable("gone", code=2003)]
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        while (Command.RECORD, Outcome.AGAIN) not in engine.probe.seen:
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 1


# ---------------------------------------------------------------- the database
async def test_a_database_that_takes_our_writes_and_refuses_the_units_is_not_asked_without_end() -> None:
    """A full table of the adopter's, a resource limit of the user: waiting for the store alone ends at once."""
    engine = Engine(replace(FAST, concurrency=1, retry=replace(FAST.retry, first_delay=1000, max_delay=1000)))
    runs: list[str] = []

    async def full(event: Event, session: Any) -> None:
        runs.append(event.id)
        raise StoreUnavailable("table is full", code=1114)

    engine.handle(full)
    async with engine.running():
        engine.transport.publish(delivery())
        while (Command.RECORD, Outcome.AGAIN) not in engine.probe.seen:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
    assert runs == ["1"]
    assert len(engine.transport.released) == 1


async def test_no_release_is_counted_while_intake_is_paused() -> None:
    engine = Engine(replace(FAST, concurrency=2, retry=replace(FAST.retry, immediate=0)))
    engine.handle(apply)
    engine.store.writable.clear()
    engine.store.faults["begin"] = [StoreUnavailable("gone", code=2003)]
    engine.store.faults["claim"] = [Contended("lock wait", code=1205)]
    async with engine.running():
        engine.transport.publish(delivery("1"), delivery("2"))
        await engine.transport.wait_settled(lambda: len(engine.transport.released) == 1)
        assert all(attempts.released == 0 for attempts in engine.store.attempts.values())
        engine.store.writable.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert sorted(map(str, engine.store.effects)) == ["1", "2"]


async def test_a_torn_unit_is_kept_in_hand_until_it_is_in_quarantine() -> None:
    """Its row is there: handed back, it would come again as a duplicate and nobody would hear of it."""
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["commit"] = [Torn("procedure")]
    engine.store.faults["quarantine"] = [StoreUnavailable("gone", code=2003), Contended("dead-lock", code=1213)]
    await engine.settle(delivery())
    assert engine.reasons == ["torn"]
    assert not engine.transport.released


async def test_a_worker_that_cannot_quarantine_still_stops() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.writable.clear()
    engine.store.faults["quarantine"] = [StoreUnavailable("gone", code=2003)]
    async with engine.running():
        engine.transport.publish(delivery(kind="unknown"))
        while "quarantine" not in engine.probe.before_seen:
            await asyncio.sleep(0)
    assert len(engine.transport.released) == 1
    assert not engine.transport.acknowledged


async def test_a_known_event_whose_row_vanishes_is_prepared_before_it_is_applied() -> None:
    engine = Engine()
    prepared: list[str] = []

    async def prepare(event: Event) -> str:
        prepared.append(event.id)
        return "rate"

    async def handler(event: Event, session: Any, rate: object) -> None:
        session.write(rate)

    engine.handle(handler, prepare=prepare)
    asked = 0

    async def knows(record: object) -> bool:
        nonlocal asked
        asked += 1
        return asked == 1

    engine.store.knows = knows  # type: ignore[method-assign]
    await engine.settle(delivery(pristine=False))
    assert engine.store.effects == ["rate"]
    assert prepared == ["1"]


# ---------------------------------------------------------------- cancelled at every wait
STEPS = [
    "verify",
    "prepare",
    "begin",
    "claim",
    "start_attempt",
    "apply",
    "commit",
    "resolve",
    "end_attempt",
    "quarantine",
]


class Hanging:
    """Stands for every step, and never comes back from one of them."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached = asyncio.Event()

    async def reach(self, step: str) -> None:
        if step == self.step:
            self.reached.set()
            await asyncio.Event().wait()

    async def verify(self, arrival: object, event: CloudEvent) -> None:
        await self.reach("verify")

    async def prepare(self, event: Event) -> None:
        await self.reach("prepare")

    async def handler(self, event: Event, session: AsyncSession, prepared: object) -> None:
        await self.reach("apply")
        if self.step == "end_attempt":
            raise LookupError
        if self.step == "quarantine":
            raise Reject("no")

    def put_into(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[MemoryUnit]:
        """Let the store hang too; returns the units that were begun."""
        units: list[MemoryUnit] = []

        def hang_before(owner: Any, name: str) -> None:
            perform = getattr(owner, name)

            async def step(*args: Any, **arguments: Any) -> Any:
                await self.reach(name)
                made = await perform(*args, **arguments)
                units.extend([made] if isinstance(made, MemoryUnit) else [])
                return made

            monkeypatch.setattr(owner, name, step)

        for name in ("begin", "start_attempt", "end_attempt", "resolve", "quarantine"):
            hang_before(store, name)
        hang_before(MemoryUnit, "claim")
        commit = MemoryUnit.commit

        async def commit_and_hang(unit: MemoryUnit) -> None:
            await commit(unit)  # it is shielded: the cancellation comes when it is done
            await self.reach("commit")

        monkeypatch.setattr(MemoryUnit, "commit", commit_and_hang)
        return units


@pytest.mark.parametrize("step", STEPS)
async def test_a_lane_cancelled_at_any_step_leaves_no_unit_open_and_settles_nothing(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging(step)
    engine = Engine(verifier=hanging)
    units = hanging.put_into(engine.store, monkeypatch)
    if step == "resolve":
        engine.store.faults["commit"] = [CommitUnknown("lost")]
    engine.inbox.handler("t", prepare=hanging.prepare)(hanging.handler)
    processor = engine.inbox._make_consumer()._processor
    await engine.store.open()
    lane = asyncio.create_task(processor.process(delivery(pristine=False)))
    await hanging.reached.wait()
    lane.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lane
    assert not engine.transport.acknowledged
    assert not engine.transport.released
    assert len(units) == (step not in ("verify", "prepare", "begin") and (step != "start_attempt"))
    assert all(unit.is_over for unit in units)
    assert not any(lock.locked() for lock in engine.store.locks.values())
    assert not processor.handlers.names
