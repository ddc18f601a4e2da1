"""`inbox fetcher pending`, as a program, against a REST server on loopback and an inbox in real databases."""

import asyncio
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from inbox.adapters.embedded import SQLite
from inbox.adapters.mysql import MySQL
from inbox.adapters.mysql.schema import apply
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent
from inbox.core.records import InboxRecord
from inbox.errors import ConfigurationError
from inbox.fetcher.models import event_id_of
from inbox.fetcher.pending import JobsApi, read_ids
from inbox.ports import StoreFactory
from inbox.tables import define_tables
from tests.acceptance.command import Ended, run, running
from tests.pairs import Pair

CONSUMER = "billing"
TOKEN = "Bearer hunter2"
MOMENT = "2026-06-25T14:19:58.987654321Z"


def job(number: int) -> str:
    return str(uuid.UUID(int=(0x0198A1F2 << 96) | (7 << 76) | (2 << 62) | number))


# ------------------------------------------------------------------ the provider
@dataclass
class Api:
    """What it answers about jobs, and what it was asked."""

    jobs: dict[str, Any] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    together: int = 0  # after the first one, answers wait until so many wait for one
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self.is_open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.at_once += 1
                self.most_at_once = max(self.at_once, self.most_at_once)
                if self.at_once == self.together:
                    self.is_open.set()
                await self.is_open.wait()
                writer.write(self._answer(head))
                if self.together and len(self.asked) == 1:
                    self.is_open.clear()
                await writer.drain()
                self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, head: str) -> bytes:
        path = head.split()[1]
        self.asked.append(path)
        if f"authorization: {TOKEN}\r\n".lower() not in head.lower():
            return answer("401 Unauthorized", "{}")
        if self.first:
            return answer(self.first.pop(0), "busy")
        found = self.jobs.get(path.removeprefix("/api/v1/fetcher/"))
        if found is None:
            return answer("404 Not Found", "{}")
        return answer("200 OK", found if isinstance(found, str) else json.dumps(found))


def answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/"
        yield made


# ------------------------------------------------------------------ the inbox
async def fill(factory: StoreFactory, applied: list[str], refused: Mapping[str, str]) -> None:
    """Leave what a consumer leaves that applied some events and refused others."""
    store = factory.for_consumer(CONSUMER, concurrency=1, deadline=10)
    await store.open()
    for event_id in applied:
        unit = await store.begin()
        await unit.claim(InboxRecord(CONSUMER, event_id.encode()))
        await unit.commit()
    for event_id, reason in refused.items():
        delivery = Delivery(body=b"{}", headers={}, content_type=None, origin=Origin("e", "k"), queue="q")
        await store.quarantine(delivery, CloudEvent(event_id, "/s", "t"), reason, "")
    await store.close()


@asynccontextmanager
async def over_files(folder: Path) -> AsyncIterator[tuple[list[str], dict[str, str]]]:
    (folder / "shop.py").write_text(
        "from inbox import Inbox, SQLite\n"
        f"from inbox.fetcher import job_event_settings\ninbox = Inbox({CONSUMER!r}, store=SQLite('shop.db'), "
        "settings=job_event_settings())\n"
    )
    yield ["shop:inbox"], {}


APPLIED, REFUSED, LOST, FAILED, RUNNING, UNKNOWN = (job(number) for number in range(6))
JOBS: dict[str, Any] = {
    APPLIED: {"id": APPLIED, "status": "completed", "completedAt": MOMENT},
    REFUSED: {"id": REFUSED, "status": "completed", "completedAt": "2026-06-25T11:19:58-03:00"},
    LOST: {"id": LOST, "status": "COMPLETED", "completed_at": "\x1b[2Jnot a time"},
    FAILED: {"id": FAILED, "status": "failed"},
    RUNNING: {"id": RUNNING, "status": "processing"},
}


async def prepare(factory: StoreFactory) -> None:
    seen = [event_id_of(APPLIED, "completed"), event_id_of(FAILED, "completed")]
    await fill(factory, seen, {event_id_of(REFUSED, "completed"): "rejected"})


