"""One consumer at work: lanes that process, an intake that can pause, a stop that drains."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from inbox.errors import StopTimeout
from inbox.runtime.batches import BatchIntake, BatchProcessor
from inbox.runtime.intake import LocalIntake
from inbox.runtime.processor import Processor
from inbox.runtime.reporting import Reporter
from inbox.runtime.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from inbox.config import ConsumerSettings
    from inbox.ports import Probe, Store, Transport, Verifier
    from inbox.runtime.registry import Registry

#: Seconds after which an opening that did not heed its cancellation is cancelled again.
_CANCEL_AGAIN = 0.5


class _Common(TypedDict):
    store: Store
    transport: Transport
    registry: Registry
    verifier: Verifier | None
    settings: ConsumerSettings
    probes: Sequence[Probe]


class Consumer:
    """Runs once: `open`, `run`, and `stop` from anywhere on the loop.

    Args:
        name: the consumer's name.
        store, transport, registry, verifier, settings, probes: see `Processor`.
        counts: ends of deliveries so far, for the reports of this worker.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        transport: Transport,
        registry: Registry,
        verifier: Verifier | None,
        settings: ConsumerSettings,
        probes: Sequence[Probe] = (),
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._transport = transport
        self._settings = settings
        retry = settings.retry
        most = 2 * settings.effective_prefetch

        def spread(waited: float) -> float:
            return retry.spread(waited, random.random())  # noqa: S311 - no secret

        batch = settings.batch
        intake: LocalIntake | BatchIntake
        if batch is None:
            intake = LocalIntake(store, transport, most, spread)
        else:
            intake = BatchIntake(store, transport, most, spread, batch=batch)
        self._intake = intake
        self._stopping = asyncio.Event()
        self._retention = Retention(store, settings.retention, settings.retention_interval)
        self._reporter = Reporter(store, self._intake, settings.report_interval, {} if counts is None else counts)
        common: _Common = {
            "store": store,
            "transport": transport,
            "registry": registry,
            "verifier": verifier,
            "settings": settings,
            "probes": probes,
        }
        self._processor: Processor
        if isinstance(intake, BatchIntake):
            self._processor = batches = BatchProcessor(name, intake=intake, **common)
            self._lane = partial(_batch_lane, intake, batches)
        else:
            self._processor = processor = Processor(name, intake=intake, **common)
            self._lane = partial(_lane, intake, processor)

    async def open(self) -> bool:
        """Connect to both sides and check them, before anything is consumed.

        Returns:
            False where `stop` was called meanwhile; everything is closed then.

        Raises:
            StartupError: with one message that names the fix.
            TransportError, StoreError: a peer cannot be reached.
        """
        opening = asyncio.create_task(self._open(), name="opening")
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        is_open = False
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                is_open = True
        finally:
            # A library that has just connected may swallow the first: asyncio.wait_for does before Python 3.12.
            while not opening.done():
                await _cancel({opening}, _CANCEL_AGAIN)
            await _cancel({opening, stopping})
            if not is_open:
                await self._close()
        return is_open

    async def _open(self) -> None:
        await self._store.open()
        await self._transport.open(prefetch=self._settings.effective_prefetch, delays=self._settings.retry.steps)

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Consume until `stop`.

        Args:
            started: called when consuming begins; what it raises ends the run.

        Raises:
            TransportError: the transport's patience ended; units in hand were finished first.
            StoreUnavailable: the patience with the database ended.
            StartupError: after a reconnect the topology is no longer what was asked for.
            StopTimeout: a handler did not come back within the shutdown's patience.
        """
        lanes = [asyncio.create_task(self._lane(), name=f"lane {n}") for n in range(self._settings.concurrency)]
        source = asyncio.create_task(self._transport.run(self._intake.take), name="transport")
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        reports = asyncio.create_task(self._reporter.run(), name="reports")
        cleaning = asyncio.create_task(self._retention.run(), name="retention")
        try:
            if started is not None:
                started()
            await asyncio.wait({source, stopping, *lanes}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cleaning.cancel()  # what is left of it is nothing that a stop should wait for
            try:
                await self._drain(lanes)
            finally:
                self._reporter.stop()
                await _cancel({source, stopping, reports, cleaning})
                await self._end()
        _raise_errors(source)

    @property
    def running_handlers(self) -> list[str]:
        """Names of the handlers that run, also of those that were given up."""
        return self._processor.handlers.names

    def stop(self) -> None:
        """Take nothing new, finish what is running, then let `run` return. May be called twice."""
        self._stopping.set()

    async def _drain(self, lanes: list[asyncio.Task[None]]) -> None:
        """Stop the intake, wait for the running units, hand back what was not begun.

        Raises:
            StopTimeout: some lanes had to be cancelled, and their handlers did not come back.
            Exception: a lane had failed by a defect of ours.
        """
        try:
            await self._transport.stop()  # first, or what is handed back would come again
            self._intake.stop()
            if self._transport.lease_terms is not None:
                # Soon somebody else has these events; what is not done by then is done in vain.
                self._processor.handlers.stop()
            await asyncio.wait(lanes, timeout=self._settings.shutdown_patience)
            await self._intake.wait_released()
        finally:
            self._intake.stop()
            await _cancel(lanes, self._settings.cancel_patience)
        if self.running_handlers:
            raise StopTimeout(self.running_handlers)
        _raise_errors(*lanes)

    async def _end(self) -> None:
        try:
            await self._reporter.end()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await self._transport.close()
        finally:
            await self._store.close()


async def _lane(intake: LocalIntake, processor: Processor) -> None:
    while (delivery := await intake.next()) is not None:
        await processor.process(delivery)


async def _batch_lane(intake: BatchIntake, processor: BatchProcessor) -> None:
    while ways := await intake.next_batch():
        try:
            await processor.process_together(ways)
        finally:
            intake.done()


async def _cancel(tasks: Collection[asyncio.Task[Any]], patience: float | None = None) -> None:
    """Cancel what has not ended, and wait for that, not longer than `patience`. Whatever they raise is not told."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=patience)
    for task in done:
        if not task.cancelled():
            task.exception()


def _raise_errors(*tasks: asyncio.Task[Any]) -> None:
    """Raise the first error of tasks that have ended by one."""
    errors = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    for error in errors:
        if error is not None:
            raise error
