"""How a worker ends: asked early or often, by a defect, or with something of a handler's still running."""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inbox.core.event import Event
from inbox.core.lifecycle import Command, Outcome
from inbox.errors import SchemaError, TransportError
from inbox.ports import Passage
from inbox.runtime import supervisor, worker
from inbox.runtime.loops import EventLoop, run_on
from inbox.runtime.supervisor import Supervisor
from inbox.runtime.supervisor import _run as run_in_process
from inbox.runtime.worker import Exit, Watchdog, run_worker
from tests.unit.engine import FAST, Engine, Recorder, apply, delivery

ROOT = Path(__file__).parents[2]


def stop_me(*numbers: int) -> None:
    for number in numbers or (signal.SIGTERM,):
        os.kill(os.getpid(), number)


# ---------------------------------------------------------------- asked to stop
async def test_a_stop_before_the_run_is_remembered() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.transport.publish(delivery())
    engine.inbox.stop()
    await engine.inbox.run()
    assert not engine.probe.seen
    assert not engine.store.is_open


def test_a_signal_before_the_event_loop_runs_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.handle(apply)
    run = run_on

    def late(loop: EventLoop, main: Coroutine[Any, Any, None]) -> None:
        stop_me()
        run(loop, main)

    monkeypatch.setattr(worker, "run_on", late)
    assert run_worker(engine.inbox) is Exit.STOPPED
    assert not engine.probe.seen


def test_a_signal_after_the_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.handle(apply)
    run = run_on

    def noticed(loop: EventLoop, main: Coroutine[Any, Any, None]) -> None:
        run(loop, main)
        stop_me(signal.SIGINT, signal.SIGTERM)

    monkeypatch.setattr(worker, "run_on", noticed)
    assert run_worker(engine.inbox, started=stop_me) is Exit.STOPPED