async def judge(api: Api, words: list[str], env: Mapping[str, str], folder: Path) -> None:
    api.jobs |= JOBS
    ids = folder / "ids.txt"
    ids.write_text("\n".join(["# open jobs", *JOBS, "", f"{UNKNOWN}  # who?", LOST]) + "\n")
    given = {"FETCHER_API_AUTHORIZATION": TOKEN, "FETCHER_API_URL": api.url, **env}
    ended = await run("fetcher", "pending", *words, "--ids", str(ids), "--json", env=given, cwd=folder)
    assert ended.code == 1, ended.err
    found = json.loads(ended.out)
    assert {each["job_id"]: each for each in found.pop("pending")} == {
        REFUSED: {
            "job_id": REFUSED,
            "status": "completed",
            "event_id": f"fetcher.job.completed.{REFUSED}",
            "completed_at": "2026-06-25T11:19:58-03:00",
            "quarantined": "rejected",
        },
        LOST: {
            "job_id": LOST,
            "status": "completed",
            "event_id": f"fetcher.job.completed.{LOST}",
            "completed_at": None,
            "quarantined": None,
        },
        FAILED: {
            "job_id": FAILED,
            "status": "failed",
            "event_id": f"fetcher.job.failed.{FAILED}",
            "completed_at": None,
            "quarantined": None,
        },
    }
    assert found == {"unknown": [UNKNOWN], "not_asked": [], "answered": 6, "applied": 1, "running": 1}
    assert sorted(api.asked) == sorted(f"/api/v1/fetcher/{job_id}" for job_id in {*JOBS, UNKNOWN}), "each once"
    assert "hunter2" not in ended.out + ended.err
    assert "\x1b" not in ended.out


async def test_jobs_whose_event_was_not_applied_are_listed(pair: Pair, api: Api, tmp_path: Path) -> None:
    engine = create_async_engine(pair.database_url)
    await apply(engine, define_tables(MetaData()))
    await engine.dispose()
    await prepare(MySQL(pair.database_url))
    env = {"INBOX_DATABASE_URL": pair.database_url, "INBOX_CONSUMER": CONSUMER}
    await judge(api, [], env, tmp_path)
    ended = await run("fetcher", "pending", "--ids", "/dev/null", env=given(api) | env)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "0 pending, 0 applied, 0 not ended, 0 unknown, 0 without an answer.\n"


async def test_an_inbox_in_a_file_is_asked_by_its_target(api: Api, tmp_path: Path) -> None:
    await prepare(SQLite(tmp_path / "shop.db"))
    async with over_files(tmp_path) as (words, env):
        await judge(api, words, env, tmp_path)


# ------------------------------------------------------------------ a provider that fails
def given(api: Api) -> dict[str, str]:
    return {"FETCHER_API_AUTHORIZATION": TOKEN, "FETCHER_API_URL": api.url}


async def ask(
    api: Api, folder: Path, *words: str, ids: list[str] | None = None, env: Mapping[str, str] | None = None
) -> Ended:
    (folder / "ids.txt").write_text("\n".join(ids or [APPLIED]))
    await prepare(SQLite(folder / "shop.db"))
    async with over_files(folder) as (target, _):
        return await run(
            *("fetcher", "pending", *target, "--ids", "ids.txt", *words), env=given(api) | dict(env or {}), cwd=folder
        )


async def test_a_busy_provider_is_asked_again_after_as_long_as_it_says(api: Api, tmp_path: Path) -> None:
    api.jobs |= JOBS
    api.first = [
        *("429 Too Many Requests\r\nRetry-After: 1", f"503 Slow\r\nRetry-After: {formatdate(0, usegmt=True)}"),
        "500 Oops",
    ]
    loop = asyncio.get_running_loop()
    began = loop.time()
    ended = await ask(api, tmp_path)
    assert ended.code == 0, ended.err
    assert len(api.asked) == 4
    assert loop.time() - began > 1.0


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (["503 Slow"] * 2, "HTTP 503"),
        (["429 Busy\r\nRetry-After: 3600"], "HTTP 429"),
        (["302 Found\r\nLocation: http://127.0.0.1:1/"], "HTTP 302"),
    ],
)
async def test_a_provider_that_does_not_answer_is_told_in_a_line(
    api: Api, tmp_path: Path, first: list[str], said: str
) -> None:
    api.first = [*first]
    ended = await ask(api, tmp_path, "--tries", "2")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("inbox fetcher pending: the provider")
    assert said in ended.err
    assert len(api.asked) == len(first)


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", '{"state":"completed"}', '{"status":7}', '{"status":"completed"'),
        pytest.param("x" * (5 << 20), id="large"),
    ],
)
async def test_an_answer_that_cannot_be_understood_is_none(api: Api, tmp_path: Path, body: str) -> None:
    api.jobs = {APPLIED: JOBS[APPLIED], LOST: body}
    ended = await ask(api, tmp_path, ids=[APPLIED, LOST])
    assert ended.code == 1
    assert ended.out.startswith(f"{LOST}  the provider's answer ")
    assert len(ended.out.splitlines()) == 1


async def test_nobody_there(api: Api, tmp_path: Path) -> None:
    ended = await ask(api, tmp_path, "--tries", "1", env={"FETCHER_API_URL": "http://127.0.0.1:1"}, ids=[*JOBS] * 9)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "inbox fetcher pending: the provider does not answer (ConnectError)\n"


