"""Replays that race late redeliveries of the same events, and each other: every effect once, every entry closed."""

import asyncio
import json
import random

import pytest

from inbox.adapters.rabbitmq.publisher import Publisher
from tests.acceptance.command import Ended, running
from tests.concurrency.load import at_work
from tests.crash.test_replay import TARGET, environment, fill, judge, refused
from tests.crash.world import World
from tests.facts import wait_until

EVENTS = 300


async def publish_late(world: World) -> None:
    """Each event once more, in another order than that of the replay."""
    order = [*range(EVENTS)]
    random.shuffle(order)
    async with Publisher(world.pair.amqp_url) as publisher:
        for number in order:
            late = refused(number)
            await publisher.publish(
                late.body,
                exchange=world.exchange,
                routing_key="apply",
                headers=late.headers,
                content_type=late.content_type,
            )


async def replay(world: World) -> Ended:
    async with running("quarantine", "replay", TARGET, "--all", "--json", env=environment(world)) as command:
        return await command.wait_ended()


@pytest.mark.timeout(180)
async def test_replays_race_late_redeliveries_and_each_other(world: World) -> None:
    await asyncio.to_thread(fill, world, EVENTS)
    async with at_work(world) as load:
        replays = asyncio.gather(replay(world), replay(world))
        await wait_until(lambda: load.effects() > 0)
        await asyncio.gather(*(publish_late(world) for _ in range(2)))
        ended = await replays
        await world.wait_drained()
        stopped = await load.worker.stop()
    assert stopped.code == 0, stopped.err
    reports = [json.loads(each.out) for each in ended]
    assert [each.code for each in ended] == [0, 0], [each.err for each in ended]
    assert all(report["complete"] for report in reports)
    assert 0 < sum(report["applied"] for report in reports) < EVENTS, "it really raced"
    assert any(f"duplicate={n}" in stopped.err for n in range(1, 2 * EVENTS + 1)), stopped.err
    judge(world, EVENTS)