def test_what_is_loaded_is_left_out_of_collections_for_as_long_as_a_worker_consumes() -> None:
    engine, set_aside = Engine(), list[int]()
    engine.handle(apply)

    def look() -> None:
        set_aside.append(gc.get_freeze_count())
        engine.inbox.stop()

    assert run_worker(engine.inbox, started=look) is Exit.STOPPED
    assert set_aside[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_a_flood_of_signals_stops_it_as_one_does() -> None:
    engine = Engine()
    engine.handle(apply)
    engine.transport.publish(delivery())
    threads = threading.active_count()
    assert run_worker(engine.inbox, started=lambda: stop_me(*[signal.SIGINT, signal.SIGTERM] * 200)) is Exit.STOPPED
    assert threading.active_count() == threads


async def test_a_start_that_fails_while_it_is_given_up_is_told_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.handle(apply)
    opening = asyncio.Event()

    async def open_badly() -> None:
        opening.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SchemaError(["too late"]) from None

    engine.store.open = open_badly  # type: ignore[method-assign]
    run = asyncio.create_task(engine.inbox.run())
    await opening.wait()
    engine.inbox.stop()
    await run
    gc.collect()
    assert not caplog.records


# ---------------------------------------------------------------- defects
class Defect(Recorder):
    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        if command is Command.CLAIM:
            raise ZeroDivisionError("a secret of the payload")


def test_a_defect_is_one_line_without_its_text_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.handle(apply)
    engine.inbox.add_probe(Defect())
    engine.transport.publish(delivery("1"), delivery("2"), delivery("3"))
    assert run_worker(engine.inbox) is Exit.FAILED
    gc.collect()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("stopped by a defect: ZeroDivisionError at ")
    assert f"{Path(__file__).name}:" in line
    assert caplog.records[0].exc_info is None
    assert not engine.transport.acknowledged
    assert not any(lock.locked() for lock in engine.store.locks.values()), "no unit was left open"


def test_a_listener_that_fails_ends_the_run_and_leaves_nothing_open(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.handle(apply)

    def started() -> None:
        raise BrokenPipeError

    assert run_worker(engine.inbox, started=started) is Exit.FAILED
    assert "BrokenPipeError" in caplog.text
    assert not engine.store.is_open


def test_a_worker_whose_supervisor_is_gone_consumes_until_it_is_told_to_stop() -> None:
    class Closed:
        def send_bytes(self, _: bytes) -> None:
            raise BrokenPipeError

        def close(self) -> None: ...

    def target(consuming: Callable[[], None]) -> int:
        consuming()
        return Exit.FAILED

    with pytest.raises(SystemExit) as ended:
        run_in_process(target, Closed(), ())  # type: ignore[arg-type]
    assert ended.value.code == Exit.FAILED


async def test_a_transport_that_cannot_stop_leaves_no_lane_behind() -> None:
    engine = Engine()
    engine.handle(apply)

    async def stop() -> None:
        raise TransportError("no")

    engine.transport.stop = stop  # type: ignore[method-assign]
    run = asyncio.create_task(engine.inbox.run(started=engine.inbox.stop))
    with pytest.raises(TransportError):
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not engine.store.is_open


async def test_a_run_that_is_cancelled_and_cancelled_again_leaves_nothing_behind() -> None:
    engine = Engine()
    running = asyncio.Event()

    async def slow(event: Event, session: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    engine.handle(slow)
    engine.transport.publish(delivery())
    run = asyncio.create_task(engine.inbox.run())
    await running.wait()
    run.cancel()
    while not engine.inbox._consumer._intake.stopping.is_set():  # type: ignore[union-attr]
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not engine.store.is_open
    assert not engine.transport.acknowledged
    assert not any(lock.locked() for lock in engine.store.locks.values())


async def test_two_lanes_that_fail_are_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(replace(FAST, concurrency=2))
    engine.handle(apply)
    engine.store.faults["quarantine"] = [ZeroDivisionError("secret"), ZeroDivisionError("secret")]
    engine.transport.publish(delivery("1", kind="unknown"), delivery("2", kind="unknown"))
    with pytest.raises(ZeroDivisionError):
        await engine.inbox.run()
    gc.collect()
    assert "secret" not in caplog.text


# ---------------------------------------------------------------- ended hard
def test_a_watchdog_that_is_not_armed_or_closed_in_time_does_nothing() -> None:
    ended: list[bool] = []
    for seconds in (None, 1000.0):
        watchdog = Watchdog(lambda: ended.append(True))
        if seconds is not None:
            watchdog.arm(seconds)
            watchdog.arm(seconds + 1)
        watchdog.close()
    assert not ended


def test_a_watchdog_ends_what_does_not_end() -> None:
    ended = threading.Event()
    watchdog = Watchdog(ended.set)
    watchdog.arm(1000)
    watchdog.arm(0)
    assert ended.wait(10)
    watchdog.close()


def test_a_hard_end_writes_its_last_line_first(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(logging, "shutdown", lambda: done.append("flushed"))
    monkeypatch.setattr(os, "_exit", done.append)
    worker._exit_now(Exit.STOPPED_HARD)
    assert done == ["flushed", Exit.STOPPED_HARD]


def test_a_worker_stops_when_its_supervisor_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def join(self) -> None: ...

    told: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: told.append(number))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: None)
    supervisor.stop_with_parent()
    assert not told, "nobody supervises"
    monkeypatch.setattr(multiprocessing, "parent_process", Dead)
    supervisor.stop_with_parent()
    assert told == [signal.SIGTERM]


def stops_hard(consuming: Callable[[], None], watcher: int) -> int:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    consuming()
    os.kill(watcher, signal.SIGTERM)
    stopped.wait(30)
    return Exit.STOPPED_HARD


def test_the_worst_end_of_any_worker_is_the_supervisors() -> None:
    assert Supervisor(stops_hard, (os.getpid(),), count=1, patience=30).run() is Exit.STOPPED_HARD


PROGRAM = """
import asyncio, logging, os, signal, sys, threading, time
from sqlalchemy.ext.asyncio import AsyncSession
from inbox.core.event import Event
from inbox.runtime import worker
from tests.unit.engine import FAST, Engine, delivery
from dataclasses import replace

def stop(): os.kill(os.getpid(), signal.SIGTERM)

async def blocks(event: Event, session: AsyncSession) -> None:
    stop()
    time.sleep(1000)

async def leaves_a_thread(event: Event, session: AsyncSession) -> None:
    stop()
    await asyncio.to_thread(threading.Event().wait)

async def stubborn() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def leaves_a_task(event: Event, session: AsyncSession) -> None:
    tasks.append(asyncio.create_task(stubborn()))
    stop()

tasks = []
logging.basicConfig(level="WARNING", format="%(message)s")
worker._LEAVING = 0.1
engine = Engine(replace(FAST, deadline=1000, shutdown_patience=0.1, cancel_patience=0.1))
engine.inbox.handler("t")(globals()[sys.argv[1]])
engine.transport.publish(delivery())
sys.exit(worker.run_worker(engine.inbox))
"""


@pytest.mark.parametrize(
    ("handler", "running"),
    [("blocks", "__main__.blocks"), ("leaves_a_thread", "nothing of ours"), ("leaves_a_task", "nothing of ours")],
)
def test_what_a_handler_has_left_running_does_not_keep_the_process(handler: str, running: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, handler], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == Exit.STOPPED_HARD, ended.stderr
    assert ended.stderr.splitlines() == [f"stopped hard; still running: {running}"]
