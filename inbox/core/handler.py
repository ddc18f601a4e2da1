"""What a handler is, to the engine: a function, its name and the face of the unit it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inbox.core.event import Event


class Face(Enum):
    """How a handler wants to see its unit of work; told by the annotation of its parameter."""

    SESSION = "AsyncSession"
    CONNECTION = "AsyncConnection"
    SYNC_SESSION = "Session"


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler.

    Attributes:
        name: dotted name for messages.
        event_type: the CloudEvents type it applies.
        face: which face of the unit it gets.
        function: `(event, unit)`, or `(event, unit, prepared)` where there is a `prepare`. A
            coroutine function, except for `Face.SYNC_SESSION`.
        prepare: optional `async (event)` run before the transaction, for reads over the network.
        ignores: it stands for a type that the policy ignores, and does nothing.
    """

    name: str
    event_type: str
    face: Face
    function: Callable[..., Any]
    prepare: Callable[[Event], Awaitable[object]] | None = None
    ignores: bool = False

    def arguments(self, event: Event, unit: object, prepared: object) -> tuple[object, ...]:
        """The positional arguments of one call."""
        return (event, unit) if self.prepare is None else (event, unit, prepared)
