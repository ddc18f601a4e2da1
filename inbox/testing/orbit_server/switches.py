"""Switches: what the server is to do wrong, at which frame. They live as long as its process."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.websocket.codec import ErrorCode
from inbox.core.proof import is_id
from inbox.errors import ConfigurationError
from inbox.testing.orbit_server.malformed import names_for
from inbox.testing.orbit_server.wire import Cut

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ACTS", "Act", "Moment", "Switch", "Switchboard"]

_RECEIVED: Final = ("register", "ack", "ping")
_SENT: Final = ("welcome", "delivery", "ack_receipt", "pong", "error")
_MOST: Final = 1_000_000
_MOST_SECONDS: Final = 3600.0


class Act(StrEnum):
    """What to do.

    Attributes:
        ANSWER_HTTP: answer the upgrade with an HTTP status.
        REFUSE: answer with an error frame. The request is carried out all the same where `when` is `after`.
        LOSE_REPLY: carry it out and answer nothing; the connection stays.
        IGNORE: do not even carry it out.
        REPLACE: let a newer generation replace the proof, just before it is looked at.
        OVERRUN: from this registration on, deliver past the capacity that was asked for.
        HOLD: carry it out, and keep the answer, or the frame, back: for `seconds`, or until released.
        CUT: end the connection, before or after the request is carried out or the frame is written, or in its middle.
        MALFORM: send a frame that is wrong in one way.
        REPEAT: send the frame twice.
    """

    ANSWER_HTTP = "answer-http"
    REFUSE = "refuse"
    LOSE_REPLY = "lose-reply"
    IGNORE = "ignore"
    REPLACE = "replace"
    OVERRUN = "overrun"
    HOLD = "hold"
    CUT = "cut"
    MALFORM = "malform"
    REPEAT = "repeat"


class Moment(StrEnum):
    """When, of a frame's life."""

    BEFORE = "before"
    MIDDLE = "middle"
    AFTER = "after"


#: The frames at which each can be done. `upgrade` is the HTTP request that a connection begins with.
ACTS: Final[Mapping[Act, tuple[str, ...]]] = MappingProxyType(
    {
        Act.ANSWER_HTTP: ("upgrade",),
        Act.REFUSE: _RECEIVED,
        Act.LOSE_REPLY: _RECEIVED,
        Act.IGNORE: _RECEIVED,
        Act.REPLACE: ("ack",),
        Act.OVERRUN: ("register",),
        Act.HOLD: ("upgrade", *_SENT),
        Act.CUT: ("upgrade", *_RECEIVED, *_SENT),
        Act.MALFORM: _SENT,
        Act.REPEAT: _SENT,
    }
)


