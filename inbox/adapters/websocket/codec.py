"""The frames of `orbit.events.v1`: from text to values and back, for both ends.

Every name, form and limit of the wire stands in this module and nowhere else. Reading is strict in every point, for a
frame that is almost right is not to be guessed at: an acknowledgement that was misread would be an event lost.

The text of a frame may hold a secret. Nothing here raises from a function that still has it in a variable, so that a
traceback with its variables shows none.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from inbox.adapters.websocket.errors import ErrorCode, FrameTooLong, OrbitProtocolError
from inbox.adapters.websocket.source_text import Reader, Source
from inbox.core.proof import LARGEST_UINT64, Proof, Secret, is_id, uint64_of
from inbox.core.timestamps import parse_timestamp

__all__ = [
    "LEAST_CAPACITY",
    "LONGEST_FRAME",
    "MOST_CAPACITY",
    "STATUSES",
    "SUBPROTOCOL",
    "AckFrame",
    "ClientFrame",
    "DeliveryFrame",
    "ErrorCode",
    "ErrorFrame",
    "Frame",
    "Grant",
    "PingFrame",
    "PongFrame",
    "ReceiptFrame",
    "RegisterFrame",
    "ServerFrame",
    "TaskEvent",
    "WelcomeFrame",
    "decode_client",
    "decode_server",
    "encode",
]

#: The WebSocket sub-protocol.
SUBPROTOCOL: Final = "orbit.events.v1"

#: Octets of the longest text frame, in either direction.
LONGEST_FRAME: Final = 512 * 1024

#: Deliveries that one connection may ask for.
LEAST_CAPACITY: Final = 1
MOST_CAPACITY: Final = 32

#: What a snapshot's `status` is, by the type of its event.
STATUSES: Final[Mapping[str, str]] = {
    "task.succeeded": "succeeded",
    "task.failed": "failed",
    "task.cancelled": "cancelled",
    "task.needs_review": "needs_review",
}


# ------------------------------------------------------------------ values
@dataclass(frozen=True, slots=True)
class Grant:
    """One hand-out of one event: the member `delivery` of its frame."""

    id: str
    event_id: str
    generation: int
    secret: Secret


@dataclass(frozen=True, slots=True, repr=False)
class TaskEvent:
    """What happened to a task, frozen at that moment: the member `event` of a delivery's frame.

    Attributes:
        id: what duplicates are known by.
        type: one of `STATUSES`.
        subscription_id: whose event it is.
        sequence: its number, 64 bits.
        occurred_at: RFC 3339 in UTC, exactly as received.
        snapshot: the task's state as JSON, octet for octet as received.
        task_id, status: members of the snapshot.
    """

    id: str
    type: str
    subscription_id: str
    sequence: int
    occurred_at: str
    snapshot: bytes
    task_id: str
    status: str

    def __repr__(self) -> str:
        return f"<TaskEvent {self.type}>"


# ------------------------------------------------------------------ frames
@dataclass(frozen=True, slots=True)
class RegisterFrame:
    """The client's first: which subscription, and how many deliveries at once."""

    message_id: str
    subscription_id: str
    capacity: int


@dataclass(frozen=True, slots=True)
class WelcomeFrame:
    """The server's answer to it: how things stand at this moment."""

    reply_to: str
    session_id: str
    subscription_id: str
    capacity: int
    enabled: bool
    lease_seconds: int


@dataclass(frozen=True, slots=True)
class DeliveryFrame:
    """The server hands an event out."""

    session_id: str
    delivery: Grant
    event: TaskEvent

    @property
    def proof(self) -> Proof:
        """What acknowledges it."""
        grant = self.delivery
        return Proof(self.event.subscription_id, self.event.id, grant.id, grant.generation, grant.secret)


@dataclass(frozen=True, slots=True)
class AckFrame:
    """The client acknowledges a delivery."""

    session_id: str
    message_id: str
    delivery_id: str
    generation: int
    secret: Secret


@dataclass(frozen=True, slots=True)
class ReceiptFrame:
    """The server has taken the acknowledgement."""

    session_id: str
    reply_to: str
    delivery_id: str
    event_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class PingFrame:
    """The client asks whether all is well."""

    session_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class PongFrame:
    """It is; `enabled` is False where the subscription is paused."""

    session_id: str
    reply_to: str
    enabled: bool


