"""A replay: what is open goes through the whole pipeline once more, and what it came to is told."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, Event
from inbox.core.policy import RetryPolicy, RetryRule
from inbox.core.quarantine import QuarantineState, ReplayReport, Selection
from inbox.errors import (
    ConfigurationError,
    Contended,
    Reject,
    Retry,
    StoreUnavailable,
    TransportError,
    Unauthentic,
    Undecodable,
)
from inbox.runtime.replay import ReplaySource
from inbox.testing.memory import MemoryStore, MemoryTransport
from inbox.testing.memory.quarantine import MemoryDesk
from tests.unit.engine import DIED_ALONE, DIED_BESIDE_OTHERS, FAST, Engine, apply, delivery

ALL = Selection((*QuarantineState,))


async def refuse(store: MemoryStore, *identifiers: str, kind: str = "t", reason: str = "handler-error") -> None:
    for identifier in identifiers:
        await store.quarantine(delivery(identifier, kind=kind), None, reason, "")


def states(engine: Engine) -> dict[str, str]:
    return {str(row.delivery.headers["ce-id"]): row.state for row in engine.store.quarantined}


# ------------------------------------------------------------------ what comes of it
async def test_what_is_applied_now_is_closed_and_was_applied_once() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1", "2", "3")
    assert await engine.inbox.replay() == ReplayReport(3, applied=3)
    assert engine.store.effects == ["1", "2", "3"]
    assert states(engine) == {"1": "replayed", "2": "replayed", "3": "replayed"}
    assert await engine.inbox.replay() == ReplayReport()
    assert engine.store.attempts == {}


async def test_what_was_applied_meanwhile_is_a_duplicate_and_closed() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1", "2")
    await engine.settle(delivery("1"))
    engine = restarted(engine)
    assert await engine.inbox.replay() == ReplayReport(2, applied=1, duplicates=1)
    assert engine.store.effects == ["1", "2"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError(), "handler-error"), (Retry(after=5), "retries-used-up"), (Reject("no"), "rejected")],
)
async def test_what_fails_goes_back_after_one_run_with_its_true_reason(error: Exception, reason: str) -> None:
    rules = (RetryRule(ValueError, max_attempts=9), RetryRule(Retry, max_attempts=9))
    engine = Engine(ConsumerSettings(retry=RetryPolicy(max_attempts=9, delays=(0.001,), rules=rules)))
    runs = 0

    async def fail(event: Event, session: Any) -> None:
        nonlocal runs
        runs += 1
        raise error

    engine.handle(fail)
    await refuse(engine.store, "1", reason="no-handler")
    assert await engine.inbox.replay() == ReplayReport(1, quarantined_again=1)
    (row,) = engine.store.quarantined
    assert (runs, row.reason, row.times_seen, row.state) == (1, reason, 2, "open")


async def test_what_the_policy_ignores_is_counted_so() -> None:
    engine = Engine(ConsumerSettings(unknown_types={"t": "ignore"}))
    engine.handle(apply, "other")
    await refuse(engine.store, "1")
    assert await engine.inbox.replay() == ReplayReport(1, ignored=1)
    assert states(engine) == {"1": "replayed"}


async def test_it_is_verified_again_and_the_verifier_is_told_that_it_is_a_replay() -> None:
    class Picky:
        async def verify(self, delivery: Delivery, event: CloudEvent) -> None:
            if not delivery.is_replay or event.id == "2":
                raise Unauthentic("no")

    engine = Engine(verifier=Picky())
    engine.handle(apply)
    await refuse(engine.store, "1", "2")
    assert await engine.inbox.replay() == ReplayReport(2, applied=1, quarantined_again=1)
    assert states(engine) == {"1": "replayed", "2": "open"}


async def test_what_could_not_be_parsed_goes_back_into_its_own_row() -> None:
    engine = Engine()
    engine.handle(apply)
    unreadable = Delivery(b"", {"mark": "x"}, refusal=Undecodable("no", code="unreadable-header"))
    await engine.store.quarantine(unreadable, None, "unreadable-header", "no")
    assert await engine.inbox.replay() == ReplayReport(1, quarantined_again=1)
    (row,) = engine.store.quarantined
    assert (row.reason, row.times_seen) == ("unreadable-header", 2)


async def test_what_is_contended_stays_as_it_was() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1", "2")
    engine.store.faults["claim"] = [Contended("busy")] * 20
    report = await engine.inbox.replay()
    assert (report.selected, report.applied, report.kept) == (2, 0, 2)
    assert states(engine) == {"1": "open", "2": "open"}


async def test_what_ran_alone_when_a_process_died_is_charged_and_put_back_once() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1")
    engine.store.open_starts[b"1"] = DIED_ALONE
    assert await engine.inbox.replay() == ReplayReport(1, quarantined_again=1)
    assert engine.reasons == ["crashed"]
    assert engine.store.attempts[b"1"].crashed == 1
    assert await engine.inbox.replay() == ReplayReport(1, applied=1), "it is not stuck"


async def test_what_ran_beside_others_when_a_process_died_runs_alone() -> None:
    engine = Engine()
    inside = 0

    async def count(event: Event, session: Any) -> None:
        nonlocal inside
        inside += 1
        await asyncio.sleep(0)
        assert inside == 1 or event.id != "1"
        inside -= 1
        session.write(event.id)

    engine.handle(count)
    await refuse(engine.store, *"123456")
    engine.store.open_starts[b"1"] = DIED_BESIDE_OTHERS
    assert await engine.inbox.replay() == ReplayReport(6, applied=6)
    assert engine.store.open_starts == {}


# ------------------------------------------------------------------ which entries
async def test_only_what_is_meant_is_replayed_and_only_what_is_open() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1", "2")
    await refuse(engine.store, "3", reason="rejected")
    await engine.store.desk.discard(Selection(digests=((await entries(engine))[0].digest.hex(),)), "no")
    every = Selection((*QuarantineState,), reasons=("handler-error",))
    assert await engine.inbox.replay(every) == ReplayReport(1, applied=1)
    assert states(engine) == {"1": "discarded", "2": "replayed", "3": "open"}


async def test_no_more_than_the_limit_and_the_oldest_first() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, *"54321")
    assert await engine.inbox.replay(limit=2) == ReplayReport(2, applied=2)
    assert await engine.inbox.replay(limit=9) == ReplayReport(3, applied=3)
    assert engine.store.effects == [*"54321"]


async def test_what_comes_after_the_start_is_left_to_the_next_one() -> None:
    engine = Engine()

    async def refuse_another(event: Event, session: Any) -> None:
        await refuse(engine.store, f"{event.id}x")

    engine.handle(refuse_another)
    await refuse(engine.store, "1")
    until = datetime.now(UTC) + timedelta(days=1)
    assert await engine.inbox.replay(Selection(until=until)) == ReplayReport(1, applied=1)
    assert states(engine) == {"1": "replayed", "1x": "open"}
    assert await engine.inbox.replay(Selection(until=(await entries(engine))[0].first_at)) == ReplayReport()


async def test_it_goes_over_many_pages_and_tells_how_far_it_is() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, *map(str, range(450)))
    told: list[ReplayReport] = []
    assert await engine.inbox.replay(progress=told.append) == ReplayReport(450, applied=450)
    assert told[-1].settled == 450
    assert [report.settled for report in told] == sorted(report.settled for report in told)
    assert sorted(map(int, map(str, engine.store.effects))) == [*range(450)]


async def test_two_at_once_do_no_harm() -> None:
    engine, other = Engine(), Engine()
    other.store.database = engine.store.database
    other.store.effects = engine.store.effects
    other.store.for_consumer("c", concurrency=2, deadline=5)
    for each in (engine, other):
        each.handle(apply)
    await refuse(engine.store, *map(str, range(50)))
    reports = await asyncio.gather(engine.inbox.replay(), other.inbox.replay())
    assert sum(report.applied for report in reports) == 50
    assert all(report.is_complete for report in reports)
    assert sorted(map(str, engine.store.effects)) == sorted(map(str, range(50)))


# ------------------------------------------------------------------ stopping
async def test_stopped_it_finishes_what_runs_and_keeps_the_rest() -> None:
    engine = Engine(ConsumerSettings(concurrency=1, prefetch=1))

    async def stop(event: Event, session: Any) -> None:
        engine.inbox.stop()
        session.write(event.id)

    engine.handle(stop)
    await refuse(engine.store, *"12345")
    assert await engine.inbox.replay() == ReplayReport(5, applied=1, kept=4)
    assert states(engine) == {"1": "replayed", **dict.fromkeys("2345", "open")}


async def test_stopped_while_it_waits_for_the_last_it_keeps_none() -> None:
    engine = Engine()

    async def stop(event: Event, session: Any) -> None:
        await asyncio.sleep(0)
        assert engine.inbox.running_handlers
        engine.inbox.stop()

    engine.handle(stop)
    await refuse(engine.store, "1")
    assert await engine.inbox.replay() == ReplayReport(1, applied=1)
    assert engine.inbox.running_handlers == []


async def test_stopped_before_it_does_nothing() -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1")
    engine.inbox.stop()
    assert (await engine.inbox.replay()).applied == 0
    assert states(engine) == {"1": "open"}


async def test_an_inbox_without_handlers_replays_nothing() -> None:
    with pytest.raises(ConfigurationError):
        await Engine().inbox.replay()


async def test_an_inbox_needs_no_transport_to_replay() -> None:
    engine = Engine()
    inbox = Inbox("c", store=engine.store, settings=FAST)
    inbox.handler("t")(face(apply))
    await refuse(engine.store, "1")
    assert await inbox.replay() == ReplayReport(1, applied=1)


# ------------------------------------------------------------------ the source, by itself
class Desk:
    """One that fails when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self._desk = store.desk
        self.faults: dict[str, list[Exception]] = {}
        self.hooks: dict[str, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.faults.get(name):
                raise self.faults[name].pop()
            found = await getattr(self._desk, name)(*arguments, **options)
            if name in self.hooks:
                await self.hooks[name]()
            return found

        return call


class Source:
    def __init__(self, number: int, *, limit: int | None = None) -> None:
        self.store = MemoryStore()
        self.desk = Desk(self.store)
        self.number = number
        self.taken: list[Delivery] = []
        self.told = 0
        self.source = ReplaySource(self.desk, Selection(), limit, self._tell)

    def _tell(self) -> None:
        self.told += 1

    async def started(self, prefetch: int = 10) -> "asyncio.Task[None]":
        await refuse(self.store, *map(str, range(self.number)))
        await self.source.open(prefetch=prefetch)
        return asyncio.create_task(self.source.run(self.taken.append))

    async def wait_taken(self, number: int) -> None:
        async with asyncio.timeout(5):
            while len(self.taken) < number:
                await asyncio.sleep(0)

    @property
    def closed(self) -> int:
        return sum(row.state is QuarantineState.REPLAYED for row in self.store.quarantined)


async def test_it_hands_out_no_more_than_the_prefetch() -> None:
    source = Source(5)
    running = await source.started(prefetch=2)
    for number in range(5):
        await source.wait_taken(min(number + 2, 5))
        assert len(source.taken) <= number + 2
        assert await source.source.acknowledge(source.taken[number])
    await running
    assert source.source.selected == source.source.handed_out == 5
    await source.source.close()
    assert source.closed == 5


async def test_what_was_not_handed_out_cannot_be_settled() -> None:
    source = Source(1)
    running = await source.started()
    await source.wait_taken(1)
    assert not await source.source.acknowledge(delivery("1"))
    assert not await source.source.release(delivery("1"))
    assert await source.source.release(source.taken[0])
    assert not await source.source.acknowledge(source.taken[0])
    await running
    await source.source.close()
    assert source.closed == 0


async def test_it_keeps_no_copies() -> None:
    source = Source(0).source
    assert not source.can_delay
    assert source.describe() == {"source": "the open entries of the quarantine"}
    with pytest.raises(TransportError):
        await source.delay(delivery("1"), 1.0, b"1")


async def test_many_are_closed_at_once_and_few_after_a_while() -> None:
    source = Source(150)
    running = await source.started(prefetch=150)
    await source.wait_taken(150)
    for each in source.taken[:100]:
        await source.source.acknowledge(each)
    async with asyncio.timeout(5):
        while source.closed < 100:
            await asyncio.sleep(0)
        await source.source.acknowledge(source.taken[100])
        while source.closed < 101:
            await asyncio.sleep(0.01)
    assert source.told >= 2
    await source.source.stop()
    await running


async def test_what_is_decided_by_somebody_else_meanwhile_is_passed_over() -> None:
    source = Source(3)

    async def decide() -> None:
        source.desk.hooks.clear()
        await source.store.desk.discard(Selection(), "no")

    source.desk.hooks["list"] = decide
    await (await source.started())
    assert (source.taken, source.source.handed_out, source.source.has_ended) == ([], 0, True)


async def test_what_is_gone_or_unreadable_is_passed_over_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(3)

    async def delete() -> None:
        source.desk.hooks.clear()
        source.store.tables.quarantine.pop(next(iter(source.store.tables.quarantine)))

    source.desk.hooks["list"] = delete
    running = await source.started()
    await source.wait_taken(2)
    for each in source.taken:
        await source.source.release(each)
    await running
    assert source.source.handed_out == 3
    assert "1 entries of the quarantine are gone" in caplog.text


@pytest.mark.parametrize("step", ["list", "get"])
async def test_a_database_that_does_not_answer_is_asked_again(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inbox.runtime.replay._AGAIN", 0.001)
    source = Source(1)
    source.desk.faults[step] = [StoreUnavailable("away"), Contended("busy")]
    running = await source.started()
    await source.wait_taken(1)
    await source.source.release(source.taken[0])
    await running
    assert source.source.has_ended


@pytest.mark.parametrize("step", ["list", "get"])
async def test_stopped_while_the_database_does_not_answer_it_ends_at_once(step: str) -> None:
    source = Source(1)
    source.desk.faults[step] = [StoreUnavailable("away")]
    running = await source.started()
    async with asyncio.timeout(5):
        while source.desk.faults[step]:
            await asyncio.sleep(0)
        await source.source.stop()
        await running
    assert (source.taken, source.source.has_ended) == ([], False)


async def test_stopped_between_two_of_a_portion_it_hands_out_no_more() -> None:
    source = Source(4)
    running = await source.started(prefetch=2)
    await source.wait_taken(2)
    await source.source.release(source.taken[0])
    await source.wait_taken(3)
    await source.source.stop()
    await running
    assert len(source.taken) == 3
    assert await source.source.acknowledge(source.taken[1]), "what is in hand can still be settled"
    await source.source.close()
    assert source.closed == 1


async def test_stopped_while_it_opens_it_closes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.handle(apply)
    await refuse(engine.store, "1")

    async def stop(_: MemoryDesk) -> datetime:
        engine.inbox.stop()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(MemoryDesk, "now", stop)
    assert await engine.inbox.replay() == ReplayReport()
    assert not engine.store.is_open


async def test_marks_that_cannot_be_written_are_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inbox.runtime.replay._AGAIN", 0.001)
    monkeypatch.setattr("inbox.runtime.replay._MARK_EVERY", 0.001)
    source = Source(2)
    source.desk.faults["mark_replayed"] = [StoreUnavailable("away"), Contended("busy")]
    running = await source.started()
    await source.wait_taken(2)
    await source.source.acknowledge(source.taken[0])
    async with asyncio.timeout(5):
        while source.closed < 1:
            await asyncio.sleep(0.001)
    await source.source.release(source.taken[1])
    await running


async def test_marks_that_can_never_be_written_are_told(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(1)
    running = await source.started()
    await source.wait_taken(1)
    source.desk.faults["mark_replayed"] = [StoreUnavailable("away")] * 10
    await source.source.acknowledge(source.taken[0])
    await running
    await source.source.close()
    assert "1 entries were replayed and could not be marked so" in caplog.text
    await source.source.close()
    assert source.closed == 0


# ------------------------------------------------------------------ steps
def restarted(engine: Engine) -> Engine:
    """Another process over the same store."""
    other = Engine()
    other.store = engine.store
    other.transport = MemoryTransport()
    other.inbox = Inbox("c", store=other.store, transport=other.transport, settings=FAST)
    other.handle(apply)
    return other


def face(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


async def entries(engine: Engine) -> Any:
    return await engine.store.desk.list(ALL)
