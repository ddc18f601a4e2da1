"""What follows a charged failure: a copy that waits, a run at once, a rule, the end; and types that nobody handles."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from inbox.config import ConsumerSettings, Unknown
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryRule
from inbox.core.records import Attempts, record_of
from inbox.errors import ConfigurationError, Retry, StoreUnavailable, TransportError
from inbox.runtime.intake import LocalIntake
from inbox.testing.memory import MemoryStore, MemoryTransport
from tests.unit.engine import FAST, Engine, apply, delivery

KEY = record_of("c", CloudEvent(id="1", source="/s", type="t"), "id", None).key


def engine_with_copies(settings: ConsumerSettings = FAST, **retry: Any) -> Engine:
    engine = Engine(replace(settings, retry=replace(settings.retry, **retry)))
    engine.transport.broker.keeps_copies = True
    return engine


def failing(engine: Engine, error: BaseException, times: int = 1000) -> list[str]:
    """Let the handler fail so often; what it is run for."""
    runs: list[str] = []

    async def fail(event: Event, session: Any) -> None:
        runs.append(event.id)
        if len(runs) <= times:
            raise error
        session.write(event.id)

    engine.handle(fail)
    return runs


async def until_ended(engine: Engine, *deliveries: Delivery) -> None:
    """Run until the event of each delivery is applied or in quarantine."""
    async with engine.running():
        engine.transport.publish(*deliveries)
        await engine.transport.wait_settled(
            lambda: len(engine.store.effects) + len(engine.store.quarantined) >= len(deliveries)
        )


# ---------------------------------------------------------------- copies
async def test_what_failed_waits_as_a_copy_and_is_acknowledged_once_that_is_kept() -> None:
    engine = engine_with_copies()
    runs = failing(engine, LookupError(), times=2)
    await until_ended(engine, delivery())
    assert engine.store.effects == ["1"]
    assert runs == ["1"] * 3
    assert [seconds for _, seconds in engine.transport.delayed] == [0.001, 0.001]
    assert not engine.transport.released
    assert engine.inbox.telemetry.counts["delayed"] == 2
    assert not engine.store.attempts
    steps = [command for command in engine.probe.commands if command in ("record", "delay", "acknowledge")]
    assert steps == ["record", "delay", "acknowledge"] * 2 + ["acknowledge"]


async def test_copies_end_in_quarantine_once_the_attempts_are_used_up() -> None:
    engine = engine_with_copies()
    runs = failing(engine, LookupError())
    await until_ended(engine, delivery())
    assert len(runs) == FAST.retry.max_attempts
    assert engine.reasons == ["handler-error"]
    assert len(engine.transport.delayed) == FAST.retry.max_attempts - 1
    assert engine.store.attempts[KEY] == Attempts(failed=FAST.retry.max_attempts)


async def test_the_wait_that_a_handler_asks_for_is_the_copys() -> None:
    engine = engine_with_copies(delays=(0.001, 0.005))
    failing(engine, Retry(after=0.003), times=1)
    await until_ended(engine, delivery())
    assert [seconds for _, seconds in engine.transport.delayed] == [0.003]
    assert engine.store.effects == ["1"]


async def test_a_copy_that_is_not_known_to_be_kept_is_held_in_hand_and_not_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_with_copies()
    engine.transport.broker.copy_error = TransportError("returned")
    runs = failing(engine, LookupError(), times=1)
    await until_ended(engine, delivery())
    assert (Command.DELAY, Outcome.FAILED) in engine.probe.seen
    assert len(engine.transport.released) == 1
    assert runs == ["1"] * 2
    assert engine.store.effects == ["1"]
    assert not engine.store.attempts
    assert "could not be delayed by a copy" in caplog.text


async def test_a_copy_that_comes_before_its_time_waits_for_the_rest_and_starts_nothing() -> None:
    """`Retry(after)` may ask for longer than any queue keeps at once."""
    engine = engine_with_copies(delays=(0.001,))
    runs = failing(engine, Retry(after=0.0025), times=1)
    await until_ended(engine, delivery())
    waits = [round(seconds, 4) for _, seconds in engine.transport.delayed]
    assert waits == [0.0025, 0.0015, 0.0005]
    assert runs == ["1"] * 2
    assert engine.inbox.telemetry.counts["early"] == 2
    assert engine.inbox.telemetry.counts["failed:early"] == 0
    assert not engine.store.attempts
    assert engine.store.effects == ["1"]


async def test_where_no_copy_can_be_kept_it_runs_too_early_rather_than_never() -> None:
    engine = Engine()
    engine.handle(apply)
    await engine.settle(replace(delivery(pristine=False), waited=0.001, wait_left=1e6))
    assert engine.store.effects == ["1"]


async def test_without_a_delay_it_is_run_again_at_once_and_never_handed_back() -> None:
    engine = engine_with_copies(delays=(0,))
    runs = failing(engine, LookupError())
    await until_ended(engine, delivery())
    assert len(runs) == FAST.retry.max_attempts
    assert not engine.transport.delayed
    assert not engine.transport.released
    assert engine.store.attempts[KEY] == Attempts(failed=FAST.retry.max_attempts)


async def test_what_is_run_again_at_once_is_noted_from_then_on() -> None:
    engine = engine_with_copies(delays=(0,))
    opened: list[bool] = []

    async def once(event: Event, session: Any) -> None:
        opened.append(KEY in engine.store.open_starts)
        if len(opened) == 1:
            raise LookupError
        session.write(event.id)

    engine.handle(once)
    await until_ended(engine, delivery())
    assert opened == [False, True], "the first run of a pristine delivery leaves no note"
    assert not engine.store.open_starts


# ---------------------------------------------------------------- what came back together does not begin together
async def test_a_copy_that_has_waited_is_held_for_a_moment_of_its_own() -> None:
    asked: list[float] = []

    def spread(waited: float) -> float:
        asked.append(waited)
        return 0.001 if waited else 0.0

    intake = LocalIntake(MemoryStore(), MemoryTransport(), most=4, spread=spread)
    intake.take(replace(delivery("1"), waited=5.0))
    intake.take(delivery("2"))
    taken = [await intake.next(), await intake.next()]
    assert [arrival.headers["ce-id"] for arrival in taken if arrival is not None] == ["2", "1"]
    assert asked == [5.0, 0.0]


async def test_a_copy_that_is_held_when_the_worker_stops_is_handed_back() -> None:
    transport = MemoryTransport()
    released: list[object] = []

    async def release(delivery: Delivery) -> bool:
        released.append(delivery.headers["ce-id"])
        return True

    transport.release = release  # type: ignore[method-assign]
    intake = LocalIntake(MemoryStore(), transport, most=4, spread=lambda _: 1000.0)
    intake.take(delivery())
    await asyncio.sleep(0)
    intake.stop()
    await intake.wait_released()
    assert released == ["1"]


# ---------------------------------------------------------------- rules and the end
async def test_a_rule_decides_about_the_errors_it_names() -> None:
    rules = (RetryRule(ValueError, max_attempts=1), RetryRule(LookupError, delays=(0.002,), max_attempts=2))
    for error, runs in ((ValueError(), 1), (KeyError(), 2), (OSError(), FAST.retry.max_attempts)):
        engine = engine_with_copies(rules=rules)
        seen = failing(engine, error)
        await until_ended(engine, delivery())
        assert len(seen) == runs, error
        assert engine.reasons == ["handler-error"]


async def test_a_rule_for_a_type_decides_about_deadlines_too() -> None:
    engine = engine_with_copies(
        replace(FAST, deadline=0.01), rules=(RetryRule(event_types=("t",), max_attempts=1, delays=(0.001,)),)
    )
    runs: list[str] = []

    async def slow(event: Event, session: Any) -> None:
        runs.append(event.id)
        await asyncio.Event().wait()

    engine.handle(slow)
    await until_ended(engine, delivery())
    assert runs == ["1"]
    assert engine.reasons == ["deadline"]


async def test_an_event_in_trouble_for_too_long_is_given_up_however_few_attempts_it_has_had() -> None:
    engine = engine_with_copies(give_up_after=60.0)
    runs = failing(engine, LookupError())
    end_attempt = engine.store.end_attempt

    async def aged(key: bytes, **charge: Any) -> Attempts:
        return replace(await end_attempt(key, **charge), age=59.0 if len(runs) == 1 else 60.0)

    engine.store.end_attempt = aged  # type: ignore[method-assign]
    await until_ended(engine, delivery())
    assert len(runs) == 2
    assert engine.reasons == ["handler-error"]


# ---------------------------------------------------------------- types without a handler
@pytest.mark.parametrize(
    ("policies", "reasons", "counted"),
    [
        ({}, ["no-handler"], "quarantined"),
        ({"other": "ignore"}, ["no-handler"], "quarantined"),
        ({"new": "ignore"}, [], "ignored"),
        ({"n*": "ignore"}, [], "ignored"),
        ({"*": "ignore"}, [], "ignored"),
        ({"*": "ignore", "ne*": "quarantine"}, ["no-handler"], "quarantined"),
        ({"*": "quarantine", "ne*": "ignore"}, [], "ignored"),
        ({"ne*": "ignore", "new": "quarantine"}, ["no-handler"], "quarantined"),
    ],
)
async def test_a_type_without_a_handler_has_its_policy(
    policies: Mapping[str, Unknown], reasons: list[str], counted: str
) -> None:
    engine = Engine(replace(FAST, unknown_types=policies))
    engine.handle(apply)
    await engine.settle(delivery("1", kind="new"), delivery("2"))
    assert engine.reasons == reasons
    assert engine.store.effects == ["2"]
    assert engine.inbox.telemetry.counts[counted] == 1
    assert engine.inbox.telemetry.counts["applied"] == 1
    assert (KEY in engine.store.rows) is (counted == "ignored"), "ignored is done: it has its row"


async def test_what_was_ignored_is_a_duplicate_when_it_comes_again() -> None:
    engine = Engine(replace(FAST, unknown_types={"new": "ignore"}))
    engine.handle(apply)
    await engine.settle(delivery(kind="new"), delivery(kind="new", pristine=False))
    assert engine.inbox.telemetry.counts == {"ignored": 1, "duplicate": 1}
    assert not engine.store.attempts


async def test_an_ignored_event_waits_for_a_database_that_is_away_as_any_other_does() -> None:
    engine = Engine(replace(FAST, unknown_types={"new": "ignore"}))
    engine.handle(apply)
    engine.store.faults["apply"] = [StoreUnavailable("gone", code=2013)]
    await engine.settle(delivery(kind="new"))
    assert engine.inbox.telemetry.counts["ignored"] == 1
    assert not engine.reasons


async def test_a_worker_does_not_start_without_a_handler_that_it_must_have() -> None:
    engine = Engine(replace(FAST, unknown_types={"t": "fail", "new": "fail", "other": "fail"}))
    engine.handle(apply)
    with pytest.raises(ConfigurationError, match="no handler for new, other: "):
        await engine.inbox.run()
    assert not engine.store.is_open


async def test_a_worker_starts_with_every_handler_that_it_must_have() -> None:
    engine = Engine(replace(FAST, unknown_types={"t": "fail"}))
    engine.handle(apply)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
