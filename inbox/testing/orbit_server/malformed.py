"""Frames of a server that are almost right, each wrong in one way: what a client must not take for good.

They are made from the text of a right frame, so that nothing but the one thing is wrong with it. `VARIANTS` names them;
`names_for` lists those that a kind of frame has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.websocket.codec import LONGEST_FRAME, MOST_CAPACITY, STATUSES
from inbox.testing.orbit_server.wire import Opcode, raw_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIANTS", "Variant", "malform", "names_for", "set_member"]

_DELIVERY: Final = ("delivery",)
_WITH_GENERATION: Final = ("delivery", "ack_receipt")
_ANSWERS: Final = ("welcome", "ack_receipt", "pong")
_ALL: Final = ("welcome", "delivery", "ack_receipt", "pong", "error")
#: Where generations stand.
_GENERATION: Final = {"delivery": "delivery.generation", "ack_receipt": "generation"}
_OTHER_ID: Final = "f" * 32


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to be wrong.

    Attributes:
        frames: types of the frames that can be so.
        octets: of the whole WebSocket frame or frames, from type and text of the right one.
    """

    frames: tuple[str, ...]
    octets: Callable[[str, str], bytes]


# ------------------------------------------------------------------ JSON that keeps what is wrong with it
class _Members(list[tuple[str, Any]]):
    """An object's members, in order; a name may be there twice."""


@dataclass(frozen=True, slots=True)
class _Written:
    """JSON that is put in as it is."""

    text: str


def _read(text: str) -> _Members:
    members: _Members = json.loads(text, object_pairs_hook=_Members, parse_int=_Written, parse_float=_Written)
    return members


def _write(value: object) -> str:
    if isinstance(value, _Written):
        return value.text
    if isinstance(value, _Members):
        return "{" + ",".join(f"{json.dumps(name)}:{_write(each)}" for name, each in value) + "}"
    return json.dumps(value)


def _edited(text: str, path: str, edit: Callable[[_Members, int], None]) -> str:
    """`text` after `edit` of the member at `path`, told the object that it is in and its place there.

    Raises:
        KeyError: there is no such member.
    """
    whole = members = _read(text)
    *objects, last = path.split(".")
    for name in objects:
        members = members[_place(members, name)][1]
    edit(members, _place(members, last))
    return _write(whole)


def _place(members: object, name: str) -> int:
    if not isinstance(members, _Members):
        raise KeyError(name)
    for place, (each, _) in enumerate(members):
        if each == name:
            return place
    raise KeyError(name)


def set_member(text: str, path: str, value: str) -> str:
    """The text of a frame with another value in it.

    Args:
        text: of the frame.
        path: of the member, such as `delivery.generation`.
        value: JSON, or what is none.

    Raises:
        KeyError: there is no such member.
    """

    def edit(members: _Members, place: int) -> None:
        members[place] = (members[place][0], _Written(value))

    return _edited(text, path, edit)


# ------------------------------------------------------------------ ways to be wrong
def _text(change: Callable[[str], str]) -> Callable[[str, str], bytes]:
    return lambda _, text: raw_frame(change(text).encode("utf-8", "surrogatepass"))


def _member(path: str | Mapping[str, str], value: object) -> Callable[[str, str], bytes]:
    def octets(kind: str, text: str) -> bytes:
        where = path if isinstance(path, str) else path[kind]
        return raw_frame(set_member(text, where, value if isinstance(value, str) else json.dumps(value)).encode())

    return octets


def _edit(path: str, edit: Callable[[_Members, int], None]) -> Callable[[str, str], bytes]:
    return lambda _, text: raw_frame(_edited(text, path, edit).encode())


def _drop(members: _Members, place: int) -> None:
    del members[place]


def _double(members: _Members, place: int) -> None:
    members.append(members[place])


def _capitalise(members: _Members, place: int) -> None:
    name, value = members[place]
    members[place] = (name.title(), value)


def _add_unknown(members: _Members, _: int) -> None:
    members.append(("colour", "blue"))


def _in_two_messages(_: str, text: str) -> bytes:
    """The frame broken into two messages instead of two fragments."""
    middle = len(text) // 2
    return raw_frame(text[:middle].encode()) + raw_frame(text[middle:].encode())


