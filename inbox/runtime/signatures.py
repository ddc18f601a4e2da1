"""What a handler asks for, read from the annotations of its parameters.

    (event, unit)              (event, unit, prepared)
    (payload, unit)            (payload, unit, prepared)
    (payload, event, unit)     (payload, event, unit, prepared)

All by position and in this order. The annotations tell them apart: `Event`, or none, is the event; a dataclass or a
pydantic model is its payload; the unit is one of the faces.
"""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.config import require
from inbox.core.event import Event
from inbox.core.handler import Face, Wants
from inbox.errors import ConfigurationError
from inbox.runtime.annotations import last_word, resolved, shown
from inbox.runtime.payloads import is_payload_class

if TYPE_CHECKING:
    from collections.abc import Callable

_FACES: dict[type, Face] = {
    AsyncSession: Face.SESSION,
    AsyncConnection: Face.CONNECTION,
    Session: Face.SYNC_SESSION,
}


class Asked(NamedTuple):
    """What of an event is asked for, and the class of the payload, if that is."""

    wants: Wants
    payload: type | None


def read_handler(function: Callable[..., Any], name: str, *, prepared: bool) -> tuple[Face, Asked]:
    """What the annotations of a handler ask for.

    Args:
        function: the handler, bound where it is a method.
        name: for messages.
        prepared: whether a last parameter takes what `prepare` returned.

    Raises:
        ConfigurationError: the signature is none of the above, an annotation names no face, no payload or nothing
            that can be found, or the face contradicts `def` or `async def`.
    """
    parameters = _positional(function)
    last = ("session", "prepared") if prepared else ("session",)
    _require_form(function, parameters, last, f"handler {name}:")
    hints = [_annotation(function, parameter) for parameter in parameters]
    at = len(parameters) - len(last)
    face = _face(hints[at])
    if face is None:
        raise _no_unit(function, last, hints, f"handler {name}: its parameter {parameters[at].name!r}")
    _check_kind(function, face, name)
    return face, _asked(function, parameters[:at], hints, f"handler {name}:")


def read_batch_handler(function: Callable[..., Any], name: str) -> Face:
    """What the annotations of a batch handler ask for: `(list[Event], unit)`.

    Raises:
        ConfigurationError: the signature is another, or the face contradicts `def` or `async def`.
    """
    parameters = _positional(function)
    require(
        len(parameters) == 2,  # noqa: PLR2004 - the list and the unit
        f"batch handler {name}: takes {inspect.signature(function)}, not (events, session) by position",
    )
    events, unit = (_annotation(function, parameter) for parameter in parameters)
    require(
        events == list[Event] or (isinstance(events, str) and events.replace(" ", "").endswith("list[Event]")),
        f"batch handler {name}: its parameter {parameters[0].name!r} is annotated with {shown(events)}: it gets "
        "list[Event]",
    )
    face = _face(unit)
    if face is None:
        raise _no_unit(
            function, ("session",), [events, unit], f"batch handler {name}: its parameter {parameters[1].name!r}"
        )
    _check_kind(function, face, name)
    return face


def read_prepare(prepare: Callable[..., Any], name: str) -> Asked:
    """What the annotations of a `prepare` ask for: `(event)`, `(payload)` or `(payload, event)`.

    Raises:
        ConfigurationError: it is no `async def`, or its signature none of these.
    """
    require(
        is_function(prepare) and inspect.iscoroutinefunction(prepare), f"handler {name}: prepare must be `async def`"
    )
    parameters = _positional(prepare)
    _require_form(prepare, parameters, (), f"handler {name}: prepare:")
    hints = [_annotation(prepare, parameter) for parameter in parameters]
    return _asked(prepare, parameters, hints, f"handler {name}: prepare:")


