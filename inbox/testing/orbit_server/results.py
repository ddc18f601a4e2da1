"""A task's result: the event that it is delivered as, and whether one can be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from inbox.adapters.websocket.codec import STATUSES, DeliveryFrame, ErrorCode, Grant, TaskEvent, encode
from inbox.adapters.websocket.errors import OrbitProtocolError
from inbox.core.proof import Secret
from inbox.testing.orbit_server.refusal import Refusal, demand
from inbox.testing.orbit_server.rules import LAST_GENERATION

if TYPE_CHECKING:
    from inbox.testing.orbit_server.store import DeliveryRow

__all__ = ["check_result", "event_of"]

_NOBODY: Final = "0" * 32
#: As long as every other one.
_NO_SECRET: Final = Secret("A" * 43)


def event_of(row: DeliveryRow) -> TaskEvent:
    """What is delivered of a row."""
    return TaskEvent(
        *(row.event_id, row.type, row.subscription, row.sequence, row.occurred_at),
        *(row.snapshot, row.task_id, STATUSES[row.type]),
    )


def check_result(snapshot: bytes, event_type: str, occurred_at: str) -> str:
    """Refuse what cannot be delivered as an event of that type: the frame is written once, for nobody.

    Args:
        snapshot: JSON object, without space around it.
        event_type: such as `task.succeeded`.
        occurred_at: RFC 3339 in UTC.

    Returns:
        The task's id.

    Raises:
        Refusal: PROTOCOL: the snapshot is none, does not fit the type, or is too long for a frame; the time is none.
    """
    demand(event_type in STATUSES, f"type: one of {', '.join(STATUSES)}")
    try:
        said = json.loads(snapshot, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        raise Refusal(ErrorCode.PROTOCOL, "the snapshot is not JSON") from None
    task_id = said.get("task_id") if isinstance(said, dict) else None
    if not isinstance(task_id, str):
        raise Refusal(ErrorCode.PROTOCOL, "the snapshot is not an object with a task_id")
    event = TaskEvent(
        *(_NOBODY, event_type, _NOBODY, LAST_GENERATION, occurred_at),
        *(snapshot, task_id, STATUSES[event_type]),
    )
    try:
        encode(DeliveryFrame(_NOBODY, Grant(_NOBODY, _NOBODY, LAST_GENERATION, _NO_SECRET), event))
    except OrbitProtocolError as error:
        raise Refusal(ErrorCode.PROTOCOL, f"it cannot be delivered: {error.reason}") from None
    return task_id
