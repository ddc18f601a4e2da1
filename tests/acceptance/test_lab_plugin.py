"""The plugin in runs of pytest of its own: without any plugin for asyncio, and under each of those that there are."""

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.acceptance.command import ROOT
from tests.facts import wait_until

#: One target over files, so that no server is needed.
SHOP = """
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import Event, Inbox, SQLite, SQLiteQueue

HERE = Path(__file__).parent
inbox = Inbox("shop", store=SQLite(HERE / "shop_test.db"), transport=SQLiteQueue(HERE / "events.db"))


@inbox.handler("paid")
async def enter(event: Event, session: AsyncSession) -> None:
    await session.execute(text("INSERT INTO entry (payment) VALUES (:payment)"), {"payment": event.id})
"""
SYNC = """
EVENT = {"id": "p-1", "type": "paid"}


def test_sync(publish, redeliver, kill_at, settled, effects, assert_effect_once, assert_same_as_quiet_run):
    kill_at("after:commit")
    publish(EVENT, copies=2)
    settled()
    redeliver()
    settled()
    assert effects("SELECT payment FROM entry WHERE payment <> ?", "seed") == [("p-1",)]
    assert_effect_once("SELECT * FROM entry WHERE payment = 'p-1'")
    assert_same_as_quiet_run()
"""
ASYNC = """
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine


@pytest.fixture
async def engine():
    made = create_async_engine("sqlite+aiosqlite:///shop_test.db")
    yield made
    await made.dispose()


async def test_async(engine, inbox_lab, inbox_memory_lab):
    inbox_memory_lab.execute("CREATE TABLE entry (payment TEXT)")
    assert (await inbox_memory_lab.deliver(EVENT)).outcome == "applied"
    assert (await inbox_memory_lab.deliver(EVENT)).outcome == "duplicate"
    inbox_lab.kill_at("before:commit")
    inbox_lab.publish(EVENT)
    inbox_lab.settled()
    inbox_lab.assert_effect_once("SELECT COUNT(*) FROM entry WHERE payment = 'p-1'")
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT payment FROM entry ORDER BY payment"))
        assert found.scalars().all() == ["p-1", "seed"]
"""
#: pytest 8.3 puts every plugin into a set.
HASHED = """
def test_every_plugin_has_a_hash(request):
    plugins = request.config.pluginmanager.list_name_plugin()
    assert "inbox options" in dict(plugins)
    for _, plugin in plugins:
        hash(plugin)
"""
MATRIX = """
import pytest


@pytest.mark.crash_matrix(points=["after:acknowledge", "before:apply", "after:quarantine"], workers=2)
def test_points(publish, settled, assert_effect_once):
    publish({"id": "p-1", "type": "paid"}, copies=3)
    settled()
    assert_effect_once("SELECT * FROM entry WHERE payment = 'p-1'")


def test_a_kill_that_does_not_come_about(kill_at):
    kill_at("after:commit")
"""
TARGET = "inbox_target = shop_app:inbox\n"
#: Options that leave plugins for asyncio out, and what to write for those that stay.
PLAIN = ("-p", "no:asyncio", "-p", "no:anyio")
EACH = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
ONE = """\
asyncio_mode = auto
asyncio_default_fixture_loop_scope = session
asyncio_default_test_loop_scope = session
"""
ANYIO = """
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_app.py").write_text(SHOP)
    with closing(sqlite3.connect(tmp_path / "shop_test.db")) as raw:
        raw.executescript(
            "CREATE TABLE entry (id INTEGER PRIMARY KEY, payment TEXT); INSERT INTO entry VALUES (7, 'seed')"
        )
    return tmp_path


async def pytest_run(folder: Path, *words: str, ini: str = "") -> tuple[int | None, str]:
    """Run pytest in `folder`: its exit code, and what it printed."""
    (folder / "pytest.ini").write_text(
        f"[pytest]\nfilterwarnings = error\n{'' if 'inbox_target' in ini else TARGET}{ini}"
    )
    is_installed = any(entry.name == "inbox" for entry in entry_points(group="pytest11"))
    plugin = () if is_installed else ("-p", "inbox.testing.plugin")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-rs", *words),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


@pytest.mark.parametrize(
    ("words", "ini", "tests"),
    [
        (PLAIN, "", SYNC + HASHED),
        ((*PLAIN, "--import-mode=importlib"), "", SYNC + HASHED),
        (("-p", "no:anyio"), EACH, SYNC + ASYNC),
        (("-p", "no:anyio"), ONE, SYNC + ASYNC),
        (("-p", "no:asyncio"), "", ANYIO + SYNC + ASYNC),
    ],
    ids=["plain", "importlib", "asyncio, a loop each", "asyncio, one loop", "anyio"],
)
async def test_it_works_under_every_plugin_for_asyncio_and_without_one(
    folder: Path, words: tuple[str, ...], ini: str, tests: str
) -> None:
    (folder / "test_shop.py").write_text(tests)
    code, out = await pytest_run(folder, *words, ini=ini)
    assert code == 0, out
    assert f"{tests.count('def test_')} passed" in out
    with closing(sqlite3.connect(folder / "shop_test.db")) as raw:
        assert raw.execute("SELECT * FROM entry").fetchall() == [(7, "seed")], "all is as it was"
    left = [name for name in os.listdir(folder) if "-lab" in name]  # noqa: PTH208 - a list of names
    assert left == []


async def test_points_that_are_not_reached_are_told_and_are_failures_where_that_is_asked_for(folder: Path) -> None:
    (folder / "test_shop.py").write_text(MATRIX)
    code, out = await pytest_run(folder, *PLAIN)
    assert code == 1, out
    assert "3 passed, 1 skipped, 1 error" in out, "one passes, and what it had asked for is missed afterwards"
    assert "after:quarantine is not reached by these events" in out
    assert "killed at 2 points: after:acknowledge, before:apply; not reached by these events: after:quarantine" in out
    assert "the kill did not come about: the test has to publish an event and to call settled()" in out
    code, out = await pytest_run(folder, *PLAIN, "-k", "quarantine", "--inbox-strict")
    assert (code, "1 failed" in out) == (1, True), out


@pytest.mark.parametrize(
    ("test", "ini", "said"),
    [
        ('@pytest.mark.crash_matrix(points=["after:lunch"])\ndef test_it(publish): ...', "", "names no crash point"),
        ("@pytest.mark.crash_matrix\ndef test_it(): ...", "", "let the test use inbox_lab or publish"),
        ("@pytest.mark.crash_matrix(worker=3)\ndef test_it(publish): ...", "", "not worker"),
        ("def test_it(publish): ...", "inbox_target =\n", "say which Inbox: `inbox_target = billing.app:inbox`"),
        ("def test_it(publish): ...", "inbox_target = shop_app:nothing\n", "module 'shop_app' has no 'nothing'"),
    ],
)
async def test_it_says_what_is_wrong(folder: Path, test: str, ini: str, said: str) -> None:
    (folder / "test_shop.py").write_text(f"import pytest\n\n{test}\n")
    code, out = await pytest_run(folder, *PLAIN, ini=ini or TARGET)
    assert code != 0
    assert said in out
    assert "INTERNALERROR" not in out


async def test_a_database_that_is_not_for_tests_is_refused_unless_that_is_said(folder: Path) -> None:
    (folder / "test_shop.py").write_text("def test_it(inbox_lab): ...\n")
    (folder / "shop_app.py").write_text(SHOP.replace("shop_test.db", "shop.db"))
    code, out = await pytest_run(folder, *PLAIN)
    assert (code, "'shop.db' is not known to be for tests" in out) == (1, True), out
    assert "lab/lab.py" not in out, "it is not the lab that has to be looked at"
    code, out = await pytest_run(folder, *PLAIN, "--inbox-disposable")
    assert code == 0, out


async def test_a_run_that_does_not_use_it_imports_nothing(folder: Path) -> None:
    """In an installation the file is a module of its own, and pytest loads that."""
    (folder / "inbox_pytest.py").write_text((ROOT / "inbox/testing/plugin.py").read_text())
    (folder / "test_shop.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    assert not {name.partition('.')[0] for name in sys.modules} & {'inbox', 'sqlalchemy', 'aio_pika'}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-p", "inbox_pytest", "-p", "no:cacheprovider", "-q"),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": "", "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


KILLED = """
import os, signal
from inbox.testing.lab import Lab

if __name__ == "__main__":
    lab = Lab("shop_app:inbox").open()
    lab.begin()
    lab.publish({"id": "p-1", "type": "paid"})
    print(lab._workers[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_workers_do_not_outlive_a_lab_that_is_killed(folder: Path) -> None:
    (folder / "killed.py").write_text(KILLED)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "killed.py"),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    worker = int(await process.stdout.readline())
    assert await process.wait() == -signal.SIGKILL
    await wait_until(lambda: not is_running(worker))


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that only waits to be looked at is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
