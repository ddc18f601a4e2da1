"""The one way from an untrusted delivery to an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbox.core.event import Event
from inbox.core.records import record_of

if TYPE_CHECKING:
    from inbox.config import ConsumerSettings
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.ports import Verifier


async def verified(
    delivery: Delivery,
    cloudevent: CloudEvent,
    consumer: str,
    verifier: Verifier | None,
    settings: ConsumerSettings,
) -> Event:
    """The event that `delivery` holds, once its authenticity is decided.

    Raises:
        Refused: not authentic, or with an id that cannot be stored.
        Exception: whatever kept the verifier from deciding.
    """
    record = record_of(consumer, cloudevent, settings.identity, settings.fingerprint)
    if verifier is not None:
        await verifier.verify(delivery, cloudevent)
    return Event(cloudevent, record, delivery.origin)
