"""`inbox prune` as a program: interrupted, killed, beside another one, for all consumers."""

import asyncio
import json
import signal
from collections.abc import Mapping

import pytest

from inbox.cli.options import ATTENTION, OK
from tests.acceptance.command import run, running
from tests.integration.retention_rig import MySQLRetentionRig
from tests.integration.test_prune import fill
from tests.pairs import Pair

#: A batch every second: the test has the time to do something in between.
SLOWLY = ("--older-than", "1h", "--retry-horizon", "1h", "--consumer", "billing", "--batch", "50", "--pause", "1")
QUICKLY = (*SLOWLY[:6], "--json")


@pytest.fixture
async def rig(pair: Pair) -> MySQLRetentionRig:
    rig = MySQLRetentionRig(pair, pair.driver)
    await rig.create()
    return rig


@pytest.fixture
def env(pair: Pair) -> Mapping[str, str]:
    return {"INBOX_DATABASE_URL": pair.database_url}


async def rows(rig: MySQLRetentionRig) -> int:
    return int((await rig.sql("SELECT COUNT(*) FROM inbox"))[0][0])


async def wait_begun(rig: MySQLRetentionRig) -> None:
    async with asyncio.timeout(30):
        while await rows(rig) == 1000:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_it_ends_after_the_batch_and_says_what_was_done(
    rig: MySQLRetentionRig, env: Mapping[str, str], number: signal.Signals
) -> None:
    await fill(rig)
    async with running("prune", *SLOWLY, env=env) as command:
        await wait_begun(rig)
        ended = await command.stop(number)
    assert ended.code == ATTENTION, ended.err
    left = await rows(rig)
    assert 0 < left < 1000
    assert left % 50 == 0
    assert ended.out == (
        f"billing: deleted {1000 - left:,} rows ({1000 - left:,} inbox, 0 attempts, 0 quarantine, 0 workers). "
        "Not complete: run it again.\n"
    )
    again = await run("prune", *QUICKLY, env=env)
    assert (again.code, json.loads(again.out)["consumers"]["billing"]["inbox"]) == (OK, left)


async def test_killed_and_run_again_it_goes_on(rig: MySQLRetentionRig, env: Mapping[str, str]) -> None:
    await fill(rig)
    async with running("prune", *SLOWLY, env=env) as command:
        await wait_begun(rig)
        beside = await run("prune", *QUICKLY, env=env)
        assert beside.code == ATTENTION
        assert json.loads(beside.out)["consumers"]["billing"]["is_skipped"]
        assert (await command.stop(signal.SIGKILL)).code == -signal.SIGKILL
    left = await rows(rig)
    assert 0 < left < 1000
    again = await run("prune", *QUICKLY, env=env)
    assert again.code == OK, again.out
    assert json.loads(again.out)["consumers"]["billing"]["inbox"] == left
    assert await rows(rig) == 0


async def test_all_consumers_one_after_the_other(rig: MySQLRetentionRig, env: Mapping[str, str]) -> None:
    for consumer, old in (("billing", 10), ("mail", 20), ("ümläut", 30)):
        await fill(rig, old, consumer)
    await rig.sql("INSERT INTO inbox (consumer_name, event_id) VALUES ('young', '1')")
    await rig.sql(
        "INSERT INTO inbox_worker (consumer_name, worker_id, host, pid, state, counts, seen_at) VALUES"
        " ('gone', 'w', 'h', 1, 'stopped', '{}', UTC_TIMESTAMP(6) - INTERVAL 2 HOUR)"
    )
    words = ("prune", "--all-consumers", "--older-than", "1h", "--retry-horizon", "1h")
    would = await run(*words, "--dry-run", env=env)
    assert would.code == OK
    ended = await run(*words, env=env)
    assert ended.code == OK, ended.err
    assert ended.out.splitlines() == [
        f"{name}: deleted {sum(counts)} rows ({counts[0]} inbox, 0 attempts, 0 quarantine, {counts[1]} workers)."
        for name, counts in (
            ("billing", (10, 0)),
            ("gone", (0, 1)),
            ("mail", (20, 0)),
            ("young", (0, 0)),
            ("ümläut", (30, 0)),
        )
    ]
    assert would.out == ended.out.replace("deleted", "would delete")
    assert await rows(rig) == 1
    assert ended.err == ""


async def test_tables_may_have_other_names(rig: MySQLRetentionRig, env: Mapping[str, str]) -> None:
    await fill(rig, 10)
    await rig.sql("RENAME TABLE inbox TO seen")
    other = ("--table", "inbox=seen", "--no-view")
    assert (await run("prune", *QUICKLY, *other, env=env)).code == OK
    assert (await rig.sql("SELECT COUNT(*) FROM seen"))[0][0] == 0


async def test_missing_tables_are_said_with_the_fix(rig: MySQLRetentionRig, env: Mapping[str, str]) -> None:
    await rig.drop_a_table()
    ended = await run("prune", *QUICKLY, env=env)
    assert ended.code == 2
    assert ended.err.startswith("inbox prune: ")
    assert "inbox schema apply" in ended.err
