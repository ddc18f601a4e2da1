"""What a subscription does, for whoever watches in this process: numbers, and a stream of notifications.

Neither replaces the database: both begin anew with each start, and the stream drops what nobody reads in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

#: Notifications that wait to be read.
MOST_NOTIFICATIONS: Final = 128


class Happening(Enum):
    """What happened. A failed handler is told by this word alone."""

    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    STARTED = "STARTED"
    RENEWED = "RENEWED"
    HANDLER_FAILED = "HANDLER_FAILED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    PROOF_LOST = "PROOF_LOST"


@dataclass(frozen=True, slots=True)
class Notification:
    """One thing that happened.

    Attributes:
        happening: what.
        event_id: to which event; None where it happened to the connection.
    """

    happening: Happening
    event_id: str | None = None


@dataclass(slots=True)
class OrbitStats:
    """Numbers since the start.

    Attributes:
        running: handlers that run now.
        started: handlers that were started.
        handler_failures: those that failed.
        acknowledged: receipts of the platform, those for proofs that were shown again included.
        reconnects: connections that were lost, or could not be had.
        proofs_lost: proofs that a later generation had replaced.
        dropped_events: notifications that nobody read in time.
    """

    running: int = 0
    started: int = 0
    handler_failures: int = 0
    acknowledged: int = 0
    reconnects: int = 0
    proofs_lost: int = 0
    dropped_events: int = 0


class Notifications:
    """The stream: `async for notification in …`, which ends when the run has. One reader."""

    def __init__(self) -> None:
        self._waiting: deque[Notification] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False
        self.dropped = 0

    def tell(self, notification: Notification) -> None:
        """Add one, or count it as dropped. Never waits."""
        if self._is_closed:
            return
        if len(self._waiting) >= MOST_NOTIFICATIONS:
            self.dropped += 1
            return
        self._waiting.append(notification)
        self._changed.set()

    def close(self) -> None:
        """Nothing more happens; what waits can still be read."""
        self._is_closed = True
        self._changed.set()

    def __aiter__(self) -> Notifications:
        return self

    async def __anext__(self) -> Notification:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()
