"""A leased subscription with a handler of one's own, for who brings their own transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from inbox.adapters.websocket.codec import DeliveryFrame, TaskEvent
from inbox.adapters.websocket.conversation import LIMITS, Limits
from inbox.adapters.websocket.observer import Notifications, OrbitStats
from inbox.adapters.websocket.settings import Credential, EventRegistration, OrbitSettings, tls_context
from inbox.adapters.websocket.subscriber import Subscriber
from inbox.config import require
from inbox.core.facts import fact

log = logging.getLogger("inbox.orbit")

#: Returns only once the event's effect is committed, or was before.
Handle = Callable[[TaskEvent], Awaitable[object]]


class EventConsumer:
    """Hands each event to a function, and acknowledges it when that returns. Runs once.

        async def handle(event: TaskEvent) -> None:
            delivery = delivery_from(event)
            with suppress(AlreadyProcessed):
                async with inbox.transaction(await inbox.verify(delivery)) as session: ...

        consumer = EventConsumer(url, subscription_id, Credential(env("ORBIT_CREDENTIAL")), handle)
        await consumer.run()

    `OrbitTransport` does all of this for handlers of an `Inbox`; this is for who cannot use one. The function gets the
    frozen event and never the delivery's secret. It returns only after the commit, or when it has found the event
    committed before; to put the event into a queue in memory and to return is a defect. Where it does not know whether
    the commit took place it raises. Whatever it raises, nothing is acknowledged and it is not called again here: the
    platform hands the event out again when the lease has run out.

    Args:
        url, subscription_id, credential, settings, limits: see `OrbitTransport`.
        handle: the function.

    Raises:
        ConfigurationError: a setting is malformed.
    """

    def __init__(
        self,
        url: str,
        subscription_id: str,
        credential: Credential,
        handle: Handle,
        settings: OrbitSettings | None = None,
        *,
        limits: Limits = LIMITS,
    ) -> None:
        require(callable(handle), "the handler of an EventConsumer is an async function that takes the event")
        self._settings = settings or OrbitSettings()
        registration = EventRegistration(
            url, credential, subscription_id, self._settings.capacity, plaintext=self._settings.plaintext
        )
        tls = tls_context(self._settings.tls_ca) if registration.is_tls else None
        self._subscriber = Subscriber(replace(registration, tls=tls), self._settings, limits)
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_run = False

    def __repr__(self) -> str:
        return f"<EventConsumer, {self._subscriber.running} running>"

    @property
    def stats(self) -> OrbitStats:
        """Numbers since the start; no substitute for the database."""
        return self._subscriber.stats

    @property
    def notifications(self) -> Notifications:
        """What happens, for one reader; ends when the run does."""
        return self._subscriber.notifications

    async def run(self) -> None:
        """Consume until `stop`. Cancelling this stops, too.

        Raises:
            ConfigurationError: it has run before.
            SubscriptionStopped: it cannot begin, or go on; `kind` says why, and the cause what happened.
            OrbitError: the platform cannot be reached at the start.
            ShutdownTimeout: past the time for stopping something was unconfirmed, or a handler had not come back.
        """
        require(not self._has_run, "an EventConsumer runs once; make another one")
        self._has_run = True
        try:
            await self._subscriber.open()
            self._subscriber.start(self._begin)
            await self._subscriber.wait_stopped()
        finally:
            await self._finish()

    def stop(self) -> None:
        """Start no handler more, cancel those that run, confirm what was committed. May be called twice.

        The shared subscription goes on; pausing it is an affair of the management API.
        """
        self._subscriber.stop()

    async def _finish(self) -> None:
        self._subscriber.stop()
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._settings.shutdown_timeout)
        finally:  # who is cancelled once more does not wait for the handlers, but leaves no connection either
            await self._subscriber.close()

    def _begin(self, frame: DeliveryFrame) -> None:
        task = asyncio.create_task(self._call(frame.event), name="orbit handler")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, event: TaskEvent) -> None:
        try:
            await self._handle(event)
        except asyncio.CancelledError:
            self._subscriber.fail(event.id)
            raise
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything; all of it is one thing here
            self._subscriber.fail(event.id)
            told = fact("leased-handler-failed", error=type(error).__name__)
            log.warning("a handler failed (%s); its lease runs out", type(error).__name__, extra=told)
        else:
            self._subscriber.commit(event.id)
