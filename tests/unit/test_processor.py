"""The engine in memory: what becomes of a delivery, step by step."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.records import Attempts, InboxRecord, Resolution, record_of
from inbox.errors import (
    CommitUnknown,
    Contended,
    DeadlineExceeded,
    QuarantineFull,
    Reject,
    Retry,
    StoreUnavailable,
    Torn,
    Unauthentic,
    Undecodable,
    UnitMisused,
)
from inbox.ports import UnitOfWork
from inbox.runtime.failures import failure_of
from tests.unit.engine import DIED_ALONE, FAST, Engine, apply, delivery

KEY = record_of("c", CloudEvent(id="1", source="/s", type="t"), "id", None).key


async def test_a_first_delivery_is_applied_and_acknowledged() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert set(engine.store.rows) == {KEY}
    assert engine.probe.commands == [
        "decode", "verify", "prepare", "begin", "claim", "start", "apply", "commit", "acknowledge",
    ]  # fmt: skip
    assert engine.inbox.telemetry.counts == {"applied": 1}
    assert not engine.store.attempts


async def test_a_duplicate_is_acknowledged_and_not_applied() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(delivery(), delivery(), delivery(pristine=False))
    assert engine.store.effects == ["1"]
    assert engine.inbox.telemetry.counts == {"applied": 1, "duplicate": 2}
    assert not engine.store.attempts, "a duplicate is charged nothing"


async def test_the_same_id_with_other_content_is_quarantined() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(delivery(), delivery(body=b"[]"))
    assert engine.store.effects == ["1"]
    assert engine.reasons == ["identity-conflict"]


@pytest.mark.parametrize(
    ("arrival", "reason"),
    [
        (Delivery(body=b"", headers={}), "no-cloudevent"),
        (delivery(kind="unknown"), "no-handler"),
        (delivery(identifier="x" * 600), "id-too-long"),
        (Delivery(body=b"", headers={}, refusal=Undecodable("broken", code="dead-lettered")), "dead-lettered"),
    ],
)
async def test_what_can_never_be_applied_is_quarantined_without_a_row(arrival: Delivery, reason: str) -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(arrival)
    assert engine.reasons == [reason]
    assert not engine.store.rows


class Sceptic:
    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    async def verify(self, arrival: Delivery, event: CloudEvent) -> None:
        if (answer := self.answers.pop(0)) is not None:
            raise answer


async def test_a_forged_delivery_uses_up_no_id() -> None:
    engine = Engine(verifier=Sceptic(Unauthentic("no"), None))
    engine.handle(apply)
    await engine.settle(delivery(), delivery())
    assert engine.reasons == ["unauthentic"]
    assert engine.store.effects == ["1"]


async def test_a_verifier_in_trouble_decides_nothing() -> None:
    engine = Engine(verifier=Sceptic(*[OSError("key server")] * 4, None))
    engine.handle(apply)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert not engine.reasons
    assert KEY not in engine.store.attempts, "what is not verified counts against no event"


async def test_a_verifier_that_never_decides_does_not_keep_a_delivery_for_ever() -> None:
    engine = Engine(verifier=Sceptic(*[OSError("key server")] * 99))
    engine.handle(apply)
    await engine.settle(delivery())
    assert engine.reasons == ["verifier-failed"]
    assert not engine.store.effects
    assert KEY not in engine.store.attempts
    assert [counts.released for counts in engine.store.attempts.values()] == [FAST.retry.max_releases + 1]


async def test_a_failing_handler_is_repeated_and_then_quarantined() -> None:
    engine = Engine()
    runs: list[str] = []

    async def fail(event: Event, session: Any) -> None:
        runs.append(event.id)
        session.write("half")
        raise LookupError("secret")

    engine.handle(fail)
    await engine.settle(delivery())
    assert len(runs) == FAST.retry.max_attempts
    assert not engine.store.effects
    assert not engine.store.rows
    assert engine.reasons == ["handler-error"]
    assert re.fullmatch(r"LookupError at test_processor\.py:\d+", engine.store.quarantined[0].detail)
    assert engine.store.attempts[KEY] == Attempts(failed=3)
    assert not engine.store.open_starts


async def test_a_handler_that_recovers_leaves_no_counts() -> None:
    engine = Engine()
    runs: list[str] = []

    async def flaky(event: Event, session: Any) -> None:
        runs.append(event.id)
        if len(runs) < 3:
            raise Retry(after=0)
        session.write(event.id)

    engine.handle(flaky)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts


async def test_a_rejected_event_is_quarantined_at_once_with_the_reason() -> None:
    engine = Engine()

    async def reject(event: Event, session: Any) -> None:
        raise Reject("account closed")

    engine.handle(reject)
    await engine.settle(delivery(pristine=False))
    assert [(row.reason, row.detail) for row in engine.store.quarantined] == [("rejected", "account closed")]
    assert not engine.store.open_starts


async def test_bad_json_in_the_data_quarantines_when_the_handler_reads_it() -> None:
    engine = Engine()

    async def read(event: Event, session: Any) -> None:
        raise Undecodable("no json", code="bad-json")

    engine.handle(read)
    await engine.settle(delivery())
    assert engine.reasons == ["bad-json"]


async def test_a_duplicate_of_a_quarantined_event_runs_normally() -> None:
    engine = Engine()
    broken = True

    async def handler(event: Event, session: Any) -> None:
        if broken:
            raise LookupError
        session.write(event.id)

    engine.handle(handler)
    async with engine.running():
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: bool(engine.reasons))
        broken = False
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert engine.store.effects == ["1"]


# ---------------------------------------------------------------- the database in trouble
@pytest.mark.parametrize("step", ["begin", "claim", "apply"])
async def test_contention_is_run_again_in_place_and_charged_to_nobody(step: str) -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults[step] = [Contended("dead-lock", code=1213), Contended("lock wait", code=1205)]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts
    assert not engine.transport.released
    assert engine.inbox.telemetry.counts["repeated"] == 2


async def test_endless_contention_is_released_counted_and_ends_as_contended() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["claim"] = [Contended("lock wait", code=1205)] * 1000
    await engine.settle(delivery())
    assert engine.reasons == ["contended"]
    assert len(engine.transport.released) == FAST.retry.max_releases
    assert engine.store.attempts[KEY].charged == 0


@pytest.mark.parametrize("step", ["begin", "claim", "apply"])
async def test_intake_waits_for_a_database_that_is_away(step: str) -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.writable.clear()
    engine.store.faults[step] = [StoreUnavailable("read-only", code=1290)]
    async with engine.running():
        engine.transport.publish(delivery("1"))
        while (Command.RECORD, Outcome.AGAIN) not in engine.probe.seen:
            await asyncio.sleep(0)
        engine.transport.publish(*(delivery(str(n)) for n in range(2, 6)))
        engine.store.writable.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 5)
    assert sorted(map(str, engine.store.effects)) == ["1", "2", "3", "4", "5"]
    assert not engine.store.attempts
    assert not engine.reasons


async def test_a_start_that_cannot_be_noted_does_not_start() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["start_attempt"] = [Contended("dead-lock", code=1213)]
    await engine.settle(delivery(pristine=False))
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts


async def test_a_charge_that_cannot_be_noted_waits_for_the_database() -> None:
    engine = Engine()
    runs: list[str] = []

    async def once(event: Event, session: Any) -> None:
        runs.append(event.id)
        if len(runs) == 1:
            raise LookupError
        session.write(event.id)

    engine.handle(once)
    engine.store.faults["end_attempt"] = [StoreUnavailable("gone", code=2013)]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]


# ---------------------------------------------------------------- commit unknown
async def test_a_commit_that_took_place_is_acknowledged_and_not_repeated() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["committed"] = [CommitUnknown("lost", code=2013)]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert engine.inbox.telemetry.counts == {"applied": 1, "resolved": 1}


async def test_a_commit_that_did_not_take_place_is_run_again() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["commit"] = [CommitUnknown("lost", code=2013)]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts


async def test_a_start_is_not_left_open_where_another_delivery_has_committed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one, never tried before, knows of no start; so do all that follow."""
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["commit"] = [CommitUnknown("lost", code=2013)]
    resolve = engine.store.resolve

    async def beaten(record: InboxRecord, unit: UnitOfWork) -> Resolution:
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
        return await resolve(record, unit)

    monkeypatch.setattr(engine.store, "resolve", beaten)
    await engine.settle(delivery(pristine=False), acknowledged=2)
    assert engine.store.effects == ["1"]
    assert not engine.store.open_starts


