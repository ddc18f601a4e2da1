"""Which handler applies which type of event."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from inbox.config import require
from inbox.core.handler import Face, Handler, Wants
from inbox.errors import NoHandler, UnitMisused
from inbox.runtime.payloads import decoder_of
from inbox.runtime.signatures import Asked, is_function, read_batch_handler, read_handler, read_prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from inbox.config import Unknown
    from inbox.core.event import Event


async def _do_nothing(event: Event, connection: AsyncConnection) -> None:
    """What is done about an ignored event."""


_IGNORED = Handler("ignored by policy", "", Face.CONNECTION, _do_nothing, ignores=True)
_NO_PREPARE = Asked(Wants.EVENT, None)


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
        prepare: Callable[..., Awaitable[object]] | None = None,
    ) -> Handler:
        """Register `function` for `event_type`.

        Raises:
            ConfigurationError: the type has a handler, it cannot be told from `function` how, with what of the event
                and with which face of the unit it is to be called, or its payload cannot be made from JSON.
        """
        name = self._free_name(event_type, function)
        prepare_asked = _NO_PREPARE if prepare is None else read_prepare(prepare, name)
        face, asked = read_handler(function, name, prepared=prepare is not None)
        payload = _one_payload(asked, prepare_asked, name)
        handler = Handler(
            name,
            event_type,
            face,
            _finished(function, name),
            prepare,
            wants=asked.wants,
            prepare_wants=prepare_asked.wants,
            decode=None if payload is None else decoder_of(payload, f"handler {name}"),
        )
        self._handlers[event_type] = handler
        return handler

    def add_batch(self, event_type: str, function: Callable[..., Any]) -> Handler:
        """Register `function` for all events of a batch that have `event_type`.

        Raises:
            ConfigurationError: the type has a handler, or the function does not take `(list[Event], unit)`.
        """
        name = self._free_name(event_type, function)
        face = read_batch_handler(function, name)
        handler = Handler(name, event_type, face, _finished(function, name), takes_list=True)
        self._handlers[event_type] = handler
        return handler

    def _free_name(self, event_type: str, function: Callable[..., Any]) -> str:
        """The name of the handler that `function` is to be, if the type has none."""
        require(is_function(function), f"a handler must be a function or a bound method, not a {_kind(function)}")
        name = f"{function.__module__}.{function.__qualname__}"
        require(isinstance(event_type, str), f"handler {name}: the event type is a {_kind(event_type)}, not a text")
        require(bool(event_type), f"handler {name}: the event type is empty")
        taken = self._handlers.get(event_type)
        require(
            taken is None,
            f"two handlers for type {event_type!r}: {taken.name if taken else ''} and {name}; "
            "one event has one effect: call both from one handler, or give each its own consumer name",
        )
        return name

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

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())


def _one_payload(asked: Asked, prepare_asked: Asked, name: str) -> type | None:
    """The class that handler and `prepare` both mean: the payload is decoded once."""
    mine, other = asked.payload, prepare_asked.payload
    require(
        mine is None or other is None or mine is other,
        f"handler {name}: takes the payload as {_title(mine)} and its prepare as {_title(other)}: one class for both",
    )
    return other if mine is None else mine


def _title(payload: type | None) -> str:
    return getattr(payload, "__qualname__", "")


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


def _kind(given: object) -> str:
    return type(given).__name__