@dataclass(frozen=True, slots=True, repr=False)
class ErrorFrame:
    """The server refuses a request, or ends the connection where `reply_to` is None. Its `message` is for nobody."""

    session_id: str
    reply_to: str | None
    code: ErrorCode
    message: str

    def __repr__(self) -> str:
        return f"<ErrorFrame {self.code.value}>"


ClientFrame = RegisterFrame | AckFrame | PingFrame
ServerFrame = WelcomeFrame | DeliveryFrame | ReceiptFrame | PongFrame | ErrorFrame
Frame = ClientFrame | ServerFrame


# ------------------------------------------------------------------ forms of values
class _Malformed(Exception):
    """What is wrong, in words of ours; never leaves this module."""

    def __init__(self, reason: str, *, is_long: bool = False) -> None:
        self.reason = reason
        self.is_long = is_long
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a value is read and written; `read` raises `_Malformed` with what it should be."""

    read: Callable[[Any], Any]
    write: Callable[[Any], object] = lambda value: value


def _refuse(reason: str) -> NoReturn:
    raise _Malformed(reason)


def _read_id(value: object) -> object:
    return value if is_id(value) else _refuse("is not 32 lower-case hexadecimal digits")


def _read_uint64(value: object) -> int:
    number = uint64_of(value)
    return _refuse("is not a canonical decimal number of 64 bits") if number is None else number


def _read_generation(value: object) -> int:
    return _read_uint64(value) or _refuse("is 0: the first generation is 1")


def _read_secret(value: object) -> Secret:
    """43 characters that are base64url of 32 octets, and the one way to write those."""
    if not isinstance(value, str) or _SECRET.fullmatch(value) is None:
        _refuse("is not base64url of 32 octets without padding")
    octets = base64.urlsafe_b64decode(value + "=")
    if base64.urlsafe_b64encode(octets).rstrip(b"=").decode() != value:
        _refuse("is base64url with bits left over")
    return Secret(value)


def _read_boolean(value: object) -> bool:
    return value if isinstance(value, bool) else _refuse("is neither true nor false")


def _read_text(value: object) -> str:
    return value if isinstance(value, str) else _refuse("is not a text")


def _read_capacity(value: object) -> int:
    number = _whole(value)
    return number if LEAST_CAPACITY <= number <= MOST_CAPACITY else _refuse("is not between 1 and 32")


def _read_seconds(value: object) -> int:
    number = _whole(value)
    return number if 1 <= number <= LARGEST_UINT64 else _refuse("is not a number of whole seconds")


def _whole(value: object) -> int:
    """JSON's `true` is an `int` to Python, and `4.0` is none here."""
    return value if isinstance(value, int) and not isinstance(value, bool) else _refuse("is not a whole number")


def _read_type(value: object) -> object:
    return value if isinstance(value, str) and value in STATUSES else _refuse("is not a type of event")


def _read_moment(value: object) -> object:
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        _refuse("is not an RFC 3339 time in UTC")
    try:
        parse_timestamp(value)
    except ValueError:
        _refuse("is not a moment that there is")
    return value


def _read_code(value: object) -> ErrorCode:
    return ErrorCode(value) if isinstance(value, str) and value in _CODES else _refuse("is not a code")


_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_MOMENT: Final = re.compile(r"[0-9-]{10}T[0-9:]{8}(?:\.[0-9]{1,9})?Z")
_CODES: Final = frozenset(code.value for code in ErrorCode)

_ID: Final = _Form(_read_id)
_ID_OR_NULL: Final = _Form(lambda value: None if value is None else _read_id(value))
_UINT64: Final = _Form(_read_uint64, str)
_GENERATION: Final = _Form(_read_generation, str)
_SECRET_TEXT: Final = _Form(_read_secret, lambda secret: secret.reveal())
_BOOLEAN: Final = _Form(_read_boolean)
_TEXT: Final = _Form(_read_text)
_CAPACITY: Final = _Form(_read_capacity)
_SECONDS: Final = _Form(_read_seconds)
_TYPE: Final = _Form(_read_type)
_MOMENT_TEXT: Final = _Form(_read_moment)
_CODE: Final = _Form(_read_code, lambda code: code.value)


# ------------------------------------------------------------------ the wire
_GRANT: Final = {"id": _ID, "event_id": _ID, "generation": _GENERATION, "secret": _SECRET_TEXT}
_EVENT: Final = {
    "id": _ID,
    "type": _TYPE,
    "subscription_id": _ID,
    "sequence": _UINT64,
    "occurred_at": _MOMENT_TEXT,
}
#: The member of an event that is kept as it is, and those of it that are looked at.
_SNAPSHOT: Final = "snapshot"
_IN_SNAPSHOT: Final = {"task_id": _ID, "status": _TEXT}

