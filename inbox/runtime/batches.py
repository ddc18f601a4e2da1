"""Group commit: what is waiting is handled in one transaction, and by itself whenever anything is not as it should be.

A batch goes through the table of `inbox.core.lifecycle` like each of its deliveries, in step. Where it is undone, each
goes on through the same table by itself, and nobody is charged for a neighbour: what fails will fail alone again. Only
what the database undid on its own account, such as a dead-lock between two batches, is tried together once more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from inbox.core.batching import firsts_of, grouped
from inbox.core.lifecycle import Command, Lifecycle, Outcome, State
from inbox.core.records import Claim, Resolution
from inbox.errors import CommitUnknown, Contended, IdentityConflict, Torn
from inbox.runtime.failures import failure_of
from inbox.runtime.handling import HandlerStuck, in_own_context
from inbox.runtime.intake import LocalIntake
from inbox.runtime.passage import Passage, in_time, known
from inbox.runtime.processor import NO_ANSWER, Intake, Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from inbox.config import ConsumerSettings
    from inbox.core.batching import Batch
    from inbox.core.delivery import Delivery
    from inbox.ports import Probe, Store, Transport, UnitOfWork, Verifier
    from inbox.runtime.registry import Registry

#: How often a batch is tried from which known events were taken, or which a server undid; more of them come only with
#: racing workers.
_TRIES = 3
#: Seconds within which a server finds a dead-lock, and within which no wait for a lock ends.
_SOON = 1.0
#: Where a delivery may stand that is about to be claimed; in the second, others of its batch were known.
_READY = (State.PREPARED, State.BEGUN)


@dataclass(slots=True, eq=False)
class Way:
    """One delivery's way through the table, alone or in step with others.

    Attributes:
        is_between: a command of it is being carried out: the probes were told of its begin, and not of its end.
    """

    passage: Passage
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    is_between: bool = False

    @property
    def key(self) -> bytes:
        """The event's identity, once it is verified."""
        return known(self.passage)[0].record.key


class BatchIntake(LocalIntake):
    """Hands out several deliveries at once: what is waiting, and what comes within the wait while others are at work.

    Args:
        store, transport, most, spread: see `LocalIntake`.
        batch: how many, and how long.
    """

    def __init__(
        self, store: Store, transport: Transport, most: int, spread: Callable[[float], float], *, batch: Batch
    ) -> None:
        super().__init__(store, transport, most, spread)
        self._batch = batch
        self._singly: deque[Way] = deque()
        self._at_work = 0
        self._turn = asyncio.Lock()  # one lane gathers at a time, or two would share what makes one batch
        self._stirred = asyncio.Event()

    async def next_batch(self) -> list[Way]:
        """One way or several; none once the worker is stopping. One is to go by itself. `done` says when it has ended.

        What hints at an earlier hand-out goes by itself: a process may have died of it.
        """
        async with self._turn:
            gathered = await self._gathered()
        self._at_work += bool(gathered)
        return gathered

    def done(self) -> None:
        """One of those handed out has ended, or has gone back."""
        self._at_work -= 1
        self._stirred.set()

    def take_singly(self, ways: Iterable[Way]) -> None:
        """Take back what is to go on by itself."""
        for way in ways:
            if self.stopping.is_set():
                self.release_later(way.passage.delivery, 0)
            else:
                self._keep_single(way)
        self._stirred.set()

    def _keep_single(self, way: Way) -> None:
        self._singly.append(way)
        if len(self._singly) > self._most:
            self._singly.popleft()  # it came over a link that is gone: see `_put`

    def stop(self) -> None:
        """See `LocalIntake.stop`."""
        super().stop()
        ways, self._singly = self._singly, deque()
        self.take_singly(ways)

    async def _gathered(self) -> list[Way]:
        loop = asyncio.get_running_loop()
        found: list[Way] = []
        ends: float | None = None
        while not self.stopping.is_set():
            self._stirred.clear()
            if self._open.is_set():
                self._draw(found)
                if not found and self._singly:
                    return [self._singly.popleft()]
            if found:
                ends = loop.time() + self._batch.wait_ms / 1000 if ends is None else ends
                if len(found) >= self._batch.max or not self._at_work or loop.time() >= ends:
                    return found
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ends):
                    await self._stirred.wait()
        for way in found:
            self.release_later(way.passage.delivery, 0)
        return []

    def _draw(self, found: list[Way]) -> None:
        """Move what is waiting to `found`, and what has to go by itself to the others of that kind."""
        while len(found) < self._batch.max and not self._queue.empty():
            delivery = self._queue.get_nowait()
            if delivery is None:  # it says that the worker is stopping, which is known here
                continue
            way = Way(Passage(delivery))
            if delivery.pristine:
                found.append(way)
            else:
                self._keep_single(way)

    def _put(self, delivery: Delivery) -> None:
        super()._put(delivery)
        self._stirred.set()

    def _reopen(self, why: str) -> None:
        super()._reopen(why)
        self._stirred.set()


