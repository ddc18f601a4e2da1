"""Which handler applies which type of event, and which face of the unit it asks for."""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.config import require
from inbox.core.handler import Face, Handler
from inbox.errors import NoHandler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inbox.core.event import Event

_FACES: dict[type, Face] = {
    AsyncSession: Face.SESSION,
    AsyncConnection: Face.CONNECTION,
    Session: Face.SYNC_SESSION,
}


class Registry:
    """The handlers of one consumer, one for each type."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(
        self,
        event_type: str,
        function: Callable[..., Any],
        prepare: Callable[[Event], Awaitable[object]] | None = None,
    ) -> Handler:
        """Register `function` for `event_type`.

        Raises:
            ConfigurationError: the type has a handler, or the function's signature does not say
                which face of the unit it wants.
        """
        name = f"{function.__module__}.{function.__qualname__}"
        taken = self._handlers.get(event_type)
        require(bool(event_type), f"handler {name}: the event type is empty")
        require(
            taken is None,
            f"two handlers for type {event_type!r}: {taken.name if taken else ''} and {name}; "
            "one event has one effect: call both from one handler, or give each its own consumer name",
        )
        require(prepare is None or inspect.iscoroutinefunction(prepare), f"handler {name}: prepare must be `async def`")
        handler = Handler(name, event_type, face_of(function, name, prepared=prepare is not None), function, prepare)
        self._handlers[event_type] = handler
        return handler

    def find(self, event_type: str) -> Handler:
        """The handler for `event_type`.

        Raises:
            NoHandler: there is none.
        """
        handler = self._handlers.get(event_type)
        if handler is None:
            raise NoHandler("no handler is registered for the event's type")
        return handler

    def __len__(self) -> int:
        return len(self._handlers)

    def __iter__(self) -> typing.Iterator[Handler]:
        return iter(self._handlers.values())


def face_of(function: Callable[..., Any], name: str, *, prepared: bool) -> Face:
    """The face that the annotation of the handler's second parameter asks for.

    Args:
        function: the handler, bound where it is a method.
        name: for messages.
        prepared: whether a third parameter takes what `prepare` returned.

    Raises:
        ConfigurationError: the signature is not `(event, unit)`, or `(event, unit, prepared)`, the
            annotation is missing or no known face, or it contradicts `def` or `async def`.
    """
    parameters = list(inspect.signature(function).parameters.values())
    wanted = "(event, session, prepared)" if prepared else "(event, session)"
    require(
        len(parameters) == (3 if prepared else 2), f"handler {name}: takes {len(parameters)} arguments, not {wanted}"
    )
    face = _annotated_face(function, parameters[1])
    if face is None:
        require(
            False,
            f"handler {name}: annotate its second parameter with AsyncSession, AsyncConnection or, "
            "for a plain `def`, sqlalchemy.orm.Session",
        )
    is_async = inspect.iscoroutinefunction(function)
    require(
        is_async == (face is not Face.SYNC_SESSION),
        f"handler {name}: `async def` goes with AsyncSession or AsyncConnection, plain `def` with Session",
    )
    assert face is not None  # noqa: S101 - `require` raised otherwise; for the type checker
    return face


def _annotated_face(function: Callable[..., Any], parameter: inspect.Parameter) -> Face | None:
    try:
        annotation = typing.get_type_hints(function).get(parameter.name)
    except NameError:  # imported under TYPE_CHECKING only: the last word of the text is the class
        annotation = parameter.annotation
    if isinstance(annotation, str):
        word = annotation.rsplit(".", 1)[-1]
        return next((face for face in Face if face.value == word), None)
    if isinstance(annotation, type):
        return next((face for kind, face in _FACES.items() if issubclass(annotation, kind)), None)
    return None
