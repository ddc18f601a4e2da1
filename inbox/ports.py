"""What the engine needs from the outside world, as narrow protocols with their contracts in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncSession

    from inbox.core.delivery import Delivery
    from inbox.core.disposition import Failure
    from inbox.core.event import CloudEvent, Event
    from inbox.core.figures import Figures, WorkerReport
    from inbox.core.handler import Handler
    from inbox.core.lease import LeaseTerms
    from inbox.core.lifecycle import Command, Outcome
    from inbox.core.quarantine import (
        QuarantineCount,
        QuarantineCursor,
        QuarantinedDelivery,
        QuarantineEntry,
        Selection,
    )
    from inbox.core.records import Attempts, Claim, InboxRecord, Resolution
    from inbox.core.retention import Pruned


class Verifier(Protocol):
    """Decides whether a delivery is authentic."""

    async def verify(self, delivery: Delivery, event: CloudEvent) -> None:
        """Return where `delivery` is authentic.

        May do I/O, for as long as a unit may take; called before any transaction, and once for each
        delivery: again only where it could not decide.

        Raises:
            Unauthentic: it is not; the delivery goes to quarantine.
        """
        ...


class UnitOfWork(Protocol):
    """One transaction on one connection: the claim, the handler's statements, the commit.

    Used by one task at a time, in this order: `claim` or `claim_all`, `apply` or `session`, `commit` or `rollback`.
    After `commit`, whether it raised or not, after `rollback`, and after a claim that was not NEW, it
    is over and its connection returned; anything more raises `RuntimeError`.
    """

    async def claim(self, record: InboxRecord) -> Claim:
        """Insert the record, first of all statements.

        Waits for a racing duplicate's end, bounded by the store's `lock_wait`. On DUPLICATE and
        CONFLICT the transaction has been ended.

        Raises:
            Contended, StoreUnavailable: nothing is known about the id; the caller rolls back.
        """
        ...

    async def claim_all(self, records: Sequence[InboxRecord]) -> list[Claim]:
        """Insert the records of a batch together, in place of `claim`; their keys differ.

        Either all are inserted and each claim is NEW, or none is: then the transaction has been ended, and each claim
        says what a locking read finds under the key: NEW is not there, and not claimed. After it `apply` may be called
        several times, once for each handler in turn, each only after the one before has returned.

        Raises:
            Contended, StoreUnavailable: nothing is known about the ids; the caller rolls back.
        """
        ...

    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """Call the handler on this transaction, flush what it left, and check the guard.

        The task that calls is the unit's owner: it, and tasks it starts, may use the unit until
        this returns. Cancelling it while a statement runs closes the connection.

        Raises:
            UnitMisused: the handler did what would have split the unit.
            Contended, StoreUnavailable: the server ended the unit, whatever the handler made of it; or, in a batch, the
                handler before left something that this one would see.
            Exception: whatever else the handler raised.
        """
        ...

    def session(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Open the unit to the calling task, for a block of code instead of a handler.

        Leaving the block normally flushes and checks the guard; leaving it by an exception undoes
        nothing by itself: the caller rolls back.

        Raises:
            UnitMisused, Contended, StoreUnavailable: as `apply`, when the block is left.
        """
        ...

    async def forget(self, key: bytes) -> None:
        """Delete the event's attempt counts as part of this transaction.

        Raises:
            Contended, StoreUnavailable: the caller rolls back.
        """
        ...

    async def commit(self) -> None:
        """Commit. A caller that is cancelled cuts it: it may have taken place or not, and the connection is closed.

        Raises:
            CommitUnknown: no answer, or an answer that does not tell; the caller resolves.
            Torn: a stored procedure had ended the transaction before.
        """
        ...

    async def rollback(self) -> None:
        """Undo and give the connection back, or away where its state is in doubt. Never raises
        a store's error. Kills what the server still runs for this unit.
        """
        ...


class StoreFactory(Protocol):
    """A database, before it is known for whom: `MySQL(url)`."""

    def for_consumer(self, name: str, *, concurrency: int, deadline: float) -> Store:
        """The store of one consumer; opens nothing.

        Args:
            name: the name duplicates are known under.
            concurrency: units of work at once.
            deadline: seconds one unit may take.

        Raises:
            ConfigurationError: a setting is malformed.
        """
        ...


