"""Batches over a store in memory: what shares a transaction, and what is undone at nobody's cost."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.config import ConsumerSettings
from inbox.core.batching import Batch, firsts_of, grouped
from inbox.core.event import Event
from inbox.core.lease import LeaseTerms
from inbox.core.lifecycle import Command, Outcome
from inbox.core.records import Attempts
from inbox.errors import CommitUnknown, ConfigurationError, Contended, Reject, Torn, Unauthentic
from inbox.ports import Passage
from inbox.runtime import batches
from inbox.runtime.batches import BatchIntake, BatchProcessor, Way
from inbox.runtime.passage import Passage as Passage_
from tests.unit.engine import FAST, Engine, apply, delivery

TENANT = ContextVar("tenant", default="nobody")
BATCHED = replace(FAST, concurrency=1, batch=Batch(max=10, wait_ms=1000))
TWO_LANES = replace(BATCHED, concurrency=2)


def engine(settings: ConsumerSettings = BATCHED, handler: Callable[..., Any] = apply, **options: Any) -> Engine:
    made = Engine(settings, **options)
    made.handle(handler)
    return made


def commits(tried: Engine) -> int:
    return tried.probe.before_seen.count("commit")


class Units:
    """Counts the units of a store."""

    def __init__(self, tried: Engine) -> None:
        self.begun = 0
        begin = tried.store.begin

        async def counted() -> Any:
            self.begun += 1
            return await begin()

        tried.store.begin = counted  # type: ignore[method-assign]


# ------------------------------------------------------------------ what shares a transaction
async def test_what_is_waiting_shares_one_transaction() -> None:
    tried = engine()
    units = Units(tried)
    await tried.settle(*(delivery(str(n)) for n in range(5)))
    assert tried.store.effects == ["0", "1", "2", "3", "4"]
    assert (units.begun, len(tried.store.rows), tried.inbox.telemetry.counts["applied"]) == (1, 5, 5)


async def test_no_batch_is_larger_than_asked_for() -> None:
    tried = engine(replace(BATCHED, batch=Batch(max=2)))
    units = Units(tried)
    await tried.settle(*(delivery(str(n)) for n in range(6)))
    assert (units.begun, len(tried.store.effects)) == (3, 6)


async def test_an_event_alone_does_not_wait() -> None:
    """A batch would wait for an hour, if anything else were at work."""
    tried = engine(replace(BATCHED, batch=Batch(wait_ms=3_600_000)))
    await tried.settle(delivery("1"))
    await asyncio.wait_for(Engine.settle(engine(TWO_LANES), delivery("2")), 30)
    assert tried.store.effects == ["1"]


async def test_what_comes_while_others_are_at_work_is_gathered_until_they_have_ended() -> None:
    gate = asyncio.Event()

    async def waits(event: Event, session: Any) -> None:
        if event.id == "first":
            await gate.wait()
        session.write(event.id)

    tried = engine(replace(TWO_LANES, batch=Batch(wait_ms=3_600_000)), waits)
    units = Units(tried)
    async with tried.running():
        tried.transport.publish(delivery("first"))
        await until(lambda: tried.probe.before_seen.count("apply") == 1)
        for n in range(3):
            tried.transport.publish(delivery(str(n)))
            await asyncio.sleep(0)
        gate.set()
        await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) == 4)
    assert units.begun == 2


async def test_the_wait_ends() -> None:
    gate = asyncio.Event()

    async def waits(event: Event, session: Any) -> None:
        if event.id == "first":
            await gate.wait()
        session.write(event.id)

    tried = engine(replace(TWO_LANES, batch=Batch(wait_ms=1)), waits)
    async with tried.running():
        tried.transport.publish(delivery("first"))
        await until(lambda: tried.probe.before_seen.count("apply") == 1)
        tried.transport.publish(delivery("second"), delivery("third"))
        await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) == 2)
        gate.set()
        await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) == 3)
    assert sorted(tried.store.effects) == ["first", "second", "third"]  # type: ignore[type-var]


async def test_what_was_handed_out_before_runs_by_itself() -> None:
    tried = engine()
    units = Units(tried)
    await tried.settle(delivery("1"), delivery("2", pristine=False), delivery("3"))
    assert units.begun == 2
    assert sorted(tried.store.effects) == ["1", "2", "3"]  # type: ignore[type-var]


async def test_an_event_to_be_prepared_runs_by_itself() -> None:
    async def prepare(event: Event) -> str:
        return event.id

    async def prepared(event: Event, session: Any, found: str) -> None:
        session.write(found)

    tried = engine()
    prepared.__annotations__["session"] = AsyncSession
    tried.inbox.handler("prepared", prepare=prepare)(prepared)
    units = Units(tried)
    await tried.settle(delivery("1"), delivery("2"), delivery("3", kind="prepared"))
    assert (units.begun, sorted(tried.store.effects)) == (2, ["1", "2", "3"])  # type: ignore[type-var]


async def test_what_is_refused_leaves_the_batch_and_is_verified_once() -> None:
    asked: list[str] = []

    class Verifier:
        async def verify(self, _: Any, event: Any) -> None:
            asked.append(event.id)
            if event.id == "forged":
                raise Unauthentic("forged")

    tried = engine(verifier=Verifier())
    units = Units(tried)
    await tried.settle(delivery("1"), delivery("forged"), delivery("2"))
    assert (units.begun, tried.store.effects, asked) == (1, ["1", "2"], ["1", "forged", "2"])
    assert len(tried.reasons) == 1


# ------------------------------------------------------------------ duplicates
async def test_the_second_of_one_id_is_a_duplicate_after_the_commit() -> None:
    tried = engine()
    units = Units(tried)
    await tried.settle(delivery("1"), delivery("2"), delivery("1"))
    assert (units.begun, tried.store.effects) == (1, ["1", "2"])
    assert tried.inbox.telemetry.counts["duplicate"] == 1


async def test_the_second_of_one_id_with_other_content_is_a_conflict() -> None:
    tried = engine()
    await tried.settle(delivery("1"), delivery("2"), delivery("1", b"[1]"))
    assert (tried.store.effects, tried.reasons) == (["1", "2"], ["identity-conflict"])


@pytest.mark.parametrize("place", range(4))
async def test_known_events_are_taken_out_wherever_they_are(place: int) -> None:
    tried = engine()
    await tried.settle(delivery("known"))
    tried = again(tried)
    units = Units(tried)
    arrived = [delivery(str(n)) for n in range(3)]
    arrived.insert(place, delivery("known"))
    await tried.settle(*arrived)
    assert (units.begun, tried.store.effects) == (2, ["known", "0", "1", "2"])
    assert tried.inbox.telemetry.counts["duplicate"] == 1


@pytest.mark.parametrize("place", range(2))
async def test_the_only_one_that_is_new_goes_on(place: int) -> None:
    tried = engine()
    await tried.settle(delivery("known"))
    tried = again(tried)
    units = Units(tried)
    arrived = [delivery("new")]
    arrived.insert(place, delivery("known"))
    await tried.settle(*arrived)
    assert (units.begun, tried.store.effects) == (2, ["known", "new"])


@pytest.mark.parametrize("number", [1, 2])
async def test_what_is_never_claimed_whole_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(batches, "_TRIES", 1)
    tried = engine()
    await tried.settle(delivery("known"))
    tried = again(tried)
    units = Units(tried)
    new = [str(n) for n in range(number)]
    await tried.settle(delivery("known"), *(delivery(name) for name in new))
    assert (units.begun, tried.store.effects, tried.store.attempts) == (1 + number, ["known", *new], {})


async def test_a_batch_of_known_events_is_acknowledged_at_once() -> None:
    tried = engine()
    await tried.settle(*(delivery(str(n)) for n in range(4)))
    tried = again(tried)
    units = Units(tried)
    await tried.settle(*(delivery(str(n)) for n in range(4)))
    assert (units.begun, len(tried.store.effects), tried.inbox.telemetry.counts["duplicate"]) == (1, 4, 4)


async def test_a_known_id_with_other_content_is_quarantined_and_no_neighbour_is() -> None:
    tried = engine()
    await tried.settle(delivery("1"))
    tried = again(tried)
    await tried.settle(delivery("1", b"[1]"), delivery("2"), delivery("3"))
    assert (tried.store.effects, tried.reasons) == (["1", "2", "3"], ["identity-conflict"])


# ------------------------------------------------------------------ undone
@pytest.mark.parametrize("place", range(3))
async def test_a_poison_is_charged_and_no_neighbour_is(place: int) -> None:
    async def poisoned(event: Event, session: Any) -> None:
        session.write(event.id)
        if event.id == "poison":
            raise LookupError

    tried = engine(handler=poisoned)
    arrived = [delivery("1"), delivery("2")]
    arrived.insert(place, delivery("poison"))
    await tried.settle(*arrived)
    assert (sorted(tried.store.effects), len(tried.reasons)) == (["1", "2"], 1)  # type: ignore[type-var]
    assert set(tried.store.attempts) == {b"poison"}
    assert tried.store.attempts[b"poison"] == Attempts(failed=3)


async def test_a_rejected_one_is_quarantined_alone() -> None:
    async def rejects(event: Event, session: Any) -> None:
        session.write(event.id)
        if event.id == "2":
            raise Reject("never wanted")

    tried = engine(handler=rejects)
    await tried.settle(*(delivery(str(n)) for n in range(4)), delivery("0"))
    assert (tried.store.effects, len(tried.reasons)) == (["0", "1", "3"], 1)


async def test_misuse_in_a_batch_is_charged_to_who_did_it() -> None:
    async def misuses(event: Event, session: Any) -> None:
        session.write(event.id)
        if event.id == "2":
            await session.rollback()

    tried = engine(handler=misuses)
    await tried.settle(*(delivery(str(n)) for n in range(3)))
    assert (tried.store.effects, set(tried.store.attempts)) == (["0", "1"], {b"2"})


DEADLOCK = Contended("dead-lock", code=1213)


@pytest.mark.parametrize("step", ["begin", "claim_all"])
async def test_trouble_before_the_handlers_is_met_together_once_more(step: str) -> None:
    tried = engine()
    units = Units(tried)
    tried.store.faults[step] = [DEADLOCK]
    await tried.settle(*(delivery(str(n)) for n in range(3)))
    assert (tried.store.effects, tried.store.attempts) == (["0", "1", "2"], {})
    assert (units.begun, tried.inbox.telemetry.counts["repeated"]) == (2, 3)


async def test_a_dead_lock_in_a_handler_is_met_together_once_more() -> None:
    calls: list[str] = []

    async def loses(event: Event, session: Any) -> None:
        calls.append(event.id)
        if len(calls) == 2:
            raise DEADLOCK
        session.write(event.id)

    tried = engine(handler=loses)
    units = Units(tried)
    await tried.settle(*(delivery(str(n)) for n in range(3)), delivery("0"))
    assert (calls, tried.store.effects) == (["0", "1", "0", "1", "2"], ["0", "1", "2"])
    assert (units.begun, tried.inbox.telemetry.counts["duplicate"], tried.store.attempts) == (2, 1, {})


async def test_trouble_that_does_not_end_lets_each_run_by_itself() -> None:
    tried = engine()
    units = Units(tried)
    tried.store.faults["claim_all"] = [DEADLOCK] * 3
    await tried.settle(*(delivery(str(n)) for n in range(3)))
    assert (tried.store.effects, tried.store.attempts, units.begun) == (["0", "1", "2"], {}, 6)


async def test_who_waited_for_a_lock_in_vain_does_not_let_the_others_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "_SOON", 0.0)
    tried = engine()
    units = Units(tried)
    tried.store.faults["claim_all"] = [Contended("lock wait", code=1205)]
    await tried.settle(*(delivery(str(n)) for n in range(3)))
    assert (tried.store.effects, units.begun) == (["0", "1", "2"], 4)


async def test_handlers_that_take_too_long_together_run_by_themselves() -> None:
    async def slow(event: Event, session: Any) -> None:
        await asyncio.sleep(0.2)
        session.write(event.id)

    tried = engine(replace(BATCHED, deadline=0.5), slow)
    await tried.settle(*(delivery(str(n)) for n in range(4)))
    assert (tried.store.effects, tried.store.attempts) == (["0", "1", "2", "3"], {})


async def test_the_next_handler_is_not_begun_without_time() -> None:
    class Blocks:
        """Uses up the first batch's time before its first handler."""

        is_done = False

        def before(self, command: Command, passage: Passage) -> None: ...

        def after(self, command: Command, outcome: Outcome, passage: Any) -> None:
            if (command, outcome) == (Command.START, Outcome.DONE) and not self.is_done:
                self.is_done = True
                passage.unit_ends_at = 0.0

    blocks = Blocks()
    tried = engine()
    tried.inbox.add_probe(blocks)
    await tried.settle(delivery("1"), delivery("2"))
    assert (tried.store.effects, tried.store.attempts) == (["1", "2"], {})