class _Joint:
    """What has one transaction.

    Args:
        everyone: all of them.

    Attributes:
        ways: the first of each id, whose events are claimed and handled.
        further: the others, each beside its first.
        unit: the transaction, while there is something to undo.
    """

    def __init__(self, everyone: list[Way]) -> None:
        self.everyone = everyone
        self.ways, self.further = firsts_of(everyone, lambda way: way.key)
        self.unit: UnitOfWork | None = None

    @property
    def open_unit(self) -> UnitOfWork:
        """The unit, for steps inside it."""
        assert self.unit is not None  # noqa: S101 - it was begun before
        return self.unit


class SingleIntake(Intake, Protocol):
    """What the processor of batches needs from whoever feeds it."""

    def take_singly(self, ways: Iterable[Way]) -> None:
        """Take back what is to go on by itself."""
        ...


class BatchProcessor(Processor):
    """Takes deliveries through their lifecycle, several in one transaction. See `Processor`."""

    def __init__(
        self,
        consumer: str,
        *,
        store: Store,
        transport: Transport,
        registry: Registry,
        verifier: Verifier | None,
        settings: ConsumerSettings,
        intake: SingleIntake,
        probes: Sequence[Probe] = (),
    ) -> None:
        super().__init__(
            consumer,
            store=store,
            transport=transport,
            registry=registry,
            verifier=verifier,
            settings=settings,
            intake=intake,
            probes=probes,
        )
        self._singles = intake

    async def process_together(self, ways: Sequence[Way]) -> None:
        """Take `ways` to acknowledgement in one transaction, or give them to the intake, to go on by themselves.

        One way alone goes to its end by itself.

        Raises:
            asyncio.CancelledError, StoreUnavailable: as `process`.
        """
        if len(ways) == 1:
            await self.finish(ways[0].passage, ways[0].lifecycle)
            return
        await self._gate.enter()
        try:
            ready, stuck = [*ways], None
            for _ in range(_TRIES):
                ready = [way for way in ready if await self._is_ready(way)]
                if len(ready) > 1 or _begun(ready):
                    ready, stuck = await self._try(_Joint(ready))
            await self._undo_ways(_begun(ready), None)  # by itself each begins a transaction of its own
            self._singles.take_singly(ready)
            if stuck is not None:
                await asyncio.wait({stuck})  # the slot stays taken, as with `process`
        finally:
            self._gate.leave()

    async def _is_ready(self, way: Way) -> bool:
        """Whether it may join the batch: verified, in no trouble, and with nothing to be prepared."""
        while way.lifecycle.state in (State.RECEIVED, State.DECODED):
            await self._step(way)
        if way.lifecycle.state is State.VERIFIED:
            _, handler = known(way.passage)
            if handler.prepare is None and way.key not in self._suspects:
                await self._step(way)
        is_ready = way.lifecycle.state in _READY
        if not is_ready:
            self._singles.take_singly([way])
        return is_ready

    async def _step(self, way: Way) -> Outcome:
        """Carry out what comes next for one."""
        assert way.lifecycle.command is not None  # noqa: S101 - asked before
        outcome = await self._carry_out(way.lifecycle.command, way.passage)
        way.lifecycle.advance(outcome)
        return outcome

    # -------------------------------------------------------- the transaction
    async def _try(self, joint: _Joint) -> tuple[list[Way], asyncio.Task[None] | None]:
        """One transaction for all.

        Returns:
            Which of them to try again, for known ones were among them, or a server undid it; and a handler that did
            not come back.
        """
        try:
            try:
                again = await self._claim_all(joint)
                if joint.unit is None:
                    return again, None
                await self._apply_all(joint)
            except Exception as error:  # noqa: BLE001 - whatever a handler or the store raises is judged where each runs alone
                await self._undo(joint)
                if self._is_worth_another(joint, error):
                    return joint.everyone, None
                self._singles.take_singly(joint.everyone)
                return [], error.task if isinstance(error, HandlerStuck) else None
            await self._commit_all(joint)
        finally:
            if joint.unit is not None:
                unit, joint.unit = joint.unit, None
                await asyncio.shield(unit.rollback())
        return [], None

    def _is_worth_another(self, joint: _Joint, error: Exception) -> bool:
        """Whether what was undone is to be tried together again: a server did it, and at once, as with a dead-lock.

        Who waited for a lock in vain would wait again, with all the others.
        """
        begun = joint.ways[0].passage.unit_ends_at - self._settings.deadline
        is_soon = asyncio.get_running_loop().time() - begun < _SOON
        return is_soon and isinstance(error, Contended) and error.code is not None

    async def _claim_all(self, joint: _Joint) -> list[Way]:
        """Begin and claim. Without a unit afterwards, known ones were found and have been settled; the rest is told.

        Raises:
            StoreError: nothing was claimed.
        """
        first = joint.ways[0].passage
        ends_at = asyncio.get_running_loop().time() + self._settings.deadline
        for way in joint.everyone:
            way.passage.unit_ends_at = ends_at
        fresh = [way for way in joint.everyone if way.lifecycle.state is State.PREPARED]
        self._before(Command.BEGIN, fresh)
        joint.unit = await in_time(self._limits, first, self._store.begin(), "no connection was free in time")
        self._after(Command.BEGIN, Outcome.DONE, fresh)
        self._before(Command.CLAIM, joint.ways)
        records = [known(way.passage)[0].record for way in joint.ways]
        claims = await in_time(self._limits, first, joint.unit.claim_all(records), NO_ANSWER)
        if all(claim is Claim.NEW for claim in claims):
            self._after(Command.CLAIM, Outcome.DONE, joint.ways)
            return []
        joint.unit = None  # claims that are not all new have ended their transaction
        again = [way for way, _ in joint.further]
        for way, claim in zip(joint.ways, claims, strict=True):
            if claim is Claim.NEW:
                again.append(way)
            else:
                await self._settle_known(way, is_conflict=claim is Claim.CONFLICT)
        return again

    async def _settle_known(self, way: Way, *, is_conflict: bool) -> None:
        """A committed row has its id: acknowledge it as a duplicate; in a conflict it goes on by itself."""
        if not is_conflict:
            self._after(Command.CLAIM, Outcome.DUPLICATE, [way])
            await self._step(way)
            return
        way.passage.failure = failure_of(IdentityConflict("the id is known with other content"))
        self._after(Command.CLAIM, Outcome.REFUSED, [way])
        self._singles.take_singly([way])

    async def _apply_all(self, joint: _Joint) -> None:
        """Run the handlers in turn.

        Raises:
            Exception: any reason to undo the batch.
        """
        for way in joint.ways:
            if await self._step(way) is not Outcome.DONE:
                raise Contended("an event of the batch is to run alone")
        first = joint.ways[0].passage
        left = first.unit_ends_at - asyncio.get_running_loop().time()
        if left <= 0:
            raise Contended("the database left the handlers no time")
        await self.handlers.run(
            self._call_handlers(joint, joint.open_unit),
            name=known(first)[1].name,
            seconds=left,
            patience=self._settings.cancel_patience,
        )

    async def _call_handlers(self, joint: _Joint, unit: UnitOfWork) -> None:
        """One after the other in this task, for one of its own for each would be a tenth of what an event costs.

        Raises:
            Exception: any reason to undo the batch.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - it runs in one
        for group in grouped(joint.ways, _list_handler):
            events = [known(way.passage)[0] for way in group]
            _, handler = known(group[0].passage)
            task.set_name(handler.name)
            self._before(Command.APPLY, group)
            await in_own_context(unit.apply(handler.for_events(events), events[0], None))
            if joint.unit is None:  # it was given up, and has come back
                raise Contended("the batch was undone")
            self._after(Command.APPLY, Outcome.DONE, group)

    async def _commit_all(self, joint: _Joint) -> None:
        """Commit, and acknowledge each."""
        unit, joint.unit = joint.open_unit, None
        self._before(Command.COMMIT, joint.ways)
        try:
            await unit.commit()
        except CommitUnknown:
            self._after(Command.COMMIT, Outcome.UNKNOWN, joint.ways)
            await self._resolve_all(joint.ways, unit)
        except Torn as error:
            # The rows may be there without the effects: to go on as if nothing had happened would lose these events.
            for way in joint.ways:
                way.passage.failure = failure_of(error, way.passage.handler)
            self._after(Command.COMMIT, Outcome.FAILED, joint.ways)
            self._singles.take_singly(joint.ways)
        else:
            self._after(Command.COMMIT, Outcome.DONE, joint.ways)
        for way in joint.ways:
            if way.lifecycle.state is State.COMMITTED:
                await self._step(way)
        for way, first in joint.further:
            if first.lifecycle.state is not State.ACKNOWLEDGED:
                await self._undo_ways([way], None)
                self._singles.take_singly([way])
                continue
            (event, _), (kept, _) = known(way.passage), known(first.passage)
            self._before(Command.CLAIM, [way])
            is_conflict = event.record.contradicts(kept.record.fingerprint, kept.record.scheme)
            await self._settle_known(way, is_conflict=is_conflict)

    async def _resolve_all(self, ways: Sequence[Way], unit: UnitOfWork) -> None:
        """Ask for each row what became of the commit: one that is there may be acknowledged, whoever wrote it.

        From the first one on that is not there, or cannot be asked for, all go on by themselves: their own claims tell.
        """
        outcomes = {Resolution.COMMITTED: Outcome.DONE, Resolution.ABSENT: Outcome.ABSENT}
        outcome = Outcome.DONE
        for way in ways:
            self._before(Command.RESOLVE, [way])
            if outcome is Outcome.DONE:
                event, _ = known(way.passage)
                outcome = outcomes.get(await self._store.resolve(event.record, unit), Outcome.UNRESOLVED)
            self._after(Command.RESOLVE, outcome, [way])
        undone = [way for way in ways if way.lifecycle.state is State.UNDONE]
        self._go_on(undone)
        self._singles.take_singly(undone)

    # -------------------------------------------------------- undoing
    async def _undo(self, joint: _Joint) -> None:
        """Roll back, at nobody's cost."""
        unit, joint.unit = joint.unit, None
        await self._undo_ways(joint.everyone, unit)

    async def _undo_ways(self, ways: Sequence[Way], unit: UnitOfWork | None) -> None:
        for way in ways:
            if way.lifecycle.state is not State.BROKEN:
                if way.is_between and way.lifecycle.command is not None:
                    self._end_step(way.lifecycle.command, Outcome.FAILED, way)
                way.lifecycle.advance(Outcome.FAILED)
        broken = [way for way in ways if way.lifecycle.state is State.BROKEN]
        self._before(Command.ROLLBACK, broken)
        if unit is not None:
            await asyncio.shield(unit.rollback())
        self._after(Command.ROLLBACK, Outcome.DONE, broken)
        self._go_on(ways)

    def _go_on(self, ways: Sequence[Way]) -> None:
        """What was undone is decided without the policy: nothing is charged, and it is repeated at once."""
        for way in ways:
            way.passage.failure = None
        for command in (Command.RECORD, Command.WAIT):
            self._before(command, ways)
            self._after(command, Outcome.AGAIN, ways)

    # -------------------------------------------------------- in step
    def _before(self, command: Command, ways: Iterable[Way]) -> None:
        for way in ways:
            way.is_between = True
            for tell in self._tell_before:
                tell(command, way.passage)

    def _after(self, command: Command, outcome: Outcome, ways: Iterable[Way]) -> None:
        for way in ways:
            self._end_step(command, outcome, way)
            way.lifecycle.advance(outcome)

    def _end_step(self, command: Command, outcome: Outcome, way: Way) -> None:
        way.is_between = False
        for tell in self._tell_after:
            tell(command, outcome, way.passage)


def _begun(ways: Iterable[Way]) -> list[Way]:
    """Those whose transaction found known ones and is over: what they claim next is claimed in another one."""
    return [way for way in ways if way.lifecycle.state is State.BEGUN]


def _list_handler(way: Way) -> str | None:
    """The name of a handler that takes a list; None for one that takes one event."""
    _, handler = known(way.passage)
    return handler.name if handler.takes_list else None
