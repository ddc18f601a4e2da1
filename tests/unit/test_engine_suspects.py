"""Events in which, or beside which, a process died: they run alone, and only a death in that run is their own."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.records import Attempts, Claim, record_of
from inbox.errors import Contended, Reject, StoreUnavailable
from inbox.testing.conformance.store_rig import opened
from inbox.testing.memory import MemoryStart, MemoryStore
from tests.unit.engine import DIED_ALONE, DIED_BESIDE_OTHERS, FAST, Engine, apply, delivery


def key(identifier: str) -> bytes:
    return record_of("c", CloudEvent(id=identifier, source="/s", type="t"), "id", None).key


class Inside:
    """A handler that notes who else is in one, and may be held."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.entered = asyncio.Event()
        self.free = asyncio.Event()

    async def handle(self, event: Event, session: Any) -> None:
        await self.run(event)
        session.write(event.id)

    async def hold(self, event: Event, session: Any) -> None:
        self.entered.set()
        await self.run(event, self.free)
        session.write(event.id)

    async def run(self, event: Event, free: asyncio.Event | None = None) -> None:
        self.now.add(event.id)
        for one in self.now:
            self.beside.setdefault(one, set()).update(self.now - {one})
        if free is not None:
            await free.wait()
        for _ in range(5):  # others would come in now
            await asyncio.sleep(0)
        for one in self.now:
            self.beside[one].update(self.now - {one})
        self.now.discard(event.id)


def charges(engine: Engine) -> int:
    return sum(counts.charged for counts in engine.store.attempts.values())


def method(function: Any) -> Any:
    """As a function of its own, whose annotations can be written to."""

    async def handler(event: Event, session: Any) -> None:
        await function(event, session)

    return handler


async def wait_for(engine: Engine, command: Command, outcome: Outcome, times: int = 1) -> None:
    while engine.probe.seen.count((command, outcome)) < times:
        await asyncio.sleep(0)


# ---------------------------------------------------------------- a suspect runs alone
async def test_a_suspect_is_charged_nothing_and_runs_while_no_other_handler_does() -> None:
    engine, inside = Engine(replace(FAST, concurrency=4)), Inside()
    engine.handle(method(inside.handle))
    engine.store.open_starts[key("3")] = DIED_BESIDE_OTHERS
    await engine.settle(*(delivery(str(n), pristine=False) for n in range(1, 9)))
    assert sorted(map(str, engine.store.effects)) == [str(n) for n in range(1, 9)]
    assert inside.beside["3"] == set()
    assert any(inside.beside[str(n)] for n in range(1, 9)), "the others ran beside each other"
    assert engine.inbox.telemetry.counts["suspect"] == 1
    assert not engine.store.attempts
    assert not engine.store.open_starts


async def test_several_suspects_run_one_after_the_other() -> None:
    engine, inside = Engine(replace(FAST, concurrency=4)), Inside()
    engine.handle(method(inside.handle))
    for number in range(1, 5):
        engine.store.open_starts[key(str(number))] = DIED_BESIDE_OTHERS
    await engine.settle(*(delivery(str(n), pristine=False) for n in range(1, 9)))
    assert len(engine.store.effects) == 8
    assert all(not inside.beside[str(n)] for n in range(1, 5))
    assert not engine.store.attempts


async def test_a_suspect_is_noted_as_one_that_runs_alone() -> None:
    engine, inside = Engine(), Inside()
    engine.handle(method(inside.hold))
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        await inside.entered.wait()
        assert engine.store.open_starts[key("1")] == MemoryStart(engine.store, alone=True)
        inside.free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)


async def test_with_one_unit_at_a_time_every_run_is_alone() -> None:
    engine, inside = Engine(replace(FAST, concurrency=1)), Inside()
    engine.handle(method(inside.hold))
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        await inside.entered.wait()
        assert engine.store.open_starts[key("1")].alone
        inside.free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
    assert engine.inbox.telemetry.counts["suspect"] == 0, "there was nothing to wait for"


