"""Handlers as methods of a business service.

class Reports(InboxService):
    @handles("job.failed")
    async def note(self, event: Event, session: AsyncSession) -> None: ...

inbox.add_service(Reports(repository))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from inbox.config import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inbox.core.handler import Prepare

F = TypeVar("F", bound="Callable[..., Any]")

_MARK = "__inbox_handles__"


def handles(*event_types: str, prepare: Prepare | None = None) -> Callable[[F], F]:
    """Mark a method as the handler of `event_types`.

    Args:
        event_types: CloudEvents types, at least one.
        prepare: run before the transaction, as `Inbox.handler` says; its result is the last argument.

    Raises:
        ConfigurationError: no type was given.
    """
    require(
        bool(event_types) and all(isinstance(event_type, str) for event_type in event_types),
        "@handles needs at least one event type, as a text: @handles('job.completed')",
    )

    def mark(method: F) -> F:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), *((event_type, prepare) for event_type in event_types)))
        return method

    return mark


class InboxService:
    """Mixin for a class whose methods apply events. It adds no state and needs no `__init__`."""

    def inbox_handlers(self) -> Iterator[tuple[str, Callable[..., Any], Prepare | None]]:
        """Each marked method, bound, with its type and its prepare step.

        A subclass's method takes the place of the one it overrides, with that one's mark unless it has its own.
        """
        seen: set[str] = set()
        for kind in type(self).__mro__:
            for name, member in vars(kind).items():
                if name in seen or not (marks := _marks(member)):
                    continue
                seen.add(name)
                for event_type, prepare in marks:
                    yield event_type, getattr(self, name), prepare


def _marks(member: object) -> tuple[tuple[str, Prepare | None], ...]:
    """The marks of a class's member, whether `@handles` stands above or below a `@staticmethod` or `@classmethod`."""
    return getattr(member, _MARK, ()) or getattr(getattr(member, "__func__", None), _MARK, ())
