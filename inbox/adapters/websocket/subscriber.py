"""Keeps a leased subscription going over as many connections as it takes.

It hands deliveries to a callback and is told what became of them; acknowledging, the same proof on the next connection
after a lost reply, heartbeats and reconnecting are its own affair. What it knows of events is in `Leases`, which
outlives the connections; a process that is killed loses it, and the inbox rows decide.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final

from inbox.adapters.websocket.backoff import Backoff
from inbox.adapters.websocket.codec import DeliveryFrame
from inbox.adapters.websocket.connection import EventConnection, new_message_id
from inbox.adapters.websocket.conversation import LIMITS, Limits
from inbox.adapters.websocket.errors import (
    OrbitError,
    OrbitProtocolError,
    ProofLost,
    ShutdownTimeout,
    SubscriptionRefused,
    SubscriptionStopped,
)
from inbox.adapters.websocket.observer import Happening, Notification, Notifications, OrbitStats
from inbox.adapters.websocket.settings import EventRegistration, OrbitSettings
from inbox.core.facts import fact
from inbox.core.lease import LeaseFact, Leases, LeaseState, Offer

log = logging.getLogger("inbox.orbit")

#: Takes one delivery whose handler is to be started. Must not block.
Start = Callable[[DeliveryFrame], None]

#: What of an event may not change from one hand-out to the next. Not the snapshot's octets: a platform may write the
#: same JSON in another way.
_CONTENT: Final = ("type", "sequence")


class Subscriber:
    """One subscription of one process, from `open` to `close`. Runs once.

    Args:
        registration: what its connections are for; the settings' capacity is used.
        settings: delays and times.
        limits: the protocol's own times; shorter ones are for tests.

    Attributes:
        notifications: what happens, for one reader.
    """

    def __init__(self, registration: EventRegistration, settings: OrbitSettings, limits: Limits = LIMITS) -> None:
        self._registration = registration
        self._settings = settings
        self._limits = limits
        self._leases = Leases(registration.capacity)
        self._backoff = Backoff(settings.reconnect_min_delay, settings.reconnect_max_delay)
        self._stats = OrbitStats()
        self._connection: EventConnection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._start: Start | None = None
        self._changed = asyncio.Event()  # something is to be acknowledged
        self._stopping = asyncio.Event()
        self._finishing = asyncio.Event()  # nothing more will be committed
        self._ended = asyncio.Event()
        self._failure: SubscriptionStopped | None = None
        self._is_failure_told = False
        self._is_paused = False
        self._stopped_at: float | None = None
        self.notifications = Notifications()

    @property
    def stats(self) -> OrbitStats:
        """Numbers since the start."""
        return replace(self._stats, running=self._leases.running, dropped_events=self.notifications.dropped)

    @property
    def unconfirmed(self) -> int:
        """Events that are known here and not confirmed."""
        return len(self._leases)

    @property
    def running(self) -> int:
        """Events whose handler has not come back."""
        return self._leases.running

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._connection is not None and self._connection.error is None

    @property
    def lease_seconds(self) -> int | None:
        """How long a lease lasts, as the platform says; None while there is no connection."""
        return None if self._connection is None else self._connection.welcome.lease_seconds

    @property
    def has_failed(self) -> bool:
        """Whether it cannot go on."""
        return self._failure is not None

    # ------------------------------------------------------------------ its life
    async def open(self) -> None:
        """Connect once; hands out nothing before `start`.

        Raises:
            SubscriptionRefused: it cannot begin, and trying again cannot help; `kind` says why.
            OrbitError: the platform cannot be reached at present.
        """
        try:
            await self._dial()
        except OrbitError as error:
            if error.kind is None:
                raise
            raise SubscriptionRefused(error.kind) from error
        self._keeper = asyncio.create_task(self._keep(), name="orbit subscription")

    def start(self, start: Start) -> None:
        """Hand out deliveries, those that wait already first."""
        self._start = start
        self._look_again()

    async def wait_stopped(self) -> None:
        """Return as soon as `stop` is called.

        Raises:
            SubscriptionStopped: it cannot go on; `kind` says why.
        """
        stopping, ended = (asyncio.ensure_future(event.wait()) for event in (self._stopping, self._ended))
        try:
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            ended.cancel()
        if self._failure is not None:
            self._is_failure_told = True
            raise self._failure
        if self._keeper is not None and self._keeper.done():
            self._keeper.result()  # a defect of ours must not look like a stop

    def stop(self) -> None:
        """Start no handler more; what runs may still be settled. May be called twice."""
        if not self._stopping.is_set():
            self._stopped_at = asyncio.get_running_loop().time()
            self._stopping.set()
            self._look_again()

    async def close(self, *, handlers: tuple[str, ...] = ()) -> None:
        """Confirm what was committed, within what is left of the time for stopping; then close. May be called twice.

        Args:
            handlers: names of those that have not come back, for the message.

        Raises:
            ShutdownTimeout: the time is over.
            SubscriptionStopped: it could not go on, and that was not told yet; `kind` says why.
        """
        self.stop()
        keeper, self._keeper = self._keeper, None
        try:
            if keeper is not None:
                await self._finish(keeper)
        finally:
            if keeper is not None:
                keeper.cancel()
                await asyncio.wait({keeper})
            await self._hang_up()
            self.notifications.close()
        if keeper is not None:
            self._tell_what_is_left(keeper, handlers)

    def _tell_what_is_left(self, keeper: asyncio.Task[None], handlers: tuple[str, ...]) -> None:
        if not keeper.cancelled():
            keeper.result()  # a defect of ours must not look like an end
        if self._failure is not None:
            if not self._is_failure_told and self.unconfirmed:
                raise self._failure
        elif self.unconfirmed and self._time_left() <= 0:
            raise ShutdownTimeout(self.unconfirmed, self.running, handlers)

    async def _finish(self, keeper: asyncio.Task[None]) -> None:
        self._finishing.set()
        self._changed.set()
        await asyncio.wait({keeper}, timeout=max(self._time_left(), 0))

    def _time_left(self) -> float:
        assert self._stopped_at is not None  # noqa: S101 - stopped before
        return self._stopped_at + self._settings.shutdown_timeout - asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ what became of a delivery
    def commit(self, event_id: str) -> bool:
        """What its handler did is committed, or was before: acknowledge it. False where nobody waits for that."""
        is_known = self._leases.apply(event_id)
        if is_known:
            self._changed.set()
        return is_known

    def fail(self, event_id: str) -> bool:
        """Its handler has failed: nothing is sent, and the lease runs out. False where nobody waits for that."""
        is_known = self._leases.fail(event_id)
        if is_known:
            self._stats.handler_failures += 1
            self._tell(Happening.HANDLER_FAILED, event_id)
            self._look_again()
        return is_known

    # ------------------------------------------------------------------ connections
    async def _keep(self) -> None:
        """Serve connections, one after the other, until all is done or nothing more can be."""
        try:
            while not self._is_done:
                error = await self._serve_one()
                if error is None or self._is_done:
                    return
                if error.kind is not None:
                    self._failure = SubscriptionStopped(error.kind)
                    self._failure.__cause__ = error
                    return
                self._stats.reconnects += 1
                delay = self._backoff.next(random.random())  # noqa: S311 - jitter needs no secrecy
                told = fact("subscription-awaited", error=type(error).__name__)
                log.warning("%s; connecting again", error, extra=told)
                await self._unless_done(asyncio.sleep(delay))
        finally:
            self._ended.set()

    @property
    def _is_done(self) -> bool:
        return self._finishing.is_set() and self._leases.to_confirm == 0

    async def _serve_one(self) -> OrbitError | None:
        """Serve one connection to its end; why it ended, None where all is done."""
        try:
            if self._connection is None:
                await self._unless_done(self._dial())
            return None if self._connection is None else await self._serve(self._connection)
        except OrbitError as error:
            return error
        finally:
            await self._hang_up()

    async def _dial(self) -> None:
        self._connection = await EventConnection.dial(self._registration, limits=self._limits)
        log.info("subscription connected", extra=fact("subscription-connected"))
        self._tell(Happening.CONNECTED)
        self._note_enabled(is_enabled=self._connection.welcome.enabled)

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
            self._leases.end_report(LeaseFact.LINK_LOST)
            self._tell(Happening.DISCONNECTED)

    async def _serve(self, connection: EventConnection) -> OrbitError | None:
        work = [
            asyncio.create_task(step(connection), name=f"orbit {step.__name__}")
            for step in (self._read, self._report, self._beat)
        ]
        closed = asyncio.create_task(connection.wait_closed(), name="orbit closed")
        try:
            await asyncio.wait({*work, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*work, closed):
                task.cancel()
            await asyncio.wait({*work, closed})
        errors = [task.exception() for task in work if not task.cancelled()]
        for error in errors:
            if error is not None and not isinstance(error, OrbitError):
                raise error  # a defect of ours
        # What broke the protocol here is told before what it did to the connection.
        found = [error for error in errors if isinstance(error, OrbitError)]
        return (
            next((error for error in found if error.kind is not None), None)
            or connection.error
            or next(iter(found), None)
        )

    async def _read(self, connection: EventConnection) -> None:
        while True:
            frame = await connection.next(self._is_wanted)
            self._take(frame)

    async def _report(self, connection: EventConnection) -> None:
        """Acknowledge, one after the other; return when all is done."""
        while not self._is_done:
            proof = self._leases.next_report()
            if proof is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await connection.ack(new_message_id(), proof)
            except ProofLost:
                self._note_lost(proof.event_id)
            else:
                self._leases.end_report(LeaseFact.RECEIPT)
                self._backoff.reset()
                self._stats.acknowledged += 1
                self._tell(Happening.ACKNOWLEDGED, proof.event_id)
            self._look_again()

    async def _beat(self, connection: EventConnection) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat)
            self._note_enabled(is_enabled=await connection.ping(new_message_id()))

    # ------------------------------------------------------------------ deliveries
    def _is_wanted(self, frame: DeliveryFrame) -> bool:
        """Whether it can be taken now: a later hand-out of what is held needs no room, and a stop drops the rest."""
        if frame.event.id in self._leases or self._stopping.is_set():
            return True
        return self._start is not None and self._leases.has_room

    def _take(self, frame: DeliveryFrame) -> None:
        if frame.event.id not in self._leases and (self._stopping.is_set() or self._start is None):
            return  # it stays with the platform
        offer = self._leases.offer(frame.proof, tuple(getattr(frame.event, name) for name in _CONTENT))
        if offer is Offer.CONTRADICTED:
            raise OrbitProtocolError("two hand-outs of one event contradict each other")
        if offer is Offer.RENEWED:
            self._tell(Happening.RENEWED, frame.event.id)
        if offer is Offer.STARTED:
            assert self._start is not None  # noqa: S101 - asked above
            self._stats.started += 1
            self._tell(Happening.STARTED, frame.event.id)
            self._start(frame)

    def _note_lost(self, event_id: str) -> None:
        state = self._leases.end_report(LeaseFact.PROOF_LOST)
        self._stats.proofs_lost += 1
        self._tell(Happening.PROOF_LOST, event_id)
        told = fact("proof-lost", shows_newer=state is LeaseState.COMMITTED)
        log.info("a proof was replaced by a later generation", extra=told)

    def _note_enabled(self, *, is_enabled: bool) -> None:
        if is_enabled is not self._is_paused:
            return
        self._is_paused = not is_enabled
        self._tell(Happening.PAUSED if self._is_paused else Happening.RESUMED)
        word = "paused" if self._is_paused else "enabled"
        log.warning("the subscription is %s", word, extra=fact("subscription-switched", state=word))

    def _look_again(self) -> None:
        """There may be room, or another wish: what is unread is looked at again."""
        if self._connection is not None:
            self._connection.look_again()

    def _tell(self, happening: Happening, event_id: str | None = None) -> None:
        self.notifications.tell(Notification(happening, event_id))

    async def _unless_done(self, work: Coroutine[object, object, None]) -> None:
        """Do `work`, and give it up as soon as nothing is left to be confirmed and nothing more will be."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done() and not self._is_done:
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if not task.cancelled():
            task.result()
