"""The lab over a leased subscription: what is safe passes, what is not is found out, and the platform hears nothing."""

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.core.lifecycle import Command
from inbox.testing.lab import Lab, Matrix
from inbox.testing.lab.events import message_of
from inbox.testing.lab.matrix import plan
from tests.acceptance.command import ROOT, Ended, run
from tests.acceptance.examples import EXAMPLES, ended
from tests.acceptance.test_lab_plugin import PLAIN, pytest_run
from tests.documents.markdown import blocks
from tests.pairs import Pair

SUBSCRIPTION = "5" * 32


class RealPlatform:
    """Where the target's subscription is said to be. Counts who comes, and hangs up."""

    def __init__(self) -> None:
        self.visits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self._socket.accept()
                self.visits += 1
                visitor.close()

    @property
    def environment(self) -> dict[str, str]:
        url = f"ws://127.0.0.1:{self._socket.getsockname()[1]}/v1/events"
        return {"ORBIT_URL": url, "ORBIT_SUBSCRIPTION": SUBSCRIPTION, "ORBIT_CREDENTIAL": "of-the-real-one"}

    def visit(self) -> None:
        """Show that whoever comes is counted."""
        with closing(socket.create_connection(self._socket.getsockname())) as visitor:
            visitor.recv(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def real() -> Iterator[RealPlatform]:
    """Nobody may have come at the end of any test; then one does, to show that it would have been seen."""
    with RealPlatform() as made:
        yield made
        assert made.visits == 0, "somebody has asked the target's own platform"
        made.visit()
        assert made.visits == 1


def event(number: int, status: str = "succeeded", **more: object) -> dict[str, object]:
    data = {"task_id": f"{number + 7:032x}", "status": status, **more}
    return {"specversion": "1.0", "id": f"{number:032x}", "source": "/lab", "type": f"task.{status}", "data": data}


# ------------------------------------------------------------------ the whole matrix, over a file
#: Those that the events below lead to. The others need a database that fails, or a platform that keeps copies.
POINTS = [
    pytest.param(point, id=str(point))
    for point in crash_points()
    if point.command not in (Command.RESOLVE, Command.WAIT, Command.DELAY)
]
EVENTS = [event(1), event(2), event(3, "cancelled"), event(4, "failed"), event(5)]


def make_shop(folder: Path) -> dict[str, str]:
    file = folder / "shop_test.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, task TEXT, number TEXT, source TEXT)")
    return {"SHOP_FILE": str(file)}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, real: RealPlatform) -> Iterator[Matrix]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (make_shop(tmp_path_factory.mktemp("shop")) | real.environment).items():
            patch.setenv(name, value)
        with Lab("tests.acceptance.leases_app:files") as lab:
            made = Matrix(lab, [message_of(each) for each in EVENTS])
            made.run_quietly()
            yield made


@pytest.mark.drawn(3)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_safe_handler_leaves_the_same_wherever_a_worker_dies(matrix: Matrix, point: CrashPoint, workers: int) -> None:
    scenarios = plan(matrix.seen, [workers], [point])
    assert scenarios, "these events lead to it"
    for scenario in scenarios:
        result = matrix.run_one(scenario)
        assert result.outcome == "same", result.as_dict()


def test_without_a_kill_each_event_ends_in_its_way(matrix: Matrix) -> None:
    quiet = matrix.known.quiet
    ends = ["applied", "applied", "quarantined as rejected", "expired", "applied"]
    assert [*quiet.events.values()] == ends
    rows = quiet.tables["entry"].rows
    assert {(task, number, source) for _, task, number, source in rows} == {
        (f"{number + 7:032x}", str(number), f"orbit:subscription/{SUBSCRIPTION}") for number in (1, 2, 5)
    }


# ------------------------------------------------------------------ the command, on servers
async def crash_test(target: str, env: dict[str, str], events: str, *words: str) -> Ended:
    return await run("crash-test", target, "--events", events, *words, env=env, cwd=EXAMPLES)


@pytest.fixture
async def results(pair: Pair, real: RealPlatform) -> dict[str, str]:
    """The environment of `examples/orbit_results`, in this test's database."""
    env = {"RESULTS_DATABASE_URL": pair.database_url, **real.environment}
    assert (await ended("orbit_results.models", env=env)).code == 0
    return env


def written(language: str) -> str:
    """The block of the page's section."""
    page = ROOT / "docs/orbit.md"
    lines = page.read_text("utf-8").splitlines()
    begin = lines.index("## Is its handler safe?") + 1
    end = next(number for number, line in enumerate(lines, 1) if number > begin and line.startswith("## "))
    (found,) = [block.text for block in blocks(page, language) if begin < block.line < end]
    return found


