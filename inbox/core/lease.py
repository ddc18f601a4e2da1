"""Deliveries on lease: what is held of them here, and what a peer that leases asks of the engine.

Such a peer hands an event out for a while and hands it out anew, with a later generation, unless it is acknowledged
with the proof of that hand-out. A proof outlives the connection that brought it. Several processes may hold an event at
once; none of this says who may apply it: that is the claim's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

from inbox.core.disposition import (
    CHARGED,
    Again,
    Alone,
    Disposition,
    Failure,
    FailureKind,
    Quarantine,
    Release,
    WaitForStore,
)

if TYPE_CHECKING:
    from inbox.core.proof import Proof
    from inbox.core.records import FingerprintPart

#: Which failures are quarantined and acknowledged, where otherwise nothing is sent and the peer's budget decides.
QuarantinedOverLease = Literal["nothing", "rejected", "failed"]


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What a transport declares that gets its deliveries on lease, from a peer that counts failures itself.

    Attributes:
        unit_deadline: seconds that a unit may take at most: less than the lease.
        shutdown_timeout: seconds in which a stop has to be done, running handlers included, which are cancelled.
        quarantines: what is put into quarantine and acknowledged: `rejected` is what a handler rejects, `failed` also
            what has used up the attempts of the policy.
        fingerprint: what may not change under one identity, unless the settings say otherwise.
    """

    unit_deadline: float
    shutdown_timeout: float
    quarantines: QuarantinedOverLease = "nothing"
    fingerprint: tuple[FingerprintPart, ...] | None = None

    def limit(self, disposition: Disposition, failure: Failure) -> Disposition:
        """What of a decision the lease allows.

        Whatever a handler made of its event, it is not run again in this process: handed back, its lease runs out, and
        the peer decides. A unit that was undone by the database before anybody knew its outcome may be repeated.

        Args:
            disposition: what the policy says.
            failure: why.
        """
        if isinstance(disposition, Quarantine):
            return disposition if self._may_quarantine(failure.kind) else Release(0)
        if isinstance(disposition, WaitForStore | Alone):
            return disposition
        if isinstance(disposition, Again) and failure.kind not in CHARGED:
            return disposition
        return Release(0)

    def _may_quarantine(self, kind: FailureKind) -> bool:
        if kind in (FailureKind.REFUSED, FailureKind.TORN):  # nobody's handler: it can never be applied, or was in part
            return True
        return self.quarantines == "failed" or (self.quarantines == "rejected" and kind is FailureKind.REJECTED)


# ------------------------------------------------------------------ what is held
class LeaseState(Enum):
    """Where an event stands that is held here."""

    RUNNING = "running"
    COMMITTED = "committed"
    REPORTED = "reported"
    OUTDATED = "outdated"
    CONFIRMED = "confirmed"
    VOID = "void"
    LEFT = "left"


class LeaseFact(Enum):
    """What happened to it."""

    RENEWED = "renewed"
    APPLIED = "applied"
    FAILED = "failed"
    SENT = "sent"
    RECEIPT = "receipt"
    PROOF_LOST = "proof-lost"
    LINK_LOST = "link-lost"


#: The rules about order. What is not here cannot happen.
TRANSITIONS: dict[tuple[LeaseState, LeaseFact], LeaseState] = {
    # A later generation starts no second handler; the newest proof is what will be shown.
    (LeaseState.RUNNING, LeaseFact.RENEWED): LeaseState.RUNNING,
    (LeaseState.RUNNING, LeaseFact.APPLIED): LeaseState.COMMITTED,
    # Nothing is sent: the lease runs out.
    (LeaseState.RUNNING, LeaseFact.FAILED): LeaseState.LEFT,
    (LeaseState.COMMITTED, LeaseFact.RENEWED): LeaseState.COMMITTED,
    (LeaseState.COMMITTED, LeaseFact.SENT): LeaseState.REPORTED,
    (LeaseState.REPORTED, LeaseFact.RENEWED): LeaseState.OUTDATED,
    (LeaseState.REPORTED, LeaseFact.RECEIPT): LeaseState.CONFIRMED,
    # The new delivery, when it comes, has to find the row before anything is acknowledged.
    (LeaseState.REPORTED, LeaseFact.PROOF_LOST): LeaseState.VOID,
    # Nobody knows whether it was taken: the same proof is shown again, and no handler runs.
    (LeaseState.REPORTED, LeaseFact.LINK_LOST): LeaseState.COMMITTED,
    (LeaseState.OUTDATED, LeaseFact.RENEWED): LeaseState.OUTDATED,
    (LeaseState.OUTDATED, LeaseFact.RECEIPT): LeaseState.CONFIRMED,
    (LeaseState.OUTDATED, LeaseFact.PROOF_LOST): LeaseState.COMMITTED,
    (LeaseState.OUTDATED, LeaseFact.LINK_LOST): LeaseState.COMMITTED,
}

