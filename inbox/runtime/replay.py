"""A replay: open entries of the quarantine go through the whole pipeline again, verification included.

The quarantine stands where a transport does, so that nothing else knows of a replay. An entry is closed after its unit
is committed, in batches; whatever dies between the two is replayed once more, and then it is a duplicate.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from inbox.core.facts import fact
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryPolicy
from inbox.core.quarantine import QuarantineState, ReplayReport, Selection, portions
from inbox.errors import StoreError, TransportError
from inbox.runtime.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from inbox.config import ConsumerSettings
    from inbox.core.delivery import Delivery
    from inbox.core.quarantine import QuarantineCursor, QuarantinedDelivery, QuarantineEntry
    from inbox.ports import Passage, Probe, QuarantineDesk, Sink, Store, Verifier
    from inbox.runtime.registry import Registry

log = logging.getLogger("inbox")

T = TypeVar("T")

#: One run for each entry: it had its attempts, and what fails once more goes back at once, with its reason. What is
#: contended is tried again soon, for nobody else gets it; then it stays as it was.
_RETRY: Final = RetryPolicy(max_attempts=1, first_delay=0.5, max_delay=2.0)

#: Entries of one page, without their bodies.
_PAGE: Final = 200
#: Entries and octets that are read whole at once.
_PORTION: Final = 100
_PORTION_OCTETS: Final = 8 << 20

#: Entries that are closed together, and seconds after which fewer are.
_MARKS: Final = 100
_MARK_EVERY: Final = 0.2
#: Seconds between two tries while the database does not answer, and tries at the end.
_AGAIN: Final = 0.5
_LAST_TRIES: Final = 3


class ReplaySource:
    """Open entries of the quarantine, as a `inbox.ports.Transport`.

    Acknowledging one closes it, unless it was refused again since it was read: then it is open with its new reason.
    Handing one back leaves it as it was, and it does not come again.

    Args:
        desk: the quarantine.
        selection: which entries; only open ones, and none that came after the start.
        limit: most entries; None takes all.
        told: called when something has ended, every now and then.

    Attributes:
        selected: entries that were there at the start.
        handed_out: entries that were handed out so far, or could not be.
        has_ended: everything that was selected has been handed out.
    """

    def __init__(self, desk: QuarantineDesk, selection: Selection, limit: int | None, told: Callable[[], None]) -> None:
        self._desk = desk
        self._selection = replace(selection, states=(QuarantineState.OPEN,))
        self._limit = limit
        self._told = told
        self._prefetch = 1
        self._in_hand: dict[Delivery, QuarantineEntry] = {}
        self._marks: list[QuarantineEntry] = []
        self._are_many = asyncio.Event()
        self._settled = asyncio.Event()
        self._stopping = asyncio.Event()
        self.selected = 0
        self.handed_out = 0
        self.has_ended = False

    def describe(self) -> dict[str, str]:
        """See `inbox.ports.Transport.describe`."""
        return {"source": "the open entries of the quarantine"}

    @property
    def can_delay(self) -> bool:
        """It keeps no copies: an entry is the copy."""
        return False

    @property
    def lease_terms(self) -> None:
        """See `inbox.ports.Transport.lease_terms`: whatever it came over, an entry is the store's own."""

    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """See `inbox.ports.Transport.open`. The store must be open."""
        self._prefetch = prefetch
        now = await self._desk.now()
        until = now if self._selection.until is None else min(now, self._selection.until)
        self._selection = replace(self._selection, until=until)
        there = sum(count.entries for count in await self._desk.count(self._selection))
        self.selected = there if self._limit is None else min(there, self._limit)

    async def run(self, sink: Sink) -> None:
        """Hand everything out, and return when all of it is settled; or as soon as it is stopped."""
        closing = asyncio.create_task(self._close_entries(), name="closing entries")
        try:
            await self._hand_out(sink)
            while self._in_hand and not self._stopping.is_set():
                await self._wait_settled()
        finally:
            closing.cancel()
            await asyncio.wait({closing})

    async def stop(self) -> None:
        """See `inbox.ports.Transport.stop`."""
        self._stopping.set()
        self._settled.set()

    async def close(self) -> None:
        """Close the entries that wait for it. What cannot be closed is a duplicate in the next replay."""
        await self.stop()
        for _ in range(_LAST_TRIES):
            if await self._mark():
                return
        told = fact("replay-unmarked", entries=len(self._marks))
        log.warning(
            "%d entries were replayed and could not be marked so: replay them again, it does no harm",
            len(self._marks),
            extra=told,
        )
        self._marks.clear()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """See `inbox.ports.Transport.acknowledge`."""
        entry = self._settle(delivery)
        if entry is None:
            return False
        self._marks.append(entry)
        if len(self._marks) >= _MARKS:
            self._are_many.set()
        return True

    async def release(self, delivery: Delivery) -> bool:
        """See `inbox.ports.Transport.release`: the entry stays as it is."""
        return self._settle(delivery) is not None

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """See `inbox.ports.Transport.delay`."""
        raise TransportError("the quarantine keeps no copies")

    def _settle(self, delivery: Delivery) -> QuarantineEntry | None:
        self._settled.set()
        return self._in_hand.pop(delivery, None)

    # ------------------------------------------------------------ handing out
    async def _hand_out(self, sink: Sink) -> None:
        after: QuarantineCursor | None = None
        while not self._stopping.is_set():
            page = await self._next_page(after)
            if not page:
                self.has_ended = not self._stopping.is_set()
                return
            after = page[-1].cursor
            for found in self._portions(page):
                await self._hand_out_portion(found, sink)

    async def _next_page(self, after: QuarantineCursor | None) -> Sequence[QuarantineEntry]:
        left = _PAGE if self._limit is None else min(_PAGE, self._limit - self.handed_out)
        if left <= 0:
            return []
        return await self._answered(lambda: self._desk.list(self._selection, after=after, limit=left)) or []

    def _portions(self, page: Sequence[QuarantineEntry]) -> Iterator[list[QuarantineEntry]]:
        return portions(page, min(_PORTION, self._prefetch), _PORTION_OCTETS)

    async def _hand_out_portion(self, entries: list[QuarantineEntry], sink: Sink) -> None:
        # Read when there is room for the first of them: bodies must not pile up here.
        await self._wait_room()
        found = await self._answered(lambda: self._desk.get([entry.digest for entry in entries]))
        if found is None:
            return
        self._pass_over(entries, found)
        for each in found:
            await self._wait_room()
            if self._stopping.is_set():
                return
            if each.entry.state is not QuarantineState.OPEN:
                continue  # somebody else has decided meanwhile
            self.handed_out += 1
            self._in_hand[each.delivery] = each.entry
            sink(each.delivery)

    def _pass_over(self, entries: list[QuarantineEntry], found: Sequence[QuarantinedDelivery]) -> None:
        missing = len(entries) - len(found)
        if missing:
            self.handed_out += missing
            told = fact("replay-gap", entries=missing)
            log.warning("%d entries of the quarantine are gone, or cannot be read by this version", missing, extra=told)

    async def _wait_room(self) -> None:
        while len(self._in_hand) >= self._prefetch and not self._stopping.is_set():
            await self._wait_settled()

    async def _wait_settled(self) -> None:
        self._settled.clear()
        await self._settled.wait()

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The database's answer, however often it has to be asked; None once it is stopped."""
        while not self._stopping.is_set():
            try:
                return await ask()
            except StoreError as error:
                told = fact("replay-awaits-database", error=type(error).__name__)
                log.warning("the quarantine cannot be read: %s; trying again", error, extra=told)
                await _wait(self._stopping, _AGAIN)
        return None

    # ------------------------------------------------------------ closing
    async def _close_entries(self) -> None:
        while True:
            await _wait(self._are_many, _MARK_EVERY)
            if not await self._mark():
                await asyncio.sleep(_AGAIN)
            self._told()

    async def _mark(self) -> bool:
        """Close what waits for it; False where the database did not answer."""
        marks = [*self._marks]
        self._are_many.clear()
        try:
            if marks:
                await self._desk.mark_replayed(marks)
        except StoreError as error:
            told = fact("replay-mark-delayed", error=type(error).__name__)
            log.warning("replayed entries cannot be marked yet: %s", error, extra=told)
            return False
        # Not before: cancelled in the middle, they are marked at the end.
        del self._marks[: len(marks)]
        return True