async def test_an_unresolved_commit_is_released_and_never_acknowledged() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["committed"] = [CommitUnknown("lost", code=2013)]
    engine.store.faults["resolve"] = [Exception()]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    assert len(engine.transport.released) == 1
    assert not engine.store.attempts
    assert engine.inbox.telemetry.counts["duplicate"] == 1


async def test_a_torn_unit_is_quarantined_as_torn() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["commit"] = [Torn("procedure")]
    await engine.settle(delivery())
    assert engine.reasons == ["torn"]


# ---------------------------------------------------------------- started and not finished
async def test_a_process_that_dies_in_its_handler_ends_in_quarantine() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.attempts[KEY] = Attempts(crashed=2)
    engine.store.open_starts[KEY] = DIED_ALONE
    await engine.settle(delivery(pristine=False))
    assert engine.reasons == ["crashed"]
    assert not engine.store.effects
    assert engine.store.attempts[KEY] == Attempts(crashed=3)
    assert not engine.store.open_starts


async def test_a_duplicate_of_an_event_that_was_quarantined_as_crashed_runs_normally() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.attempts[KEY] = Attempts(crashed=2)
    engine.store.open_starts[KEY] = DIED_ALONE
    async with engine.running():
        engine.transport.publish(delivery(pristine=False))
        await engine.transport.wait_settled(lambda: engine.reasons == ["crashed"])
        engine.transport.publish(delivery(pristine=False))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    assert engine.reasons == ["crashed"]
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts, "it has recovered"


