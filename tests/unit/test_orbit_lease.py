"""What is held on lease: the table, walked whole, and what the engine makes of a peer's terms."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.disposition import (
    Again,
    Alone,
    Delay,
    Disposition,
    Failure,
    FailureKind,
    Quarantine,
    Release,
    WaitForStore,
)
from inbox.core.event import CloudEvent, Event
from inbox.core.lease import ENDS, TRANSITIONS, LeaseFact, Leases, LeaseState, LeaseTerms, Offer, QuarantinedOverLease
from inbox.core.proof import Proof, Secret
from inbox.core.records import record_of
from inbox.errors import Reject, Retry, StopTimeout
from inbox.testing.memory import MemoryBroker, MemoryStore, MemoryTransport
from tests.unit.engine import FAST, apply, delivery

A, B, C = "a" * 32, "b" * 32, "c" * 32
TERMS = LeaseTerms(unit_deadline=4, shutdown_timeout=3)


def proof(event_id: str = A, generation: int = 1, told: str = "s") -> Proof:
    return Proof("5" * 32, event_id, "d" * 32, generation, Secret(told + str(generation)))


# ---------------------------------------------------------------- the table
def test_every_state_but_the_ends_leads_somewhere_and_ends_lead_nowhere() -> None:
    leading = {state for state, _ in TRANSITIONS}
    assert leading == set(LeaseState) - ENDS
    assert {fact for _, fact in TRANSITIONS} == set(LeaseFact)


def test_nothing_is_confirmed_that_was_not_applied_and_sent() -> None:
    """Every walk of eight facts from the start."""
    for walk in itertools.product(LeaseFact, repeat=6):
        state, applied, sent = LeaseState.RUNNING, False, False
        for fact in walk:
            if (state, fact) not in TRANSITIONS:
                break
            state = TRANSITIONS[state, fact]
            applied = applied or fact is LeaseFact.APPLIED
            sent = sent or fact is LeaseFact.SENT
            assert applied or state in (LeaseState.RUNNING, LeaseState.LEFT)
            assert sent or state not in (LeaseState.CONFIRMED, LeaseState.VOID, LeaseState.REPORTED)


# ---------------------------------------------------------------- what is held
def test_an_event_is_started_once_applied_shown_and_confirmed() -> None:
    leases = Leases(2)
    assert leases.offer(proof(), "x") is Offer.STARTED
    assert (len(leases), leases.running, leases.to_confirm, A in leases, B in leases) == (1, 1, 0, True, False)
    assert leases.next_report() is None
    assert leases.apply(A)
    assert (leases.running, leases.to_confirm) == (0, 1)
    assert leases.next_report() == proof()
    assert leases.end_report(LeaseFact.RECEIPT) is LeaseState.CONFIRMED
    assert len(leases) == 0
    assert not leases.apply(A)
    assert not leases.fail(A)


def test_a_later_generation_starts_nothing_and_its_proof_is_shown() -> None:
    leases = Leases(1)
    assert leases.offer(proof(generation=1), "x") is Offer.STARTED
    assert leases.offer(proof(generation=3), "x") is Offer.RENEWED
    assert leases.offer(proof(generation=3), "x") is Offer.KNOWN
    assert leases.offer(proof(generation=2), "x") is Offer.KNOWN
    assert leases.apply(A)
    assert leases.offer(proof(generation=4), "x") is Offer.RENEWED
    assert leases.next_report() == proof(generation=4)


def test_a_later_generation_while_an_older_proof_is_on_its_way() -> None:
    for fact, state in {
        LeaseFact.RECEIPT: LeaseState.CONFIRMED,
        LeaseFact.PROOF_LOST: LeaseState.COMMITTED,
        LeaseFact.LINK_LOST: LeaseState.COMMITTED,
    }.items():
        leases = Leases(1)
        leases.offer(proof(generation=1), "x")
        leases.apply(A)
        assert leases.next_report() == proof(generation=1)
        assert leases.offer(proof(generation=2), "x") is Offer.RENEWED
        assert leases.offer(proof(generation=3), "x") is Offer.RENEWED
        assert leases.end_report(fact) is state
        assert leases.next_report() == (proof(generation=3) if state is LeaseState.COMMITTED else None)


def test_a_lost_reply_shows_the_same_proof_again_and_one_is_on_its_way_at_a_time() -> None:
    leases = Leases(2)
    for event_id in (A, B):
        leases.offer(proof(event_id), "x")
        leases.apply(event_id)
    assert leases.next_report() == proof(A)
    assert leases.next_report() is None
    assert leases.end_report(LeaseFact.LINK_LOST) is LeaseState.COMMITTED
    assert leases.next_report() == proof(A)
    assert leases.end_report(LeaseFact.RECEIPT) is LeaseState.CONFIRMED
    assert leases.next_report() == proof(B)


def test_a_lost_proof_lets_the_event_go_until_it_comes_anew() -> None:
    leases = Leases(1)
    leases.offer(proof(), "x")
    leases.apply(A)
    leases.next_report()
    assert leases.end_report(LeaseFact.PROOF_LOST) is LeaseState.VOID
    assert leases.offer(proof(generation=2), "x") is Offer.STARTED
    assert leases.end_report(LeaseFact.LINK_LOST) is None


def test_what_failed_is_left_and_nothing_is_shown() -> None:
    leases = Leases(1)
    leases.offer(proof(), "x")
    leases.offer(proof(generation=2), "x")
    assert leases.fail(A)
    assert leases.next_report() is None
    assert leases.has_room


def test_there_is_room_for_so_many_but_a_later_generation_needs_none() -> None:
    leases = Leases(1)
    leases.offer(proof(A), "x")
    assert leases.offer(proof(B), "x") is Offer.NO_ROOM
    assert leases.offer(proof(A, generation=2), "x") is Offer.RENEWED


def test_one_generation_with_two_proofs_or_another_content_contradicts() -> None:
    leases = Leases(1)
    leases.offer(proof(), "x")
    assert leases.offer(proof(told="other"), "x") is Offer.CONTRADICTED
    assert leases.offer(proof(generation=2), "y") is Offer.CONTRADICTED
    leases.apply(A)
    assert leases.next_report() == proof()


# ---------------------------------------------------------------- what a peer's terms let through
@pytest.mark.parametrize(
    ("disposition", "kind", "limited"),
    [
        (Delay(10), FailureKind.ERROR, Release(0)),
        (Release(10), FailureKind.CONTENDED, Release(0)),
        (Release(10), FailureKind.UNRESOLVED, Release(0)),
        (Again(0), FailureKind.ERROR, Release(0)),
        (Again(0), FailureKind.DEADLINE, Release(0)),
        (Again(1), FailureKind.CONTENDED, Again(1)),
        (WaitForStore(1), FailureKind.UNAVAILABLE, WaitForStore(1)),
        (Alone(), FailureKind.SUSPECT, Alone()),
        (Quarantine("refused"), FailureKind.REFUSED, Quarantine("refused")),
        (Quarantine("torn"), FailureKind.TORN, Quarantine("torn")),
        (Quarantine("rejected"), FailureKind.REJECTED, Release(0)),
        (Quarantine("crashed"), FailureKind.CRASHED, Release(0)),
        (Quarantine("handler-error"), FailureKind.ERROR, Release(0)),
    ],
)
def test_nothing_is_said_about_what_failed(disposition: Disposition, kind: FailureKind, limited: Disposition) -> None:
    assert TERMS.limit(disposition, Failure(kind, "why")) == limited


@pytest.mark.parametrize(
    ("quarantines", "kept"),
    [("nothing", set()), ("rejected", {FailureKind.REJECTED}), ("failed", {*FailureKind})],
)
def test_what_is_quarantined_is_a_setting(quarantines: QuarantinedOverLease, kept: set[FailureKind]) -> None:
    terms = replace(TERMS, quarantines=quarantines)
    always = {FailureKind.REFUSED, FailureKind.TORN}
    found = {kind for kind in FailureKind if terms.limit(Quarantine("x"), Failure(kind, "x")) == Quarantine("x")}
    assert found == kept | always


# ---------------------------------------------------------------- the engine
class Leased:
    """The engine over a transport in memory that declares terms."""

    def __init__(self, terms: LeaseTerms = TERMS, settings: ConsumerSettings = FAST) -> None:
        self.store = MemoryStore()
        self.transport = MemoryTransport(MemoryBroker(lease_terms=terms))
        self.inbox = Inbox("c", store=self.store, transport=self.transport, settings=settings)

    def handle(self, function: Callable[..., Any], **options: Any) -> None:
        function.__annotations__["session"] = AsyncSession
        register: Callable[[Callable[..., Any]], object] = self.inbox.handler("t", **options)
        register(function)

    async def run_until(self, count: int) -> None:
        """Until so many were handed back or acknowledged."""
        running = asyncio.create_task(self.inbox.run())
        transport = self.transport
        await transport.wait_settled(lambda: len(transport.released) + len(transport.acknowledged) >= count)
        self.inbox.stop()
        await running


@pytest.mark.parametrize(("patience", "timeout", "whole"), [(30, 300, 300), (2, 300, 300), (30, 3, 3)])
def test_who_waits_for_a_stop_waits_for_its_confirmations_too(patience: float, timeout: float, whole: float) -> None:
    leased = Leased(
        replace(TERMS, shutdown_timeout=timeout), replace(FAST, shutdown_patience=patience, cancel_patience=1)
    )
    assert leased.inbox.stop_patience == whole + 1
    without = Inbox("c", store=MemoryStore(), settings=replace(FAST, shutdown_patience=patience, cancel_patience=1))
    assert without.stop_patience == patience + 1


def test_settings_are_those_that_a_lease_allows() -> None:
    terms = replace(TERMS, fingerprint=("source", "type", "sequence"))
    assert Leased(terms).inbox.settings.deadline == 4
    assert Leased(terms).inbox.settings.shutdown_patience == 3
    assert Leased(terms).inbox.settings.fingerprint == ("source", "type", "sequence")
    assert Leased(TERMS).inbox.settings.fingerprint == FAST.fingerprint
    own = replace(FAST, deadline=1, shutdown_patience=1, fingerprint=None)
    assert Leased(terms, own).inbox.settings == own


def test_a_fingerprint_may_cover_the_number_of_an_event() -> None:
    event = CloudEvent("1", "/s", "t", extensions={"sequence": "17"})
    taken = record_of("c", event, "id", ("source", "type", "sequence"))
    same = record_of("c", replace(event, data=b"other"), "id", ("sequence", "type", "source"))
    other = record_of("c", replace(event, extensions={"sequence": "18"}), "id", ("source", "type", "sequence"))
    none = record_of("c", replace(event, extensions={}), "id", ("source", "type", "sequence"))
    assert taken == same
    assert taken.contradicts(other.fingerprint, other.scheme)
    assert taken.contradicts(none.fingerprint, none.scheme)
    assert ConsumerSettings(fingerprint=("sequence",)).fingerprint == ("sequence",)


@pytest.mark.parametrize("raised", [ValueError, Retry, lambda: Reject("no")])
async def test_a_handler_that_fails_is_not_run_again_here_and_nothing_is_acknowledged(raised: Any) -> None:
    leased, runs = Leased(settings=replace(FAST, retry=replace(FAST.retry, delays=(0.0,)))), []

    async def fail(event: Event, session: Any) -> None:
        runs.append(len(leased.transport.released))
        raise raised()

    leased.handle(fail)
    leased.transport.publish(delivery())
    await leased.run_until(5)
    assert runs[:5] == [0, 1, 2, 3, 4], "each run is of another hand-out"
    assert leased.transport.acknowledged == []
    assert leased.store.quarantined == []


async def test_what_is_rejected_is_quarantined_where_that_is_asked_for() -> None:
    leased = Leased(replace(TERMS, quarantines="rejected"))

    async def reject(event: Event, session: Any) -> None:
        raise Reject("no")

    leased.handle(reject)
    leased.transport.publish(delivery())
    await leased.run_until(1)
    assert [row.reason for row in leased.store.quarantined] == ["rejected"]
    assert len(leased.transport.acknowledged) == 1


async def test_a_stop_cancels_what_runs_and_charges_nothing() -> None:
    leased, started = Leased(), asyncio.Event()

    async def wait(event: Event, session: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    leased.handle(wait)
    leased.transport.publish(delivery(pristine=False))
    running = asyncio.create_task(leased.inbox.run())
    await started.wait()
    leased.inbox.stop()
    async with asyncio.timeout(2):
        await running
    assert leased.transport.acknowledged == []
    assert len(leased.transport.released) == 1
    assert {attempts.charged for attempts in leased.store.attempts.values()} <= {0}


async def test_what_ends_well_all_the_same_is_acknowledged() -> None:
    leased, started = Leased(), asyncio.Event()

    async def finish(event: Event, session: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await apply(event, session)

    leased.handle(finish)
    leased.transport.publish(delivery())
    running = asyncio.create_task(leased.inbox.run())
    await started.wait()
    leased.inbox.stop()
    await running
    assert len(leased.transport.acknowledged) == 1


async def test_a_stop_starts_no_further_handler() -> None:
    leased, runs = Leased(), []

    async def run(event: Event, session: Any, prepared: Any) -> None:
        runs.append(event.id)

    async def prepare(event: Event) -> None:
        leased.inbox.stop()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    leased.handle(run, prepare=prepare)
    leased.transport.publish(delivery())
    await leased.inbox.run()
    assert runs == []
    assert (len(leased.transport.released), leased.transport.acknowledged) == (1, [])


async def test_a_handler_that_ignores_the_stop_is_named() -> None:
    leased, let_go = Leased(replace(TERMS, shutdown_timeout=0.1)), asyncio.Event()

    async def stubborn(event: Event, session: Any) -> None:
        leased.inbox.stop()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    leased.handle(stubborn)
    leased.transport.publish(delivery())
    with pytest.raises(StopTimeout, match="stubborn"):
        await leased.inbox.run()
    let_go.set()
    while leased.inbox.running_handlers:
        await asyncio.sleep(0)
