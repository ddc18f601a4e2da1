"""Frames for the tests of the leased subscription: one that is right of each kind, and many that are not."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from inbox.adapters.websocket.codec import DeliveryFrame, Grant, TaskEvent
from inbox.core.proof import Secret

SUBSCRIPTION, SESSION, DELIVERY, EVENT, TASK, MESSAGE = (
    "50" * 16,
    "5e" * 16,
    "de" * 16,
    "e0" * 16,
    "7a" * 16,
    "ab" * 16,
)
SECRET = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWUtMDAwMDA"
SNAPSHOT = (
    b'{"task_id":"%s", "status" : "succeeded","amount":9007199254740993,"note":"private \xc3\xa9"}' % TASK.encode()
)

Made = Callable[..., dict[str, Any]]


def welcome(**changes: object) -> dict[str, Any]:
    return {
        "type": "welcome",
        "reply_to": MESSAGE,
        "session_id": SESSION,
        "subscription_id": SUBSCRIPTION,
        "capacity": 4,
        "enabled": True,
        "lease_seconds": 30,
    } | changes


def delivery(generation: int = 3, event_id: str = EVENT, **changes: object) -> dict[str, Any]:
    return {
        "type": "delivery",
        "session_id": SESSION,
        "delivery": {"id": DELIVERY, "event_id": event_id, "generation": str(generation), "secret": SECRET},
        "event": {
            "id": event_id,
            "type": "task.succeeded",
            "subscription_id": SUBSCRIPTION,
            "sequence": "17",
            "occurred_at": "2026-01-02T03:04:05.678Z",
            "snapshot": {"task_id": TASK, "status": "succeeded", "note": "private"},
        },
    } | changes


def receipt(**changes: object) -> dict[str, Any]:
    return {
        "type": "ack_receipt",
        "session_id": SESSION,
        "reply_to": MESSAGE,
        "delivery_id": DELIVERY,
        "event_id": EVENT,
        "generation": "3",
    } | changes


def pong(**changes: object) -> dict[str, Any]:
    return {"type": "pong", "session_id": SESSION, "reply_to": MESSAGE, "enabled": True} | changes


def error(**changes: object) -> dict[str, Any]:
    return {
        "type": "error",
        "session_id": SESSION,
        "reply_to": MESSAGE,
        "code": "UNAVAILABLE",
        "message": f"remote text {SECRET}",
    } | changes


def register(**changes: object) -> dict[str, Any]:
    return {"type": "register", "message_id": MESSAGE, "subscription_id": SUBSCRIPTION, "capacity": 4} | changes


def ack(**changes: object) -> dict[str, Any]:
    return {
        "type": "ack",
        "session_id": SESSION,
        "message_id": MESSAGE,
        "delivery_id": DELIVERY,
        "generation": "3",
        "secret": SECRET,
    } | changes


def ping(**changes: object) -> dict[str, Any]:
    return {"type": "ping", "session_id": SESSION, "message_id": MESSAGE} | changes


SERVER_FRAMES: dict[str, Made] = {
    "welcome": welcome,
    "delivery": delivery,
    "ack_receipt": receipt,
    "pong": pong,
    "error": error,
}
CLIENT_FRAMES: dict[str, Made] = {"register": register, "ack": ack, "ping": ping}


def frame_of(generation: int = 3, event_id: str = EVENT, **changes: object) -> DeliveryFrame:
    """A delivery as a value."""
    event: dict[str, Any] = {
        "id": event_id,
        "type": "task.succeeded",
        "subscription_id": SUBSCRIPTION,
        "sequence": 17,
        "occurred_at": "2026-01-02T03:04:05.678Z",
        "snapshot": SNAPSHOT,
        "task_id": TASK,
        "status": "succeeded",
    } | changes
    return DeliveryFrame(SESSION, Grant(DELIVERY, event_id, generation, Secret(SECRET)), TaskEvent(**event))


def text(frame: Mapping[str, Any]) -> str:
    return json.dumps(frame)


def within(frame: dict[str, Any], path: str, value: object) -> str:
    """The frame with another value at `path`, such as `event.id`."""
    copy = json.loads(json.dumps(frame))
    *parents, name = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner[parent]
    inner[name] = value
    return json.dumps(copy)


def without(frame: dict[str, Any], path: str) -> str:
    copy = json.loads(json.dumps(frame))
    *parents, name = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner[parent]
    del inner[name]
    return json.dumps(copy)


def renamed(frame: dict[str, Any], path: str, name: str) -> str:
    copy = json.loads(json.dumps(frame))
    *parents, old = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner[parent]
    inner[name] = inner.pop(old)
    return json.dumps(copy)


def _paths(frame: Mapping[str, Any]) -> list[str]:
    """Every member that a frame must have."""
    found = [name for name in frame if name != "type"]
    for outer in ("delivery", "event"):
        inner = frame.get(outer)
        if isinstance(inner, Mapping):
            found += [f"{outer}.{name}" for name in inner]
    if "event" in frame:
        found += ["event.snapshot.task_id", "event.snapshot.status"]
    return found


def _odd_values(receipt_text: str, delivery_text: str) -> dict[str, str | bytes]:
    """Frames that are wrong in a way of their own."""
    long = json.dumps(pong())
    return {
        "nothing": "",
        "space": "  \n",
        "no JSON": "hello",
        "a half": receipt_text[: len(receipt_text) // 2],
        "without its end": receipt_text[:-1],
        "with something behind": receipt_text + "x",
        "two at once": receipt_text + receipt_text,
        "two with a line between": receipt_text + "\n" + receipt_text,
        "a list": f"[{receipt_text}]",
        "a text": json.dumps(receipt_text),
        "a number": "1",
        "null": "null",
        "true": "true",
        "an empty object": "{}",
        "a byte-order mark": "\ufeff" + receipt_text,
        "a binary frame": receipt_text.encode(),
        "an empty binary frame": b"",
        "a comma too many": receipt_text[:-1] + ",}",
        "a comment": receipt_text[:-1] + "/**/}",
        "single quotes": receipt_text.replace('"', "'"),
        "a NUL behind": receipt_text + "\0",
        "a line break in a text": receipt_text.replace(EVENT, EVENT[:-1] + "\n"),
        "NaN": within(pong(), "enabled", float("nan")),
        "Infinity": within(welcome(), "capacity", float("inf")),
        "a form feed as space": receipt_text.replace(" ", "\f"),
        "nested without end": "[" * 200_000,
        "objects without end": '{"type":' * 50_000,
        "a snapshot nested without end": delivery_text.replace('"private"', "[" * 100_000 + "]" * 100_000),
        "no type": without(receipt(), "type"),
        "a type that is no text": text(receipt(type=1)),
        "a type that is null": text(receipt(type=None)),
        "an unknown type": text(receipt(type="acknowledged")),
        "a type in capitals": text(receipt(type="ACK_RECEIPT")),
        "a type with a space": text(receipt(type="ack_receipt ")),
        "an empty type": text(receipt(type="")),
        "a type twice": receipt_text[:-1] + ',"type":"ack_receipt"}',
        "a member twice": receipt_text[:-1] + f',"event_id":"{EVENT}"}}',
        "a member twice, once escaped": receipt_text[:-1] + f',"event\\u005fid":"{EVENT}"}}',
        "a member twice in the delivery": delivery_text.replace('"generation"', '"generation": "3", "generation"'),
        "a member twice in the event": delivery_text.replace('"sequence"', '"sequence": "17", "sequence"'),
        "a member twice in the snapshot": delivery_text.replace('"note"', '"note": 1, "note"'),
        "a member twice deep in the snapshot": delivery_text.replace('"private"', '[{"a":{"b":1,"b":2}}]'),
        "one octet too long": long + " " * (512 * 1024 - len(long) + 1),
        "too long by its octets": long[:-1] + " " * 400_000 + '"\u20ac":"' + "\u20ac" * 50_000 + '"}',
        "a digit of another script": receipt_text.replace('"3"', '"\u0663"'),
        "another event than the delivery's": within(delivery(), "event.id", "ff" * 16),
        "a status of another type": within(delivery(), "event.snapshot.status", "failed"),
        "a type of another status": within(delivery(), "event.type", "task.needs_review"),
        "a review taken for a success": within(_review(), "event.snapshot.status", "succeeded"),
        "an unknown type of event": within(delivery(), "event.type", "task.lost"),
        "a time without zone": within(delivery(), "event.occurred_at", "2026-01-02T03:04:05"),
        "a time with an offset": within(delivery(), "event.occurred_at", "2026-01-02T03:04:05+02:00"),
        "a day that is not": within(delivery(), "event.occurred_at", "2026-02-30T03:04:05Z"),
        "an hour that is not": within(delivery(), "event.occurred_at", "2026-01-02T24:00:00Z"),
        "a time as a number": within(delivery(), "event.occurred_at", 1767323045),
        "a snapshot that is a text": within(delivery(), "event.snapshot", json.dumps({"task_id": TASK})),
        "a snapshot that is a list": within(delivery(), "event.snapshot", []),
        "a snapshot that is null": within(delivery(), "event.snapshot", None),
        "a delivery that is a list": within(delivery(), "delivery", []),
        "an event that is a text": within(delivery(), "event", "event"),
        "an unknown code": text(error(code="GONE")),
        "a code in small letters": text(error(code="busy")),
        "an error without words": text(error(message=None)),
    }


def _review() -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(within(delivery(), "event.type", "task.needs_review"))
    return frame


_IDS = ("reply_to", "session_id", "subscription_id", "delivery_id", "event_id", "task_id", "id")
_WRONG: dict[str, list[object]] = {
    "id": [EVENT.upper(), EVENT[:-1], EVENT + "0", "", "g" * 32, 5, None, [EVENT], " " + EVENT, EVENT + "\n"],
    "number": [
        "",
        "03",
        "+3",
        "-3",
        "3.0",
        "3e0",
        " 3",
        "3 ",
        "0x3",
        "three",
        3,
        3.0,
        None,
        True,
        str(2**64),
        "9" * 99,
    ],
    "secret": [
        "",
        SECRET[:-1],
        SECRET + "A",
        SECRET + "=",
        SECRET[:-1] + "B",
        SECRET[:-1] + "+",
        SECRET[:-1] + "/",
        5,
        None,
    ],
    "capacity": [0, 33, -1, 4.0, "4", None, True, 10**30],
    "boolean": [0, 1, "true", None, []],
    "seconds": [0, -30, 30.5, "30", None, True, 2**64],
}


def _form_of(path: str) -> str | None:
    name = path.rpartition(".")[2]
    if name in _IDS:
        return "id"
    named = {"generation": "number", "sequence": "number", "enabled": "boolean", "lease_seconds": "seconds"}
    return named.get(name, name if name in _WRONG else None)


def malformed() -> dict[str, str | bytes]:
    """Frames that no server may send, by what is wrong with them."""
    found: dict[str, str | bytes] = dict(_odd_values(text(receipt()), text(delivery())))
    for name, frame in SERVER_FRAMES.items():
        found[f"{name}: one member more"] = text(frame(more=1))
        for path in _paths(frame()):
            found[f"{name} without {path}"] = without(frame(), path)
            found[f"{name} with {path} capitalised"] = renamed(frame(), path, path.rpartition(".")[2].title())
            for value in _WRONG.get(_form_of(path) or "", []):
                if not (path == "reply_to" and name == "error" and value is None):
                    found[f"{name} with {path} = {value!r}"] = within(frame(), path, value)
    found["a generation of 0"] = text(receipt(generation="0"))
    found["a delivery with one member more"] = within(delivery(), "delivery.more", 1)
    found["an event with one member more"] = within(delivery(), "event.more", 1)
    for name, frame in CLIENT_FRAMES.items():
        found[f"a client's {name}"] = text(frame())
    return found