async def test_a_duplicate_of_a_crashed_event_that_fails_goes_back_to_quarantine_with_its_count() -> None:
    engine = Engine()

    async def fail(event: Event, session: Any) -> None:
        raise LookupError

    engine.handle(fail)
    engine.store.attempts[KEY] = Attempts(crashed=3)
    await engine.settle(delivery(pristine=False))
    assert engine.reasons == ["handler-error"]
    assert engine.store.attempts[KEY] == Attempts(failed=1, crashed=3)


async def test_a_redelivered_neighbour_is_charged_nothing() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(delivery(pristine=False))
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts


# ---------------------------------------------------------------- prepare
async def test_what_prepare_read_is_the_third_argument() -> None:
    engine = Engine()
    order: list[str] = []

    async def prepare(event: Event) -> str:
        order.append("prepare")
        return "rate"

    async def handler(event: Event, session: Any, prepared: object) -> None:
        order.append(str(prepared))
        session.write(prepared)

    engine.handle(handler, prepare=prepare)
    engine.store.faults["claim"] = [Contended("dead-lock", code=1213)]
    async with engine.running():
        for arrival in (delivery(), delivery(pristine=False)):
            seen = len(engine.transport.acknowledged)
            engine.transport.publish(arrival)
            await engine.transport.wait_settled(lambda seen=seen: len(engine.transport.acknowledged) > seen)  # type: ignore[misc]
    assert engine.store.effects == ["rate"]
    assert order == ["prepare", "rate"], "once, though the claim was repeated, and not for a known id"


