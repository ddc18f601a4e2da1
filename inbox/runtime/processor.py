"""Carries out the commands of the lifecycle for one delivery after the other.

Every method below is one command of `inbox.core.lifecycle`: it performs the step and answers with
its outcome. What comes next is none of its business.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from inbox.core import cloudevents
from inbox.core.disposition import (
    CHARGED,
    FINAL,
    UNCOUNTED,
    Again,
    Alone,
    Delay,
    Failure,
    FailureKind,
    Quarantine,
    Release,
    WaitForStore,
)
from inbox.core.lifecycle import Command, Lifecycle, Outcome, State
from inbox.core.policy import decide
from inbox.core.records import Claim, Resolution
from inbox.errors import (
    CommitUnknown,
    Contended,
    IdentityConflict,
    QuarantineFull,
    Refused,
    StoreError,
    Torn,
    TransportError,
)
from inbox.runtime.failures import failure_of
from inbox.runtime.gate import RunGate
from inbox.runtime.handling import HandlerStuck, HandlerTasks
from inbox.runtime.passage import Passage, failure_in, in_time, known, open_unit
from inbox.runtime.verification import verified
from inbox.units.limits import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from inbox.config import ConsumerSettings
    from inbox.core.delivery import Delivery
    from inbox.core.disposition import Disposition
    from inbox.core.event import CloudEvent, Event
    from inbox.core.handler import Handler
    from inbox.core.records import Attempts
    from inbox.ports import Probe, Store, Transport, Verifier
    from inbox.runtime.registry import Registry

#: Seconds that a process gets to say that it lives, before an event that it left open is quarantined as crashed.
_GRACE = 0.5
NO_ANSWER = "the database did not answer in time"


class Intake(Protocol):
    """What the processor needs from whoever feeds it."""

    @property
    def is_paused(self) -> bool:
        """Whether no delivery is started at present."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait; False as soon as the worker is stopping."""
        ...

    async def wait_for_store(self) -> bool:
        """Pause intake until the database takes writes; False as soon as the worker is stopping.

        Raises:
            StoreUnavailable: the patience with it has ended.
        """
        ...

    async def unless_stopping(self, waited: Awaitable[object]) -> bool:
        """Await `waited`; False as soon as the worker is stopping, and `waited` is cancelled."""
        ...

    def pause(self, seconds: float, why: str) -> None:
        """Start no further delivery for so long, and say why in one line."""
        ...

    def release_later(self, delivery: Delivery, seconds: float) -> None:
        """Hold the delivery unacknowledged for so long, then hand it back."""
        ...


