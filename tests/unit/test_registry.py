"""Handlers are found by type and told by their annotations."""

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.core.event import Event
from inbox.core.handler import Face
from inbox.errors import ConfigurationError, NoHandler
from inbox.runtime.registry import Registry
from inbox.service import InboxService, handles
from tests.unit.engine import Engine

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession as Deferred


async def with_session(event: Event, session: AsyncSession) -> None: ...
async def with_connection(event: Event, connection: AsyncConnection) -> None: ...
def with_sync_session(event: Event, session: Session) -> None: ...
async def with_text(event: Event, session: "AsyncSession") -> None: ...
async def with_deferred(event: Event, session: "Deferred") -> None: ...


class Narrow(AsyncSession): ...


async def with_subclass(event: Event, session: Narrow) -> None: ...


@pytest.mark.parametrize(
    ("function", "face"),
    [
        (with_session, Face.SESSION),
        (with_connection, Face.CONNECTION),
        (with_sync_session, Face.SYNC_SESSION),
        (with_text, Face.SESSION),
    ],
)
def test_the_annotation_says_which_face_a_handler_gets(function: Any, face: Face) -> None:
    registry = Registry()
    handler = registry.add("t", function)
    assert handler.face is face
    assert registry.find("t") is handler
    assert list(registry) == [handler]
    assert len(registry) == 1


def test_an_annotation_that_is_only_there_for_type_checkers_is_read_by_its_name() -> None:
    async def deferred(event: Event, session: "sqlalchemy.ext.asyncio.AsyncSession") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point

    assert Registry().add("t", deferred).face is Face.SESSION


async def untyped(event, session): ...  # type: ignore[no-untyped-def]
async def wrong_type(event: Event, session: int) -> None: ...
async def wrong_count(event: Event) -> None: ...
def not_async(event: Event, session: AsyncSession) -> None: ...
async def not_plain(event: Event, session: Session) -> None: ...
async def odd(event: Event, session: "list[int]") -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (untyped, "annotate"),
        (wrong_type, "annotate"),
        (with_deferred, "annotate"),
        (odd, "annotate"),
        (with_subclass, "these classes themselves"),
        (wrong_count, r"\(event, session\)"),
        (not_async, "plain `def` with Session"),
        (not_plain, "plain `def` with Session"),
    ],
)
def test_a_signature_that_does_not_say_is_refused_with_what_to_write(function: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        Registry().add("t", function)
    assert function.__qualname__ in str(caught.value)


def test_two_handlers_for_one_type_are_refused_and_both_named() -> None:
    registry = Registry()
    registry.add("t", with_session)
    with pytest.raises(ConfigurationError, match=r"with_session.*with_connection"):
        registry.add("t", with_connection)


def test_an_empty_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        Registry().add("", with_session)


def test_a_prepare_must_be_a_coroutine_function_and_brings_a_third_argument() -> None:
    def plain(event: Event) -> None: ...

    async def prepare(event: Event) -> int:
        return 1

    with pytest.raises(ConfigurationError, match="async def"):
        Registry().add("t", with_session, plain)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="prepared"):
        Registry().add("t", with_session, prepare)


def test_no_handler_says_so() -> None:
    with pytest.raises(NoHandler):
        Registry().find("t")


class Reports(InboxService):
    @handles("a", "b")
    async def both(self, event: Event, session: AsyncSession) -> None: ...

    @handles("c")
    async def one(self, event: Event, session: AsyncSession) -> None: ...

    async def not_a_handler(self) -> None: ...


class Better(Reports):
    @handles("c2")
    async def one(self, event: Event, session: AsyncSession) -> None: ...


def test_a_service_registers_its_marked_methods() -> None:
    engine = Engine()
    engine.inbox.add_service(Reports())
    assert {handler.event_type for handler in engine.inbox.registry} == {"a", "b", "c"}


def test_a_subclass_replaces_a_handler_with_its_method() -> None:
    engine = Engine()
    engine.inbox.add_service(Better())
    assert {handler.event_type for handler in engine.inbox.registry} == {"a", "b", "c2"}


def test_a_service_without_handlers_is_refused() -> None:
    class Empty(InboxService): ...

    with pytest.raises(ConfigurationError, match="Empty"):
        Engine().inbox.add_service(Empty())


def test_handles_needs_a_type() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        handles()