async def test_a_stuck_handler_keeps_its_slot_and_its_neighbours_run() -> None:
    release = asyncio.Event()

    async def sticks(event: Event, session: Any) -> None:
        while event.id == "stuck" and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        session.write(event.id)

    settings = replace(TWO_LANES, concurrency=3, deadline=0.3, cancel_patience=0.05)
    tried = engine(settings, sticks)
    async with tried.running():
        tried.transport.publish(delivery("1"), delivery("stuck"), delivery("2"))
        await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) >= 2)
        await until(lambda: "2" in tried.store.effects)
        release.set()
        await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) >= 3)
    assert {"1", "2"} <= set(tried.store.effects)
    assert set(tried.store.attempts) <= {b"stuck"}


async def test_a_handler_that_comes_back_after_its_batch_lets_no_neighbour_run() -> None:
    """It has even taken its cancellation back, so that nothing shows of it."""
    release = asyncio.Event()
    calls: list[str] = []

    async def sticks(event: Event, session: Any) -> None:
        calls.append(event.id)
        if calls == ["1"]:
            try:
                await release.wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                await release.wait()
        session.write(event.id)

    tried = engine(replace(TWO_LANES, deadline=0.3, cancel_patience=0.05), sticks)
    async with tried.running():
        tried.transport.publish(delivery("1"), delivery("2"))
        try:
            await tried.transport.wait_settled(lambda: len(tried.transport.acknowledged) == 2)
            assert tried.inbox._consumer is not None
            assert len(tried.inbox._consumer.running_handlers) == 1
        finally:
            release.set()
        await until(lambda: tried.inbox._consumer is not None and not tried.inbox._consumer.running_handlers)
    assert (sorted(calls), sorted(tried.store.effects)) == (["1", "1", "2"], ["1", "2"])  # type: ignore[type-var]


