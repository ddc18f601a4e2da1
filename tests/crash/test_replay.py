"""A replay that is killed half-way and done again: every effect once, every entry closed."""

import asyncio
import json
import signal
from contextlib import closing
from datetime import UTC, datetime

import pytest

from inbox.core.delivery import Delivery, Origin
from inbox.core.kept import delivery_digest, stored_headers
from tests.acceptance.command import running
from tests.crash.app import CONSUMER, connect
from tests.crash.world import World

TARGET = "tests.concurrency.app:inbox"
#: Entries that one statement of the set-up writes.
BATCH = 500

_INSERT = (
    "INSERT INTO inbox_quarantine (consumer_name, digest, event_id, event_type, source, reason, headers, body, "
    "body_bytes, total_bytes, attempts, first_at) VALUES "
)


def number_of(world: World) -> int:
    """Ten thousand on the newest servers; a tenth on the oldest, where each commit takes longer."""
    return 10_000 if world.pair.id == "newest" else 1_000


def refused(number: int, kind: str = "apply") -> Delivery:
    return Delivery(
        b'{"n":1}',
        {"ce-id": f"q-{number}", "ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"},
        "application/json",
        origin=Origin("events", kind),
        queue="ledger",
        pristine=False,
    )


def fill(world: World, number: int) -> None:
    """Entries as a worker would have written them, each with its attempts used up."""
    with closing(connect(world.pair.database_url)) as connection, connection.cursor() as cursor:
        for start in range(0, number, BATCH):
            rows: list[object] = []
            for n in range(start, min(start + BATCH, number)):
                delivery = refused(n)
                headers = stored_headers(delivery)
                rows += [CONSUMER, delivery_digest(CONSUMER.encode(), delivery), f"q-{n}", "apply", "/tests"]
                rows += ["handler-error", headers, delivery.body, len(delivery.body), len(headers), 6]
                rows.append(datetime(2026, 1, 1, 0, 0, n // 1000, tzinfo=UTC).replace(tzinfo=None))
            count = len(rows) // 12
            values = ", ".join([f"({', '.join(['%s'] * 12)})"] * count)
            cursor.execute(_INSERT + values, rows)
            attempts = ", ".join(["(%s, %s, 6)"] * count)
            keys = [value for row in range(count) for value in (CONSUMER, rows[12 * row + 2])]
            cursor.execute(f"INSERT INTO inbox_attempt (consumer_name, attempt_key, failed) VALUES {attempts}", keys)  # noqa: S608


def environment(world: World) -> dict[str, str]:
    return {
        "APP_DATABASE_URL": world.pair.database_url,
        "APP_AMQP_URL": world.pair.amqp_url,
        "APP_QUEUE": world.queue,
        "APP_EXCHANGE": world.exchange,
    }


@pytest.mark.timeout(300)
async def test_a_replay_is_killed_half_way_and_done_again(world: World) -> None:
    number = number_of(world)
    await asyncio.to_thread(fill, world, number)
    words = ("quarantine", "replay", TARGET, "--all", "--json")
    async with running(*words, env=environment(world)) as command:
        async with asyncio.timeout(140):
            while world.count("effect") < number // 2:
                await asyncio.sleep(0.02)
        command.send(signal.SIGKILL)
        assert (await command.wait_ended()).code == -signal.SIGKILL
    done = world.count("effect")
    assert number // 2 <= done < number, "it was killed half-way"
    states = dict(world.query("SELECT state, COUNT(*) FROM inbox_quarantine GROUP BY state"))
    assert states.get("replayed", 0) <= done, "an entry is closed after its effect"
    async with running(*words, env=environment(world)) as command:
        async with asyncio.timeout(140):
            ended = await command.wait_ended()
    report = json.loads(ended.out)
    assert ended.code == 0, ended.err
    assert report["complete"]
    assert report["applied"] == number - done
    assert report["applied"] + report["duplicates"] == report["selected"] == number - states.get("replayed", 0)
    judge(world, number)
    # Also where the kill left a start open: it ran alone, and cleared itself.
    assert world.count("inbox_attempt") == 0, "what was applied is in no trouble any more"


def judge(world: World, number: int) -> None:
    """One effect and one inbox row for each, every entry closed, nothing left over."""
    assert world.query("SELECT COUNT(*), COUNT(DISTINCT event_id) FROM effect") == ((number, number),)
    assert world.query("SELECT SUM(balance) FROM account") == ((number,),)
    assert world.count("inbox") == number
    assert world.query("SELECT state, COUNT(*) FROM inbox_quarantine GROUP BY state") == (("replayed", number),)
    trouble = world.query(
        "SELECT COUNT(*) FROM inbox_attempt WHERE open_since IS NOT NULL OR failed <> 6 OR crashed > 0"
    )
    assert trouble == ((0,),), "no start is left open, and nobody was charged"
