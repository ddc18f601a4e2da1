"""Which handler applies which type of event, and which face of the unit it asks for."""

from __future__ import annotations

import functools
import inspect
import typing
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.config import require
from inbox.core.handler import Face, Handler
from inbox.errors import NoHandler, UnitMisused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from inbox.config import Unknown
    from inbox.core.event import Event

_FACES: dict[type, Face] = {
    AsyncSession: Face.SESSION,
    AsyncConnection: Face.CONNECTION,
    Session: Face.SYNC_SESSION,
}


async def _do_nothing(event: Event, connection: AsyncConnection) -> None:
    """What is done about an ignored event."""


_IGNORED = Handler("ignored by policy", "", Face.CONNECTION, _do_nothing, ignores=True)


class Registry:
    """The handlers of one consumer, one for each type.

    Args:
        unknown: what becomes of types without a handler; see `ConsumerSettings.unknown_types`.
    """

    def __init__(self, unknown: Mapping[str, Unknown] | None = None) -> None:
        self._handlers: dict[str, Handler] = {}
        self._unknown = dict(unknown or {})

    def add(
        self,
        event_type: str,
        function: Callable[..., Any],
        prepare: Callable[[Event], Awaitable[object]] | None = None,
    ) -> Handler:
        """Register `function` for `event_type`.

        Raises:
            ConfigurationError: the type has a handler, or it cannot be told from `function` how and with
                which face of the unit it is to be called.
        """
        require(_is_function(function), f"a handler must be a function or a bound method, not a {_kind(function)}")
        name = f"{function.__module__}.{function.__qualname__}"
        require(isinstance(event_type, str), f"handler {name}: the event type is a {_kind(event_type)}, not a text")
        require(bool(event_type), f"handler {name}: the event type is empty")
        taken = self._handlers.get(event_type)
        require(
            taken is None,
            f"two handlers for type {event_type!r}: {taken.name if taken else ''} and {name}; "
            "one event has one effect: call both from one handler, or give each its own consumer name",
        )
        if prepare is not None:
            _check_prepare(prepare, name)
        face = face_of(function, name, prepared=prepare is not None)
        handler = Handler(name, event_type, face, _finished(function, name), prepare)
        self._handlers[event_type] = handler
        return handler

    def find(self, event_type: str) -> Handler:
        """The handler for `event_type`: one that does nothing, where the policy ignores it.

        Raises:
            NoHandler: there is none.
        """
        handler = self._handlers.get(event_type)
        if handler is None:
            if self._policy_for(event_type) != "ignore":
                raise NoHandler("no handler is registered for the event's type")
            return _IGNORED
        return handler

    def check(self) -> None:
        """Ask for a handler of every type that must have one.

        Raises:
            ConfigurationError: there is none for some.
        """
        missing = [kind for kind, what in self._unknown.items() if what == "fail" and kind not in self._handlers]
        require(
            not missing,
            f"no handler for {', '.join(missing)}: ConsumerSettings.unknown_types says that each must have one",
        )

    def _policy_for(self, event_type: str) -> Unknown:
        """The policy named for the very type, or else by the longest prefix."""
        if event_type in self._unknown:
            return self._unknown[event_type]
        prefixes = [key for key in self._unknown if key.endswith("*") and event_type.startswith(key[:-1])]
        return self._unknown[max(prefixes, key=len)] if prefixes else "quarantine"

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
    parameters = _positional(function)
    wanted = "(event, session, prepared)" if prepared else "(event, session)"
    require(
        len(parameters) == (3 if prepared else 2),
        f"handler {name}: takes {inspect.signature(function)}, not {wanted} by position",
    )
    face = _annotated_face(function, parameters[1])
    if face is None:
        require(
            False,
            f"handler {name}: annotate its second parameter with AsyncSession, AsyncConnection or, "
            "for a plain `def`, sqlalchemy.orm.Session: these classes themselves, for that is what it gets",
        )
    require(
        not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function),
        f"handler {name}: has a `yield`, so that a call would run none of it",
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
    except Exception:  # noqa: BLE001 - evaluating annotations may raise anything: imported under TYPE_CHECKING only
        annotation = parameter.annotation
    if isinstance(annotation, str):  # the last word of the text is the class
        word = annotation.rsplit(".", 1)[-1]
        return next((face for face in Face if face.value == word), None)
    return _FACES.get(annotation) if isinstance(annotation, type) else None


def _check_prepare(prepare: Callable[..., Any], name: str) -> None:
    require(
        _is_function(prepare) and inspect.iscoroutinefunction(prepare), f"handler {name}: prepare must be `async def`"
    )
    require(
        len(_positional(prepare)) == 1,
        f"handler {name}: prepare takes {inspect.signature(prepare)}, not (event) by position",
    )


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters, if each takes one argument by position; otherwise none."""
    parameters = list(inspect.signature(function).parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return parameters if all(parameter.kind in by_position for parameter in parameters) else []


def _finished(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function`, which must have done its work when it returns.

    What it returns and nobody awaits was meant to do something. The unit would be committed without that.
    """

    @functools.wraps(function)
    def run(*arguments: object) -> None:
        _refuse_unfinished(function(*arguments), name)

    @functools.wraps(function)
    async def run_async(*arguments: object) -> None:
        _refuse_unfinished(await function(*arguments), name)

    return run_async if inspect.iscoroutinefunction(function) else run


def _refuse_unfinished(result: object, name: str) -> None:
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    if inspect.iscoroutine(result):
        result.close()  # or Python would complain, later and elsewhere, that it was never awaited
    raise UnitMisused(f"returned a {_kind(result)} that nobody awaits: await it in the handler", handler=name)


def _is_function(given: object) -> bool:
    return inspect.isfunction(given) or inspect.ismethod(given)


def _kind(given: object) -> str:
    return type(given).__name__