class QuarantineDesk(Protocol):
    """The quarantine of one consumer, where a person decides. Works beside the units, in small steps.

    Everything here raises `Contended` or `StoreUnavailable` where the database does not answer; what was done before
    stays done, and doing it again does no harm.
    """

    async def now(self) -> datetime:
        """The time by the database's clock, which `first_at` and `last_at` are by."""
        ...

    async def count(self, selection: Selection) -> Sequence[QuarantineCount]:
        """How much is meant, by state and reason."""
        ...

    async def list(
        self,
        selection: Selection,
        *,
        after: QuarantineCursor | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[QuarantineEntry]:
        """One page, without headers and bodies; an empty one is the end.

        Args:
            selection: which.
            after: the cursor of the last entry of the page before; None begins.
            limit: most entries.
            newest_first: by when they were refused for the first time; otherwise the oldest comes first.
        """
        ...

    async def get(self, digests: Sequence[bytes]) -> Sequence[QuarantinedDelivery]:
        """These entries whole, in this order. Left out is what is not there, or cannot be read by this version."""
        ...

    async def mark_replayed(self, entries: Sequence[QuarantineEntry]) -> int:
        """Close what was replayed. Whatever is no longer open, or was refused again since it was read, stays as it is.

        Returns:
            How many were closed.
        """
        ...

    async def discard(self, selection: Selection, note: str, *, progress: Callable[[int], None] | None = None) -> int:
        """Close what a person gives up; it is kept, until retention deletes it. Only what is open, as above.

        Args:
            selection: which. Bound it by `until`, or what comes meanwhile is given up too.
            note: why, for whoever asks later; at most 512 characters.
            progress: told after each step how many it closed.

        Returns:
            How many were closed.
        """
        ...

    async def restore(self, entries: Sequence[QuarantinedDelivery], *, dry_run: bool = False) -> int:
        """Put entries back with all that is known of them, for this consumer. What is there already stays as it is.

        Args:
            entries: what was read whole, here or elsewhere.
            dry_run: only count what is not there.

        Returns:
            How many were put back.

        Raises:
            QuarantineFull: there is no room for the next of them; those before it are there.
        """
        ...


class Store(Protocol):
    """The database: units of work, attempts and quarantine for one consumer name."""

    @property
    def desk(self) -> QuarantineDesk:
        """Its quarantine, for a person's decisions. Used while the store is open."""
        ...

    @property
    def why_no_batches(self) -> str | None:
        """Why `claim_all` may not be used with its settings, in one sentence; None where it may."""
        ...

    def describe(self) -> dict[str, str]:
        """What it is connected to, a few words each, for people; without secrets."""
        ...

    async def open(self) -> None:
        """Connect, prove the guard, check the tables.

        Raises:
            StartupError: with one message that names the fix.
        """
        ...

    async def close(self) -> None:
        """Give back every connection. May be called twice, and after a failed `open`."""
        ...

    async def begin(self) -> UnitOfWork:
        """Take a connection for one unit; sends nothing unless a new connection is needed.

        Waits while all are in use; there are as many as the consumer runs at once.

        Raises:
            StoreUnavailable, Contended: no connection could be had.
        """
        ...

    async def resolve(self, record: InboxRecord, unit: UnitOfWork) -> Resolution:
        """Tell whether the commit of `unit` took place, on another connection. Never raises."""
        ...

    async def knows(self, record: InboxRecord) -> bool:
        """Whether a plain read finds the record. True may save work; the claim still decides.

        Raises:
            Contended, StoreUnavailable: the read failed.
        """
        ...

    async def start_attempt(self, key: bytes, *, alone: bool = False) -> Attempts:
        """Note, durably and at once, that the handler is about to run for a delivery in trouble.

        A start found open is one whose process died. It is charged as crashed if it ran alone; if not, any of those
        that ran beside it may have been the cause.

        Args:
            key: the event's identity.
            alone: no other handler runs in this process until the run has ended.

        Returns:
            The counts, that charge included; `suspect` where it found an open start of another process, and `reopened`
            where it charged one.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        ...

    async def end_attempt(
        self, key: bytes, *, failed: bool = False, released: bool = False, error: str = ""
    ) -> Attempts:
        """Note, durably and at once, how a run ended, and close the open start.

        Args:
            key: the event's identity.
            failed: charge a failed run.
            released: count a hand-back.
            error: for the person who looks, a line of the event's history; at most 512 characters.

        Returns:
            The counts after this.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        ...

    async def forget_attempts(self, key: bytes) -> None:
        """Delete the counts of an event that was applied, and its open start, whosever that is.

        For whoever finds it applied: the process that left them may have died. Writes nothing where there are none.

        Args:
            key: the event's identity.

        Raises:
            Contended, StoreUnavailable: they are there still.
        """
        ...

    async def quarantine(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """Store the delivery whole, once per digest.

        Raises:
            QuarantineFull: the bound in rows or bytes is reached; nothing was stored.
            Contended, StoreUnavailable: nothing was stored.
        """
        ...

    async def report(self, report: WorkerReport) -> None:
        """Keep what a worker says of itself, in place of what it said before; old reports of others may give way.

        Raises:
            Contended, StoreUnavailable: it was not kept.
        """
        ...

    async def figures(self, consumer: str | None = None, *, exact: bool = False) -> Figures:
        """How a consumer does. Reads only, beside the units, and never waits for one.

        Args:
            consumer: whose figures, in the same tables; None is the store's own.
            exact: count every row, which takes as long as there are rows.

        Raises:
            Contended, StoreUnavailable: nothing could be read, or not in time.
        """
        ...

    async def consumers(self) -> list[str]:
        """Names of all consumers that have rows in the same tables, sorted.

        Raises:
            Contended, StoreUnavailable: they could not be read.
        """
        ...

    async def wait_writable(self) -> None:
        """Return as soon as the database takes writes. Backs off between questions.

        Raises:
            StoreUnavailable: it has taken none for as long as the store's patience lasts.
        """
        ...

    async def prune(
        self, older_than: float, *, batch: int, pause: float, progress: Callable[[Pruned], bool], dry_run: bool = False
    ) -> Pruned:
        """Delete this consumer's rows that are older, in small batches beside the units; needs no `open`.

        Inbox rows by the time of their processing, attempts by their last one, quarantine by the time of its decision
        (what is open stays), workers by when they were last seen; all by the database's clock. An inbox row stays
        while a row of the quarantine that stays has its key. One clean-up of the tables is at work at a time.
        Cancelling it ends it at once; whatever ended one, the next goes on from there.

        Args:
            older_than: seconds.
            batch: most rows that one statement deletes.
            pause: seconds of rest after a batch at least; after one that took longer, as long as that.
            progress: told after each batch what was done so far; answers whether to go on.
            dry_run: count what would be deleted, and change nothing.

        Raises:
            StartupError: the tables or the user's rights do not allow it; with one message that names the fix.
            Contended, StoreUnavailable: no connection could be had; nothing was deleted.
        """
        ...


#: Takes one delivery. Called on the event loop, must not block; the transport never has more
#: deliveries out than its prefetch, and one dead letter beside them.
Sink = Callable[["Delivery"], None]


class Transport(Protocol):
    """Where deliveries come from and are settled."""

    def describe(self) -> dict[str, str]:
        """What it is connected to, a few words each, for people; without secrets."""
        ...

    @property
    def can_delay(self) -> bool:
        """Whether it keeps durable copies for a while. Without that, what is to wait is held in hand."""
        ...

    @property
    def lease_terms(self) -> LeaseTerms | None:
        """What a peer asks that hands deliveries out for a while and counts failures itself; None for other peers.

        Over a lease nothing is sent about what failed, and a stop cancels the handlers that run. What was acknowledged
        is told to the peer later, over whatever link there is then; `close` waits for its confirmation.
        """
        ...

    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """Connect once and declare or check the topology.

        Args:
            prefetch: most deliveries in hand at once.
            delays: seconds for which it will be asked to keep copies; asked for others, it takes the next longer one.

        Raises:
            StartupError: what was asked for is not there, with one message that names the fix.
            TransportError: the peer cannot be reached.
        """
        ...

    async def run(self, sink: Sink) -> None:
        """Consume into `sink` until `stop`; reconnects with back-off, for ever or until patience ends.

        Raises:
            TransportError: the configured patience ended.
            StartupError: after a reconnect the topology is no longer what was asked for.
        """
        ...

    async def stop(self) -> None:
        """Take no more deliveries; those in hand can still be settled."""
        ...

    async def close(self) -> None:
        """Close. May be called twice, and after a failed `open`.

        Raises:
            StopTimeout: over a lease: not everything that was acknowledged is confirmed, and the time is over. Closed
                it is all the same.
        """
        ...

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Settle for good.

        Returns:
            False where the link that delivered it is gone: the delivery comes again, and the
            inbox knows it. Never raises for that.
        """
        ...

    async def release(self, delivery: Delivery) -> bool:
        """Hand back for redelivery; returns as `acknowledge` does."""
        ...

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """Hand a copy over, for good, that is delivered after `seconds` or a little later. Settles nothing.

        Only where `can_delay`. The copy carries body, typed headers and origin unchanged, is not pristine, and has
        `waited` and `wait_left` set.

        Args:
            delivery: what is to come again.
            seconds: how long it is to wait at least.
            key: what its attempts are counted under.

        Raises:
            TransportError: it is not known to be kept, so that the delivery must not be acknowledged.
        """
        ...


class Passage(Protocol):
    """What a probe sees of a delivery on its way. Read only."""

    @property
    def delivery(self) -> Delivery:
        """What arrived."""
        ...

    @property
    def event(self) -> Event | None:
        """What it holds, once it is verified."""
        ...

    @property
    def handler(self) -> Handler | None:
        """Who applies it, once that is known."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why it could not be applied this time."""
        ...

    @property
    def is_ack_lost(self) -> bool:
        """Whether it was acknowledged in vain: the link that delivered it is gone, and it comes again."""
        ...

    @property
    def attempts(self) -> Attempts:
        """What is counted against it, as far as this passage has read it."""
        ...


class Probe(Protocol):
    """Observer of the steps: crash points, metrics and traces all hang here. Must not raise or block."""

    def before(self, command: Command, passage: Passage) -> None:
        """`command` is about to be carried out."""
        ...

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """`command` came to `outcome`."""
        ...
