"""The soak ends well on this code, and its audit sees what is wrong."""

import asyncio
import json
import os
import sys
from contextlib import closing

import pytest

from tests.acceptance.command import ROOT, clean_environment
from tests.crash.app import connect
from tests.crash.world import World
from tests.pairs import Pair
from tests.soak.audit import Order, audit
from tests.soak.run import make_world

#: Of load; what workers need to start, and events to end, comes to it.
SECONDS = float(os.environ.get("INBOX_TEST_SOAK_SECONDS", "10"))


@pytest.mark.timeout(300)
async def test_a_short_soak_ends_without_a_difference(pair: Pair) -> None:
    """On servers of the run's, which are not to be restarted here: kills and cuts are left."""
    servers = {service.offer.variable: service.dsn for service in (pair.database, pair.broker)}
    words = ("--minutes", str(SECONDS / 60), "--pair", pair.id, "--seed", "7", "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak", *words),
        cwd=ROOT,
        env=clean_environment() | servers,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    assert report["is_right"]
    assert report["seed"] == 7
    assert report["events"] == report["applied"] + report["quarantined"] > 100
    assert report["deliveries"] > report["events"]
    assert report["done"]["kills"] >= 1
    assert "seed 7" in err.decode()
    assert " left · events " in err.decode(), "it tells how it goes"


def execute(world: World, *statements: str) -> None:
    with closing(connect(world.pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


ORDERS = {"apply-0": Order("apply", 3), "apply-1": Order("apply", 4), "reject-2": Order("reject", 5)}
RIGHT = (
    "INSERT INTO effect VALUES ('apply-0', 3), ('apply-1', 4)",
    "UPDATE account SET balance = 7 WHERE id = 1",
    "INSERT INTO inbox (consumer_name, event_id) VALUES ('soak', 'apply-0'), ('soak', 'apply-1')",
    (
        "INSERT INTO inbox_quarantine (consumer_name, digest, event_id, reason, headers, body) "
        "VALUES ('soak', REPEAT('x', 32), 'reject-2', 'rejected', '', '')"
    ),
)


@pytest.mark.parametrize(
    ("wrong", "differences"),
    [
        ("DO 0", []),
        ("DELETE FROM effect WHERE event_id = 'apply-0'", ["effects: missing: apply-0"]),
        ("INSERT INTO effect VALUES ('apply-1', 4)", ["effects: more than once: apply-1"]),
        ("INSERT INTO effect VALUES ('reject-2', 5)", ["effects: not wanted: reject-2"]),
        ("DELETE FROM inbox WHERE event_id = 'apply-1'", ["inbox rows: missing: apply-1"]),
        ("DELETE FROM inbox_quarantine", ["quarantine: missing: reject-2"]),
        ("UPDATE account SET balance = 8 WHERE id = 1", ["balances: 8, not 7"]),
        (
            (
                "INSERT INTO inbox_attempt (consumer_name, attempt_key, open_since, open_token) "
                "VALUES ('soak', 'apply-0', UTC_TIMESTAMP(6), REPEAT('t', 16))"
            ),
            ["open starts: apply-0"],
        ),
    ],
    ids=["nothing", "lost", "doubled", "rejected", "no-row", "no-entry", "balance", "open-start"],
)
@pytest.mark.drawn(3)
async def test_the_audit_names_what_is_wrong(pair: Pair, wrong: str, differences: list[str]) -> None:
    world = await make_world(pair)
    execute(world, *RIGHT, wrong)
    assert await audit(world, ORDERS) == differences
