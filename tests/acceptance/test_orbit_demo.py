"""The tutorial of leased subscriptions as a reader types it: server, worker and shell are processes of their own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.command import ROOT, clean_environment
from tests.acceptance.examples import EXAMPLES
from tests.crash.app import connect
from tests.documents.markdown import blocks
from tests.facts import wait_until
from tests.pairs import Pair

_DONE = "this block is done: "
#: Stands for the client of MySQL that a reader has: takes `results -e 'statements'`.
_SQL = """sql() { python -c 'if True:
    import os, sys
    from tests.crash.app import connect
    cursor = connect(os.environ["RESULTS_DATABASE_URL"]).cursor()
    for statement in sys.argv[3].split(";"):
        cursor.execute(statement)
        for row in cursor.fetchall(): print(*row)
' "$@"; }
"""
#: Stands for curl, which not every machine has: takes the options of the page.
_CURL = """curl() { python -c 'if True:
    import argparse
    from urllib.request import Request, urlopen
    taken = argparse.ArgumentParser()
    for option in "-w", "-H", "-d", "-X": taken.add_argument(option)
    taken.add_argument("-sS", action="store_true")
    taken.add_argument("url")
    asked = taken.parse_args()
    body = None if asked.d is None else asked.d.encode()
    method = asked.X or ("GET" if body is None else "POST")
    request = Request(asked.url, body, dict([asked.H.split(": ", 1)]), method=method)
    print(urlopen(request, timeout=30).read().decode())
' "$@"; }
"""


def tutorial() -> dict[str, str]:
    """The shell blocks of the page's tutorial, by the first line of each."""
    page = ROOT / "docs/orbit.md"
    lines = page.read_text("utf-8").splitlines()
    begin = lines.index("## A service, step by step") + 1
    end = next(number for number, line in enumerate(lines, 1) if number > begin and line.startswith("## "))
    return {block.text.splitlines()[0]: block.text for block in blocks(page, "sh") if begin < block.line < end}


@dataclass
class Shell:
    """The reader's first terminal."""

    process: asyncio.subprocess.Process
    blocks: dict[str, str]

    async def run(self, text: str) -> str:
        """What `text` prints; each of its lines succeeds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{text}\necho; echo '{_DONE}'$?\n".encode())
        out = ""
        async with asyncio.timeout(60):
            while not (line := (await self.process.stdout.readline()).decode()).startswith(_DONE):
                assert line, f"the shell has ended:\n{out}"
                out += line
        assert line.strip() == f"{_DONE}0", out
        return out.strip()

    async def type(self, begin: str) -> str:
        """Type the block whose first line begins so."""
        (found,) = [first for first in self.blocks if first.startswith(begin)]
        return await self.run(self.blocks.pop(found))


@asynccontextmanager
async def shell(env: dict[str, str], log: Path) -> AsyncIterator[Shell]:
    """A shell in the folder of the examples; what it has started is killed at the end."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-eu"),
            cwd=EXAMPLES,
            env=clean_environment() | env | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield Shell(process, tutorial())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def make_commands(folder: Path) -> str:
    """A search path with `python` and `inbox` of this run."""
    folder.mkdir()
    for name, words in (("python", ""), ("inbox", "-m inbox")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def query(pair: Pair, sql: str) -> list[Any]:
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [row[0] if len(row) == 1 else row for row in cursor.fetchall()]


async def test_a_reader_gets_what_the_page_says(pair: Pair, tmp_path: Path) -> None:
    env = {"RESULTS_DATABASE_URL": pair.database_url, "PATH": make_commands(tmp_path / "bin"), "HOME": str(tmp_path)}
    log = tmp_path / "log"
    async with shell(env, log) as terminal, shell(env, tmp_path / "other") as other:
        del terminal.blocks[next(first for first in terminal.blocks if first.startswith("pip install"))]
        serve = terminal.blocks.pop("inbox orbit serve --file orbit.db --budget 2").strip()
        await other.run(f"cd {tmp_path}; {serve} --port 0 > lines &")
        lines = tmp_path / "lines"
        await wait_until(lambda: lines.exists() and lines.read_text().count("\n") == 4)
        await terminal.run(_SQL + _CURL + lines.read_text())
        await terminal.type("python -m orbit_results.models")
        await wait_until(lambda: "subscription connected" in log.read_text())
        await results_come(pair, terminal)
        await a_kill(pair, terminal)
        await a_pause(pair, terminal)
        await a_budget(pair, terminal)
        assert await terminal.run("wait $!; echo $?") == "0"
        assert terminal.blocks == {}, "everything was typed"
    assert query(pair, "SELECT COUNT(*) FROM report") == [24]
    assert query(pair, "SELECT COUNT(*) FROM inbox") == [26]
    assert query(pair, "SELECT COUNT(*) FROM inbox_quarantine") == [0]
    said = log.read_text()
    assert "Traceback" not in said
    assert [word for word in (lines.read_text().split("'")[5], "upside down", "no paper") if word in said] == []


async def results_come(pair: Pair, terminal: Shell) -> None:
    await terminal.type("api() {")
    await wait_until(lambda: query(pair, "SELECT COUNT(*) FROM inbox") == [3])
    told = await terminal.type("sql results -e 'SELECT * FROM report;")
    assert query(pair, "SELECT pages FROM report") == query(pair, "SELECT amount FROM total") == [9007199254740993]
    assert query(pair, "SELECT why FROM failure") == ["no paper"]
    assert query(pair, "SELECT question, is_open FROM review") == [("is it upside down?", 1)]
    assert told.count("9007199254740993") == 2
    subscription = json.loads(told.splitlines()[-1])
    assert subscription["events"]["acknowledged"] + subscription["events"]["leased"] == 3


async def a_kill(pair: Pair, terminal: Shell) -> None:
    """It is more at work than the page has it, so that it dies with something in hand."""
    await terminal.run(
        """for number in $(seq 20); do
             api "$results" -d '{"task_id": "00000000000000000000000000000099", "status": "succeeded", "pages": 0}'
           done"""
    )
    await terminal.type("kill -9 $!")
    await terminal.type("api /test/clock")
    await wait_until(lambda: query(pair, "SELECT COUNT(*) FROM report") == [22])
    assert query(pair, "SELECT amount FROM total") == [9007199254741000]


async def a_pause(pair: Pair, terminal: Shell) -> None:
    told = await terminal.type('api "/v1/subscriptions/$ORBIT_SUBSCRIPTION/pause"')
    (event,) = json.loads(told.splitlines()[-1])["events"]
    assert (event["state"], event["generation"]) == ("due", "0")
    await terminal.type('api "/v1/subscriptions/$ORBIT_SUBSCRIPTION/resume"')
    await wait_until(lambda: query(pair, "SELECT amount FROM total") == [9007199254741011])


async def a_budget(pair: Pair, terminal: Shell) -> None:
    expired = await terminal.type('api "$results" -d \'{"task_id": "00000000000000000000000000000006"')
    (event,) = json.loads(expired.splitlines()[-1])["events"]
    assert (event["state"], event["spent"]) == ("expired", 2)
    await terminal.type("sql results -e 'ALTER TABLE")
    await wait_until(lambda: query(pair, "SELECT amount FROM total") == [100009007199254741010])