class Processor:
    """Takes deliveries through their lifecycle. One for each consumer; holds no state of a delivery.

    Args:
        consumer: the consumer's name.
        store, transport, registry, verifier: what it works with; no verifier trusts every delivery.
        settings: the consumer's settings.
        intake: whoever feeds it.
        probes: observers, told of every step in this order.

    Attributes:
        handlers: those that run.
    """

    def __init__(
        self,
        consumer: str,
        *,
        store: Store,
        transport: Transport,
        registry: Registry,
        verifier: Verifier | None,
        settings: ConsumerSettings,
        intake: Intake,
        probes: Sequence[Probe] = (),
    ) -> None:
        self._consumer = consumer
        self._store = store
        self._transport = transport
        self._registry = registry
        self._verifier = verifier
        self._settings = settings
        self._intake = intake
        # Bound once: they are called nine times each for every event.
        self._tell_before = [probe.before for probe in probes]
        self._tell_after = [probe.after for probe in probes]
        self._limits = TimeLimits()
        self.handlers = HandlerTasks(self._limits)
        # Verification, preparation and the unit may each take as long as a unit.
        self._gate = RunGate(3 * settings.deadline + settings.cancel_patience)
        self._suspects: set[bytes] = set()  # keys of what may run only alone: it waits for that, or is put away
        self._steps: dict[Command, Callable[[Passage], Awaitable[Outcome]]] = {
            command: getattr(self, f"_{command.value}") for command in Command
        }

    async def process(self, delivery: Delivery) -> State:
        """Take `delivery` to an end of its lifecycle.

        Returns:
            Where it ended. A handler that did not come back has done so by now: its slot stays
            taken until then, so that stuck handlers cannot pile up.

        Raises:
            asyncio.CancelledError: the worker is ending; the unit was rolled back, nothing settled.
            StoreUnavailable: the patience with the database has ended; the same.
        """
        return await self.finish(Passage(delivery), Lifecycle())

    async def finish(self, passage: Passage, lifecycle: Lifecycle) -> State:
        """Take what has come so far to its end; see `process`."""
        try:
            await self._enter(passage)
            while (command := lifecycle.command) is not None:
                lifecycle.advance(await self._carry_out(command, passage))
        finally:
            if passage.unit is not None:
                await asyncio.shield(passage.unit.rollback())
            if passage.stuck is None:
                self._leave(passage)
            if passage.failure is not None and passage.failure.kind is FailureKind.CRASHED:
                self._suspects.discard(passage.attempt_key)
        if passage.stuck is not None:
            await self._wait_stuck(passage, passage.stuck)
        return lifecycle.state

    async def _wait_stuck(self, passage: Passage, handler: asyncio.Task[None]) -> None:
        """It may still kill the process: who has to be alone is not, before it has come back."""
        if passage.is_alone:
            self._suspects.discard(passage.attempt_key)
            self._gate.let_others_in()
            passage.is_alone = False
        try:
            await asyncio.wait({handler})
        finally:
            self._leave(passage)

    async def _enter(self, passage: Passage) -> None:
        await self._gate.enter()
        passage.is_inside = True

    async def _enter_alone(self, passage: Passage) -> None:
        passage.is_inside = passage.is_alone = await self._gate.enter_alone()

    def _leave(self, passage: Passage) -> None:
        if passage.is_alone:
            self._suspects.discard(passage.attempt_key)
            self._gate.leave_alone()
        elif passage.is_inside:
            self._gate.leave()
        passage.is_inside = passage.is_alone = False

    async def _carry_out(self, command: Command, passage: Passage) -> Outcome:
        for tell in self._tell_before:
            tell(command, passage)
        outcome = await self._steps[command](passage)
        for tell_of in self._tell_after:
            tell_of(command, outcome, passage)
        return outcome

    # -------------------------------------------------------- before the transaction
    async def _decode(self, passage: Passage) -> Outcome:
        try:
            if passage.delivery.refusal is not None:
                raise passage.delivery.refusal
            passage.cloudevent = cloudevents.decode(passage.delivery)
        except Refused as refusal:
            return self._refuse(passage, refusal)
        return Outcome.DONE

    async def _verify(self, passage: Passage) -> Outcome:
        assert passage.cloudevent is not None  # noqa: S101 - the table: decoded comes before
        try:
            if passage.event is None:
                passage.event = await self._authentic(passage.delivery, passage.cloudevent)
            # Each time: a handler that was undone may have changed the payload that it got.
            passage.handler = self._registry.find(passage.event.type).for_event(passage.event)
        except Refused as refusal:
            return self._refuse(passage, refusal)
        except Exception as error:  # noqa: BLE001 - the verifier's own trouble, whatever it is, says nothing about the event
            passage.failure = Failure(FailureKind.CONTENDED, "verifier-failed", type(error).__name__)
            return Outcome.FAILED
        # Where no copy can be kept it is too early rather than never.
        if passage.delivery.wait_left > 0 and self._transport.can_delay:
            passage.failure = Failure(FailureKind.EARLY, "early", after=passage.delivery.wait_left)
            return Outcome.FAILED
        return Outcome.DONE

    async def _authentic(self, delivery: Delivery, cloudevent: CloudEvent) -> Event:
        decided = verified(delivery, cloudevent, self._consumer, self._verifier, self._settings)
        if self._verifier is None:
            return await decided  # without a verifier it waits for nothing, and a time limit has its price
        with self._limits.within(self._settings.deadline):
            return await decided

    async def _prepare(self, passage: Passage) -> Outcome:
        event, handler = known(passage)
        if handler.prepare is None or passage.is_prepared:
            return Outcome.DONE
        try:
            if passage.is_noted and await self._store.knows(event.record):
                return Outcome.DONE  # the claim will find it; nothing needs to be prepared
            if not await self._note_start(passage, event):
                return Outcome.FAILED
            await self.handlers.run(
                self._call_prepare(passage, event, handler),
                name=handler.name,
                seconds=self._settings.deadline,
                patience=self._settings.cancel_patience,
            )
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything; all of it is decided upon
            return self._fail(passage, error)
        return Outcome.DONE

    async def _call_prepare(self, passage: Passage, event: Event, handler: Handler) -> None:
        assert handler.prepare is not None  # noqa: S101 - asked before
        passage.prepared = await handler.prepare(*handler.prepare_arguments(event))
        passage.is_prepared = True

    # -------------------------------------------------------- the transaction
    async def _begin(self, passage: Passage) -> Outcome:
        passage.unit_ends_at = asyncio.get_running_loop().time() + self._settings.deadline
        try:
            passage.unit = await in_time(self._limits, passage, self._store.begin(), "no connection was free in time")
        except StoreError as error:
            return self._fail(passage, error)
        return Outcome.DONE

    async def _claim(self, passage: Passage) -> Outcome:
        event, handler = known(passage)
        unit = open_unit(passage)
        try:
            claim = await in_time(self._limits, passage, unit.claim(event.record), NO_ANSWER)
        except StoreError as error:
            return self._fail(passage, error)
        if claim is Claim.NEW:
            if handler.prepare is not None and not passage.is_prepared:
                return self._fail(passage, Contended("a known event's row vanished before it could be claimed"))
            return Outcome.DONE
        passage.unit = None  # a claim that is not new has ended its transaction
        if claim is Claim.DUPLICATE:
            await self._forget_attempts(passage)
            return Outcome.DUPLICATE
        await self._close_start(passage)
        return self._refuse(passage, IdentityConflict("the id is known with other content"))

    async def _close_start(self, passage: Passage) -> None:
        """Close the start that was noted, if one was, and charge nothing."""
        if passage.event is None or not passage.start_noted:
            return
        # Best effort: left open it costs nothing unless this process dies before the event's next start, and what goes
        # to quarantine is not there before it is closed.
        with suppress(StoreError):
            passage.attempts = await self._store.end_attempt(passage.event.record.key)
            passage.start_noted = False

    async def _forget_attempts(self, passage: Passage) -> None:
        """Nothing counts against an event that was applied, not even a start that a process left open when it died."""
        if passage.event is None or not passage.is_noted:
            return
        with suppress(StoreError):  # best effort: retention takes what is left
            await self._store.forget_attempts(passage.event.record.key)
            passage.start_noted = False

    async def _start(self, passage: Passage) -> Outcome:
        event, _ = known(passage)
        try:
            if not await self._note_start(passage, event):
                return Outcome.FAILED
        except StoreError as error:
            return self._fail(passage, error)
        return Outcome.DONE

    async def _note_start(self, passage: Passage, event: Event) -> bool:
        """Write that the handler is about to run; False where it must not, or not yet.

        It must not where the process has died in it alone once more, and that was too often; a duplicate of an event
        that has ended so finds no open start, and runs. Where a process died in it or beside it, it must run alone.
        """
        key = event.record.key
        alone = passage.is_alone or self._settings.concurrency == 1
        if key in self._suspects and not alone:  # it came twice; the open start is this process's by now
            passage.failure = Failure(FailureKind.SUSPECT, "suspect", "another delivery of it waits to run alone")
            return False
        if not passage.is_noted or (passage.start_noted and passage.noted_alone is alone):
            return True
        passage.attempts = await self._store.start_attempt(key, alone=alone)
        passage.start_noted, passage.noted_alone = True, alone
        if passage.attempts.reopened and self._has_used_up(passage.attempts):
            # Who left it open may live, and be about to close it: a unit that was undone lets the next one in before.
            await asyncio.sleep(min(_GRACE, self._settings.deadline / 10))
            passage.attempts = await self._store.start_attempt(key, alone=alone)
            if self._has_used_up(passage.attempts):
                # No other delivery of it may run, and kill the process, before this one is in quarantine.
                self._suspects.add(key)
                passage.failure = Failure(
                    FailureKind.CRASHED, "crashed", f"the process died in the handler {passage.attempts.crashed} times"
                )
                return False
        if passage.attempts.suspect and not alone:
            self._suspects.add(key)
            passage.failure = Failure(FailureKind.SUSPECT, "suspect", "a process died while it ran")
            return False
        return True

    def _has_used_up(self, attempts: Attempts) -> bool:
        return attempts.charged >= self._settings.retry.max_attempts

    async def _apply(self, passage: Passage) -> Outcome:
        event, handler = known(passage)
        unit = open_unit(passage)
        left = passage.unit_ends_at - asyncio.get_running_loop().time()
        if left <= 0:  # the handler is not started, so nothing may be charged to its event
            return self._fail(passage, Contended("the database left the handler no time"))
        try:
            await self.handlers.run(
                unit.apply(handler, event, passage.prepared),
                name=handler.name,
                seconds=left,
                patience=self._settings.cancel_patience,
            )
            if passage.start_noted:
                await in_time(self._limits, passage, unit.forget(event.record.key), NO_ANSWER)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything; all of it is decided upon
            return self._fail(passage, error)
        return Outcome.DONE

    async def _commit(self, passage: Passage) -> Outcome:
        passage.committing, passage.unit = open_unit(passage), None
        try:
            await passage.committing.commit()
        except CommitUnknown:
            return Outcome.UNKNOWN
        except Torn as error:
            return self._fail(passage, error)
        return Outcome.DONE

    async def _resolve(self, passage: Passage) -> Outcome:
        event, _ = known(passage)
        assert passage.committing is not None  # noqa: S101 - the table: only COMMIT leads here
        resolution = await self._store.resolve(event.record, passage.committing)
        if resolution is Resolution.COMMITTED:
            # Whose row it is cannot be told: another delivery's unit knows nothing of this one's start.
            await self._forget_attempts(passage)
            return Outcome.DONE
        if resolution is Resolution.ABSENT:
            passage.failure = Failure(FailureKind.CONTENDED, "contended", "the commit did not take place")
            return Outcome.ABSENT
        passage.failure = Failure(FailureKind.UNRESOLVED, "commit-unresolved", "the commit may have taken place")
        return Outcome.UNRESOLVED

    async def _rollback(self, passage: Passage) -> Outcome:
        unit, passage.unit = open_unit(passage), None
        await asyncio.shield(unit.rollback())
        return Outcome.DONE

    # -------------------------------------------------------- after a failure
    async def _record(self, passage: Passage) -> Outcome:
        failure = failure_in(passage)
        try:
            await self._charge(passage, failure)
        except StoreError:
            failure = Failure(FailureKind.UNAVAILABLE, "store-unavailable", "the attempt could not be noted")
        passage.disposition = self._decided(passage, failure)
        match passage.disposition:
            case Quarantine():
                return Outcome.QUARANTINE
            case Delay():
                return Outcome.DELAY
            case Release():
                return Outcome.RELEASE
            case _:
                return Outcome.AGAIN

    def _decided(self, passage: Passage, failure: Failure) -> Disposition:
        """What the policy says, as far as the transport can do it."""
        policy = self._settings.retry
        jitter = random.random()  # noqa: S311 - jitter needs no secrecy
        event = passage.event or passage.cloudevent
        disposition = decide(event, failure, passage.attempts, tries=passage.tries, policy=policy, jitter=jitter)
        terms = self._transport.lease_terms
        if terms is not None:
            return terms.limit(disposition, failure)
        if isinstance(disposition, Delay) and not self._transport.can_delay:
            return self._held(disposition)
        return disposition

    def _held(self, delay: Delay) -> Release:
        """In hand, and then handed back: where no copy can be kept."""
        policy = self._settings.retry
        seconds = policy.hold(delay.delay)
        return Release(seconds + policy.spread(seconds, random.random()))  # noqa: S311 - as above

    async def _charge(self, passage: Passage, failure: Failure) -> None:
        """Write what this failure costs the event, and close its open start."""
        if failure.kind in UNCOUNTED:
            return
        repeats = failure.kind is FailureKind.CONTENDED and passage.tries <= self._settings.retry.immediate
        if failure.kind in FINAL or repeats:
            await self._close_start(passage)
            return
        failed = failure.kind in CHARGED
        passage.attempts = await self._store.end_attempt(
            passage.attempt_key,
            failed=failed,
            released=not failed and not self._intake.is_paused,
            error=f"{failure.reason} {failure.detail}",
        )
        passage.has_failed = passage.has_failed or failed
        passage.start_noted = False

    async def _wait(self, passage: Passage) -> Outcome:
        disposition = passage.disposition
        assert isinstance(disposition, Again | WaitForStore | Alone)  # noqa: S101 - the table: nothing else waits
        is_suspect = isinstance(disposition, Alone)
        if isinstance(disposition, Alone):
            goes_on = await self._wait_alone(passage)
        else:
            for_store = isinstance(disposition, WaitForStore)
            goes_on = await self._wait_to_repeat(passage, disposition.delay, for_store=for_store)
        if goes_on:
            passage.failure = None
            return Outcome.AGAIN
        # Handed back by a worker that lives: whoever gets it next must not take it for a crash. A suspect stays one.
        if not is_suspect:
            await self._close_start(passage)
        passage.disposition = Release(0)
        return Outcome.RELEASE

    async def _wait_alone(self, passage: Passage) -> bool:
        """Wait until no other handler runs; False as soon as the worker is stopping."""
        self._leave(passage)
        goes_on = await self._intake.unless_stopping(self._enter_alone(passage))
        if goes_on and not passage.is_inside:
            # A handler is stuck: it shows nothing, and costs nothing, to run beside it.
            self._suspects.discard(passage.attempt_key)
            await self._enter(passage)
        return goes_on

    async def _wait_to_repeat(self, passage: Passage, delay: float, *, for_store: bool) -> bool:
        """Wait for what a repetition needs; False as soon as the worker is stopping."""
        passage.tries += 1
        # What has to be alone stays so while nothing can be written: it is noted as one that runs alone, and would be
        # charged if somebody else killed the process meanwhile.
        if not (for_store and passage.is_alone):
            self._leave(passage)
        if for_store and not await self._intake.wait_for_store():
            return False
        # Also after the store: one that takes our writes and refuses the unit's would be asked without end.
        goes_on = await self._intake.wait(delay)
        if goes_on and not passage.is_inside:
            await self._enter(passage)
        return goes_on

    async def _quarantine(self, passage: Passage) -> Outcome:
        failure = failure_in(passage)
        event = passage.event or passage.cloudevent
        reason = passage.disposition.reason if isinstance(passage.disposition, Quarantine) else failure.reason
        try:
            if passage.start_noted:
                # Its closing failed before. Left open, it would be a crash's trace to whoever replays the event.
                passage.attempts = await self._store.end_attempt(passage.attempt_key)
                passage.start_noted = False
            await self._store.quarantine(passage.delivery, event, reason, failure.detail)
        except QuarantineFull as error:
            self._intake.pause(self._settings.retry.max_delay, str(error))
            passage.disposition = Release(self._settings.retry.max_delay)
            return Outcome.FAILED
        except StoreError:
            delay = self._settings.retry.backoff(passage.tries, random.random())  # noqa: S311 - as above
            if await self._wait_to_repeat(passage, delay, for_store=True):
                return Outcome.AGAIN
            passage.disposition = Release(0)
            return Outcome.FAILED
        return Outcome.DONE

    # -------------------------------------------------------- settling
    async def _delay(self, passage: Passage) -> Outcome:
        disposition = passage.disposition
        assert isinstance(disposition, Delay)  # noqa: S101 - the table: nothing else comes here
        try:
            await self._transport.delay(passage.delivery, disposition.delay, passage.attempt_key)
        except TransportError:
            passage.disposition = self._held(disposition)
            return Outcome.FAILED
        return Outcome.DONE

    async def _release(self, passage: Passage) -> Outcome:
        delay = passage.disposition.delay if isinstance(passage.disposition, Release) else 0.0
        self._intake.release_later(passage.delivery, delay)
        return Outcome.DONE

    async def _acknowledge(self, passage: Passage) -> Outcome:
        passage.is_ack_lost = not await self._transport.acknowledge(passage.delivery)
        return Outcome.DONE

    # -------------------------------------------------------- failures in words
    def _refuse(self, passage: Passage, refusal: Refused) -> Outcome:
        passage.failure = failure_of(refusal)
        return Outcome.REFUSED

    def _fail(self, passage: Passage, error: Exception) -> Outcome:
        if isinstance(error, HandlerStuck):
            passage.stuck = error.task
        passage.failure = failure_of(error, passage.handler)
        return Outcome.FAILED
