"""A worker tells, every few seconds, that it lives and what it did: for `inbox status` and whoever else looks.

Nothing depends on a report. One that cannot be written is dropped, for the next one says all of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING

from inbox.core.facts import fact
from inbox.core.figures import CONSUMING, PAUSED, STOPPED, WorkerReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.ports import Store
    from inbox.runtime.intake import LocalIntake

log = logging.getLogger("inbox")

#: Seconds that one report may take. Given up, it frees the connection that attempts and quarantine go over.
_PATIENCE = 5.0
#: Seconds that a stopping worker gives its last one.
_LAST_PATIENCE = 1.0


class Reporter:
    """Reports of one worker process; runs until it is cancelled.

    Args:
        store: where they go.
        intake: asked whether deliveries are started at present.
        interval: seconds between two reports; None makes none.
        counts: ends of deliveries so far, by outcome.

    Attributes:
        failures: reports that could not be written.
    """

    def __init__(self, store: Store, intake: LocalIntake, interval: float | None, counts: Mapping[str, int]) -> None:
        self._store = store
        self._intake = intake
        self._interval = interval
        self._counts = counts
        self._worker_id = secrets.token_bytes(16)
        self._host = socket.gethostname()
        self._is_stopping = False
        self.failures = 0

    async def run(self) -> None:
        """Report now, whenever intake pauses or resumes, and otherwise once in an interval. Raises nothing."""
        while self._interval is not None and not self._is_stopping:
            self._intake.changed.clear()
            why = self._intake.why_paused
            await self._report(CONSUMING if why is None else f"{PAUSED}: {why}", _PATIENCE)
            waiting = asyncio.ensure_future(self._intake.changed.wait())
            try:
                await asyncio.wait({waiting}, timeout=self._interval)
            finally:
                waiting.cancel()

    def stop(self) -> None:
        """Make no more reports of work. Before `run` is cancelled: a driver that is just connecting may answer that
        with an error of its own, which is taken for a report that failed.
        """
        self._is_stopping = True
        self._intake.changed.set()

    async def end(self) -> None:
        """Say that the worker has stopped; takes a second at most, and raises nothing. After `run` was cancelled."""
        if self._interval is not None:
            await self._report(STOPPED, _LAST_PATIENCE)

    async def _report(self, state: str, patience: float) -> None:
        report = WorkerReport(self._worker_id, self._host, os.getpid(), state, dict(self._counts))
        try:
            async with asyncio.timeout(patience):
                await self._store.report(report)
        except Exception as error:  # noqa: BLE001 - whatever it is, no event must suffer for a report
            self.failures += 1
            if self.failures == 1:
                name = type(error).__name__
                told = fact("report-failed", error=name)
                log.debug("a report of this worker could not be written (%s)", name, extra=told)