async def test_whoever_may_not_ask_is_told_where_the_token_goes(api: Api, tmp_path: Path) -> None:
    ended = await ask(api, tmp_path, env={"FETCHER_API_AUTHORIZATION": "Bearer wrong"}, ids=[*JOBS])
    assert (ended.code, ended.out) == (2, "")
    assert "FETCHER_API_AUTHORIZATION" in ended.err
    assert len(api.asked) == 1
    assert "wrong" not in ended.err


async def test_so_many_are_asked_at_once(api: Api, tmp_path: Path) -> None:
    ids = [job(number) for number in range(10, 60)]
    api.jobs = {each: {"status": "pending"} for each in ids}
    api.together = 3
    ended = await ask(api, tmp_path, "--concurrency", "3", ids=ids)
    assert ended.code == 0, ended.err
    assert api.most_at_once == 3


async def test_a_provider_that_hangs_is_given_up(api: Api, tmp_path: Path) -> None:
    api.is_open.clear()
    ended = await ask(api, tmp_path, "--timeout", "0.3", "--tries", "1", ids=[*JOBS])
    assert ended.code == 2
    assert "(ReadTimeout)" in ended.err
    assert len(api.asked) == 0


async def test_interrupted_it_tells_what_it_knows(api: Api, tmp_path: Path) -> None:
    ids = [APPLIED, LOST, *(job(number) for number in range(10, 60))]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    api.jobs |= JOBS
    await prepare(SQLite(tmp_path / "shop.db"))
    async with (
        over_files(tmp_path) as (target, _),
        running(
            *("fetcher", "pending", *target, "--ids", "ids.txt", "--json", "--concurrency", "1"),
            env=given(api),
            cwd=tmp_path,
        ) as command,
    ):
        async with asyncio.timeout(30):
            while len(api.asked) < 3:
                await asyncio.sleep(0.001)
            api.is_open.clear()
            while not api.at_once:
                await asyncio.sleep(0.001)
        command.send(signal.SIGINT)
        await asyncio.sleep(0)
        api.is_open.set()
        ended = await command.wait_ended()
    assert ended.code == 1, ended.err
    found = json.loads(ended.out)
    assert [each["job_id"] for each in found["pending"]] == [LOST]
    assert found["answered"] + len(found["not_asked"]) == len(ids)
    assert found["not_asked"]


# ------------------------------------------------------------------ wrong options
@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        ((), {"FETCHER_API_URL": "https://root:hunter2@fetcher"}, "holds a password"),
        ((), {"FETCHER_API_URL": "fetcher:4006"}, "write https://host"),
        ((), {"FETCHER_API_URL": "http://fetcher:port"}, "write https://host"),
        ((), {"FETCHER_API_URL": "https://fetcher/?a=b"}, "write https://host"),
        ((), {"FETCHER_API_AUTHORIZATION": "Bearer hunter2\n"}, "must be one line"),
        (("--ids", "missing.txt"), {}, "missing.txt: No such file"),
        (("--ids", "bad.txt"), {}, "line 2: no job id"),
        (("--ids", "binary.txt"), {}, "not text in UTF-8"),
        (("--database", "mysql://u@h/d"), {}, "write the target or the options"),
    ],
)
async def test_what_is_wrong_is_told_before_anybody_is_asked(
    api: Api, tmp_path: Path, words: tuple[str, ...], env: Mapping[str, str], said: str
) -> None:
    (tmp_path / "bad.txt").write_text(f"{APPLIED}\n{APPLIED.upper()}\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    ended = await ask(api, tmp_path, *words, env=env)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "hunter2" not in ended.err
    assert api.asked == []


async def test_a_consumer_that_knows_its_events_by_source_cannot_be_asked(api: Api, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "from inbox import ConsumerSettings, Inbox, SQLite\n"
        "inbox = Inbox('billing', store=SQLite('shop.db'), settings=ConsumerSettings(identity='source+id'))\n"
    )
    (tmp_path / "ids.txt").write_text(APPLIED)
    ended = await run("fetcher", "pending", "other:inbox", "--ids", "ids.txt", env=given(api), cwd=tmp_path)
    assert ended.code == 2
    assert "identity='id'" in ended.err


def test_ids_are_read_once_each() -> None:
    lines = ["\ufeff" + APPLIED, "", f"  {LOST}\t# lost", "# nothing", APPLIED]
    assert read_ids(lines) == [APPLIED, LOST]
    with pytest.raises(ConfigurationError, match="line 1"):
        read_ids([APPLIED + "x" * 5000])


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'idempotent-inbox\[fetcher\]'"):
        JobsApi("https://fetcher")