#: Ends: it is held no longer.
ENDS = frozenset({LeaseState.CONFIRMED, LeaseState.VOID, LeaseState.LEFT})


class Offer(Enum):
    """What a delivery came to."""

    STARTED = "started"
    RENEWED = "renewed"
    KNOWN = "known"
    NO_ROOM = "no-room"
    CONTRADICTED = "contradicted"


@dataclass(slots=True)
class Lease:
    """One event that is held.

    Attributes:
        proof: the newest.
        content: what may not change from one hand-out to the next.
        state: where it stands.
    """

    proof: Proof
    content: object
    state: LeaseState = field(default=LeaseState.RUNNING)


class Leases:
    """The events that are held in this process, by their ids; they outlive every connection.

    Args:
        capacity: most of them at once.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: dict[str, Lease] = {}
        self._reported: str | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._held

    @property
    def has_room(self) -> bool:
        """Whether another event can be taken."""
        return len(self._held) < self._capacity

    @property
    def running(self) -> int:
        """Events whose handler has not come back."""
        return sum(lease.state is LeaseState.RUNNING for lease in self._held.values())

    @property
    def to_confirm(self) -> int:
        """Events that were applied and whose acknowledgement is not confirmed."""
        return len(self._held) - self.running

    def offer(self, proof: Proof, content: object) -> Offer:
        """Take a hand-out.

        Args:
            proof: of it.
            content: what may not change from one hand-out to the next.

        Returns:
            STARTED where its handler is to be started; RENEWED where it is held already, with an earlier generation;
            KNOWN where it is no later one; NO_ROOM where there is none; CONTRADICTED where one generation has two
            proofs, or the event another content than before.
        """
        lease = self._held.get(proof.event_id)
        if lease is None:
            if not self.has_room:
                return Offer.NO_ROOM
            self._held[proof.event_id] = Lease(proof, content)
            return Offer.STARTED
        if content != lease.content or (proof.generation == lease.proof.generation and proof != lease.proof):
            return Offer.CONTRADICTED
        if proof.generation <= lease.proof.generation:
            return Offer.KNOWN
        lease.proof = proof
        self._advance(proof.event_id, LeaseFact.RENEWED)
        return Offer.RENEWED

    def apply(self, event_id: str) -> bool:
        """Its handler has come back, and what it did is committed. False where nobody waits for that."""
        return self._settle(event_id, LeaseFact.APPLIED)

    def fail(self, event_id: str) -> bool:
        """Its handler has failed, or did not begin. False where nobody waits for that."""
        return self._settle(event_id, LeaseFact.FAILED)

    def next_report(self) -> Proof | None:
        """The proof that is to be shown next, counted as sent; None where none is, or one is on its way."""
        if self._reported is not None:
            return None
        for event_id, lease in self._held.items():
            if lease.state is LeaseState.COMMITTED:
                self._reported = event_id
                self._advance(event_id, LeaseFact.SENT)
                return lease.proof
        return None

    def end_report(self, fact: LeaseFact) -> LeaseState | None:
        """What became of the proof on its way; where its event stands now. None where none was on its way.

        Args:
            fact: RECEIPT, PROOF_LOST or LINK_LOST.
        """
        event_id, self._reported = self._reported, None
        return None if event_id is None else self._advance(event_id, fact)

    def _settle(self, event_id: str, fact: LeaseFact) -> bool:
        lease = self._held.get(event_id)
        if lease is None or lease.state is not LeaseState.RUNNING:
            return False
        self._advance(event_id, fact)
        return True

    def _advance(self, event_id: str, fact: LeaseFact) -> LeaseState:
        lease = self._held[event_id]
        lease.state = TRANSITIONS[lease.state, fact]
        if lease.state in ENDS:
            del self._held[event_id]
        return lease.state