async def test_what_a_handler_sets_in_its_context_no_neighbour_sees() -> None:
    seen: list[str] = []

    async def sets(event: Event, session: Any) -> None:
        seen.append(TENANT.get())
        TENANT.set(event.id)
        await asyncio.sleep(0)
        seen.append(TENANT.get())
        session.write(event.id)

    tried = engine(handler=sets)
    units = Units(tried)
    await tried.settle(delivery("1"), delivery("2"))
    assert (units.begun, seen) == (1, ["nobody", "1", "nobody", "2"])


async def test_a_stuck_handler_is_named_and_not_the_first_of_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def second(event: Event, session: Any) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    def told() -> list[str]:
        return [line.getMessage() for line in caplog.records if "did not come back" in line.getMessage()]

    tried = engine(replace(TWO_LANES, deadline=0.2, cancel_patience=0.05))
    second.__annotations__ |= {"event": Event, "session": AsyncSession}
    tried.inbox.handler("second")(second)
    async with tried.running():
        try:
            tried.transport.publish(delivery("1"), delivery("2", kind="second"))
            await until(lambda: bool(told()))
        finally:
            release.set()
    assert "second did not" in told()[0]


async def test_an_event_that_waits_to_run_alone_undoes_the_batch_that_it_joined() -> None:
    tried = engine(TWO_LANES)

    class Suspects:
        """Makes an event a suspect when its batch has claimed it, and clears it when that is undone."""

        is_done = False

        def before(self, command: Command, passage: Passage) -> None:
            if command is Command.ROLLBACK:
                processor(tried)._suspects.clear()

        def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
            if (command, outcome) == (Command.CLAIM, Outcome.DONE) and not self.is_done:
                self.is_done = True
                processor(tried)._suspects.add(b"2")

    tried.inbox.add_probe(Suspects())
    await tried.settle(delivery("1"), delivery("2"))
    assert (sorted(tried.store.effects), tried.store.attempts) == (["1", "2"], {})  # type: ignore[type-var]
    assert tried.inbox.telemetry.counts["repeated"] == 2


