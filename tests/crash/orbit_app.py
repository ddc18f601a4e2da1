"""The application that is killed, over a leased subscription: what a result says happens to its handler."""

import os
import signal
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.crashpoints import CrashPoint, When
from inbox.core.event import Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryPolicy
from inbox.ports import Passage
from tests.crash import app

SETTINGS = ConsumerSettings(
    concurrency=4,
    deadline=20,
    retry=RetryPolicy(max_attempts=6, first_delay=0.02, max_delay=0.1, immediate=1),
)


class Stopped:
    """Stops its own process, once, at one point: it goes on when it is told to, as if no time had passed."""

    def __init__(self, point: CrashPoint) -> None:
        self._point = point
        self._has_stopped = False

    def before(self, command: Command, passage: Passage) -> None:
        self._at(When.BEFORE, command)

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self._at(When.AFTER, command)

    def _at(self, when: When, command: Command) -> None:
        if (when, command) == (self._point.when, self._point.command) and not self._has_stopped:
            self._has_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)


def transport_to(url: str, subscription: str, credential: str, unit_deadline: float = 20.0) -> OrbitTransport:
    settings = OrbitSettings(
        capacity=8,
        shutdown_timeout=20,
        reconnect_min_delay=0.02,
        reconnect_max_delay=0.1,
        unit_deadline=unit_deadline,
        quarantine="rejected",
    )
    return OrbitTransport(url, subscription, Credential(credential), settings)


def make(database_url: str, url: str, subscription: str, credential: str, *more: object) -> Inbox:
    """By database, platform, subscription, credential; and for a zombie its point and a unit's seconds."""
    stopped_at, unit_deadline = more or (None, 20.0)
    assert isinstance(unit_deadline, float)
    inbox = Inbox(
        app.CONSUMER,
        store=MySQL(database_url, DatabaseSettings(lock_wait=1)),
        transport=transport_to(url, subscription, credential, unit_deadline),
        settings=SETTINGS,
    )
    ledger = app.Ledger(database_url)

    @inbox.handler("task.succeeded")
    async def take(event: Event, session: AsyncSession) -> None:
        fault: Callable[[Event, AsyncSession], object] = getattr(ledger, event.json()["fault"])
        if fault == ledger.apply:
            ledger.count_run(event)
        await fault(event, session)  # type: ignore[misc] # each of them is a coroutine function

    if stopped_at is not None:
        inbox.add_probe(Stopped(CrashPoint.parse(str(stopped_at))))
    return inbox