#: The members of each frame beside `type`, by the type; those of a delivery that are objects are read apart.
_CLIENT_FRAMES: Final[Mapping[str, tuple[type[ClientFrame], Mapping[str, _Form]]]] = {
    "register": (RegisterFrame, {"message_id": _ID, "subscription_id": _ID, "capacity": _CAPACITY}),
    "ack": (
        AckFrame,
        {"session_id": _ID, "message_id": _ID, "delivery_id": _ID, "generation": _GENERATION, "secret": _SECRET_TEXT},
    ),
    "ping": (PingFrame, {"session_id": _ID, "message_id": _ID}),
}
_SERVER_FRAMES: Final[Mapping[str, tuple[type[ServerFrame], Mapping[str, _Form]]]] = {
    "welcome": (
        WelcomeFrame,
        {
            "reply_to": _ID,
            "session_id": _ID,
            "subscription_id": _ID,
            "capacity": _CAPACITY,
            "enabled": _BOOLEAN,
            "lease_seconds": _SECONDS,
        },
    ),
    "delivery": (DeliveryFrame, {"session_id": _ID, "delivery": _Form(_refuse), "event": _Form(_refuse)}),
    "ack_receipt": (
        ReceiptFrame,
        {"session_id": _ID, "reply_to": _ID, "delivery_id": _ID, "event_id": _ID, "generation": _GENERATION},
    ),
    "pong": (PongFrame, {"session_id": _ID, "reply_to": _ID, "enabled": _BOOLEAN}),
    "error": (ErrorFrame, {"session_id": _ID, "reply_to": _ID_OR_NULL, "code": _CODE, "message": _TEXT}),
}
#: Objects whose members are read one by one; every other value is read whole.
_OPENED: Final = {"delivery": frozenset[str](), "event": frozenset({_SNAPSHOT})}
_TYPES: Final = {kind: name for name, (kind, _) in (*_CLIENT_FRAMES.items(), *_SERVER_FRAMES.items())}

T = TypeVar("T")


def decode_server(text: str | bytes) -> ServerFrame:
    """The frame that a server sent.

    Args:
        text: of a text frame; octets are those of a binary one.

    Raises:
        FrameTooLong: more than 512 KiB of UTF-8.
        OrbitProtocolError: anything else than exactly one frame of a server's; the reason names the member, never a
            value.
    """
    frame = _attempt(lambda text: _decode(text, _SERVER_FRAMES, _CLIENT_FRAMES), text)
    del text
    return frame if not isinstance(frame, _Malformed) else _raise(frame)


def decode_client(text: str | bytes) -> ClientFrame:
    """The frame that a client sent; as `decode_server`.

    Raises:
        FrameTooLong: more than 512 KiB of UTF-8.
        OrbitProtocolError: anything else than exactly one frame of a client's.
    """
    frame = _attempt(lambda text: _decode(text, _CLIENT_FRAMES, _SERVER_FRAMES), text)
    del text
    return frame if not isinstance(frame, _Malformed) else _raise(frame)


def encode(frame: Frame) -> str:
    """The text of a frame, which the other end decodes to an equal one. A snapshot is put in octet for octet.

    Raises:
        FrameTooLong: more than 512 KiB of UTF-8.
        OrbitProtocolError: a value that has no place in such a frame.
    """
    text = _attempt(_encode, frame)
    return text if not isinstance(text, _Malformed) else _raise(text)


def _attempt(work: Callable[[Any], T], given: object) -> T | _Malformed:
    """What is wrong is returned, without a traceback, which would have the frame's text in its variables."""
    try:
        return work(given)
    except _Malformed as malformed:
        return _Malformed(malformed.reason, is_long=malformed.is_long)


def _raise(malformed: _Malformed) -> NoReturn:
    raise FrameTooLong if malformed.is_long else OrbitProtocolError(malformed.reason)