@dataclass(frozen=True, slots=True)
class Switch:
    """One thing to do wrong.

    Attributes:
        act: what.
        frame: the type of the frame, received or sent, or `upgrade`.
        nth: at which of those frames first, counted from when the switch is set.
        times: at how many in a row; 0 for ever.
        subscription_id: count only those of this subscription; `upgrade` has none yet.
        when: REFUSE: `before` or `after` it is carried out. CUT: `before`, `after`, and of frames that are sent
            `middle`.
        how: CUT: how the connection ends.
        code: REFUSE: the error's code.
        status: ANSWER_HTTP: 400 to 599.
        variant: MALFORM: one that the frame has, of `malformed.VARIANTS`; or empty, and `member` with `value`.
        member: MALFORM: of which member to replace the value, such as `delivery.generation`.
        value: MALFORM: by what; JSON, or what is none.
        seconds: HOLD: for how long; 0 until it is released.

    Raises:
        ConfigurationError: it contradicts itself.
    """

    act: Act
    frame: str
    nth: int = 1
    times: int = 1
    subscription_id: str | None = None
    when: Moment = Moment.BEFORE
    how: Cut = Cut.RESET
    code: ErrorCode = ErrorCode.UNAVAILABLE
    status: int = 503
    variant: str = ""
    member: str = ""
    value: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for problem, is_there in self._problems().items():
            if is_there:
                raise ConfigurationError(problem)

    def _problems(self) -> dict[str, bool]:
        frames = ACTS[self.act]
        middle_of = _SENT if self.act is Act.CUT else ()
        return {
            f"{self.act}: frame is one of {', '.join(frames)}": self.frame not in frames,
            f"nth: 1 to {_MOST}": not 1 <= self.nth <= _MOST,
            f"times: 0 to {_MOST}": not 0 <= self.times <= _MOST,
            "subscription_id: 32 hexadecimal digits": self.subscription_id is not None
            and not is_id(self.subscription_id),
            "subscription_id: an upgrade has none": self.subscription_id is not None and self.frame == "upgrade",
            "when: before or after": self.when is Moment.MIDDLE and self.frame not in middle_of,
            "status: 400 to 599": not 400 <= self.status <= 599,  # noqa: PLR2004 - RFC 9110, 15
            "variant: none that such a frame has": bool(self.variant) and self.variant not in {*names_for(self.frame)},
            "malform: say a variant, or a member and its value": self.act is Act.MALFORM
            and bool(self.variant) == bool(self.member),
            f"seconds: 0 to {_MOST_SECONDS:g}": not 0 <= self.seconds <= _MOST_SECONDS,
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Switch:
        """A switch as the management API is told it.

        Raises:
            ConfigurationError: a member is unknown, or its value is none of those that it may have.
        """
        kinds = {"act": Act, "when": Moment, "how": Cut, "code": ErrorCode}
        whole, texts = {"nth", "times", "status"}, {"frame", "subscription_id", "variant", "member", "value"}
        if missing := {"act", "frame"} - members.keys():
            raise ConfigurationError(f"missing: {', '.join(sorted(missing))}")
        values: dict[str, Any] = {}
        for name, given in members.items():
            if name in kinds:
                if given not in (allowed := [each.value for each in kinds[name]]):
                    raise ConfigurationError(f"{name}: one of {', '.join(allowed)}")
                values[name] = kinds[name](given)
            elif name in whole:
                values[name] = _typed(name, given, int)
            elif name in texts:
                values[name] = _typed(name, given, str)
            elif name == "seconds":
                values[name] = float(_typed(name, given, (int, float)))
            else:
                raise ConfigurationError(f"unknown member; these are known: {', '.join(cls.__slots__)}")
        return cls(**values)

    def to_members(self) -> dict[str, Any]:
        """As the management API tells it."""
        return {name: getattr(value, "value", value) for name in self.__slots__ for value in [getattr(self, name)]}


def _typed(name: str, given: object, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(given, kind) or isinstance(given, bool):
        raise ConfigurationError(f"{name}: of another type")
    return given


@dataclass(slots=True)
class _Set:
    """A switch that is set.

    Attributes:
        seen: frames that it counted.
        hits: at how many it acted.
        released: let go what it holds.
    """

    switch: Switch
    seen: int = 0
    hits: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    hit: asyncio.Event = field(default_factory=asyncio.Event)

    def is_for(self, frame: str, subscription_id: str | None) -> bool:
        switch = self.switch
        return switch.frame == frame and switch.subscription_id in (None, subscription_id)

    def count(self) -> bool:
        """Count a frame; whether to act at it."""
        self.seen += 1
        switch = self.switch
        acts = self.seen >= switch.nth and (not switch.times or self.seen < switch.nth + switch.times)
        if acts:
            self.hits += 1
            self.hit.set()
        return acts


class Switchboard:
    """The switches that are set."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._set: dict[int, _Set] = {}

    def set(self, switch: Switch) -> int:
        """Set one.

        Returns:
            Its number.
        """
        number = next(self._numbers)
        self._set[number] = _Set(switch)
        return number

    def clear(self, number: int | None = None) -> bool:
        """Take one back, or all; what it holds is let go.

        Returns:
            False where there is none of that number.
        """
        numbers = [*self._set] if number is None else [number]
        found = [self._set.pop(each) for each in numbers if each in self._set]
        for each in found:
            each.released.set()
        return number is None or bool(found)

    def release(self, number: int) -> bool:
        """Let go what one holds, now and from now on; False where there is none of that number."""
        found = self._set.get(number)
        if found is not None:
            found.released.set()
        return found is not None

    def hits(self, number: int) -> int:
        """At how many frames it acted."""
        return self._set[number].hits

    async def wait_hit(self, number: int, seconds: float = 10.0) -> None:
        """Return when it has acted.

        Raises:
            TimeoutError: it had not after so long.
        """
        async with asyncio.timeout(seconds):
            await self._set[number].hit.wait()

    def describe(self) -> list[dict[str, Any]]:
        """All of them, as the management API tells them."""
        return [
            {"number": number, "seen": each.seen, "hits": each.hits, **each.switch.to_members()}
            for number, each in self._set.items()
        ]

    def at(self, frame: str, subscription_id: str | None = None) -> Switch | None:
        """Count a frame with every switch that is for it; the first that acts at it, if any."""
        acting = [each for each in self._set.values() if each.is_for(frame, subscription_id) and each.count()]
        return acting[0].switch if acting else None

    async def wait_released(self, switch: Switch) -> None:
        """Return when what `switch` holds may go: after its seconds, or when it is released or taken back."""
        held = next((each for each in self._set.values() if each.switch is switch), None)
        if held is None:
            return
        try:
            async with asyncio.timeout(switch.seconds or None):
                await held.released.wait()
        except TimeoutError:
            return
