"""What an acknowledgement of a leased delivery has to show, and texts that nothing shows by accident.

A secret leaves a program by ways that nobody takes on purpose: a log line, an error's text, a debugger's or an error
tracker's list of local variables, a pickle for another process. `Secret` answers each of them with three dots; whoever
wants the text has to write `reveal()`.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, final

from inbox.core.event import STRICT_JSON

#: 64 bits, unsigned: what a generation counts to.
LARGEST_UINT64: Final = 2**64 - 1

_ID = re.compile(r"[0-9a-f]{32}")
_UINT64 = re.compile(r"0|[1-9][0-9]{0,19}")


class Secret:
    """A text that is shown to nobody who does not ask for it.

    It can be compared and be a key, copies are the thing itself, and pickling it raises: a pickle is plain text. The
    text is held by a function and not by an attribute, for tools that list attributes.

    Args:
        text: what is secret.

    Raises:
        TypeError: it is no text.
    """

    __slots__ = ("_told",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            del text
            raise TypeError("a secret is a text")
        self._told: Callable[[], str] = lambda: text

    def reveal(self) -> str:
        """The text. Not to be kept in a variable of a function that can raise: tracebacks may list those."""
        return self._told()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} …>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        # In constant time: how long it takes to say no must not tell how much was right.
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash(self.reveal())

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is not pickled: a pickle is plain text")

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} has no state to be kept")


@final
@dataclass(frozen=True, slots=True)
class Proof:
    """What acknowledges one hand-out of one event.

    It outlives the connection that brought it: shown again on a later one, it confirms the same hand-out. A hand-out
    with a later generation makes it void.

    Attributes:
        subscription_id: whose event it is.
        event_id: what was handed out; duplicates are known by it.
        delivery_id: the hand-out.
        generation: its number, from 1; it grows with every hand-out of the event.
        secret: what only who was given the delivery can know.
    """

    subscription_id: str
    event_id: str
    delivery_id: str
    generation: int
    secret: Secret

    def to_json(self) -> str:
        """All of it as JSON, the secret in plain text: for who stores it encrypted."""
        return json.dumps(
            {
                "subscription_id": self.subscription_id,
                "event_id": self.event_id,
                "delivery_id": self.delivery_id,
                "generation": str(self.generation),
                "secret": self.secret.reveal(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Proof:
        """What `to_json` wrote.

        Raises:
            ValueError: it did not write this. The message says nothing of the text.
        """
        proof = _read(text)
        del text
        if proof is None:
            raise ValueError("this is no proof that was written by this framework")
        return proof


def is_id(value: object) -> bool:
    """Whether `value` is an id as peers that lease write them: 32 lower-case hexadecimal digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def uint64_of(value: object) -> int | None:
    """The number that `value` spells in canonical decimal: no sign, no leading zero, no exponent, within 64 bits."""
    if not isinstance(value, str) or _UINT64.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= LARGEST_UINT64 else None


def _read(text: str) -> Proof | None:
    try:
        members = STRICT_JSON.decode(text)
    except (ValueError, RecursionError):
        return None
    names = ("subscription_id", "event_id", "delivery_id", "generation", "secret")
    if not isinstance(members, dict) or set(members) != set(names):
        return None
    generation = uint64_of(members["generation"])
    if not all(is_id(members[name]) for name in names[:3]) or not generation or not isinstance(members["secret"], str):
        return None
    subscription_id, event_id, delivery_id = (members[name] for name in names[:3])
    return Proof(subscription_id, event_id, delivery_id, generation, Secret(members["secret"]))