async def test_a_known_suspect_joins_no_batch() -> None:
    tried = engine()
    units = Units(tried)

    class Suspects:
        def before(self, command: Command, passage: Passage) -> None:
            if command is Command.DECODE:
                processor(tried)._suspects.add(b"2")

        def after(self, command: Command, outcome: Outcome, passage: Passage) -> None: ...

    tried.inbox.add_probe(Suspects())
    await tried.settle(*(delivery(str(n)) for n in range(3)))
    assert (units.begun, sorted(tried.store.effects)) == (2, ["0", "1", "2"])  # type: ignore[type-var]


# ------------------------------------------------------------------ the end
async def test_a_commit_without_an_answer_that_took_place_is_acknowledged() -> None:
    tried = engine()
    tried.store.faults["committed"] = [CommitUnknown("lost")]
    await tried.settle(delivery("1"), delivery("2"), delivery("1"))
    counts = tried.inbox.telemetry.counts
    assert (tried.store.effects, counts["resolved"], counts["duplicate"]) == (["1", "2"], 2, 1)


async def test_a_commit_without_an_answer_that_did_not_take_place_is_done_again() -> None:
    tried = engine()
    tried.store.faults["commit"] = [CommitUnknown("lost")]
    await tried.settle(delivery("1"), delivery("2"), delivery("1"))
    assert (tried.store.effects, tried.store.attempts) == (["1", "2"], {})