async def test_a_death_alone_is_charged_and_the_next_run_is_alone_again() -> None:
    engine, inside = Engine(), Inside()
    engine.handle(method(inside.hold))
    engine.store.open_starts[key("1")] = DIED_ALONE
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        await inside.entered.wait()
        assert engine.store.attempts[key("1")] == Attempts(crashed=1)
        assert engine.store.open_starts[key("1")].alone
        inside.free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
    assert not engine.store.attempts, "it has recovered"


async def test_the_copy_of_a_suspect_that_came_with_it_does_not_run_beside_others_in_its_place() -> None:
    """Its start is open by this process by then: that alone would say nothing against the copy."""
    engine, inside = Engine(replace(FAST, concurrency=4)), Inside()
    engine.handle(method(inside.handle))
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    arrivals = [delivery("1", pristine=False), delivery("1", pristine=False), delivery("2"), delivery("3")]
    await engine.settle(*arrivals)
    assert inside.beside["1"] == set()
    assert sorted(map(str, engine.store.effects)) == ["1", "2", "3"]
    assert not engine.store.open_starts


async def test_who_left_a_start_open_may_yet_say_that_it_lives() -> None:
    """It had ended its unit, which let the other delivery in, and was about to note how."""
    engine = Engine(replace(FAST, deadline=1, retry=replace(FAST.retry, max_attempts=1)))
    engine.handle(apply)
    slow = MemoryStore(engine.store.database).for_consumer("c", concurrency=1, deadline=1.0)
    slow.attempts[key("1")] = await slow.start_attempt(key("1"), alone=True)
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        while not slow.attempts[key("1")].crashed:
            await asyncio.sleep(0)
        await slow.end_attempt(key("1"))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
    assert engine.store.effects == ["1"]
    assert not engine.reasons


