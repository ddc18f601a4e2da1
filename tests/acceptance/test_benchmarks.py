"""The benchmark measures what it says, and is not taken in by a consumer that is fast and wrong."""

import json
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.catalog import Cell, Consumer, Kind, Load
from benchmarks.database import fresh_database
from benchmarks.measure import ROOT, Servers, Wrong, count_run, time_run
from tests.pairs import Pair
from tests.services.catalog import PAIRS, SERVICES


def test_one_command_measures_checks_and_writes(pair: Pair, tmp_path: Path) -> None:
    names = PAIRS[pair.id]
    given = {
        SERVICES[names.database].variable: pair.database.dsn,
        SERVICES[names.broker].variable: pair.broker.dsn,
    }
    only = f"^inbox-connection, all-new, {'MariaDB, ' if pair.id == 'oldest' else ''}8 in"
    words = ["--only", only, "--events", "200", "--rounds", "1", "--allow-memory", "--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", *words],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    raw, inbox = json.loads((tmp_path / "latest.json").read_text())
    assert (raw["consumer"], inbox["consumer"], inbox["handler"]) == ("raw", "inbox", "connection")
    assert (raw["db_commands_per_msg"], raw["acks_per_msg"], raw["ratio_to_raw"]) == (3, 1, 1)
    assert inbox["db_commands_per_msg"] == 3
    assert inbox["ratio_to_raw"] == pytest.approx(inbox["msg_per_s"] / raw["msg_per_s"], abs=0.01)
    assert all(
        row["p50_ms"] <= row["p99_ms"] and row["cpu_us_per_msg"] > 0 and row["wrong"] is None for row in (raw, inbox)
    )
    header = json.loads((tmp_path / "header.json").read_text())
    assert header["void"] == []
    assert not header["is_whole"]
    assert header["databases"][pair.id]["flush"] == header["databases"][pair.id]["sync_binlog"] == 1
    (history,) = (tmp_path / "history").glob("*.json")
    assert json.loads(history.read_text()) == {"header": header, "results": [raw, inbox]}
    assert "inbox-connection" in done.stdout
    ET.parse(tmp_path / "latest.svg")  # noqa: S314 - a file of ours


@pytest.fixture
def servers(pair: Pair) -> Iterator[Servers]:
    with fresh_database(pair.database.dsn, f"bench_{secrets.token_hex(4)}") as database:
        yield Servers(database, pair.amqp_url, (pair.database, pair.broker))


@pytest.mark.parametrize(
    ("cheating", "found"),
    [
        ("no-effect", "0 effects instead of 20"),
        ("elsewhere", "on other accounts"),
        ("no-row", "0 rows in the inbox instead of 20"),
        ("no-ack", "left in the queue"),
        ("dies", "it ended early"),
    ],
)
async def test_who_is_fast_and_wrong_has_no_figures(servers: Servers, cheating: str, found: str) -> None:
    cheat = Consumer("cheat", "cheat", "tests.acceptance.cheat", handler=cheating)
    with pytest.raises(Wrong, match=found):
        await time_run(Cell(cheat, Load(in_flight=1)), servers, 20, random.Random(1))  # noqa: S311 - test data


@pytest.mark.parametrize(
    ("kind", "packets"), [("10% duplicates", 0.9 * 3 + 0.1 * 2), ("all-duplicates", 2), ("one alone", 3)]
)
async def test_a_wire_is_counted_under_every_load(servers: Servers, kind: Kind, packets: float) -> None:
    raw = Consumer("raw", "raw", "benchmarks.consumers.raw")
    wire = await count_run(Cell(raw, Load(kind, 1)), servers, 20, random.Random(1))  # noqa: S311 - test data
    assert wire.commands == pytest.approx(packets)
    assert wire.acks == 1