# ------------------------------------------------------------------ reading
def _decode(
    text: str | bytes,
    frames: Mapping[str, tuple[type[T], Mapping[str, _Form]]],
    others: Mapping[str, object],
) -> T:
    if not isinstance(text, str):
        _refuse("a binary frame")
    _check_length(text)
    try:
        members = Reader(text).whole(_OPENED)
    except (ValueError, RecursionError):  # UnicodeError is a ValueError
        _refuse("a frame that is not one strict JSON object")
    name = members.pop("type", None)
    if not isinstance(name, str):
        _refuse("a frame without a type")
    if name not in frames:
        _refuse("a frame of the other direction" if name in others else "a frame of an unknown type")
    kind, forms = frames[name]
    if kind is DeliveryFrame:
        return _delivery_of(members)  # type: ignore[return-value] # what `kind` is
    return kind(**_values(members, forms, name))


def _delivery_of(members: dict[str, Any]) -> DeliveryFrame:
    delivery, event = (members.get(name) for name in _OPENED)
    _check_names(members, _SERVER_FRAMES["delivery"][1], "delivery")
    if not isinstance(delivery, dict) or not isinstance(event, dict):
        _refuse("delivery: a delivery and an event are objects")
    snapshot = event.pop(_SNAPSHOT, None)
    if not isinstance(snapshot, Source) or not isinstance(snapshot.value, dict):
        _refuse("event: snapshot is not an object")
    seen = {name: snapshot.value[name] for name in _IN_SNAPSHOT if name in snapshot.value}
    frame = DeliveryFrame(
        **_values({"session_id": members["session_id"]}, {"session_id": _ID}, "delivery"),
        delivery=Grant(**_values(delivery, _GRANT, "delivery.delivery")),
        event=TaskEvent(
            **_values(event, _EVENT, "delivery.event"),
            **_values(seen, _IN_SNAPSHOT, "delivery.event.snapshot"),
            snapshot=snapshot.text.encode(),
        ),
    )
    _check_belonging(frame)
    return frame


def _check_belonging(frame: DeliveryFrame) -> None:
    if frame.delivery.event_id != frame.event.id:
        _refuse("delivery: it is of another event than the one that it brings")
    if STATUSES[frame.event.type] != frame.event.status:
        _refuse("delivery: the snapshot's status is not that of the event's type")


def _values(members: Mapping[str, object], forms: Mapping[str, _Form], place: str) -> dict[str, Any]:
    _check_names(members, forms, place)
    values = {}
    for name, form in forms.items():
        try:
            values[name] = form.read(members[name])
        except _Malformed as malformed:
            _refuse(f"{place}: {name} {malformed.reason}")
    return values


def _check_names(members: Mapping[str, object], forms: Mapping[str, object], place: str) -> None:
    for name in forms:
        if name not in members:
            _refuse(f"{place}: {name} is missing")
    if len(members) != len(forms):
        _refuse(f"{place}: a member that it has not")


def _check_length(text: str) -> None:
    # A character has one to four octets; most frames need not be encoded to be measured.
    if len(text) > LONGEST_FRAME or (len(text) * 4 > LONGEST_FRAME and _octets(text) > LONGEST_FRAME):
        raise _Malformed("a frame is too long", is_long=True)


def _octets(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------------ writing
def _encode(frame: Frame) -> str:
    name = _TYPES[type(frame)]
    if isinstance(frame, DeliveryFrame):
        text = _delivery_text(frame)
    else:
        _, forms = _CLIENT_FRAMES.get(name) or _SERVER_FRAMES[name]
        text = _json({"type": name, **_written(frame, forms, name)})
    _check_length(text)
    return text


def _delivery_text(frame: DeliveryFrame) -> str:
    try:
        snapshot = frame.event.snapshot.decode()
    except UnicodeDecodeError:
        _refuse("delivery: the snapshot is not UTF-8")
    head = {"type": "delivery", **_written(frame, {"session_id": _ID}, "delivery")}
    head["delivery"] = _written(frame.delivery, _GRANT, "delivery.delivery")
    event = _json(_written(frame.event, _EVENT, "delivery.event"))
    text = f'{_json(head)[:-1]},"event":{event[:-1]},"{_SNAPSHOT}":{snapshot}}}}}'
    if _decode(text, _SERVER_FRAMES, _CLIENT_FRAMES) != frame:
        _refuse("delivery: it would be read as another one")
    return text


def _written(value: object, forms: Mapping[str, _Form], place: str) -> dict[str, object]:
    """Each member as it is written, and read back: what cannot be read is not sent."""
    members = {name: form.write(getattr(value, name)) for name, form in forms.items()}
    _values(members, forms, place)
    return members


def _json(members: Mapping[str, object]) -> str:
    return json.dumps(members, separators=(",", ":"))