async def test_racing_prepares_leave_no_open_start() -> None:
    engine = Engine()
    both = asyncio.Barrier(2)

    async def prepare(event: Event) -> str:
        await both.wait()
        return "rate"

    async def handler(event: Event, session: Any, prepared: object) -> None:
        session.write(prepared)

    engine.handle(handler, prepare=prepare)
    await engine.settle(delivery(), delivery(pristine=False))
    assert engine.store.effects == ["rate"]
    assert not engine.store.open_starts


@pytest.mark.parametrize("pristine", [True, False])
async def test_a_failing_prepare_is_an_attempt(pristine: bool) -> None:
    engine = Engine()

    async def prepare(event: Event) -> str:
        raise LookupError

    async def handler(event: Event, session: Any, prepared: object) -> None:
        raise AssertionError

    engine.handle(handler, prepare=prepare)
    await engine.settle(delivery(pristine=pristine))
    assert engine.reasons == ["handler-error"]
    assert engine.store.attempts[KEY] == Attempts(failed=3)


async def test_a_prepare_that_kills_its_process_ends_in_quarantine() -> None:
    engine = Engine()

    async def prepare(event: Event) -> str:
        raise AssertionError

    async def handler(event: Event, session: Any, prepared: object) -> None:
        raise AssertionError

    engine.handle(handler, prepare=prepare)
    engine.store.attempts[KEY] = Attempts(crashed=2)
    engine.store.open_starts[KEY] = DIED_ALONE
    await engine.settle(delivery(pristine=False))
    assert engine.reasons == ["crashed"]


# ---------------------------------------------------------------- quarantine in trouble
async def test_a_full_quarantine_drops_nothing() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["quarantine"] = [QuarantineFull("full"), StoreUnavailable("gone", code=2013)]
    await engine.settle(delivery(kind="unknown"))
    assert engine.reasons == ["no-handler"]
    assert len(engine.transport.released) == 1, "what the database refuses is kept in hand: it is tried again there"


# ---------------------------------------------------------------- deadline
async def test_a_handler_past_its_deadline_is_cancelled_and_charged() -> None:
    engine = Engine(_with(deadline=0.01))

    async def slow(event: Event, session: Any) -> None:
        session.write("half")
        await asyncio.Event().wait()

    engine.handle(slow)
    await engine.settle(delivery())
    assert engine.reasons == ["deadline"]
    assert not engine.store.effects


async def test_a_handler_that_swallows_its_cancellation_is_undone() -> None:
    engine = Engine(_with(deadline=0.01))

    async def stubborn(event: Event, session: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            session.write("late")

    engine.handle(stubborn)
    await engine.settle(delivery())
    assert engine.reasons == ["deadline"]
    assert not engine.store.effects


async def test_a_handler_that_does_not_come_back_keeps_its_slot_and_nothing_else() -> None:
    engine = Engine(_with(deadline=0.01, cancel_patience=0.01))
    free = asyncio.Event()

    async def stuck(event: Event, session: Any) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    engine.handle(stuck)
    async with engine.running():
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.released) == 1)
        free.set()
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
    assert (Command.APPLY, Outcome.FAILED) in engine.probe.seen


async def test_a_handler_that_cancels_itself_is_a_failure_of_its_own() -> None:
    engine = Engine()

    async def quits(event: Event, session: Any) -> None:
        raise asyncio.CancelledError

    engine.handle(quits)
    await engine.settle(delivery())
    assert engine.reasons == ["handler-error"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnitMisused("COMMIT", handler="h"), "unit-misused"),
        (DeadlineExceeded("late"), "deadline"),
        (TimeoutError(), "handler-error"),
        (KeyError("secret"), "handler-error"),
    ],
)
def test_failures_have_a_reason_and_no_foreign_text(error: Exception, reason: str) -> None:
    failure = failure_of(error)
    assert failure.reason == reason
    assert "secret" not in failure.detail


def _with(deadline: float, cancel_patience: float = 0.2) -> Any:
    return replace(FAST, deadline=deadline, cancel_patience=cancel_patience)