async def test_results_that_are_safe_pass_by_the_pages_command(results: dict[str, str], tmp_path: Path) -> None:
    told, page = tmp_path / "report.json", tmp_path / "report.html"
    program, *words = written("sh").splitlines()[-1].split()
    fewer = ("--points", "before:apply", "--json", str(told), "--html", str(page))
    safe = await run(*words, *fewer, env=results, cwd=EXAMPLES)
    assert (program, safe.code, safe.err) == ("inbox", 0, ""), safe.out
    assert f"queue orbit:subscription/{SUBSCRIPTION}, 4 events" in safe.out
    assert "The same after 1 kill" in safe.out
    report = json.loads(told.read_text())
    assert (report["safe"], report["quiet"]["rows"]["report"]) == (True, 2)
    assert [name for name in report["not_reached"] if "delay" in name] == []
    assert f"orbit:subscription/{SUBSCRIPTION}" in page.read_text()
    assert results["ORBIT_CREDENTIAL"] not in safe.out + page.read_text() + told.read_text()


async def test_results_that_are_safe_pass_the_pages_test(
    results: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_pages.py").write_text(written("python"))
    for name, value in results.items():
        monkeypatch.setenv(name, value)
    ini = f"inbox_target = orbit_results.app:inbox\npythonpath = {EXAMPLES}\n"
    code, out = await pytest_run(tmp_path, *PLAIN, ini=ini)
    assert code == 0, out
    assert "killed at 2 points: after:apply, after:commit" in out


async def test_results_that_are_not_safe_are_found_out(results: dict[str, str], tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(json.dumps(event(number, pages=3)) for number in (1, 2)))
    words = ("--points", "before:commit", "--workers", "1", "--check", "SELECT COUNT(*) AS n FROM report")
    found = await crash_test("tests.acceptance.leases_app:unsafe", results, str(events), *words)
    assert found.code == 1, found.err
    assert found.out.rstrip().endswith(": before:commit"), found.out
    assert "check SELECT COUNT(*) AS n FROM report: 1 row of the quiet run missing" in found.out


async def test_what_cannot_come_over_leases_is_refused_with_its_line(real: RealPlatform, tmp_path: Path) -> None:
    env = {"RESULTS_DATABASE_URL": "mysql://nowhere/results_test", **real.environment}
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(json.dumps(each) for each in (event(1), event(2) | {"type": "order.paid"})))
    refused = await crash_test("orbit_results.app:inbox", env, str(events))
    assert (refused.code, refused.out) == (2, "")
    assert "line 2: type: the platform's are task.succeeded, task.failed" in refused.err
    assert "Traceback" not in refused.err


# ------------------------------------------------------------------ the fixtures of pytest
TESTS = """
import pytest

ONE = {
    "id": "1" * 32, "type": "task.succeeded",
    "data": {"task_id": "7" * 32, "status": "succeeded"},
}


def test_sync(publish, redeliver, kill_at, settled, effects, assert_effect_once):
    kill_at("after:commit")
    publish(ONE, copies=2)
    settled()
    redeliver()
    settled()
    assert effects("SELECT task, number FROM entry") == [("7" * 32, "1")]
    assert_effect_once("SELECT * FROM entry WHERE task = ?", "7" * 32)


async def test_async(inbox_memory_lab):
    inbox_memory_lab.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, task TEXT, number TEXT, source TEXT)")
    event = ONE | {"sequence": "1"}
    assert (await inbox_memory_lab.deliver(event)).outcome == "applied"
    assert (await inbox_memory_lab.deliver(event)).outcome == "duplicate"


@pytest.mark.crash_matrix(points=["before:apply", "after:delay"], workers=2)
def test_points(publish, settled, assert_effect_once):
    publish(ONE, copies=3)
    settled()
    assert_effect_once("SELECT * FROM entry")


def test_a_point_that_is_none(kill_at):
    with pytest.raises(Exception, match="after:delay is no point over orbit:subscription"):
        kill_at("after:delay")
"""
INI = """\
inbox_target = tests.acceptance.leases_app:files
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


async def test_the_fixtures_of_pytest_do_over_leases_what_they_do_over_a_queue(
    real: RealPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    for name, value in (make_shop(tmp_path) | real.environment).items():
        monkeypatch.setenv(name, value)
    code, out = await pytest_run(tmp_path, "-p", "no:anyio", "--inbox-strict", ini=INI)
    assert code == 0, out
    assert "4 passed, 1 skipped" in out
    assert f"after:delay is no point over orbit:subscription/{SUBSCRIPTION}" in out
    assert "killed at 1 points: before:apply" in out
    assert "not reached" not in out
