"""A worker deletes, now and then, what its consumer keeps no longer."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from inbox.core.facts import fact
from inbox.errors import InboxError

if TYPE_CHECKING:
    from inbox.core.retention import Pruned
    from inbox.ports import Store

log = logging.getLogger("inbox")

#: Rows that one statement deletes: a few milliseconds' worth.
BATCH = 500
#: Seconds of rest after each, at least: nobody waits for the end of this.
PAUSE = 0.05
#: Share of the interval after which to ask again where another clean-up was at work: it may be another consumer's.
_ASK_AGAIN = 0.1


class Retention:
    """Clean-ups of one worker process; runs until it is cancelled.

    Args:
        store: whose rows.
        window: seconds for which rows are kept; None keeps all.
        interval: seconds between two clean-ups.
    """

    def __init__(self, store: Store, window: float | None, interval: float) -> None:
        self._store = store
        self._window = window
        self._interval = interval

    async def run(self) -> None:
        """Clean up after a random part of the interval, so that workers do it in turn, and then once in each.

        Whatever goes wrong is logged in one line: no event must suffer for it.
        """
        if self._window is None:
            return
        pause = self._interval * random.random()  # noqa: S311 - no secret
        while True:
            await asyncio.sleep(pause)
            pause = self._interval * await self._clean_up(self._window)

    async def _clean_up(self, window: float) -> float:
        """Clean up once; the share of the interval to wait afterwards."""
        try:
            done = await self._store.prune(window, batch=BATCH, pause=PAUSE, progress=_go_on)
        except Exception as error:  # noqa: BLE001 - as above; only our own texts hold nothing of a peer's
            what = str(error) if isinstance(error, InboxError) else type(error).__name__
            told = fact("clean-up-failed", error=type(error).__name__)
            log.warning("old rows could not be deleted, which is tried again: %s", what, extra=told)
            return 1.0
        if done.is_skipped:
            return _ASK_AGAIN
        if done.rows:
            log.info(
                "old rows deleted: inbox=%d attempts=%d quarantine=%d workers=%d; kept for the quarantine: %d",
                *(done.inbox, done.attempts, done.quarantine, done.workers, done.kept),
                extra=fact(
                    "cleaned-up",
                    inbox=done.inbox,
                    attempts=done.attempts,
                    quarantine=done.quarantine,
                    workers=done.workers,
                    kept=done.kept,
                ),
            )
        return 1.0


def _go_on(_: Pruned) -> bool:
    return True
