"""Which event loop a worker runs on."""

import asyncio

import pytest

from inbox.errors import ConfigurationError
from inbox.runtime.loops import EventLoop, run_on
from inbox.runtime.worker import Exit, run_worker
from tests.unit.engine import Engine, apply
from tests.unit.test_worker_process import stop_me


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.parametrize("loop", [EventLoop.ASYNCIO, EventLoop.UVLOOP])
def test_it_is_the_one_that_was_asked_for(loop: EventLoop) -> None:
    assert run_on(loop.found(), kind()) == loop


def test_by_itself_it_is_uvloop_where_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EventLoop.AUTO.found() is EventLoop.UVLOOP
    monkeypatch.setattr("inbox.runtime.loops.find_spec", lambda _: None)
    assert EventLoop.AUTO.found() is EventLoop.ASYNCIO
    assert EventLoop.ASYNCIO.found() is EventLoop.ASYNCIO
    with pytest.raises(ConfigurationError, match=r"pip install 'idempotent-inbox\[uvloop\]'"):
        EventLoop.UVLOOP.found()


@pytest.mark.parametrize("loop", EventLoop)
def test_a_worker_runs_on_it_and_stops_by_a_signal(loop: EventLoop) -> None:
    engine = Engine()
    engine.handle(apply)
    found = []

    def started() -> None:
        found.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])
        stop_me()

    assert run_worker(engine.inbox, started=started, loop=loop) is Exit.STOPPED
    assert found == [loop.found()]


def test_a_worker_that_has_not_the_loop_that_was_asked_for_is_not_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("inbox.runtime.loops.find_spec", lambda _: None)
    engine = Engine()
    engine.handle(apply)
    assert run_worker(engine.inbox, loop=EventLoop.UVLOOP) is Exit.NOT_STARTED
    assert "idempotent-inbox[uvloop]" in caplog.text