class ReplayCounts:
    """A probe that counts the ends of a replay."""

    _ENDS: Final = {
        (Command.COMMIT, Outcome.DONE): "applied",
        (Command.RESOLVE, Outcome.DONE): "applied",
        (Command.CLAIM, Outcome.DUPLICATE): "duplicates",
        (Command.QUARANTINE, Outcome.DONE): "quarantined_again",
    }

    def __init__(self) -> None:
        self.report = ReplayReport()

    def before(self, command: Command, passage: Passage) -> None:
        """Nothing to see yet."""

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Count the end of an entry."""
        end = self._ENDS.get((command, outcome))
        if end is None:
            return
        if end == "applied" and passage.handler is not None and passage.handler.ignores:
            end = "ignored"
        self.report = replace(self.report, **{end: getattr(self.report, end) + 1})


class Replay:
    """One replay: `run` it once, and `stop` it from anywhere on the loop.

    Args:
        name: the consumer's name.
        store: one of its own, not open.
        registry, verifier, settings, probes: those of the `Inbox`; of the settings all but retries and the chores of a
            worker.
        selection: which entries.
        limit: most entries; None takes all.
        progress: told what has become of them so far, every now and then and at the end.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        registry: Registry,
        verifier: Verifier | None,
        settings: ConsumerSettings,
        probes: Sequence[Probe],
        selection: Selection,
        limit: int | None = None,
        progress: Callable[[ReplayReport], None] | None = None,
    ) -> None:
        self._progress = progress
        self._is_stopping = False
        self._counts = ReplayCounts()
        self._source = ReplaySource(store.desk, selection, limit, self._tell)
        self._consumer = Consumer(
            name,
            store=store,
            transport=self._source,
            registry=registry,
            verifier=verifier,
            settings=replace(settings, retry=_RETRY, retention=None, report_interval=None),
            probes=[*probes, self._counts],
        )

    async def run(self) -> ReplayReport:
        """Replay until everything is through, or `stop`.

        Raises:
            StartupError: with one message that names the fix; nothing was replayed.
            StoreError: the database cannot be reached, or the patience with it ended.
            StopTimeout: a handler did not come back within the shutdown's patience.
        """
        if not self._is_stopping and await self._consumer.open():
            await self._consumer.run()
        self._tell()
        return self.report

    def stop(self) -> None:
        """Hand out nothing more, finish what is running, then let `run` return. May be called twice."""
        self._is_stopping = True
        self._consumer.stop()

    @property
    def running_handlers(self) -> list[str]:
        """Names of the handlers that run."""
        return self._consumer.running_handlers

    @property
    def report(self) -> ReplayReport:
        """What has become of the entries so far. Those that somebody else closed meanwhile are not counted."""
        source, report = self._source, self._counts.report
        selected = source.handed_out if source.has_ended else max(source.selected, source.handed_out)
        return replace(report, selected=selected, kept=max(selected - report.settled, 0))

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.report)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, but not longer."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
