"""What may be registered as a handler, and what would only look as if it had been."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Annotated, Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.handler import Face
from inbox.core.policy import RetryPolicy
from inbox.errors import ConfigurationError
from inbox.runtime.registry import Registry
from inbox.service import InboxService, handles
from inbox.testing.memory import MemoryStore
from tests.unit.engine import Engine, delivery


async def plain(event: Event, session: AsyncSession) -> None: ...
async def annotated(event: Event, session: Annotated[AsyncSession, "of the unit"]) -> None: ...
async def with_default(event: Event, session: AsyncSession = None) -> None: ...  # type: ignore[assignment]
async def by_place(event: Event, session: AsyncConnection, /) -> None: ...


@functools.wraps(plain)
async def decorated(*args: Any, **kwargs: Any) -> None:
    await plain(*args, **kwargs)


class Static:
    @staticmethod
    async def static(event: Event, session: AsyncSession) -> None: ...

    @classmethod
    async def of_class(cls, event: Event, session: AsyncSession) -> None: ...

    async def bound(self, event: Event, session: AsyncSession) -> None: ...

    async def __call__(self, event: Event, session: AsyncSession) -> None: ...


@pytest.mark.parametrize(
    "function", [annotated, with_default, decorated, Static.static, Static.of_class, Static().bound]
)
def test_functions_and_bound_methods_are_handlers(function: Callable[..., Any]) -> None:
    assert Registry().add("t", function).face is Face.SESSION


def test_parameters_may_be_positional_only() -> None:
    assert Registry().add("t", by_place).face is Face.CONNECTION


def generator(event: Event, session: Session) -> Iterator[None]:
    yield


async def async_generator(event: Event, session: Session) -> AsyncIterator[None]:
    yield


async def by_keyword(event: Event, *, session: AsyncSession) -> None: ...
async def any_number(event: Event, *session: AsyncSession) -> None: ...
async def unreadable(event: Event, session: "list[int") -> None: ...  # type: ignore[valid-type]  # noqa: F722 - the point
async def absent(event: Event, session: "asyncio.Nothing") -> None: ...  # type: ignore[name-defined]
async def either(event: Event, session: AsyncSession | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (generator, "yield"),
        (async_generator, "yield"),
        (by_keyword, "by position"),
        (any_number, "by position"),
        (unreadable, "annotate"),
        (absent, "annotate"),
        (either, "annotate"),
        (lambda _event, _session: None, "annotate"),
        (functools.partial(plain), "not a partial"),
        (Static(), "not a Static"),
        (vars(Static)["static"], "not a staticmethod"),
        (vars(Static)["of_class"], "not a classmethod"),
        (Static, "not a type"),
        (print, "not a builtin_function_or_method"),
        (None, "not a NoneType"),
    ],
)
def test_what_could_not_be_called_as_a_handler_is_refused_in_one_sentence(function: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Registry().add("t", function)


@pytest.mark.parametrize("event_type", [None, 5, ["t"]])
def test_an_event_type_is_a_text(event_type: Any) -> None:
    with pytest.raises(ConfigurationError, match="not a text"):
        Registry().add(event_type, plain)


async def with_prepared(event: Event, session: AsyncSession, prepared: object) -> None: ...
async def prepare_nothing() -> None: ...
async def prepare_too_much(self: object, event: Event) -> None: ...


@pytest.mark.parametrize("prepare", [prepare_nothing, prepare_too_much])
def test_a_prepare_takes_the_event(prepare: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"not \(event\)"):
        Registry().add("t", with_prepared, prepare)


# ---------------------------------------------------------------- work that nobody awaited
async def effect(event: Event, session: Any) -> None:
    session.write(event.id)


async def forgets_to_await(event: Event, session: Any) -> Coroutine[Any, Any, None]:
    return effect(event, session)


async def leaves_a_task(event: Event, session: Any) -> asyncio.Task[None]:
    return asyncio.create_task(asyncio.sleep(0))


async def leaves_a_generator(event: Event, session: Any) -> Iterator[None]:
    return generator(event, session)


async def leaves_an_async_generator(event: Event, session: Any) -> AsyncIterator[None]:
    return async_generator(event, session)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (forgets_to_await, "coroutine"),
        (leaves_a_task, "Task"),
        (leaves_a_generator, "generator"),
        (leaves_an_async_generator, "async_generator"),
    ],
)
async def test_work_that_a_handler_returns_instead_of_doing_it_is_no_effect(
    function: Callable[..., Any], kind: str
) -> None:
    engine = Engine()
    engine.handle(function)
    await engine.settle(delivery())
    assert engine.reasons == ["unit-misused"]
    assert f"returned a {kind}" in engine.store.quarantined[0].detail
    assert not engine.store.rows


async def test_so_it_is_for_a_plain_function() -> None:
    def hands_on(event: Event, session: Session) -> Coroutine[Any, Any, None]:
        return effect(event, session)

    engine = Engine()
    engine.inbox.handler("t")(hands_on)
    await engine.settle(delivery())
    assert engine.reasons == ["unit-misused"]
    assert not engine.store.rows


async def test_a_plain_function_is_applied_in_memory_too() -> None:
    def write(event: Event, session: Session) -> str:
        session.write(event.id)  # type: ignore[attr-defined]
        return "whatever it returns otherwise is nobody's business"

    engine = Engine()
    engine.inbox.handler("t")(write)
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]


# ---------------------------------------------------------------- services
class Reports(InboxService):
    @handles("above")
    @staticmethod
    async def above(event: Event, session: AsyncSession) -> None: ...

    @staticmethod
    @handles("below")
    async def below(event: Event, session: AsyncSession) -> None: ...

    @classmethod
    @handles("of class")
    async def of_class(cls, event: Event, session: AsyncSession) -> None: ...

    @handles("kept")
    async def kept(self, event: Event, session: AsyncSession) -> None: ...


class Better(Reports):
    async def kept(self, event: Event, session: AsyncSession) -> None: ...


def test_static_and_class_methods_of_a_service_are_found() -> None:
    engine = Engine()
    engine.inbox.add_service(Reports())
    assert {handler.event_type for handler in engine.inbox.registry} == {"above", "below", "of class", "kept"}


def test_an_override_without_a_mark_handles_what_the_overridden_method_did() -> None:
    """Its events would end in quarantine otherwise, for want of a handler."""
    engine = Engine()
    engine.inbox.add_service(Better())
    assert engine.inbox.registry.find("kept").name.endswith("Better.kept")


# ---------------------------------------------------------------- what would register nothing
async def lonely(event: Event, session: AsyncSession) -> None: ...


def _add_class() -> None:
    Engine().inbox.add_service(Reports)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: Engine().inbox.handler(lonely), r"needs the event type: @inbox\.handler\('job\.completed'\)"),  # type: ignore[call-overload]
        (lambda: handles(lonely), r"at least one event type, as a text"),  # type: ignore[arg-type]
        (handles, r"at least one event type, as a text"),
        (_add_class, r"an object, such as Reports\(\), not the class"),
        (lambda: Inbox("c", store="mysql://"), r"write store=MySQL\(url\)"),  # type: ignore[arg-type]
        (lambda: Inbox("c", store=MemoryStore(), transport="amqp://"), r"write transport=RabbitMQ\(url, queue\)"),  # type: ignore[arg-type]
        (lambda: RabbitMQ("amqp://h", "q", ["events"]), r"Binding\('events', 'job\.\*'\)"),  # type: ignore[list-item]
    ],
)
def test_a_mistake_that_would_register_nothing_is_told(attempt: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attempt()


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: ConsumerSettings(concurrency="8"), "concurrency must be a whole number, not a str"),  # type: ignore[arg-type]
        (lambda: ConsumerSettings(prefetch=8.5), "prefetch must be a whole number, not a float"),  # type: ignore[arg-type]
        (lambda: ConsumerSettings(deadline="30"), "deadline must be more than 0 seconds, and a number"),  # type: ignore[arg-type]
        (
            lambda: ConsumerSettings(retry=RetryPolicy(max_attempts="5")),  # type: ignore[arg-type]
            "retry.max_attempts must be a whole number, not a str",
        ),
        (lambda: DatabaseSettings(lock_wait="5"), "lock_wait must be a whole number, not a str"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_nobody_converted_from_text_are_told(attempt: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attempt()