async def test_only_rows_that_are_there_are_acknowledged() -> None:
    """One of the batch was applied by another worker while ours did not commit."""
    tried = engine()
    tried.store.faults["commit"] = [CommitUnknown("lost")]

    class Other:
        def before(self, command: Command, passage: Passage) -> None: ...

        def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
            is_lost = (command, outcome) == (Command.COMMIT, Outcome.UNKNOWN)
            if is_lost and passage.event is not None and passage.event.id == "1":
                tried.store.rows[b"1"] = passage.event.record

    tried.inbox.add_probe(Other())
    await tried.settle(delivery("1"), delivery("2"), delivery("3"))
    assert tried.store.effects == ["2", "3"]


async def test_a_commit_that_cannot_be_asked_for_lets_each_claim_tell() -> None:
    tried = engine()
    tried.store.faults |= {"committed": [CommitUnknown("lost")], "resolve": [Exception()]}
    await tried.settle(delivery("1"), delivery("2"))
    assert (tried.store.effects, tried.inbox.telemetry.counts["duplicate"]) == (["1", "2"], 2)


async def test_a_torn_batch_is_quarantined_and_nothing_is_lost() -> None:
    tried = engine()
    tried.store.faults["commit"] = [Torn("ended from inside")]
    await tried.settle(delivery("1"), delivery("2"), delivery("1"))
    assert (tried.store.effects, tried.reasons) == (["1"], ["torn", "torn"])


async def test_a_stop_hands_back_what_was_not_begun() -> None:
    gate = asyncio.Event()

    async def waits(event: Event, session: Any) -> None:
        await gate.wait()
        if event.id == "2":
            raise LookupError
        session.write(event.id)

    tried = engine(handler=waits)
    async with tried.running():
        tried.transport.publish(delivery("1"), delivery("2"))
        await until(lambda: "apply" in tried.probe.before_seen)
        tried.transport.publish(delivery("3", pristine=False), delivery("4"))
        tried.inbox.stop()
        gate.set()
    assert tried.store.effects == []
    assert len(tried.transport.released) == 4


