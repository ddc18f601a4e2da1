"""`inbox crash-test`, and the lab on servers: what is not safe is found out and named, what is safe passes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from inbox.testing.lab import Lab, LabError
from tests.acceptance.command import Ended, run
from tests.acceptance.examples import EXAMPLES, Place, ended
from tests.acceptance.tables import create_tables
from tests.pairs import Pair

EVENTS = "unsafe/events.jsonl"
PLUGIN = ("-p", "inbox.testing.plugin", "-p", "no:cacheprovider")


@pytest.fixture
def shop(pair: Pair) -> dict[str, str]:
    """The environment of `examples/unsafe`, in this test's database."""
    queue = pair.unique("shop-test")
    for name in (f"{queue}.dead", f"{queue}.retry.100ms"):
        pair.discard(name)
    return {"SHOP_DATABASE_URL": pair.database_url, "SHOP_AMQP_URL": pair.amqp_url, "SHOP_QUEUE": queue}


async def crash_test(target: str, env: dict[str, str], *words: str) -> Ended:
    return await run("crash-test", target, "--events", EVENTS, "--http", "MAIL_URL", *words, env=env, cwd=EXAMPLES)


async def test_a_handler_that_is_not_safe_is_found_out_and_the_same_mended_passes(
    shop: dict[str, str], tmp_path: Path
) -> None:
    assert (await ended("unsafe.tables", env=shop)).code == 0
    words = ("--points", "before:apply,before:commit,after:quarantine", "--workers", "1,2")
    page, told = tmp_path / "report.html", tmp_path / "report.json"
    found = await crash_test("unsafe.app:inbox", shop, *words, "--html", str(page), "--json", str(told))
    assert found.code == 1, found.err
    assert "NOT SAFE: 2 of 4 kills left something else" in found.out
    assert found.out.rstrip().endswith(": before:commit"), "the point is named"
    assert "table invoice: " in found.out
    assert "HTTP MAIL_URL: " in found.out
    assert "not reached by these events: after:quarantine" in found.out
    report = json.loads(told.read_text())
    outcomes = [(scenario["point"], scenario["workers"], scenario["outcome"]) for scenario in report["scenarios"]]
    assert outcomes == [
        ("before:apply", 1, "same"),
        ("before:apply", 2, "same"),
        ("before:commit", 1, "different"),
        ("before:commit", 2, "different"),
    ]
    assert "Not safe: 2 of 4 kills" in page.read_text()

    mended = await crash_test("unsafe.mended:inbox", shop, *words)
    assert (mended.code, mended.err) == (0, "")
    assert "The same after 4 kills as without" in mended.out
    nothing = ("--points", "after:quarantine")
    assert (await crash_test("unsafe.mended:inbox", shop, *nothing)).code == 2, "nothing was killed"
    assert (await crash_test("unsafe.mended:inbox", shop, *nothing, "--strict")).code == 1


async def test_checks_are_compared_in_the_place_of_tables(shop: dict[str, str]) -> None:
    assert (await ended("unsafe.tables", env=shop)).code == 0
    queries = ("SELECT DISTINCT customer FROM invoice", "SELECT COUNT(*) AS n FROM invoice")
    checks = [word for query in queries for word in ("--check", query)]
    found = await crash_test("unsafe.app:inbox", shop, "--points", "before:commit", "--workers", "1", *checks)
    assert found.code == 1
    assert "check SELECT COUNT(*) AS n FROM invoice: 1 row of the quiet run missing" in found.out
    assert "DISTINCT" not in found.out
    assert "table invoice" not in found.out, "only what was asked for, and what left the database"


async def test_without_the_inboxs_tables_it_says_how_to_make_them_and_exits_with_2(shop: dict[str, str]) -> None:
    refused = await crash_test("unsafe.mended:inbox", shop)
    assert refused.code == 2
    assert "None of the tables inbox" in refused.err
    assert "Traceback" not in refused.err


