"""`inbox demo`, small: what it shows is what it has counted, it can fail, and it leaves nothing behind."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aiormq.exceptions import ChannelNotFoundEntity

from tests.acceptance.command import ROOT, Ended, clean_environment, run, running
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Pair
from tests.services.catalog import SERVICES
from tests.services.session import Services

KEYS = [
    *("events", "deliveries", "duplicates", "kills", "effects", "lost", "double", "quarantined"),
    *("sum_expected", "sum_found", "seconds"),
]
SMALL = ("--events", "120", "--kills", "8", "--seed", "7", "--json")


def servers_of(pair: Pair) -> tuple[str, ...]:
    return ("--database", pair.database_url, "--broker", pair.amqp_url)


def counted(ended: Ended) -> dict[str, Any]:
    """The last line of standard output."""
    found: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    assert list(found) == KEYS
    assert all(isinstance(value, int | float) for value in found.values())
    return found


def judge_small(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    found = counted(ended)
    assert (found["events"], found["deliveries"], found["duplicates"]) == (120, 150, 30)
    assert (found["kills"], found["effects"], found["quarantined"]) == (8, 118, 2)
    assert (found["lost"], found["double"]) == (0, 0)
    assert found["sum_expected"] == found["sum_found"] > 0
    assert len(re.findall(r"^demo: SIGKILL \d+: ", ended.err, re.MULTILINE)) == 8
    assert ended.err.count("between COMMIT and acknowledgement") >= 4
    assert "Each of 120 events was dealt with exactly once" in ended.err
    assert "Traceback" not in ended.err


async def judge_nothing_left(pair: Pair, shown: str) -> None:
    """No table, queue or exchange of that run is there any more."""
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()
    (name,) = re.findall(r"queue (demo_[0-9a-f]{8}) on ", shown)
    pair.discard(name)
    async with await aio_pika.connect(pair.amqp_url) as broker:
        for queue in (name, f"{name}.dead", f"{name}.retry.500ms"):
            with pytest.raises(ChannelNotFoundEntity):
                await (await broker.channel()).declare_queue(queue, passive=True)
        with pytest.raises(ChannelNotFoundEntity):
            await (await broker.channel()).declare_exchange(name, passive=True)


async def wait_group_gone(group: int) -> None:
    """Return when no process of the group lives, those that nobody waits for left out."""
    await wait_until(
        lambda: not any(_is_alive_in(group, entry) for entry in names_in(Path("/proc")) if entry.isdigit())
    )


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def _is_alive_in(group: int, process: str) -> bool:
    with suppress(OSError):
        state, _, found = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[:3]
        return int(found) == group and state != "Z"
    return False


# ------------------------------------------------------------------ it holds
async def test_it_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    ended = await run("demo", *SMALL, env={"TMPDIR": str(tmp_path)})
    judge_small(ended)
    assert names_in(tmp_path) == []


async def test_without_json_the_table_is_what_it_prints(tmp_path: Path) -> None:
    ended = await run("demo", "--events", "30", "--kills", "2", "--workers", "1", env={"TMPDIR": str(tmp_path)})
    assert ended.code == 0, ended.err
    rows = dict(re.findall(r"│ +([a-z][a-z -]*?) +│ +[\d.,]+ │ +([\d.,]+) │", ended.out))
    assert (rows["deliveries settled"], rows["effects"], rows["inbox rows"]) == ("38", "28", "28")
    assert (rows["lost"], rows["double"], rows["in quarantine"]) == ("0", "0", "2")
    assert (rows["as rejected"], rows["as no-handler"], rows["workers killed"]) == ("1", "1", "2")
    assert ended.out.splitlines()[-1].startswith("Each of 30 events was dealt with exactly once")
    assert re.search(r"^demo: seed \d+$", ended.err, re.MULTILINE)


async def test_it_runs_on_servers_and_removes_what_it_made(pair: Pair) -> None:
    ended = await run("demo", *SMALL, *servers_of(pair))
    judge_small(ended)
    await judge_nothing_left(pair, ended.err)


async def test_it_finds_the_servers_that_the_tests_have(services: Services, pair: Pair) -> None:
    given = {offer.variable: services[name].dsn for name, offer in SERVICES.items()}
    ended = await run("demo", "--services", *SMALL, env=given)
    judge_small(ended)
    assert "mysql from environment" in ended.err


# ------------------------------------------------------------------ it can fail
async def broken(how: str, *words: str, env: Mapping[str, str]) -> Ended:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"from tests.acceptance.broken_demo import main; main({how!r}, *{words!r})"),
        cwd=ROOT,
        env=clean_environment() | dict(env),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await program.communicate()
    return Ended(program.returncode or 0, out.decode(), err.decode())


async def test_a_handler_that_commits_elsewhere_before_its_unit_is_found_out(tmp_path: Path) -> None:
    ended = await broken("doubling-files", *SMALL, env={"TMPDIR": str(tmp_path)})
    assert ended.code == 1, ended.err
    found = counted(ended)
    assert found["double"] >= 1
    assert found["effects"] == 119 + found["double"], "one of them should have been rejected"
    assert found["sum_found"] < found["sum_expected"]
    assert "NOT AS IT MUST BE: " in ended.err
    assert f"{found['double']:,} effects doubled" in ended.err


async def test_a_handler_that_commits_through_a_second_connection_is_found_out(pair: Pair) -> None:
    ended = await broken("doubling-servers", *SMALL, "--duplicates", "0", *servers_of(pair), env={})
    assert ended.code == 1, ended.err
    assert counted(ended)["double"] >= 1
    assert "effects doubled" in ended.err
    await judge_nothing_left(pair, ended.err)


async def test_an_effect_that_is_left_out_is_found_out(tmp_path: Path) -> None:
    ended = await broken("losing-files", *SMALL, env={"TMPDIR": str(tmp_path)})
    assert ended.code == 1, ended.err
    found = counted(ended)
    assert found["lost"] >= 1
    assert found["effects"] == 118 - found["lost"]
    assert found["double"] == 0
    assert f"{found['lost']} of 120 events lost" in ended.err


# ------------------------------------------------------------------ it is ended
ENDLESS = ("--events", "20000", "--kills", "2000")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_whoever_ends_it_finds_nothing_of_it(tmp_path: Path, number: signal.Signals) -> None:
    async with running("demo", *ENDLESS, env={"TMPDIR": str(tmp_path)}) as command:
        await command.wait_for("SIGKILL 2:")
        os.killpg(command.pid, number)  # as a terminal does
        ended = await command.wait_ended()
        await wait_group_gone(command.pid)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[-1] == "inbox demo: interrupted"
    assert "Traceback" not in ended.err
    assert names_in(tmp_path) == []


async def test_ctrl_c_removes_its_tables_and_queues_from_the_servers(pair: Pair) -> None:
    async with running("demo", *ENDLESS, *servers_of(pair), env={}) as command:
        await command.wait_for("SIGKILL 1:")
        os.killpg(command.pid, signal.SIGINT)
        ended = await command.wait_ended()
        await wait_group_gone(command.pid)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    await judge_nothing_left(pair, ended.err)


async def test_its_workers_end_with_it_though_it_is_killed(tmp_path: Path) -> None:
    async with running("demo", *ENDLESS, env={"TMPDIR": str(tmp_path)}) as command:
        await command.wait_for("SIGKILL 1:")
        command.send(signal.SIGKILL)
        await command.wait_ended()
        await wait_group_gone(command.pid)


# ------------------------------------------------------------------ it could not be run
async def test_servers_that_are_not_there_are_told_in_a_line(pair: Pair) -> None:
    nowhere = "amqp://guest:hunter2@127.0.0.1:1/"
    ended = await run("demo", "--database", pair.database_url, "--broker", nowhere)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("inbox demo: the broker at 127.0.0.1:1")
    ended = await run("demo", "--database", "mysql://root:hunter2@127.0.0.1:1/shop", "--broker", pair.amqp_url)
    assert (ended.code, ended.out) == (2, "")
    assert "the server cannot be reached" in ended.err.splitlines()[-1]
    assert "hunter2" not in ended.err