async def test_a_stop_while_gathering_hands_back_what_was_gathered() -> None:
    gate = asyncio.Event()

    async def waits(event: Event, session: Any) -> None:
        await gate.wait()
        session.write(event.id)

    tried = engine(replace(TWO_LANES, batch=Batch(wait_ms=3_600_000)), waits)
    async with tried.running():
        tried.transport.publish(delivery("1"))
        await until(lambda: "apply" in tried.probe.before_seen)
        tried.transport.publish(delivery("2"))
        await until(intake(tried)._queue.empty)
        tried.inbox.stop()
        await until(lambda: len(tried.transport.released) == 1)
        gate.set()
    assert tried.store.effects == ["1"]


async def test_a_worker_that_is_cancelled_in_a_batch_undoes_it() -> None:
    async def waits(event: Event, session: Any) -> None:
        session.write(event.id)
        await asyncio.Event().wait()

    tried = engine(replace(BATCHED, shutdown_patience=0.05), waits)
    async with tried.running():
        tried.transport.publish(delivery("1"), delivery("2"))
        await until(lambda: "apply" in tried.probe.before_seen)
    assert (tried.store.effects, tried.transport.acknowledged) == ([], [])
    assert not any(lock.locked() for lock in tried.store.locks.values())


async def test_what_goes_by_itself_is_bounded() -> None:
    tried = engine()
    made = BatchIntake(tried.store, tried.transport, 4, lambda _: 0.0, batch=Batch())
    ways = [Way(Passage_(delivery(str(n)))) for n in range(6)]
    made.take_singly(ways)
    assert [(await made.next_batch())[0] for _ in range(4)] == ways[2:]


async def test_batches_stop_while_intake_is_paused() -> None:
    tried = engine()
    made = BatchIntake(tried.store, tried.transport, 4, lambda _: 0.0, batch=Batch())
    made.pause(0.01, "a pause")
    made.take(delivery("1"))
    made.take(delivery("2"))
    waiting = asyncio.create_task(made.next_batch())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(await waiting) == 2


async def test_the_mark_of_a_stop_is_no_delivery() -> None:
    tried = engine()
    made = BatchIntake(tried.store, tried.transport, 4, lambda _: 0.0, batch=Batch())
    made._queue.put_nowait(None)
    made.take(delivery("1"))
    assert len(await made.next_batch()) == 1


# ------------------------------------------------------------------ handlers of lists
def listed(tried: Engine, function: Callable[..., Any], *kinds: str) -> None:
    function.__annotations__ |= {"events": list[Event], "session": AsyncSession}
    tried.inbox.batch_handler(*kinds)(function)


async def test_a_handler_of_lists_gets_a_batch_at_once() -> None:
    calls: list[list[str]] = []

    async def all_of_them(events: Any, session: Any) -> None:
        calls.append([event.id for event in events])
        for event in events:
            session.write(event.id)

    tried = engine()
    listed(tried, all_of_them, "many", "more")
    kinds = ["many", "t", "more", "many"]
    await tried.settle(*(delivery(str(n), kind=kind) for n, kind in enumerate(kinds)))
    assert (calls, tried.store.effects, commits(tried)) == ([["0", "2", "3"]], ["0", "2", "3", "1"], 4)


async def test_a_handler_of_lists_gets_one_after_the_other_when_it_fails() -> None:
    calls: list[list[str]] = []

    async def all_of_them(events: Any, session: Any) -> None:
        calls.append([event.id for event in events])
        for event in events:
            if event.id == "1":
                raise LookupError
            session.write(event.id)

    tried = engine()
    listed(tried, all_of_them, "many")
    await tried.settle(*(delivery(str(n), kind="many") for n in range(3)))
    assert (calls[:4], tried.store.effects) == ([["0", "1", "2"], ["0"], ["1"], ["2"]], ["0", "2"])
    assert set(tried.store.attempts) == {b"1"}


