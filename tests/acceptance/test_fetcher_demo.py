"""`inbox demo --fetcher`, small: under the kills each genuine job event is applied once, and each forgery found out."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.command import ROOT, Ended, clean_environment, run
from tests.pairs import Pair

SMALL = ("--fetcher", "--events", "80", "--kills", "4", "--seed", "7")
#: Of 80 events: 14 forgeries, one of each kind, and one for a tenant without an account.
REASONS = {"inconsistent": 3, "invalid": 10, "stale": 1, "rejected": 1}


def counted(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    return found


def judge(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    found = counted(ended)
    assert (found["events"], found["deliveries"], found["kills"]) == (80, 100, 4)
    assert (found["effects"], found["quarantined"], found["lost"], found["double"]) == (65, 15, 0, 0)
    assert found["sum_expected"] == found["sum_found"] > 0
    rows = re.findall(r"│ +as ([a-z-]+) +│ +(\d+) +│ +(\d+) +│", ended.err)
    assert {reason: int(number) for reason, _, number in rows} == REASONS
    assert "Traceback" not in ended.err


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_it_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    judge(await run("demo", *SMALL, "--json", env={"TMPDIR": str(tmp_path)}))
    assert names_in(tmp_path) == []


async def test_it_runs_on_servers(pair: Pair) -> None:
    judge(await run("demo", *SMALL, "--json", "--database", pair.database_url, "--broker", pair.amqp_url))


async def test_workers_that_believe_everybody_are_found_out(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"from tests.acceptance.trusting_demo import main; main(*{(*SMALL[1:], '--json')!r})"),
        cwd=ROOT,
        env=clean_environment() | {"TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await program.communicate()
    ended = Ended(program.returncode or 0, out.decode(), err.decode())
    assert ended.code == 1, ended.err
    found = counted(ended)
    assert found["quarantined"] < 15, "forgeries were applied"
    assert found["sum_found"] != found["sum_expected"]
    assert "NOT AS IT MUST BE: " in ended.err
    assert "events with an effect that must have none" in ended.err
