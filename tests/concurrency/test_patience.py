"""A database that stays away: a worker waits for ever, or ends with one line; either way nothing is lost or charged."""

import asyncio
import time

import pytest

from inbox.testing.faults import FaultProxy
from tests.acceptance.command import Ended, running
from tests.concurrency.load import Load, at_work, judge, under_load
from tests.crash.world import World, at_port
from tests.facts import wait_until

PATIENCE = 2.0
LINE = "the database has not taken writes for 2 s (DatabaseSettings.patience)"


@pytest.mark.parametrize("workers", [1, 2])
async def test_with_a_patience_it_ends_with_1_and_the_line_and_the_next_run_finds_all(
    world: World, workers: int
) -> None:
    pair = world.pair
    async with FaultProxy(pair.database.host, pair.database.port) as proxy:
        ended = await work_until_the_patience_ends(world, proxy, workers)
    assert ended.code == 1, ended.err
    errors = [line for line in ended.err.splitlines() if " ERROR " in line]
    assert errors
    assert all(LINE in line for line in errors), ended.err
    assert len(errors) <= workers
    assert "Traceback" not in ended.err
    assert "intake resumed" not in ended.err

    async with at_work(world) as load:
        await wait_until(lambda: load.effects() >= len(world.published))
        await world.wait_drained()
        ended = await load.worker.stop()
    await judge(world, ended)


async def work_until_the_patience_ends(world: World, proxy: FaultProxy, workers: int) -> Ended:
    env = {
        "APP_DATABASE_URL": at_port(world.pair.database_url, proxy.port),
        "APP_AMQP_URL": world.pair.amqp_url,
        "APP_QUEUE": world.queue,
        "APP_EXCHANGE": world.exchange,
        "APP_PATIENCE": str(PATIENCE),
    }
    async with running("run", "tests.concurrency.patient:inbox", "--workers", str(workers), env=env) as worker:
        await worker.wait_for("connection 1", times=workers)
        load = Load(world, worker, asyncio.Event())
        publishing = asyncio.ensure_future(load.publish())
        try:
            await load.wait_for_progress()
            proxy.refuse()
            proxy.cut()
            return await worker.wait_ended()
        finally:
            load.enough.set()
            await publishing


async def test_without_one_it_outlives_the_same_outage_and_resumes_by_itself(world: World) -> None:
    pair = world.pair
    async with (
        FaultProxy(pair.database.host, pair.database.port) as proxy,
        under_load(world, database_url=at_port(pair.database_url, proxy.port)) as load,
    ):
        proxy.refuse()
        proxy.cut()
        await load.worker.wait_for("intake paused: the database does not take writes", times=2)
        until = time.monotonic() + 2 * PATIENCE
        await wait_until(lambda: time.monotonic() > until)
        assert "intake resumed" not in load.worker.err
        proxy.refuse(False)
        await load.worker.wait_for("intake resumed", times=2)
