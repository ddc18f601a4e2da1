"""A worker's signals and exit codes, and the supervisor over several of them."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inbox.core.event import Event
from inbox.errors import SchemaError, TransportError
from inbox.runtime import worker
from inbox.runtime.supervisor import Supervisor
from inbox.runtime.worker import Exit, run_worker
from tests.unit.engine import FAST, Engine, apply, delivery
from tests.unit.supervised import Target, dies_once, ends_with, ignores_the_signal, stops_when_asked


def stop_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_stops_it_in_order() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.transport.publish(delivery())
    before = signal.getsignal(signal.SIGTERM)
    assert run_worker(engine.inbox, started=stop_me) is Exit.STOPPED
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(engine.transport.acknowledged) + len(engine.transport.released) <= 1


def test_what_cannot_start_says_so_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["open"] = [SchemaError(["run `inbox schema apply`"])]
    assert run_worker(engine.inbox) is Exit.NOT_STARTED
    assert [record.getMessage() for record in caplog.records] == ["not started: run `inbox schema apply`"]
    assert caplog.records[0].exc_info is None


def test_a_peer_that_stays_away_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.handle(apply)
    assert run_worker(engine.inbox, started=lambda: engine.transport.fail(TransportError("away"))) is Exit.FAILED
    assert caplog.records[-1].getMessage() == "away"


class Ended(BaseException):
    """Stands for the end of the process."""


def test_a_handler_that_does_not_come_back_is_ended_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[Exit] = []

    def exit_now(code: Exit) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(worker, "_exit_now", exit_now)

    engine = Engine(replace(FAST, shutdown_patience=0.01, cancel_patience=0.01, deadline=1000))

    async def stuck(event: Event, session: Any) -> None:

        stop_me()
        while not codes:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    engine.handle(stuck)
    engine.transport.publish(delivery())
    with pytest.raises(Ended):
        run_worker(engine.inbox)
    assert codes == [Exit.STOPPED_HARD]


# ---------------------------------------------------------------- the supervisor
def supervise(target: Target, *arguments: object, count: int = 1, patience: float = 30) -> Exit:
    return Supervisor(target, arguments, count=count, patience=patience, max_delay=0.1).run()


def test_all_workers_are_started_and_stopped_together(tmp_path: Path) -> None:
    assert supervise(stops_when_asked, str(tmp_path), 2, os.getpid(), count=2) is Exit.STOPPED
    assert len(list(tmp_path.glob("started-*"))) == 2


@pytest.mark.parametrize(
    ("code", "how"), [(None, "SIGKILL"), (0, "exit code 0"), (1, "exit code 1"), (2, "exit code 2"), (7, "exit code 7")]
)
def test_a_worker_that_dies_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int | None, how: str
) -> None:
    supervise(dies_once, str(tmp_path), os.getpid(), code)
    assert len(list(tmp_path.glob("started-*"))) == 2
    assert how in caplog.text


@pytest.mark.parametrize("code", [Exit.NOT_STARTED, Exit.FAILED])
def test_an_end_that_a_restart_would_repeat_ends_the_supervisor(code: Exit) -> None:
    assert supervise(ends_with, int(code), count=3) is code


def test_a_worker_that_does_not_stop_is_killed() -> None:
    assert supervise(ignores_the_signal, os.getpid(), patience=0.1) is Exit.STOPPED_HARD