def _masked(_: str, text: str) -> bytes:
    """RFC 6455, 5.1: "A client MUST close a connection if it detects a masked frame"."""
    plain = raw_frame(text.encode())
    head = {126: 4, 127: 10}.get(plain[1], 2)
    # The key is four zeros, so that the payload stays as it is.
    return bytes([plain[0], plain[1] | 0x80]) + plain[2:head] + bytes(4) + plain[head:]


def _another_capacity(kind: str, text: str) -> bytes:
    said = int(dict(_read(text))["capacity"].text)
    return _member("capacity", said % MOST_CAPACITY + 1)(kind, text)


def _with_another_type(_: str, text: str) -> bytes:
    right = dict(dict(_read(text))["event"])["type"]
    other = next(each for each in STATUSES if each != right)
    return raw_frame(set_member(text, "event.type", json.dumps(other)).encode())


_SECRET: Final = "delivery.secret"  # noqa: S105 - where one stands
_SNAPSHOT: Final = "event.snapshot"

VARIANTS: Final[Mapping[str, Variant]] = MappingProxyType(
    {
        # -------------------------------------------------- no JSON, or no frame
        "not-json": Variant(_ALL, _text(lambda _: "hello")),
        "empty": Variant(_ALL, _text(lambda _: "")),
        "truncated": Variant(_ALL, _text(lambda text: text[:-1])),
        "trailing-text": Variant(_ALL, _text(lambda text: text + "x")),
        "two-objects": Variant(_ALL, _text(lambda text: text + text)),
        "two-messages": Variant(_ALL, _in_two_messages),
        "array": Variant(_ALL, _text(lambda text: f"[{text}]")),
        "string": Variant(_ALL, _text(json.dumps)),
        "null": Variant(_ALL, _text(lambda _: "null")),
        "byte-order-mark": Variant(_ALL, _text(lambda text: "\ufeff" + text)),
        "single-quotes": Variant(_ALL, _text(lambda text: text.replace('"', "'"))),
        "trailing-comma": Variant(_ALL, _text(lambda text: text[:-1] + ",}")),
        "comment": Variant(_ALL, _text(lambda text: "/**/" + text)),
        "not-a-number": Variant(_ALL, _text(lambda text: text[:-1] + ',"colour":NaN}')),
        "nested-deeply": Variant(_ALL, _text(lambda text: text[:-1] + ',"colour":' + "[" * 100_000)),
        "not-utf-8": Variant(_ALL, lambda _, text: raw_frame(text.encode() + b"\xff")),
        "binary": Variant(_ALL, lambda _, text: raw_frame(text.encode(), Opcode.BINARY)),
        "too-long": Variant(_ALL, _text(lambda text: text + " " * (LONGEST_FRAME + 1 - len(text.encode())))),
        "masked": Variant(_ALL, _masked),
        "stray-continuation": Variant(_ALL, lambda _, text: raw_frame(text.encode(), Opcode.CONTINUATION)),
        # -------------------------------------------------- members of any frame
        "no-type": Variant(_ALL, _edit("type", _drop)),
        "unknown-type": Variant(_ALL, _member("type", '"hello"')),
        "capital-type": Variant(
            _ALL, lambda kind, text: raw_frame(set_member(text, "type", f'"{kind.title()}"').encode())
        ),
        "type-null": Variant(_ALL, _member("type", None)),
        "other-direction": Variant(_ALL, _member("type", '"ack"')),
        "unknown-member": Variant(_ALL, _edit("type", _add_unknown)),
        "type-twice": Variant(_ALL, _edit("type", _double)),
        "session-twice": Variant(_ALL, _edit("session_id", _double)),
        "no-session": Variant(_ALL, _edit("session_id", _drop)),
        "session-null": Variant(_ALL, _member("session_id", None)),
        "session-number": Variant(_ALL, _member("session_id", 7)),
        "session-capitals": Variant(_ALL, _member("session_id", f'"{"A" * 32}"')),
        "session-short": Variant(_ALL, _member("session_id", f'"{"a" * 31}"')),
        "session-long": Variant(_ALL, _member("session_id", f'"{"a" * 33}"')),
        "session-newline": Variant(_ALL, _member("session_id", '"' + "a" * 32 + '\\n"')),
        "session-name-capital": Variant(_ALL, _edit("session_id", _capitalise)),
        # A welcome, and an error before it, tell the session: nobody can know another one.
        "session-other": Variant(("delivery", "ack_receipt", "pong", "error"), _member("session_id", f'"{_OTHER_ID}"')),
        # -------------------------------------------------- answers
        "no-reply-to": Variant(_ANSWERS, _edit("reply_to", _drop)),
        "reply-to-null": Variant(_ANSWERS, _member("reply_to", None)),
        "reply-to-other": Variant((*_ANSWERS, "error"), _member("reply_to", f'"{_OTHER_ID}"')),
        "enabled-number": Variant(("welcome", "pong"), _member("enabled", 1)),
        "enabled-text": Variant(("welcome", "pong"), _member("enabled", '"true"')),
        "no-enabled": Variant(("welcome", "pong"), _edit("enabled", _drop)),
        "subscription-other": Variant(("welcome",), _member("subscription_id", f'"{_OTHER_ID}"')),
        "capacity-other": Variant(("welcome",), _another_capacity),
        "capacity-zero": Variant(("welcome",), _member("capacity", 0)),
        "capacity-text": Variant(("welcome",), _member("capacity", '"4"')),
        "capacity-fraction": Variant(("welcome",), _member("capacity", "4.0")),
        "capacity-true": Variant(("welcome",), _member("capacity", True)),
        "lease-zero": Variant(("welcome",), _member("lease_seconds", 0)),
        "lease-negative": Variant(("welcome",), _member("lease_seconds", -30)),
        "code-unknown": Variant(("error",), _member("code", '"TEAPOT"')),
        "code-small": Variant(("error",), _member("code", '"busy"')),
        "no-code": Variant(("error",), _edit("code", _drop)),
        "message-number": Variant(("error",), _member("message", 7)),
        "receipt-other-delivery": Variant(("ack_receipt",), _member("delivery_id", f'"{_OTHER_ID}"')),
        "receipt-other-event": Variant(("ack_receipt",), _member("event_id", f'"{_OTHER_ID}"')),
        "receipt-other-generation": Variant(("ack_receipt",), _member("generation", '"18446744073709551615"')),
        "receipt-no-event": Variant(("ack_receipt",), _edit("event_id", _drop)),
        # -------------------------------------------------- numbers of 64 bits
        "generation-number": Variant(_WITH_GENERATION, _member(_GENERATION, 1)),
        "generation-plus": Variant(_WITH_GENERATION, _member(_GENERATION, '"+1"')),
        "generation-minus": Variant(_WITH_GENERATION, _member(_GENERATION, '"-1"')),
        "generation-leading-zero": Variant(_WITH_GENERATION, _member(_GENERATION, '"01"')),
        "generation-zero": Variant(_WITH_GENERATION, _member(_GENERATION, '"0"')),
        "generation-exponent": Variant(_WITH_GENERATION, _member(_GENERATION, '"1e0"')),
        "generation-fraction": Variant(_WITH_GENERATION, _member(_GENERATION, '"1.0"')),
        "generation-hexadecimal": Variant(_WITH_GENERATION, _member(_GENERATION, '"0x1"')),
        "generation-space": Variant(_WITH_GENERATION, _member(_GENERATION, '" 1"')),
        "generation-underscore": Variant(_WITH_GENERATION, _member(_GENERATION, '"1_0"')),
        "generation-other-digits": Variant(_WITH_GENERATION, _member(_GENERATION, '"\\u0661"')),
        "generation-empty": Variant(_WITH_GENERATION, _member(_GENERATION, '""')),
        "generation-beyond-64-bits": Variant(_WITH_GENERATION, _member(_GENERATION, '"18446744073709551616"')),
        "generation-endless": Variant(_WITH_GENERATION, _member(_GENERATION, '"' + "9" * 5000 + '"')),
        "generation-null": Variant(_WITH_GENERATION, _member(_GENERATION, None)),
        "sequence-number": Variant(_DELIVERY, _member("event.sequence", 17)),
        "sequence-leading-zero": Variant(_DELIVERY, _member("event.sequence", '"017"')),
        "sequence-beyond-64-bits": Variant(_DELIVERY, _member("event.sequence", '"18446744073709551616"')),
        # -------------------------------------------------- secrets
        "secret-padded": Variant(_DELIVERY, _member(_SECRET, '"' + "A" * 43 + '="')),
        "secret-short": Variant(_DELIVERY, _member(_SECRET, '"' + "A" * 42 + '"')),
        "secret-long": Variant(_DELIVERY, _member(_SECRET, '"' + "A" * 44 + '"')),
        "secret-plain-base64": Variant(_DELIVERY, _member(_SECRET, '"' + "+/" + "A" * 41 + '"')),
        # 43 characters are 258 bits: of the last one two must be zero (RFC 4648, 3.5).
        "secret-bits-left-over": Variant(_DELIVERY, _member(_SECRET, '"' + "A" * 42 + 'B"')),
        "secret-null": Variant(_DELIVERY, _member(_SECRET, None)),
        "no-secret": Variant(_DELIVERY, _edit(_SECRET, _drop)),
        "secret-twice": Variant(_DELIVERY, _edit(_SECRET, _double)),
        # -------------------------------------------------- delivery, event and snapshot
        "no-delivery": Variant(_DELIVERY, _edit("delivery", _drop)),
        "delivery-null": Variant(_DELIVERY, _member("delivery", None)),
        "delivery-array": Variant(_DELIVERY, _member("delivery", "[]")),
        "delivery-unknown-member": Variant(_DELIVERY, _edit("delivery.id", _add_unknown)),
        "delivery-id-capitals": Variant(_DELIVERY, _member("delivery.id", f'"{"A" * 32}"')),
        "delivery-of-other-event": Variant(_DELIVERY, _member("delivery.event_id", f'"{_OTHER_ID}"')),
        "no-event": Variant(_DELIVERY, _edit("event", _drop)),
        "event-twice": Variant(_DELIVERY, _edit("event", _double)),
        "event-unknown-member": Variant(_DELIVERY, _edit("event.id", _add_unknown)),
        "event-name-capital": Variant(_DELIVERY, _edit("event.sequence", _capitalise)),
        "event-id-short": Variant(_DELIVERY, _member("event.id", '"abc"')),
        "event-of-other-subscription": Variant(_DELIVERY, _member("event.subscription_id", f'"{_OTHER_ID}"')),
        "event-type-unknown": Variant(_DELIVERY, _member("event.type", '"task.exploded"')),
        "event-type-other": Variant(_DELIVERY, _with_another_type),
        "event-no-type": Variant(_DELIVERY, _edit("event.type", _drop)),
        "time-local": Variant(_DELIVERY, _member("event.occurred_at", '"2026-01-02T03:04:05.678+02:00"')),
        "time-no-zone": Variant(_DELIVERY, _member("event.occurred_at", '"2026-01-02T03:04:05.678"')),
        "time-none-such": Variant(_DELIVERY, _member("event.occurred_at", '"2026-02-30T03:04:05.678Z"')),
        "time-number": Variant(_DELIVERY, _member("event.occurred_at", 1767323045)),
        "no-snapshot": Variant(_DELIVERY, _edit(_SNAPSHOT, _drop)),
        "snapshot-null": Variant(_DELIVERY, _member(_SNAPSHOT, None)),
        "snapshot-text": Variant(_DELIVERY, _member(_SNAPSHOT, '"{}"')),
        "snapshot-array": Variant(_DELIVERY, _member(_SNAPSHOT, "[]")),
        "snapshot-no-task": Variant(_DELIVERY, _edit(f"{_SNAPSHOT}.task_id", _drop)),
        "snapshot-task-capitals": Variant(_DELIVERY, _member(f"{_SNAPSHOT}.task_id", f'"{"A" * 32}"')),
        "snapshot-no-status": Variant(_DELIVERY, _edit(f"{_SNAPSHOT}.status", _drop)),
        "snapshot-other-status": Variant(_DELIVERY, _member(f"{_SNAPSHOT}.status", '"running"')),
        "snapshot-name-twice": Variant(_DELIVERY, _edit(f"{_SNAPSHOT}.task_id", _double)),
        "snapshot-infinite": Variant(_DELIVERY, _member(f"{_SNAPSHOT}.status", "Infinity")),
    }
)


def names_for(kind: str) -> Iterator[str]:
    """The variants that frames of a type have, in the order of `VARIANTS`."""
    return (name for name, variant in VARIANTS.items() if kind in variant.frames)


def malform(name: str, kind: str, text: str) -> bytes:
    """The octets to send instead of a right frame.

    Args:
        name: of the variant.
        kind: type of the frame.
        text: of the frame.

    Raises:
        KeyError: there is no such variant for such a frame.
    """
    variant = VARIANTS[name]
    if kind not in variant.frames:
        raise KeyError(name)
    return variant.octets(kind, text)