async def test_a_handler_of_lists_works_without_batches() -> None:
    calls: list[list[str]] = []

    async def all_of_them(events: Any, session: Any) -> None:
        calls.append([event.id for event in events])

    tried = Engine(FAST)
    listed(tried, all_of_them, "many")
    await tried.settle(delivery("1", kind="many"), delivery("2", kind="many"))
    assert sorted(calls) == [["1"], ["2"]]


def no_list(events: Event, session: AsyncSession) -> None: ...
def one_argument(events: list[Event]) -> None: ...
def no_unit(events: list[Event], session: int) -> None: ...
def wrong_kind(events: list[Event], session: AsyncSession) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_list, "list\\[Event\\]"),
        (one_argument, "not \\(events, session\\)"),
        (no_unit, "annotate it"),
        (wrong_kind, "async def"),
    ],
)
def test_a_handler_of_lists_says_so_in_its_signature(function: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Engine().inbox.batch_handler("t")(function)


@pytest.mark.parametrize("kinds", [(), (1,)])
def test_a_handler_of_lists_needs_types(kinds: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs the event type"):
        Engine().inbox.batch_handler(*kinds)


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (Batch(max=1), "batch.max must be between 2 and 1000"),
        (Batch(max=1001), "batch.max"),
        (Batch(max=2.5), "batch.max must be a whole number"),  # type: ignore[arg-type]
        (Batch(wait_ms=-1), "batch.wait_ms"),
        (Batch(wait_ms=float("inf")), "batch.wait_ms"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch: Batch, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ConsumerSettings(batch=batch)


def test_the_prefetch_fills_batches() -> None:
    assert ConsumerSettings(batch=Batch()).effective_prefetch == 400
    assert ConsumerSettings(batch=Batch(max=2)).effective_prefetch == 32
    assert ConsumerSettings(batch=Batch(), prefetch=9).effective_prefetch == 9


def test_the_environment_sets_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ConsumerSettings.from_env().batch is None
    monkeypatch.setenv("INBOX_BATCH", "true")
    assert ConsumerSettings.from_env().batch == Batch()
    monkeypatch.setenv("INBOX_BATCH_MAX", "7")
    monkeypatch.setenv("INBOX_BATCH_WAIT_MS", "0")
    assert ConsumerSettings.from_env().batch == Batch(max=7, wait_ms=0)


async def test_a_store_that_cannot_share_a_transaction_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = engine()
    monkeypatch.setattr(type(tried.store), "why_no_batches", "it may be torn")
    with pytest.raises(ConfigurationError, match="it may be torn"):
        await tried.inbox.run()


async def test_a_lease_is_not_used_up_by_neighbours() -> None:
    tried = engine()
    tried.transport.broker.lease_terms = LeaseTerms(unit_deadline=5, shutdown_timeout=5)
    with pytest.raises(ConfigurationError, match="over leases"):
        await tried.inbox.run()


# ------------------------------------------------------------------ which go together
def test_the_first_of_each_key_and_the_others_beside_it() -> None:
    assert firsts_of(["a1", "b1", "a2"], lambda text: text[0]) == (["a1", "b1"], [("a2", "a1")])


def test_groups_keep_the_order_of_their_firsts() -> None:
    groups = grouped(["a1", "x", "b1", "a2", "y"], lambda text: text[0] if len(text) > 1 else None)
    assert groups == [["a1", "a2"], ["x"], ["b1"], ["y"]]


# ------------------------------------------------------------------ what the tests need
def again(tried: Engine) -> Engine:
    """Another worker on the same database."""
    made = engine()
    made.store = made.inbox._store = tried.store
    return made


def processor(tried: Engine) -> BatchProcessor:
    assert tried.inbox._consumer is not None
    found = tried.inbox._consumer._processor
    assert isinstance(found, BatchProcessor)
    return found


def intake(tried: Engine) -> BatchIntake:
    assert tried.inbox._consumer is not None
    found = tried.inbox._consumer._intake
    assert isinstance(found, BatchIntake)
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)
