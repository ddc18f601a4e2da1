"""What a handler raised is told by class and place, and never by its text."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from inbox.core.event import Event
from inbox.errors import Reject, UnitMisused
from inbox.runtime.places import failure_at
from tests.unit.engine import Engine, delivery


def raises(error: Exception) -> None:
    raise error


class Service:
    def method(self) -> None:
        raises(KeyError("secret"))


def caught(function: Callable[..., Any], *arguments: object) -> Exception:
    with pytest.raises(Exception, match="secret") as caught:
        function(*arguments)
    return caught.value


def test_a_handler_is_told_by_its_deepest_line() -> None:
    line = raises.__code__.co_firstlineno + 1
    assert failure_at(caught(Service().method), Service().method) == f"KeyError at test_places.py:{line}"
    assert failure_at(caught(raises, ValueError("secret")), functools.partial(raises)) == "ValueError"


def test_of_an_error_from_elsewhere_only_the_class_is_told() -> None:
    assert failure_at(caught(int, "secret"), Engine.handle) == "ValueError"
    assert failure_at(KeyError("secret"), raises) == "KeyError"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ProgrammingError("SELECT 'secret'", {}, Exception(1146, "secret")), "ProgrammingError 1146"),
        (OperationalError("SELECT 'secret'", {}, Exception("secret")), "OperationalError"),
        (OperationalError("SELECT 'secret'", {}, Exception()), "OperationalError"),
        (TimeoutError("secret"), "TimeoutError"),
    ],
)
def test_of_an_error_of_the_database_the_number_is_told(error: Exception, told: str) -> None:
    assert failure_at(error, raises) == told


async def test_a_line_in_the_log_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = Engine()

    async def misuses(event: Event, session: Any) -> None:
        raise UnitMisused("called rollback(): raise an exception to undo")

    async def rejects(event: Event, session: Any) -> None:
        raise Reject("card 4111")

    async def fails(event: Event, session: Any) -> None:
        raises(RuntimeError("card 4111"))

    for kind, handler in {"misuses": misuses, "rejects": rejects, "fails": fails}.items():
        engine.handle(handler, kind)
    await engine.settle(*[delivery(kind, kind=kind) for kind in ("misuses", "rejects", "fails")])
    assert "reason=unit-misused attempts=3: called rollback(): raise an exception to undo" in caplog.text
    assert (
        f"reason=handler-error attempts=3: RuntimeError at test_places.py:{raises.__code__.co_firstlineno + 1}"
        in caplog.text
    )
    assert "reason=rejected" in caplog.text
    assert "4111" not in caplog.text
