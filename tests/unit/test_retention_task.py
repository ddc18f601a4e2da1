"""A worker cleans up beside its units, and nothing depends on that."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inbox.core.retention import Pruned
from inbox.errors import StoreUnavailable
from inbox.runtime.retention import BATCH, PAUSE, Retention
from inbox.testing.memory import MemoryStore
from tests.unit.engine import FAST, Engine, apply, delivery

WINDOW = 86_400.0


class PrunedStore(MemoryStore):
    """Answers each clean-up as the test says, the last answer again and again."""

    def __init__(self, *answers: Pruned | Exception) -> None:
        super().__init__()
        self.answers = [*answers]
        self.asked: list[tuple[float, int, float]] = []
        self.times: list[float] = []

    async def prune(
        self, older_than: float, *, batch: int, pause: float, progress: Callable[[Pruned], bool], dry_run: bool = False
    ) -> Pruned:
        assert progress(Pruned()), "nothing but its end ends it"
        assert not dry_run
        self.asked.append((older_than, batch, pause))
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait_asked(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.asked) < times:
                await asyncio.sleep(0.001)


async def clean_up(store: PrunedStore, times: int, interval: float = 0.001) -> None:
    running = asyncio.create_task(Retention(store, WINDOW, interval).run())
    await store.wait_asked(times)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_it_cleans_up_again_and_again_with_the_window_it_was_given() -> None:
    store = PrunedStore(Pruned())
    await clean_up(store, 3)
    assert store.asked[:3] == [(WINDOW, BATCH, PAUSE)] * 3


async def test_without_a_window_nothing_is_deleted() -> None:
    store = PrunedStore(Pruned())
    await Retention(store, None, 0.001).run()
    assert not store.asked


async def test_what_was_deleted_is_one_line_and_nothing_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "inbox")
    await clean_up(PrunedStore(Pruned(kept=5)), 2)
    assert not caplog.messages
    await clean_up(PrunedStore(Pruned(inbox=1, attempts=2, quarantine=3, workers=4, kept=5), Pruned()), 3)
    assert caplog.messages == [
        "old rows deleted: inbox=1 attempts=2 quarantine=3 workers=4; kept for the quarantine: 5"
    ]


async def test_whatever_goes_wrong_is_one_line_and_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    await clean_up(PrunedStore(StoreUnavailable("no connection", code=2003), ValueError("a secret"), Pruned()), 4)
    assert caplog.messages == [
        "old rows could not be deleted, which is tried again: no connection (error 2003)",
        "old rows could not be deleted, which is tried again: ValueError",
    ]


async def test_where_another_one_is_at_work_it_asks_again_soon() -> None:
    store = PrunedStore(Pruned(is_skipped=True, is_complete=False), Pruned())
    await clean_up(store, 3, interval=0.3)
    skipped, complete = (later - before for before, later in zip(store.times, store.times[1:], strict=False))
    assert skipped < 0.15
    assert complete >= 0.29


@pytest.mark.parametrize("retention", [None, WINDOW])
async def test_a_worker_cleans_up_if_it_is_told_to_and_goes_on_consuming(retention: float | None) -> None:
    engine = Engine(replace(FAST, retention=retention, retention_interval=0.001))
    store = PrunedStore(ValueError(), Pruned())
    engine.store.prune = store.prune  # type: ignore[method-assign] # what it answers is another test's business
    engine.handle(apply)
    async with engine.running():
        if retention is not None:
            await store.wait_asked(2)
        engine.transport.publish(delivery())
        await engine.transport.wait_settled(lambda: bool(engine.transport.acknowledged))
    assert engine.store.effects == ["1"]
    assert bool(store.asked) == (retention is not None)


async def test_a_worker_that_stops_waits_for_no_clean_up() -> None:
    engine = Engine(replace(FAST, retention=WINDOW, retention_interval=0.001))
    engine.handle(apply)
    cleaning = asyncio.Event()

    async def without_end(older_than: float, **_: Any) -> Pruned:
        cleaning.set()
        await asyncio.Event().wait()
        raise AssertionError

    engine.store.prune = without_end  # type: ignore[method-assign] # as above
    async with asyncio.timeout(5), engine.running():
        await cleaning.wait()
