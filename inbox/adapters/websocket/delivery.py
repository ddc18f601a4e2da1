"""From a task's event to a delivery of the engine's, which is a CloudEvent in binary mode."""

from __future__ import annotations

from typing import Final

from inbox.adapters.websocket.codec import TaskEvent
from inbox.core.delivery import Delivery, Origin

#: What a fingerprint covers unless a consumer says otherwise. Not the data: a platform may write the same JSON in
#: another way when it hands an event out again.
FINGERPRINT: Final = ("source", "type", "sequence")


def delivery_from(event: TaskEvent, *, generation: int = 1, receipt: object = None) -> Delivery:
    """The delivery that holds `event`; it has nothing of the proof.

    For who has an `EventConnection` or `EventConsumer` of their own: `await inbox.verify(delivery_from(event))` is the
    `Event` that `inbox.transaction` takes.

    Args:
        event: as it was received; its snapshot becomes the data, octet for octet.
        generation: number of the hand-out.
        receipt: for whoever settles it.
    """
    return Delivery(
        body=event.snapshot,
        headers={
            "ce-specversion": "1.0",
            "ce-id": event.id,
            "ce-source": source_of(event.subscription_id),
            "ce-type": event.type,
            "ce-subject": event.task_id,
            "ce-time": event.occurred_at,
            "ce-sequence": str(event.sequence),
        },
        content_type="application/json",
        properties={"generation": str(generation)},
        origin=Origin("", event.type),
        queue=source_of(event.subscription_id),
        pristine=generation == 1,
        receipt=receipt,
    )


def source_of(subscription_id: str) -> str:
    """The source of a subscription's events."""
    return f"orbit:subscription/{subscription_id}"
