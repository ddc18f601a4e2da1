"""What of an event is a task's result over a leased subscription, and what has no place in one. Values in, values out.

The platform sends a result in a frame of its own, of which `inbox.adapters.websocket.delivery_from` makes the event
that a handler gets: its source is the subscription's, its subject the task, and it has one extension, `sequence`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from inbox.adapters.websocket.codec import STATUSES
from inbox.adapters.websocket.delivery import source_of
from inbox.core.cloudevents import encode
from inbox.core.media_types import parse_media_type
from inbox.core.proof import is_id
from inbox.errors import ConfigurationError
from inbox.testing.lab.events import DEFAULT_SOURCE, Message
from inbox.testing.orbit_server.refusal import Refusal
from inbox.testing.orbit_server.results import check_result

if TYPE_CHECKING:
    from inbox.core.event import CloudEvent

__all__ = ["result_of"]

#: A time that there may be, where an event says none.
_SOME_TIME: Final = "2030-01-01T00:00:00.000Z"
_ANY_SOURCE: Final = source_of("")


def result_of(message: Message, subscription_id: str) -> Message:
    """`message` as a subscription delivers it. Made of one that was made so, it is the same.

    Args:
        message: what was given to the lab.
        subscription_id: of the target's.

    Raises:
        ConfigurationError: it says what no platform's event says; the message names the attribute, and what to write.
    """
    event = message.event
    if event is None:
        raise ConfigurationError("this is no CloudEvent, and a platform that leases makes its events itself: give one")
    if message.exchange is not None or message.routing_key is not None:
        raise ConfigurationError("exchange, routing key: a leased subscription has neither; leave them out")
    _check_attributes(event)
    task_id = _task_of(event)
    if event.subject not in (None, task_id):
        raise ConfigurationError("subject: it is the task_id of the data; leave it out")
    made = replace(
        event,
        source=source_of(subscription_id),
        subject=task_id,
        datacontenttype="application/json",
        extensions={},
        data=_snapshot_of(event),
    )
    encoded = encode(made)
    if others := sorted({*message.headers} - {*encoded.headers, "ce-sequence"}):
        raise ConfigurationError(f"headers: the platform sends none but an event's own; leave out {', '.join(others)}")
    return Message(encoded.body, encoded.headers, encoded.content_type, made)


def _check_attributes(event: CloudEvent) -> None:
    for problem, is_there in _problems(event).items():
        if is_there:
            raise ConfigurationError(problem)


def _problems(event: CloudEvent) -> dict[str, bool]:
    return {
        # A handler is to see the id that the file says; so it must be one that the platform could have drawn.
        "id: the platform's ids are 32 small hexadecimal digits; write such a one, for example "
        f"{_example_of(event.id)}": not is_id(event.id),
        f"type: the platform's are {', '.join(STATUSES)}; write one of them": event.type not in STATUSES,
        f"source: it is the subscription's, {_ANY_SOURCE}…; write that, or {DEFAULT_SOURCE}": event.source
        != DEFAULT_SOURCE
        and not event.source.startswith(_ANY_SOURCE),
        "dataschema: the platform sends none; leave it out": event.dataschema is not None,
        "extensions: the platform sends none but sequence, and counts that itself; leave out "
        f"{', '.join(sorted(event.extensions))}": not {*event.extensions} <= {"sequence"},
        "datacontenttype: a result is JSON; write application/json, or leave it out": event.datacontenttype is not None
        and not parse_media_type(event.datacontenttype).is_json,
        f"time: the platform's is in UTC, such as {_SOME_TIME}; write it so, or leave it out": not _is_moment(event),
    }


def _example_of(given: str) -> str:
    return hashlib.sha256(given.encode()).hexdigest()[:32]


def _is_moment(event: CloudEvent) -> bool:
    if event.time_text is None:
        return event.time is None
    try:
        check_result(b'{"task_id": "%s", "status": "succeeded"}' % (b"0" * 32), "task.succeeded", event.time_text)
    except Refusal:
        return False
    return True


def _snapshot_of(event: CloudEvent) -> bytes:
    return (event.data or b"").strip(b" \t\r\n")


def _task_of(event: CloudEvent) -> str:
    """The task's id, of a snapshot that can be delivered."""
    try:
        return check_result(_snapshot_of(event), event.type, _SOME_TIME)
    except Refusal as refusal:
        raise ConfigurationError(
            f"data: {refusal.message}; write a JSON object that has among its members "
            f'"task_id": "…", 32 small hexadecimal digits, and "status": "{STATUSES[event.type]}"'
        ) from None
