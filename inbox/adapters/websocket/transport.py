"""A leased subscription as a transport: the same engine, handlers and tables as over a broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inbox.adapters.websocket.conversation import LIMITS, Limits
from inbox.adapters.websocket.delivery import FINGERPRINT, delivery_from
from inbox.adapters.websocket.observer import Notifications, OrbitStats
from inbox.adapters.websocket.settings import Credential, EventRegistration, OrbitSettings, tls_context
from inbox.adapters.websocket.subscriber import Subscriber
from inbox.config import require
from inbox.core.facts import fact
from inbox.core.lease import LeaseTerms
from inbox.errors import TransportError

if TYPE_CHECKING:
    from inbox.adapters.websocket.codec import DeliveryFrame
    from inbox.core.delivery import Delivery
    from inbox.ports import Sink


log = logging.getLogger("inbox.orbit")


@dataclass(frozen=True, slots=True, eq=False)
class _Receipt:
    """One hand-over to the engine. The proof is not here: it may be replaced by a newer one while the handler runs."""

    event_id: str


class OrbitTransport:
    """A leased subscription as a `inbox.ports.Transport`. Runs once.

        transport = OrbitTransport(url, subscription_id, Credential(env("ORBIT_CREDENTIAL")))
        inbox = Inbox("billing", store=MySQL(database_url), transport=transport)

    `task.needs_review` is a type of its own, neither success nor failure: register a handler for it.

    Args:
        url: `wss://host/path` of the platform's event connections.
        subscription_id: 32 lower-case hexadecimal digits; made beforehand with the management API.
        credential: the one that made it.
        settings: everything else.
        limits: the protocol's own times; shorter ones are for tests.

    Raises:
        ConfigurationError: a setting is malformed.
    """

    def __init__(
        self,
        url: str,
        subscription_id: str,
        credential: Credential,
        settings: OrbitSettings | None = None,
        *,
        limits: Limits = LIMITS,
    ) -> None:
        self.settings = settings or OrbitSettings()
        self._registration = EventRegistration(
            url, credential, subscription_id, self.settings.capacity, plaintext=self.settings.plaintext
        )
        self._limits = limits
        self._subscriber: Subscriber | None = None
        self._is_closed = False
        self._in_hand: dict[str, _Receipt] = {}

    def __repr__(self) -> str:
        return f"<OrbitTransport {self._registration.subscription_id} at {self._registration.place}>"

    def describe(self) -> dict[str, str]:
        """Platform and subscription, a few words each, without the credential."""
        registration = self._registration
        return {
            "platform": f"{registration.place}{', TLS' if registration.is_tls else ''}",
            "subscription": f"{registration.subscription_id}, {self.settings.capacity} at once",
            "failures": f"the platform's budget decides; quarantined here: {self.settings.quarantine}",
        }

    @property
    def can_delay(self) -> bool:
        """It keeps no copies: what is not acknowledged comes again when its lease has run out."""
        return False

    @property
    def lease_terms(self) -> LeaseTerms:
        """See `inbox.ports.Transport.lease_terms`."""
        return LeaseTerms(
            unit_deadline=self.settings.unit_deadline,
            shutdown_timeout=self.settings.shutdown_timeout,
            quarantines=self.settings.quarantine,
            fingerprint=FINGERPRINT,
        )

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that has not been found lost."""
        return self._subscriber is not None and self._subscriber.is_connected

    @property
    def stats(self) -> OrbitStats:
        """Numbers since the start; no substitute for the database."""
        return OrbitStats() if self._subscriber is None else self._subscriber.stats

    def notifications(self) -> Notifications:
        """What happens, for one reader; ends when the run does.

        Raises:
            TransportError: it was not opened.
        """
        if self._subscriber is None:
            raise TransportError("the subscription is not open")
        return self._subscriber.notifications

    # ------------------------------------------------------------------ the port
    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """Connect and register.

        Args:
            prefetch: most deliveries in hand at once; the settings' capacity, if that is less.
            delays: not heeded: no copies are kept.

        Raises:
            ConfigurationError: it was opened before; the certificates cannot be read.
            SubscriptionRefused: it cannot begin; `kind` says why.
            TransportError: the platform cannot be reached.
        """
        require(self._subscriber is None, "an OrbitTransport runs once; make another one")
        registration = replace(
            self._registration,
            capacity=min(self.settings.capacity, prefetch),
            tls=tls_context(self.settings.tls_ca) if self._registration.is_tls else None,
        )
        self._subscriber = Subscriber(registration, self.settings, self._limits)
        await self._subscriber.open()
        lease = self._subscriber.lease_seconds
        if lease is not None and self.settings.unit_deadline >= lease:
            told = fact("lease-short", lease=lease, unit_deadline=self.settings.unit_deadline)
            log.warning(
                "a lease lasts %d s, and a unit may take as long: events come again meanwhile", lease, extra=told
            )

    async def run(self, sink: Sink) -> None:
        """Consume into `sink` until `stop`, over as many connections as it takes.

        Raises:
            SubscriptionStopped: it cannot go on; `kind` says why.
        """
        subscriber = self._subscriber
        if subscriber is None:
            raise TransportError("the subscription is not open")

        def start(frame: DeliveryFrame) -> None:
            receipt = self._in_hand[frame.event.id] = _Receipt(frame.event.id)
            sink(delivery_from(frame.event, generation=frame.delivery.generation, receipt=receipt))

        subscriber.start(start)
        await subscriber.wait_stopped()

    async def stop(self) -> None:
        """Take no more deliveries; those in hand can still be settled. The shared subscription goes on."""
        if self._subscriber is not None:
            self._subscriber.stop()

    async def close(self) -> None:
        """Have confirmed what was acknowledged, over another connection if it takes one; then close.

        May be called twice, and after a failed `open`.

        Raises:
            ShutdownTimeout: the time for stopping is over; `unconfirmed` and `running` say what was left.
            SubscriptionStopped: it could not go on while it stopped, and something is not confirmed.
        """
        self._is_closed = True
        if self._subscriber is not None:
            await self._subscriber.close()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Have the newest proof of the event shown to the platform, and again until it is confirmed; ends at once.

        Returns:
            False where it was settled before, or nothing can be shown any more: then it comes again.
        """
        subscriber = self._settled(delivery)
        return subscriber is not None and subscriber.commit(_receipt_of(delivery).event_id)

    async def release(self, delivery: Delivery) -> bool:
        """Send nothing: its lease runs out, and the platform hands it out again; returns as `acknowledge` does."""
        subscriber = self._settled(delivery)
        return subscriber is not None and subscriber.fail(_receipt_of(delivery).event_id)

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """Not possible.

        Raises:
            TransportError: always.
        """
        raise TransportError("a leased subscription keeps no copies")

    def _settled(self, delivery: Delivery) -> Subscriber | None:
        """Who is to be told; None where nobody is, any more."""
        receipt = _receipt_of(delivery)
        subscriber = self._subscriber
        if self._in_hand.get(receipt.event_id) is not receipt:
            return None
        del self._in_hand[receipt.event_id]
        if subscriber is None or self._is_closed:
            return None
        if subscriber.has_failed:
            subscriber.fail(receipt.event_id)
            return None
        return subscriber


def _receipt_of(delivery: Delivery) -> _Receipt:
    if not isinstance(delivery.receipt, _Receipt):
        raise TypeError("this delivery did not come over a leased subscription")
    return delivery.receipt
