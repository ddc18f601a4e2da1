"""A worker reports while it runs, and nothing depends on that."""

import asyncio
import logging
import os
from dataclasses import replace

import pytest

from inbox.config import ConsumerSettings
from inbox.core.figures import Figures, WorkerReport
from inbox.errors import ConfigurationError, QuarantineFull, StoreUnavailable
from inbox.runtime.intake import LocalIntake
from inbox.runtime.reporting import Reporter
from inbox.testing.memory import MemoryStore, MemoryTransport
from tests.unit.engine import FAST, Engine, apply, delivery

OFTEN = replace(FAST, report_interval=0.001)
SELDOM = replace(FAST, report_interval=1000)


async def states(engine: Engine) -> list[str]:
    return [worker.report.state for worker in (await engine.store.figures()).workers]


async def wait_reported(engine: Engine, state: str) -> None:
    async with asyncio.timeout(5):
        while await states(engine) != [state]:
            await asyncio.sleep(0)


async def test_a_worker_says_that_it_consumes_and_that_it_stopped_and_what_it_did() -> None:
    engine = Engine(SELDOM)
    engine.handle(apply)
    async with engine.running():
        await wait_reported(engine, "consuming")
        engine.transport.publish(delivery("1"), delivery("1"))
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 2)
    (worker,) = (await engine.store.figures()).workers
    assert worker.report.state == "stopped"
    assert worker.report.pid == os.getpid()
    assert worker.report.counts == {"applied": 1, "duplicate": 1}


async def test_it_reports_again_after_its_interval() -> None:
    engine = Engine(OFTEN)
    engine.handle(apply)

    def seen(figures: Figures) -> bool:
        return any(worker.report.counts.get("applied") == 1 for worker in figures.workers)

    async with engine.running(), asyncio.timeout(5):
        engine.transport.publish(delivery())
        while not seen(await engine.store.figures()):
            await asyncio.sleep(0.001)


async def test_a_pause_and_its_end_are_told_at_once() -> None:
    engine = Engine(replace(SELDOM, retry=replace(FAST.retry, max_delay=0.05)))
    engine.handle(apply)
    async with engine.running():
        await wait_reported(engine, "consuming")
        engine.store.faults["quarantine"] = [QuarantineFull("the quarantine is full")]
        engine.transport.publish(delivery(kind="unknown"))
        await wait_reported(engine, "paused: the quarantine is full")
        await wait_reported(engine, "consuming")


async def test_each_start_is_another_worker() -> None:
    store = MemoryStore()
    for _ in range(2):
        await Reporter(store, LocalIntake(store, MemoryTransport(), 1), 1.0, {}).end()
    assert len((await store.figures()).workers) == 2


async def test_none_are_made_where_none_are_wanted() -> None:
    engine = Engine(replace(FAST, report_interval=None))
    engine.handle(apply)
    await engine.settle(delivery())
    assert await states(engine) == []


async def test_a_report_that_fails_hurts_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "inbox")
    engine = Engine(OFTEN)
    engine.handle(apply)
    engine.store.faults["report"] = [StoreUnavailable("gone"), ZeroDivisionError("secret"), StoreUnavailable("gone")]
    await engine.settle(delivery())
    assert engine.store.effects == ["1"]
    told = [line for line in caplog.messages if "report" in line]
    assert told == ["a report of this worker could not be written (StoreUnavailable)"]


async def test_a_store_that_does_not_answer_delays_neither_work_nor_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inbox.runtime.reporting._LAST_PATIENCE", 0.01)
    engine = Engine(OFTEN)
    engine.handle(apply)
    asked = asyncio.Event()

    async def hang(report: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(engine.store, "report", hang)
    async with asyncio.timeout(5), engine.running():
        await asked.wait()
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: len(engine.transport.acknowledged) == 1)
    assert not engine.store.is_open


async def test_a_driver_that_makes_an_error_of_the_cancellation_does_not_keep_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(SELDOM)
    engine.handle(apply)
    asked = asyncio.Event()
    report = engine.store.report

    async def hang(of: WorkerReport) -> None:
        if of.state == "stopped":
            await report(of)
            return
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreUnavailable("connection lost") from None

    monkeypatch.setattr(engine.store, "report", hang)
    async with asyncio.timeout(5), engine.running():
        await asked.wait()
    assert await states(engine) == ["stopped"]


@pytest.mark.parametrize("wrong", [0, -1, "10", float("inf")])
def test_the_interval_is_checked(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="report_interval"):
        ConsumerSettings(report_interval=wrong)
