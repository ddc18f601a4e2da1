"""Servers that restart or die under load, and links that are cut: effects = distinct events afterwards."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from inbox.testing.faults import Cut, FaultProxy
from tests.concurrency.load import at_work, judge, under_load
from tests.crash.world import World, at_port
from tests.facts import wait_until
from tests.services.service import Service


def kill(server: Service) -> None:
    server.kill9()
    server.start()


OUTAGES = pytest.mark.parametrize("outage", [Service.restart, kill], ids=["restart", "sigkill"])


@OUTAGES
@pytest.mark.controls_services
@pytest.mark.timeout(300)
async def test_the_database_goes_and_comes(world: World, outage: Callable[[Service], None]) -> None:
    async with under_load(world) as load:
        await asyncio.to_thread(outage, world.pair.database)
        await load.worker.wait_for("intake resumed", times=2)


@OUTAGES
@pytest.mark.controls_services
@pytest.mark.timeout(300)
async def test_the_broker_goes_and_comes(world: World, outage: Callable[[Service], None]) -> None:
    async with under_load(world) as load:
        # A quorum queue that was declared within the last second loses what was confirmed to it.
        await load.wait_for_progress(100)
        await asyncio.to_thread(outage, world.pair.broker)
        await load.worker.wait_for("connection 2", times=2)


async def test_every_link_is_cut_again_and_again(world: World) -> None:
    pair = world.pair
    async with (
        FaultProxy(pair.database.host, pair.database.port) as database,
        FaultProxy(pair.broker.host, pair.broker.port) as broker,
        under_load(
            world,
            database_url=at_port(pair.database_url, database.port),
            amqp_url=at_port(pair.amqp_url, broker.port),
        ) as load,
    ):
        for proxies in ([database], [broker], [database, broker]):
            for how in Cut:
                for proxy in proxies:
                    await wait_until(partial(bool, proxy.links))  # the workers are back on it
                    proxy.cut(how)
                await load.wait_for_progress(10)


@pytest.mark.parametrize("gone", ["database", "both"])
async def test_a_worker_whose_servers_are_gone_still_stops_in_order(world: World, gone: str) -> None:
    pair = world.pair
    async with (
        FaultProxy(pair.database.host, pair.database.port) as database,
        FaultProxy(pair.broker.host, pair.broker.port) as broker,
        at_work(
            world,
            database_url=at_port(pair.database_url, database.port),
            amqp_url=at_port(pair.amqp_url, broker.port),
        ) as load,
    ):
        publishing = asyncio.ensure_future(load.publish())
        await load.wait_for_progress()
        for name, proxy, sign in (("database", database, "intake paused"), ("broker", broker, "cannot be reached")):
            if gone in (name, "both"):
                proxy.refuse()
                proxy.cut()
                await load.worker.wait_for(sign, times=2 if gone != "both" else 1)
        ended = await load.worker.stop()
        load.enough.set()
        await publishing
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err
    async with at_work(world) as load:
        await wait_until(lambda: load.effects() >= len(world.published))
        await world.wait_drained()
        ended = await load.worker.stop()
    await judge(world, ended)