async def test_the_examples_tests_pass_mended_and_fail_unmended(shop: dict[str, str]) -> None:
    assert (await ended("unsafe.tables", env=shop)).code == 0
    mended = await ended("pytest", *PLUGIN, "unsafe", env=shop)
    assert mended.code == 0, mended.out
    assert "killed at 2 points: after:apply, after:commit" in mended.out
    found = await ended("pytest", *PLUGIN, "unsafe", "--inbox-target", "unsafe.app:inbox", env=shop)
    assert found.code == 1
    assert "the effect is there 2 times after a kill at before:commit" in found.out
    assert "not the same as a quiet run after a kill at after:apply" in found.out
    assert "2 failed, 1 passed" in found.out


# ------------------------------------------------------------------ the lab itself, with events that end otherwise
ENDS: list[dict[str, Any]] = [
    {"id": "p-1", "type": "paid"},
    {"id": "b-1", "type": "broken"},
    {"id": "r-1", "type": "rejected"},
    {"id": "n-1", "type": "nobody"},
]


@pytest.fixture
def place(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Place:
    queue = pair.unique("shop-test")
    for name in (f"{queue}.dead", f"{queue}.retry.100ms"):
        pair.discard(name)
    for name, value in (
        ("LAB_DATABASE_URL", pair.database_url),
        ("LAB_AMQP_URL", pair.amqp_url),
        ("LAB_QUEUE", queue),
    ):
        monkeypatch.setenv(name, value)
    asyncio.run(create_tables(pair))
    made = Place(pair, queue)
    made.execute("CREATE TABLE entry (id INT AUTO_INCREMENT PRIMARY KEY, payment VARCHAR(64)) ENGINE=InnoDB")
    return made


def test_events_that_fail_and_are_refused_end_as_they_do_quietly(place: Place) -> None:
    with Lab("tests.acceptance.lab_app:servers") as lab:
        for point, event_type in (("after:delay", "broken"), ("before:quarantine", "rejected")):
            lab.begin()
            lab.kill_at(point, event_type=event_type, workers=2)
            lab.publish(*ENDS, copies=2)
            lab.settled()
            assert str(lab.killed_at) == point
            lab.assert_effect_once("SELECT COUNT(*) FROM entry")
            lab.assert_same_as_quiet_run()
        passed = {name for name, _ in lab.seen()}
        assert {"after:delay", "after:quarantine", "after:rollback"} <= passed
    assert place.execute("SHOW TABLES LIKE 'inbox\\_lab%'") == []
    assert place.execute("SELECT COUNT(*) FROM entry") == [(0,)]
    assert place.execute("SELECT COUNT(*) FROM inbox_quarantine") == [(0,)]


def test_what_is_in_the_way_is_told(place: Place) -> None:
    place.execute("INSERT INTO inbox (consumer_name, event_id) VALUES ('shop', 'p-1')")
    with Lab("tests.acceptance.lab_app:servers", timeout=3) as lab:
        lab.begin()
        with pytest.raises(LabError, match="knows event p-1 already"):
            lab.publish(ENDS[0])
        lab.execute("INSERT INTO entry (payment) VALUES (%s)", "p-2")
        lab.publish({"id": "p-2", "type": "paid"})
        lab.settled()
        with pytest.raises(AssertionError, match="the effect is there 2 times"):
            lab.assert_effect_once("SELECT * FROM entry WHERE payment = %s", "p-2")
        lab.assert_same_as_quiet_run()


def test_what_does_not_end_is_named(place: Place) -> None:
    with Lab("tests.acceptance.lab_app:servers", timeout=2, longest_delay=None) as lab:
        lab.begin()
        lab.publish(ENDS[1])
        with pytest.raises(LabError, match=r"not ended: b-1; 1 messages in shop-test"):
            lab.settled()
    left = place.execute("SELECT COUNT(*) FROM inbox_attempt")
    assert left == [(0,)]
