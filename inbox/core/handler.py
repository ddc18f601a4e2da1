"""What a handler is, to the engine: a function, its name, and which faces of unit and event it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from inbox.core.event import Event

    #: What may run before the transaction, in words of a type checker.
    Prepare = Callable[[Any], Awaitable[object]] | Callable[[Any, Event], Awaitable[object]]


class Face(Enum):
    """How a handler wants to see its unit of work; told by the annotation of its parameter."""

    SESSION = "AsyncSession"
    CONNECTION = "AsyncConnection"
    SYNC_SESSION = "Session"


class Wants(Enum):
    """What of an event a function wants to see, in this order; told by the annotations of its first parameters."""

    EVENT = "event"
    PAYLOAD = "payload"
    BOTH = "payload, event"


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler.

    Attributes:
        name: dotted name for messages.
        event_type: the CloudEvents type it applies.
        face: which face of the unit it gets.
        function: takes what `arguments` makes: what it wants of the event, the unit, and what `prepare`
            returned where there is one. A coroutine function, except for `Face.SYNC_SESSION`.
        prepare: optional coroutine function, run before the transaction, for reads over the network;
            takes what `prepare_arguments` makes.
        ignores: it stands for a type that the policy ignores, and does nothing.
        wants: what of the event the function gets.
        prepare_wants: what of it `prepare` gets.
        decode: makes the payload of an event, or raises `Refused`; None where nobody wants it.
        takes_list: the function gets a list of events, and applies all of them.
        events: of a batch, for such a function; in no `repr`.
        payload: the payload, once `for_event` has decoded it. In no `repr`: it came from a peer.
    """

    name: str
    event_type: str
    face: Face
    function: Callable[..., Any]
    prepare: Callable[..., Awaitable[object]] | None = None
    ignores: bool = False
    wants: Wants = Wants.EVENT
    prepare_wants: Wants = Wants.EVENT
    decode: Callable[[Event], object] | None = None
    takes_list: bool = False
    events: tuple[Event, ...] = field(default=(), repr=False, compare=False)
    payload: object = field(default=None, repr=False, compare=False)

    def for_event(self, event: Event) -> Handler:
        """The handler with the payload of `event`, decoded here and nowhere else: anew for each run.

        Raises:
            Refused: `invalid-payload`: the event's data is not what the annotation says; `bad-json`: it is no JSON.
        """
        return self if self.decode is None else replace(self, payload=self.decode(event))

    def for_events(self, events: Iterable[Event]) -> Handler:
        """The handler that gets these events at once, where it takes a list; else as it is."""
        return replace(self, events=tuple(events)) if self.takes_list else self

    def arguments(self, event: Event, unit: object, prepared: object) -> tuple[object, ...]:
        """The positional arguments of one call."""
        if self.takes_list:
            return ([*self.events] or [event], unit)
        given = (*self._shown(self.wants, event), unit)
        return given if self.prepare is None else (*given, prepared)

    def prepare_arguments(self, event: Event) -> tuple[object, ...]:
        """The positional arguments of one call of `prepare`."""
        return self._shown(self.prepare_wants, event)

    def _shown(self, wants: Wants, event: Event) -> tuple[object, ...]:
        if wants is Wants.EVENT:
            return (event,)
        return (self.payload,) if wants is Wants.PAYLOAD else (self.payload, event)