def is_function(given: object) -> bool:
    """Whether it is a function or a bound method: what has a signature of its own."""
    return inspect.isfunction(given) or inspect.ismethod(given)


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters, if each takes one argument by position; otherwise none."""
    parameters = list(inspect.signature(function).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return parameters if all(parameter.kind in by_position for parameter in parameters) else []


def _require_form(
    function: Callable[..., Any], parameters: list[inspect.Parameter], last: tuple[str, ...], subject: str
) -> None:
    is_one = len(parameters) - len(last) in (1, 2)
    require(is_one, f"{subject} takes {inspect.signature(function)}, not {_forms(last)} by position")


def _forms(last: tuple[str, ...]) -> str:
    first = [("event",), ("payload",), ("payload", "event")]
    written = [f"({', '.join([*names, *last])})" for names in first]
    return f"{written[0]}, {written[1]} or {written[2]}"


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The parameter's type; the text of it where that cannot be found, as when it is there for type checkers only."""
    try:
        return typing.get_type_hints(function).get(parameter.name, parameter.annotation)
    except Exception:  # noqa: BLE001 - evaluating annotations may raise anything: imported under TYPE_CHECKING only
        names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return resolved(parameter.annotation, names)
    except Exception:  # noqa: BLE001 - as above
        return parameter.annotation


def _face(hint: object) -> Face | None:
    if isinstance(hint, str):
        return next((face for face in Face if face.value == last_word(hint)), None)
    return _FACES.get(hint) if isinstance(hint, type) else None


def _no_unit(function: Callable[..., Any], last: tuple[str, ...], hints: list[Any], subject: str) -> ConfigurationError:
    if any(_face(hint) is not None for hint in hints):
        return ConfigurationError(
            f"{subject} stands where the session belongs, for it takes {inspect.signature(function)}: write "
            f"{_forms(last)}; `prepared` is the last where there is a `prepare`, and only there"
        )
    return ConfigurationError(
        f"{subject}: annotate it with AsyncSession, AsyncConnection or, for a plain `def`, "
        "sqlalchemy.orm.Session: these classes themselves, for that is what it gets"
    )


def _check_kind(function: Callable[..., Any], face: Face, name: str) -> None:
    require(
        not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function),
        f"handler {name}: has a `yield`, so that a call would run none of it",
    )
    is_async = inspect.iscoroutinefunction(function)
    require(
        is_async == (face is not Face.SYNC_SESSION),
        f"handler {name}: `async def` goes with AsyncSession or AsyncConnection, plain `def` with Session",
    )


def _asked(function: Callable[..., Any], parameters: list[inspect.Parameter], hints: list[Any], subject: str) -> Asked:
    first = hints[0]
    if len(parameters) == 1 and _is_event(first):
        return Asked(Wants.EVENT, None)
    require(
        not _is_event(first),
        f"{subject} takes {inspect.signature(function)}, not (event) or (payload, event) before all else",
    )
    if not is_payload_class(first):
        raise _no_payload(f"{subject} its parameter {parameters[0].name!r}", first)
    if len(parameters) == 1:
        return Asked(Wants.PAYLOAD, first)
    require(
        _is_event(hints[1]),
        f"{subject} its parameter {parameters[1].name!r} is annotated with {shown(hints[1])}: after the payload "
        "comes the event, annotated with Event",
    )
    return Asked(Wants.BOTH, first)


def _is_event(hint: object) -> bool:
    if isinstance(hint, str):
        return last_word(hint) == Event.__name__
    return hint in (Event, Any, object, inspect.Parameter.empty)


def _no_payload(subject: str, hint: object) -> ConfigurationError:
    if isinstance(hint, str):
        return ConfigurationError(
            f"{subject} is annotated with {hint!r}, which cannot be found while the program runs: define it at the "
            "top of a module, and import it there outside of `if TYPE_CHECKING`"
        )
    return ConfigurationError(
        f"{subject} is annotated with {shown(hint)}: annotate it with Event, or with a dataclass or a pydantic model "
        "for the event's data"
    )