async def test_another_delivery_of_a_crasher_does_not_run_before_that_is_in_quarantine() -> None:
    """It would kill the process once more, and the quarantine would never be written."""
    engine = Engine(replace(FAST, deadline=0.5))
    quarantined: list[int] = []

    async def handler(event: Event, session: Any) -> None:
        quarantined.append(len(engine.store.quarantined))

    engine.handle(handler)
    engine.store.attempts[key("1")] = Attempts(crashed=2)
    engine.store.open_starts[key("1")] = DIED_ALONE
    write = engine.store.quarantine

    async def slowly(delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        await write(delivery, event, reason, detail)

    engine.store.quarantine = slowly  # type: ignore[method-assign]
    await engine.settle(delivery(pristine=False), delivery(pristine=False))
    assert engine.reasons == ["crashed"]
    assert quarantined == [1]
    assert not engine.store.open_starts


async def test_what_a_dead_process_left_of_an_event_that_another_applied_is_forgotten() -> None:
    """A first delivery, which notes nothing, took the place of the one whose process died in the handler."""
    engine = Engine()
    engine.handle(apply)
    engine.store.attempts[key("1")] = Attempts(failed=1)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    await engine.settle(delivery("1"), delivery("1", pristine=False))
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts
    assert not engine.store.open_starts


# ---------------------------------------------------------------- and then something else goes wrong
async def test_a_suspect_that_waits_for_the_database_stays_alone() -> None:
    """Its start is noted as one that runs alone: the death of a neighbour would be charged to it."""
    engine, inside = Engine(), Inside()
    engine.handle(method(inside.handle))
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    engine.store.faults["apply"] = [StoreUnavailable("read-only", code=1290)]
    await engine.settle(delivery("1", pristine=False), delivery("2"), delivery("3"))
    assert inside.beside["1"] == set()
    assert engine.inbox.telemetry.counts["failed:store-unavailable"] == 1
    assert not engine.store.attempts


async def test_a_suspect_whose_charge_cannot_be_noted_stays_alone() -> None:
    engine, inside = Engine(), Inside()

    async def fail_once(event: Event, session: Any) -> None:
        await inside.run(event)
        if event.id not in failed:
            failed.add(event.id)
            raise LookupError
        session.write(event.id)

    failed = {"2", "3"}
    engine.handle(fail_once)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    engine.store.faults["end_attempt"] = [StoreUnavailable("gone", code=2013)]
    await engine.settle(delivery("1", pristine=False), delivery("2"), delivery("3"))
    assert inside.beside["1"] == set()
    assert sorted(map(str, engine.store.effects)) == ["1", "2", "3"]


async def test_a_suspect_whose_start_could_not_be_closed_is_noted_anew_before_it_runs_beside_others() -> None:
    engine, inside = Engine(), Inside()
    runs: list[str] = []

    async def hold_the_second_time(event: Event, session: Any) -> None:
        runs.append(event.id)
        if len(runs) > 1:
            await inside.run(event, inside.free)

    engine.handle(hold_the_second_time)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    engine.store.faults["apply"] = [Contended("dead-lock", code=1213)]
    engine.store.faults["end_attempt"] = [Contended("dead-lock", code=1213)]
    async with engine.running():
        engine.transport.publish(delivery("1", pristine=False))
        await wait_for(engine, Command.RECORD, Outcome.AGAIN, times=2)
        engine.transport.publish(delivery("2"))
        while inside.now != {"1", "2"}:
            await asyncio.sleep(0)
        assert not engine.store.open_starts[key("1")].alone
        inside.free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert not engine.store.faults["end_attempt"]
    assert charges(engine) == 0


async def test_a_suspect_that_fails_alone_is_charged_for_that() -> None:
    engine = Engine()

    async def fail(event: Event, session: Any) -> None:
        raise LookupError

    engine.handle(fail)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    await engine.settle(delivery(pristine=False))
    assert engine.reasons == ["handler-error"]
    assert engine.store.attempts[key("1")] == Attempts(failed=FAST.retry.max_attempts)


async def test_a_suspect_that_is_rejected_alone_leaves_no_open_start() -> None:
    engine = Engine()

    async def reject(event: Event, session: Any) -> None:
        raise Reject("no")

    engine.handle(reject)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    await engine.settle(delivery(pristine=False))
    assert engine.reasons == ["rejected"]
    assert not engine.store.open_starts


async def test_what_is_in_quarantine_has_no_open_start_though_the_database_was_away_when_it_was_to_be_closed() -> None:
    engine = Engine()

    async def reject(event: Event, session: Any) -> None:
        raise Reject("no")

    engine.handle(reject)
    engine.store.faults["end_attempt"] = [StoreUnavailable("gone", code=2013)] * 3
    await engine.settle(delivery(pristine=False))
    assert not engine.store.faults["end_attempt"]
    assert engine.reasons == ["rejected"]
    assert not engine.store.open_starts


async def test_a_suspect_that_prepares_is_alone_before_it_does() -> None:
    engine, inside = Engine(), Inside()

    async def prepare(event: Event) -> str:
        await inside.run(event)
        return "rate"

    async def handler(event: Event, session: Any, prepared: object) -> None:
        session.write(prepared)

    engine.handle(handler, prepare=prepare)
    engine.handle(method(inside.handle), kind="other")
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    await engine.settle(delivery("1", pristine=False), *(delivery(str(n), kind="other") for n in range(2, 6)))
    assert inside.beside["1"] == set()
    assert "rate" in engine.store.effects
    assert not engine.store.open_starts


async def test_a_known_event_that_is_a_suspect_is_a_duplicate_and_waits_for_nobody() -> None:
    engine = Engine()
    engine.handle(apply)
    async with engine.running():
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
        engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
        engine.transport.publish(delivery(pristine=False))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert engine.inbox.telemetry.counts["duplicate"] == 1
    assert engine.inbox.telemetry.counts["suspect"] == 0


async def test_a_suspect_that_somebody_else_applies_meanwhile_leaves_no_open_start() -> None:
    engine, inside = Engine(), Inside()
    engine.handle(method(inside.hold), kind="slow")
    engine.handle(apply)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    other = MemoryStore(engine.store.database).for_consumer("c", concurrency=1, deadline=1.0)
    async with engine.running(), opened(other):
        engine.transport.publish(delivery("2", kind="slow"))
        await inside.entered.wait()
        engine.transport.publish(delivery("1", pristine=False))
        await wait_for(engine, Command.RECORD, Outcome.AGAIN)
        unit = await other.begin()
        event = await engine.inbox.verify(delivery("1"))
        assert await unit.claim(event.record) is Claim.NEW
        await unit.commit()
        inside.free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert engine.inbox.telemetry.counts["duplicate"] == 1
    assert not engine.store.open_starts


# ---------------------------------------------------------------- a worker that stops
async def test_a_suspect_that_waits_to_be_alone_when_the_worker_stops_stays_one() -> None:
    engine, inside = Engine(), Inside()
    engine.handle(method(inside.hold), kind="slow")
    engine.handle(apply)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    async with engine.running():
        engine.transport.publish(delivery("2", kind="slow"))
        await inside.entered.wait()
        engine.transport.publish(delivery("1", pristine=False))
        await wait_for(engine, Command.RECORD, Outcome.AGAIN)
        engine.inbox.stop()
        await engine.transport.wait_settled(lambda: len(engine.transport.released) == 1)
        inside.free.set()
    assert engine.store.effects == ["2"]
    assert engine.store.open_starts == {key("1"): MemoryStart(engine.store)}, "and the next process takes it for one"
    assert charges(engine) == 0


# ---------------------------------------------------------------- handlers that are stuck
class Stuck:
    """A handler that heeds no cancellation before it is let go."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def handle(self, event: Event, session: Any) -> None:
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                continue


IMPATIENT = replace(FAST, deadline=0.02, cancel_patience=0.01, retry=replace(FAST.retry, max_attempts=1))


async def test_a_suspect_does_not_wait_for_a_stuck_handler_for_ever_and_is_then_not_alone() -> None:
    engine, stuck, inside = Engine(IMPATIENT), Stuck(), Inside()
    engine.handle(method(stuck.handle), kind="stuck")
    engine.handle(method(inside.handle))
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    async with engine.running():
        engine.transport.publish(delivery("2", kind="stuck"))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
        starts: list[bool] = []
        start_attempt = engine.store.start_attempt

        async def noted(key: bytes, *, alone: bool = False) -> Attempts:
            starts.append(alone)
            return await start_attempt(key, alone=alone)

        engine.store.start_attempt = noted  # type: ignore[method-assign]
        engine.transport.publish(delivery("1", pristine=False))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
        assert starts == [False], "beside a stuck handler a death would show nothing"
        stuck.free.set()
    assert engine.store.effects == ["1"]
    assert engine.reasons == ["deadline"]


async def test_a_suspect_that_gets_stuck_lets_the_others_in() -> None:
    engine, stuck = Engine(IMPATIENT), Stuck()
    engine.handle(method(stuck.handle), kind="stuck")
    engine.handle(apply)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    async with engine.running():
        engine.transport.publish(delivery("1", kind="stuck", pristine=False))
        await engine.transport.wait_settled(lambda: bool(engine.transport.acknowledged))
        engine.transport.publish(delivery("2"))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
        assert engine.store.effects == ["2"], "while the first has not come back"
        stuck.free.set()


# ---------------------------------------------------------------- cancelled while waiting
@pytest.mark.parametrize("hard", [False, True])
async def test_a_run_that_is_cancelled_while_a_suspect_waits_leaves_nothing_behind(hard: bool) -> None:
    engine, inside = Engine(replace(FAST, shutdown_patience=0.05, cancel_patience=0.05)), Inside()
    engine.handle(method(inside.hold), kind="slow")
    engine.handle(apply)
    engine.store.open_starts[key("1")] = DIED_BESIDE_OTHERS
    run = asyncio.create_task(engine.inbox.run())
    engine.transport.publish(delivery("2", kind="slow"))
    await inside.entered.wait()
    engine.transport.publish(delivery("1", pristine=False))
    await wait_for(engine, Command.RECORD, Outcome.AGAIN)
    if hard:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    else:
        engine.inbox.stop()
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not any(lock.locked() for lock in engine.store.locks.values())
    assert charges(engine) == 0
