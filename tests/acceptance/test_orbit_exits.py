"""How `inbox run` ends over a leased subscription: unconfirmed acknowledgements, and a platform that ends it."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command import running
from tests.acceptance.examples import EXAMPLES, ended
from tests.acceptance.test_orbit_demo import query
from tests.crash.orbit_process import OrbitProcess
from tests.facts import wait_until
from tests.pairs import Pair

QUEUE = "exits"


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[OrbitProcess]:
    with OrbitProcess(tmp_path) as process:
        yield process


def publish(platform: OrbitProcess, number: int) -> None:
    platform.publish(QUEUE, json.dumps({"task_id": f"{number:032x}", "status": "succeeded", "pages": 1}).encode())


async def environment(pair: Pair, platform: OrbitProcess, subscription: str) -> dict[str, str]:
    """Of the example, whose tables are made."""
    env = {
        "RESULTS_DATABASE_URL": pair.database_url,
        "ORBIT_URL": platform.url,
        "ORBIT_SUBSCRIPTION": subscription,
        "ORBIT_CREDENTIAL": platform.credential,
        "INBOX_ORBIT_SHUTDOWN_TIMEOUT": "1.5",
    }
    made = await ended("orbit_results.models", env=env)
    assert made.code == 0, made.err
    return env


async def test_acknowledgements_that_are_not_confirmed_in_time_are_exit_code_3_and_come_again(
    pair: Pair, platform: OrbitProcess
) -> None:
    subscription = platform.subscribe(QUEUE)
    env = await environment(pair, platform, subscription)
    platform.ask("/test/switches", {"act": "ignore", "frame": "ack", "times": 0})
    async with running("run", "orbit_results.app:inbox", env=env, cwd=EXAMPLES) as worker:
        await worker.wait_for("subscription connected")
        for number in range(2):
            publish(platform, number)
        await wait_until(lambda: query(pair, "SELECT COUNT(*) FROM report") == [2])
        begun = time.monotonic()
        done = await worker.stop()
    assert (done.code, time.monotonic() - begun < 15) == (3, True), done.err
    assert "2 events are not confirmed, 0 handlers still run" in done.err
    assert platform.states(subscription) == {"leased": 2}

    platform.ask("/test/switches", method="DELETE")
    platform.end_leases()
    async with running("run", "orbit_results.app:inbox", env=env, cwd=EXAMPLES) as worker:
        await wait_until(lambda: platform.states(subscription) == {"acknowledged": 2})
        done = await worker.stop()
    assert done.code == 0, done.err
    assert "duplicate=2" in done.err
    assert query(pair, "SELECT amount FROM total") == [2]


async def test_a_subscription_that_the_platform_ends_is_exit_code_1_and_says_why(
    pair: Pair, platform: OrbitProcess
) -> None:
    subscription = platform.subscribe(QUEUE, window=1)
    env = await environment(pair, platform, subscription)
    async with running("run", "orbit_results.app:inbox", env=env, cwd=EXAMPLES) as worker:
        await worker.wait_for("subscription connected")
        platform.ask(f"/v1/subscriptions/{subscription}/pause", b"")
        for number in range(2):
            publish(platform, number)
        assert platform.ask(f"/test/subscriptions/{subscription}/trim", b"") == {"dropped": 1}
        await asyncio.to_thread(platform.ask, "/test/connections", method="DELETE")
        done = await worker.wait_ended()
    assert done.code == 1, done.err
    assert "history-gap" in done.err
    assert "events are missing" in done.err
    assert platform.credential not in done.err
    async with running("run", "orbit_results.app:inbox", env=env, cwd=EXAMPLES) as worker:
        done = await worker.wait_ended()
    assert done.code == 2, done.err
    assert "not started" in done.err


async def test_a_worker_that_is_told_to_stop_while_the_platform_is_away_ends_at_once(
    pair: Pair, platform: OrbitProcess
) -> None:
    env = await environment(pair, platform, platform.subscribe(QUEUE))
    async with running("run", "orbit_results.app:inbox", env=env, cwd=EXAMPLES) as worker:
        await worker.wait_for("subscription connected")
        platform.kill()
        await worker.wait_for("connecting again")
        worker.send(signal.SIGTERM)
        done = await worker.wait_ended()
    assert done.code == 0, done.err
    platform.start()
