"""Events that a platform leases over a WebSocket: the subscription protocol `orbit.events.v1`.

`OrbitTransport` is the transport; `EventConsumer` serves those who have a transaction of their own, `EventConnection`
those who want every step in their own hands. Proofs that are to be stored are sealed by `ProofSeal`.
"""

try:
    import websockets  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ImportError("inbox.adapters.websocket needs websockets: pip install 'idempotent-inbox[orbit]'") from error

from inbox.adapters.websocket.codec import TaskEvent
from inbox.adapters.websocket.connection import EventConnection, new_message_id
from inbox.adapters.websocket.consumer import EventConsumer
from inbox.adapters.websocket.delivery import delivery_from
from inbox.adapters.websocket.errors import (
    OrbitError,
    OrbitProtocolError,
    ProofLost,
    ShutdownTimeout,
    StopKind,
    SubscriptionRefused,
    SubscriptionStopped,
)
from inbox.adapters.websocket.observer import Happening, Notification, OrbitStats
from inbox.adapters.websocket.sealing import ProofSeal, SealBroken, SealingKey
from inbox.adapters.websocket.settings import Credential, EventRegistration, OrbitSettings, tls_context
from inbox.adapters.websocket.transport import OrbitTransport

__all__ = [
    "Credential",
    "EventConnection",
    "EventConsumer",
    "EventRegistration",
    "Happening",
    "Notification",
    "OrbitError",
    "OrbitProtocolError",
    "OrbitSettings",
    "OrbitStats",
    "OrbitTransport",
    "ProofLost",
    "ProofSeal",
    "SealBroken",
    "SealingKey",
    "ShutdownTimeout",
    "StopKind",
    "SubscriptionRefused",
    "SubscriptionStopped",
    "TaskEvent",
    "delivery_from",
    "new_message_id",
    "tls_context",
]
