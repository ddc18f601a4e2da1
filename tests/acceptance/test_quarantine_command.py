"""`inbox quarantine` on real servers, as a person on call uses it: from a refusal to its replay."""

import asyncio
import json
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.command import Ended, run, running
from tests.branches import Branch
from tests.crash.app import CONSUMER, connect
from tests.crash.test_replay import TARGET, environment, fill
from tests.crash.world import World, make_world
from tests.facts import wait_until
from tests.pairs import Pair


@pytest.fixture
async def world(pair: Pair) -> World:
    return await make_world(pair)


async def quarantine(world: World, *words: str) -> Ended:
    """With database and consumer from the environment, as on a host that is set up."""
    env = {"INBOX_DATABASE_URL": world.pair.database_url, "INBOX_CONSUMER": CONSUMER, **environment(world)}
    return await run("quarantine", *words, env=env)


async def test_from_a_refusal_to_its_replay(world: World, tmp_path: Path) -> None:
    await asyncio.to_thread(fill, world, 20)
    listed = await quarantine(world, "list", "--limit", "5", "--json")
    assert listed.code == 0, listed.err
    page = json.loads(listed.out)
    assert [len(page["entries"]), page["counts"][0]["entries"]] == [5, 20]
    digest = page["entries"][0]["digest"]

    shown = await quarantine(world, "show", digest[:12])
    assert shown.code == 0, shown.err
    assert "ce-type: 'apply'" in shown.out
    assert '{"n":1}' not in shown.out
    assert (await quarantine(world, "show", digest[:12], "--body")).out.endswith('\n{"n":1}\n')

    file = tmp_path / "refused.jsonl"
    exported = await quarantine(world, "export", "--output", str(file))
    assert (exported.code, len(file.read_text().splitlines())) == (0, 20), exported.err

    discarded = await quarantine(world, "discard", "--id", "q-0", "--because", "a test of the producer")
    assert (discarded.code, discarded.out) == (0, "1 entry discarded.\n"), discarded.err

    replayed = await quarantine(world, "replay", TARGET, "--since", "2026-01-01", "--json")
    assert replayed.code == 0, replayed.err
    assert json.loads(replayed.out)["applied"] == 19
    assert world.count("effect") == 19

    imported = await quarantine(world, "import", str(file))
    assert (imported.code, imported.out) == (0, "0 entries imported, 20 there already.\n"), imported.err
    assert world.query("SELECT state, COUNT(*) FROM inbox_quarantine GROUP BY state ORDER BY state") == (
        ("discarded", 1),
        ("replayed", 19),
    )
    for statement in ("DELETE FROM inbox_quarantine",):
        execute(world, statement)
    assert (await quarantine(world, "import", str(file), "--dry-run")).out.startswith("20 entries would be imported")
    imported = await quarantine(world, "import", str(file))
    assert (imported.code, imported.out) == (0, "20 entries imported, 0 there already.\n"), imported.err
    again = await quarantine(world, "replay", TARGET, "--all", "--json")
    report = json.loads(again.out)
    assert (report["applied"], report["duplicates"], again.code) == (1, 19, 0), again.err
    assert world.count("effect") == 20


async def test_what_fails_again_is_told_by_the_exit_code_and_names_its_reason(world: World) -> None:
    await asyncio.to_thread(fill, world, 2)
    execute(world, "DROP TABLE account")
    ended = await quarantine(world, "replay", TARGET, "--all", "--log-format", "json", "--log-level", "info")
    assert ended.code == 1, ended.err
    assert "2 refused again" in ended.out
    told = [json.loads(line) for line in ended.err.splitlines()]
    assert not [line for line in told if line["what"] == "quarantined"], "the report counts them"
    listed = await quarantine(world, "list")
    assert "ProgrammingError 1146" in (await quarantine(world, "show", listed.out.splitlines()[1][:12])).out
    assert world.query("SELECT attempts, times_seen, state FROM inbox_quarantine") == ((7, 2, "open"),) * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_it_finishes_what_runs_reports_and_goes_on_later(
    world: World, number: signal.Signals
) -> None:
    await asyncio.to_thread(fill, world, 1000)
    words = ("quarantine", "replay", TARGET, "--all", "--json")
    async with running(*words, env=environment(world)) as command:
        await wait_until(lambda: world.count("effect") > 0)
        ended = await command.stop(number)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    report = json.loads(ended.out)
    assert report["applied"] == world.count("effect") < 1000
    assert report["kept"] == 1000 - report["applied"]
    assert world.query("SELECT COUNT(*) FROM inbox_quarantine WHERE state = 'replayed'") == ((report["applied"],),)
    assert world.query("SELECT COUNT(*) FROM inbox_attempt WHERE open_since IS NOT NULL") == ((0,),)


async def test_a_pipe_that_closes_ends_an_export_quietly(world: World) -> None:
    await asyncio.to_thread(fill, world, 1000)
    async with running("quarantine", "export", TARGET, env=environment(world)) as command:
        assert isinstance(command._process, Branch)
        await command.read_line()
        command._process.close_stdout()
        async with asyncio.timeout(60):
            await command._process.wait()
            await command._reading
    assert "Traceback" not in command.err


def execute(world: World, statement: str) -> None:
    with closing(connect(world.pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
