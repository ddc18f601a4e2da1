"""Handlers that misuse their unit on SQLite: each ends committed or undone as a whole, and the next one is right.

The kinds are those of `abuses.py`; what belongs to a server (dead-locks, KILL, CALL) has no counterpart, and what only
SQLite has (conflict clauses, ATTACH, PRAGMA, several statements in a script) is tried here.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import String, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from inbox.adapters.embedded import SQLite, SQLiteStore
from inbox.config import DatabaseSettings
from inbox.core.delivery import Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.handler import Face, Handler
from inbox.core.records import Claim, InboxRecord
from inbox.errors import Contended, InboxError, StoreUnavailable, UnitMisused

_numbers = itertools.count(1)

TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE account (name TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0);
CREATE TABLE job (id INTEGER PRIMARY KEY, code TEXT UNIQUE);
CREATE TABLE child (id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES job (id));
CREATE TABLE watched (n INTEGER);
CREATE TRIGGER watch BEFORE INSERT ON watched WHEN NEW.n = 1 BEGIN SELECT RAISE(ROLLBACK, 'rolled back'); END;
"""


class Base(DeclarativeBase):
    pass


class Job(Base):
    __tablename__ = "job"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(String(64), unique=True)


@dataclass
class Scene:
    """Where an abuse happens."""

    bench: Bench
    session: AsyncSession
    connection: AsyncConnection
    driver: Any
    a: str
    b: str

    async def text(self, sql: str) -> None:
        await self.session.execute(text(sql))

    async def insert(self, clause: str) -> None:
        """A job whose code is the same each time, with a conflict clause of SQLite's."""
        await self.text(f"INSERT OR {clause} INTO job (code) VALUES ('{self.a}')")  # noqa: S608 - a name of ours

    async def cursor(self, sql: str) -> None:
        async with self.driver.cursor() as cursor:
            await cursor.execute(sql)


@dataclass
class Ending:
    """How a unit ended: what it raised, and whether the row, A's and B's additions are there."""

    error: BaseException | None
    there: tuple[bool, bool, bool]


class Bench:
    """A store with one lane, two accounts for each unit, and an honest witness beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        with closing(sqlite3.connect(self.path)) as raw:
            raw.executescript(TABLES)
        self.store: SQLiteStore = SQLite(self.path, DatabaseSettings(lock_wait=1)).for_consumer(
            "bench", concurrency=1, deadline=5
        )
        self.kept: set[asyncio.Task[Any]] = set()

    def sql(self, statement: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as raw:
            return raw.execute(statement, values).fetchall()

    def keep(self, work: Any) -> None:
        """A task that runs beside a handler, until the bench closes."""
        self.kept.add(asyncio.ensure_future(work))

    async def close(self) -> None:
        for task in self.kept:
            task.cancel()
        await asyncio.gather(*self.kept, return_exceptions=True)
        await self.store.close()

    def accounts(self) -> tuple[str, str]:
        number = next(_numbers)
        names = (f"a{number}", f"b{number}")
        for name in names:
            self.sql("INSERT INTO account (name) VALUES (?)", name)
        return names

    async def run(
        self,
        function: Callable[..., Any],
        names: tuple[str, str],
        face: Face = Face.SESSION,
        around: Callable[[Awaitable[None]], Awaitable[None]] | None = None,
    ) -> Ending:
        """Claim, apply, commit or roll back, as the processor does."""
        record = InboxRecord("bench", f"event-{next(_numbers)}".encode(), b"f" * 32, 13)
        event = Event(CloudEvent(id="e", source="/s", type="t"), record, Origin("", ""))
        error: BaseException | None = None
        async with asyncio.timeout(20):
            unit = await self.store.begin()
            assert await unit.claim(record) is Claim.NEW
            applying = unit.apply(Handler("bench.credit", "t", face, function), event, None)
            try:
                await (applying if around is None else around(applying))
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - whatever it was is looked at
                error = raised
                await unit.rollback()
            else:
                try:
                    await unit.commit()
                except Exception as raised:  # noqa: BLE001 - likewise
                    error = raised
        row = self.sql("SELECT 1 FROM inbox WHERE event_id = ?", record.key)
        a, b = (self.sql("SELECT n FROM account WHERE name = ?", name)[0][0] for name in names)
        return Ending(error, (bool(row), bool(a), bool(b)))

    async def require_next_right(self) -> None:
        names = self.accounts()

        async def both(_: object, session: AsyncSession) -> None:
            for name in names:
                await add(session, name)

        ended = await self.run(both, names)
        assert (ended.error, ended.there) == (None, (True, True, True))


async def add(session: AsyncSession, name: str) -> None:
    await session.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": name})


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    await made.store.open()
    made.sql("CREATE TABLE stolen (n INTEGER)")
    made.sql("CREATE TRIGGER steal AFTER INSERT ON stolen BEGIN DELETE FROM inbox; END")
    yield made
    await made.close()


Act = Callable[[Scene], Awaitable[object]]


@dataclass
class Abuse:
    """One of them and its right end: no error is a commit.

    Attributes:
        swallow: what the handler swallows of it.
    """

    name: str
    act: Act
    error: type[InboxError] | None = None
    says: str = ""
    swallow: type[BaseException] = Exception

    def __str__(self) -> str:
        return self.name


ABUSES: list[Abuse] = []


def committed(name: str) -> Callable[[Act], Act]:
    return _register(name, None, "", Exception)


def undone(
    name: str, says: str, *, error: type[InboxError] = UnitMisused, swallow: type[BaseException] = Exception
) -> Callable[[Act], Act]:
    return _register(name, error, says, swallow)


def _register(
    name: str, error: type[InboxError] | None, says: str, swallow: type[BaseException]
) -> Callable[[Act], Act]:
    def decorate(act: Act) -> Act:
        ABUSES.append(Abuse(name, act, error, says, swallow))
        return act

    return decorate


class Leave(BaseException):
    """Makes the scene's handler return at once, without B."""


# ------------------------------------------------------------------ control and data errors
@committed("control: nothing")
async def _(scene: Scene) -> None:
    pass


@committed("control: two statements gathered on one session")
async def _(scene: Scene) -> None:
    await asyncio.gather(scene.text("SELECT 1"), scene.text("SELECT 2"), return_exceptions=True)


@committed("control: a stream left half-read")
async def _(scene: Scene) -> None:
    for name in ("x", "y", "z"):
        await scene.session.execute(insert(Job).values(code=f"{name}-{scene.a}"))
    stream = await scene.connection.stream(text("SELECT code FROM job"))
    await stream.fetchone()


@committed("a raw cursor left half-read over thousands of rows")
async def _(scene: Scene) -> None:
    count = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5000) SELECT n FROM c"
    cursor = await scene.driver.cursor()
    await cursor.execute(count)
    assert await cursor.fetchone() == (1,)


@committed("business duplicate key by Core statement")
async def _(scene: Scene) -> None:
    for _ in range(2):
        await scene.session.execute(insert(Job).values(code=scene.a))


@committed("duplicate key inside begin_nested() with ORM objects")
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    async with scene.session.begin_nested():
        scene.session.add(Job(code=scene.a))


@committed("a missing table")
async def _(scene: Scene) -> None:
    await scene.text("UPDATE no_such_table SET n = 1")


@committed("a foreign key that is violated at once")
async def _(scene: Scene) -> None:
    await scene.text("INSERT INTO child (job) VALUES (4711)")


@committed("ON CONFLICT IGNORE, REPLACE and FAIL")
async def _(scene: Scene) -> None:
    for clause in ("IGNORE", "REPLACE", "FAIL"):
        await scene.insert(clause)


@undone("duplicate key at an ORM flush outside begin_nested()", "wrap it in begin_nested()")
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    scene.session.add(Job(code=scene.a))
    await scene.session.flush()


@undone("duplicate key at an ORM autoflush outside begin_nested()", "wrap it in begin_nested()")
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    scene.session.add(Job(code=scene.a))
    await scene.session.get(Job, 1)
    await scene.text("SELECT 1 FROM job")


# ------------------------------------------------------------------ what rolls all of it back by itself
@undone("ON CONFLICT ROLLBACK", "rolled the whole unit back")
async def _(scene: Scene) -> None:
    for _ in range(2):
        await scene.insert("ROLLBACK")


@undone("ON CONFLICT ROLLBACK by a raw cursor", "rolled the whole unit back")
async def _(scene: Scene) -> None:
    for _ in range(2):
        await scene.cursor("INSERT OR ROLLBACK INTO job (code) VALUES ('raw')")


@undone("ON CONFLICT ROLLBACK inside begin_nested()", "rolled the whole unit back")
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    async with scene.session.begin_nested():
        await scene.insert("ROLLBACK")


@undone("ON CONFLICT ROLLBACK at executemany", "rolled the whole unit back")
async def _(scene: Scene) -> None:
    rows = [{"code": scene.a}] * 3
    await scene.session.execute(text("INSERT OR ROLLBACK INTO job (code) VALUES (:code)"), rows)


@undone("RAISE(ROLLBACK) in a trigger", "rolled the whole unit back")
async def _(scene: Scene) -> None:
    await scene.text("INSERT INTO watched VALUES (1)")


@undone("a full disk", "SQLite took no statement", error=StoreUnavailable)
async def _(scene: Scene) -> None:
    await scene.driver.own(lambda raw: raw.execute("PRAGMA max_page_count = 1").fetchall())
    try:
        await scene.text("INSERT INTO job (code) VALUES (CAST(zeroblob(9000000) AS TEXT))")
    finally:
        await scene.driver.own(lambda raw: raw.execute("PRAGMA max_page_count = 1000000000").fetchall())


@undone("an interrupted write", "SQLite ended a statement", error=Contended)
async def _(scene: Scene) -> None:
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) INSERT INTO watched SELECT n + 9 FROM c"
    running = asyncio.ensure_future(scene.text(endless))
    while not scene.driver.is_busy:
        await asyncio.sleep(0)
    while not running.done():
        await scene.driver.interrupt()
        await asyncio.sleep(0.001)
    await running


@undone("a trigger that deletes the inbox's row", "DELETE of the inbox's own table")
async def _(scene: Scene) -> None:
    await scene.text("INSERT INTO stolen VALUES (1)")


# ------------------------------------------------------------------ session
@committed("session.commit()")
async def _(scene: Scene) -> None:
    await scene.session.commit()


@committed("run_sync(lambda s: s.commit())")
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda session: session.commit())


@committed("async with session.begin()")
async def _(scene: Scene) -> None:
    async with scene.session.begin():
        scene.session.add(Job(code=scene.a))


@committed("begin_nested(), left by an exception")
async def _(scene: Scene) -> None:
    async with scene.session.begin_nested():
        raise ValueError


@committed("a savepoint left open")
async def _(scene: Scene) -> None:
    await scene.session.begin_nested()


@undone("session.begin() left by an exception", "begin() block")
async def _(scene: Scene) -> None:
    async with scene.session.begin():
        raise ValueError


@undone("session.rollback()", "rollback()")
async def _(scene: Scene) -> None:
    await scene.session.rollback()


@undone("session.close() then more work", "after closing it")
async def _(scene: Scene) -> None:
    await scene.session.close()


@undone("session.invalidate()", "closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.session.invalidate()


# ------------------------------------------------------------------ connection
@undone("connection().commit()", "COMMIT")
async def _(scene: Scene) -> None:
    await scene.connection.commit()


@undone("connection().rollback()", "rollback()")
async def _(scene: Scene) -> None:
    await scene.connection.rollback()


@undone("connection().invalidate(), rollback() and on with the next", "closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.connection.invalidate()
    await scene.connection.rollback()
    await scene.connection.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": scene.b})
    await scene.connection.commit()


@undone("connection().close()", "closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.connection.close()


@undone("session.get_bind().engine.begin()", "another connection")
async def _(scene: Scene) -> None:
    def work(session: Any) -> None:
        with session.get_bind().engine.begin() as second:
            second.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": scene.b})

    await scene.session.run_sync(work)


@undone("execution_options(isolation_level='AUTOCOMMIT') after a rollback", "")
async def _(scene: Scene) -> None:
    await scene.connection.rollback()
    await scene.connection.execution_options(isolation_level="AUTOCOMMIT")


@committed("execution_options() that outlive the statement")
async def _(scene: Scene) -> None:
    await scene.connection.execution_options(logging_token="mine")


# ------------------------------------------------------------------ texts
REFUSED = {
    "COMMIT": "COMMIT",
    "  commit -- x": "COMMIT",
    "/* x */ COMMIT;": "COMMIT",
    "END": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "BEGIN": "BEGIN",
    "BEGIN IMMEDIATE": "BEGIN",
    "CREATE TABLE made (n INT)": "CREATE TABLE",
    "CREATE TEMP TABLE made (n INT)": "CREATE TEMP TABLE",
    "CREATE INDEX made ON job (id)": "CREATE INDEX",
    "CREATE TEMP TRIGGER made AFTER INSERT ON job BEGIN SELECT 1; END": "CREATE TEMP TRIGGER",
    "DROP TABLE job": "DROP TABLE",
    "ALTER TABLE job ADD COLUMN made INT": "ALTER TABLE",
    "ANALYZE": "change the schema outside of handlers",  # of its own table
    "REINDEX": "REINDEX",
    "ATTACH ':memory:' AS other": "ATTACH",
    "DETACH main": "DETACH",
    "PRAGMA synchronous = OFF": "PRAGMA synchronous",
    "PRAGMA journal_mode = DELETE": "PRAGMA journal_mode",
    "PRAGMA foreign_keys = OFF": "PRAGMA foreign_keys",
    "PRAGMA writable_schema = 1": "PRAGMA writable_schema",
    "PRAGMA wal_checkpoint(TRUNCATE)": "PRAGMA wal_checkpoint",
    "DELETE FROM inbox": "DELETE of the inbox's own table",
    'UPDATE main."INBOX" SET fingerprint = NULL': "UPDATE of the inbox's own table",
    "INSERT INTO inbox (consumer_name, event_id) VALUES (x'00', x'00')": "INSERT of the inbox's own table",
}
#: VACUUM is refused by SQLite itself, which knows no VACUUM inside of a transaction.
for _sql, _says in REFUSED.items():

    @undone(f"text {_sql!r}", _says)
    async def _(scene: Scene, sql: str = _sql) -> None:
        await scene.connection.exec_driver_sql(sql)

    @undone(f"raw cursor {_sql!r}", _says)
    async def _(scene: Scene, sql: str = _sql) -> None:
        await scene.cursor(sql)


for _sql in ("PRAGMA table_info(job)", "PRAGMA journal_mode", "VACUUM", "SELECT 1; COMMIT", "SELECT * FROM inbox"):

    @committed(f"text {_sql!r}")
    async def _(scene: Scene, sql: str = _sql) -> None:
        await scene.connection.exec_driver_sql(sql)


# ------------------------------------------------------------------ raw driver
@undone("driver.commit()", "COMMIT")
async def _(scene: Scene) -> None:
    await scene.driver.commit()


@undone("driver.rollback()", "rollback()")
async def _(scene: Scene) -> None:
    await scene.driver.rollback()


@undone("driver.executescript()", "executescript")
async def _(scene: Scene) -> None:
    await scene.driver.executescript("UPDATE account SET n = 7; COMMIT; SELECT 1")


@undone("a cursor's executescript()", "executescript")
async def _(scene: Scene) -> None:
    async with scene.driver.cursor() as cursor:
        await cursor.executescript("SELECT 1")


@undone("driver.execute('COMMIT')", "COMMIT")
async def _(scene: Scene) -> None:
    await scene.driver.execute("COMMIT")


@committed("driver.execute_fetchall()")
async def _(scene: Scene) -> None:
    assert await scene.driver.execute_fetchall("SELECT 1") == [(1,)]


@undone("a function of one's own", "command of the driver")
async def _(scene: Scene) -> None:
    await scene.driver.create_function("made", 0, int)


@undone("the authorizer taken away", "command of the driver")
async def _(scene: Scene) -> None:
    await scene.driver._execute(scene.driver._conn.set_authorizer, None)


@undone("driver.close()", "closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.driver.close()


for _level in (None, "DEFERRED"):

    @committed(f"isolation_level set to {_level} behind the guard's back, which is another thread's")
    async def _(scene: Scene, level: str | None = _level) -> None:
        scene.driver.isolation_level = level


@committed("two raw cursors at once, which their thread takes one after the other")
async def _(scene: Scene) -> None:
    await asyncio.gather(scene.cursor("SELECT 1"), scene.cursor("SELECT 2"))


# ------------------------------------------------------------------ tasks and cancellation
_ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT MAX(n) FROM c"


@undone("a task of its own still at a statement", "await its tasks")
async def _(scene: Scene) -> None:
    scene.bench.keep(scene.cursor(_ENDLESS))
    while not scene.driver.is_busy:
        await asyncio.sleep(0)
    raise Leave


@undone("a statement from outside the handler's tasks", "outside the handler's tasks")
async def _(scene: Scene) -> None:
    from contextvars import Context  # noqa: PLC0415 - beside its one use

    await asyncio.create_task(scene.text("SELECT 1"), context=Context())


@undone("swallowed CancelledError while idle", "swallowed its cancellation", swallow=BaseException)
async def _(scene: Scene) -> None:
    _cancel_me()
    await asyncio.sleep(30)


@undone("its own time-out during a query", "cancelled under way")
async def _(scene: Scene) -> None:
    async with asyncio.timeout(0.05):
        await scene.text(_ENDLESS)


@undone("its own time-out during a query inside begin_nested()", "cancelled under way")
async def _(scene: Scene) -> None:
    async with scene.session.begin_nested(), asyncio.timeout(0.05):
        await scene.text(_ENDLESS)


@undone("CancelledError raised by itself", "nobody cancelled it")
async def _(scene: Scene) -> None:
    raise asyncio.CancelledError


def _cancel_me() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def scene_of(bench: Bench, session: AsyncSession, names: tuple[str, str]) -> Scene:
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    return Scene(bench, session, connection, raw.driver_connection, *names)


@pytest.mark.parametrize("abuse", ABUSES, ids=str)
@pytest.mark.parametrize("swallows", [False, True], ids=["once", "and-goes-on"])
async def test_abuse(bench: Bench, abuse: Abuse, swallows: bool) -> None:
    """`and-goes-on` swallows also what its next statement is told."""
    names = bench.accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, names)
        await add(session, names[0])
        try:
            await abuse.act(scene)
        except Leave:
            return
        except abuse.swallow:
            pass
        with suppress(*([Exception] if swallows else [])):
            await add(session, names[1])

    ended = await bench.run(credit, names)

    if abuse.error is None:
        assert (ended.error, ended.there) == (None, (True, True, True))
    else:
        assert ended.there == (False, False, False)
        assert isinstance(ended.error, abuse.error)
        assert abuse.says in str(ended.error)
        if abuse.error is UnitMisused:
            assert "bench.credit" in str(ended.error)
    await bench.require_next_right()


@pytest.mark.parametrize("sql", ["COMMIT", "CREATE TABLE made (n INT)", "ATTACH ':memory:' AS x"])
@pytest.mark.parametrize("face", [Face.CONNECTION, Face.SYNC_SESSION])
async def test_refused_text_on_the_other_faces(bench: Bench, face: Face, sql: str) -> None:
    names = bench.accounts()
    update = text("UPDATE account SET n = 1 WHERE name = :name")

    async def by_connection(_: object, connection: AsyncConnection) -> None:
        await connection.execute(update, {"name": names[0]})
        with pytest.raises(UnitMisused):
            await connection.exec_driver_sql(sql)

    def by_session(_: object, session: Session) -> None:
        session.execute(update, {"name": names[0]})
        with pytest.raises(UnitMisused):
            session.connection().exec_driver_sql(sql)

    ended = await bench.run(by_connection if face is Face.CONNECTION else by_session, names, face)

    assert ended.there == (False, False, False)
    assert isinstance(ended.error, UnitMisused)
    await bench.require_next_right()


async def test_a_text_of_ours_that_is_cached_lets_no_handler_commit(bench: Bench) -> None:
    """Python's module finds a compiled statement by its text, and SQLite asks the authorizer when it compiles."""
    for _ in range(3):
        await bench.require_next_right()
    names = bench.accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, names)
        await add(session, names[0])
        for own in ("COMMIT", "BEGIN IMMEDIATE", "ROLLBACK"):
            with pytest.raises((UnitMisused, sqlite3.Error)):
                await scene.driver.execute(own)

    ended = await bench.run(credit, names)
    assert (type(ended.error), ended.there) == (UnitMisused, (False, False, False))


@pytest.mark.parametrize("way", ["session", "connection", "cursor", "commit", "rollback", "close"])
async def test_a_task_that_outlives_its_handler_is_refused_while_the_next_unit_runs(bench: Bench, way: str) -> None:
    first, second = bench.accounts(), bench.accounts()
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def leaves_a_task(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, first)
        for name in first:
            await add(session, name)

        async def outlives() -> None:
            await go.wait()
            update = "UPDATE account SET n = 9"
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "session": lambda: session.execute(text(update)),
                "connection": lambda: scene.connection.execute(text(update)),
                "cursor": lambda: scene.cursor(update),
                "commit": scene.driver.commit,
                "rollback": session.rollback,
                "close": scene.driver.close,
            }
            await ways[way]()

        late.append(asyncio.create_task(outlives()))

    async def meets_it(_: object, session: AsyncSession) -> None:
        await add(session, second[0])
        go.set()
        await asyncio.wait(late)
        await add(session, second[1])

    ended = await bench.run(leaves_a_task, first)
    after = await bench.run(meets_it, second)

    assert (ended.error, ended.there) == (None, (True, True, True))
    assert isinstance(late[0].exception(), UnitMisused)
    assert "outlived its handler" in str(late[0].exception())
    assert (after.error, after.there) == (None, (True, True, True))
    assert bench.sql("SELECT n FROM account WHERE name = ?", second[0]) == [(1,)]


async def test_a_deadline_ends_a_query_that_would_never_end(bench: Bench) -> None:
    names = bench.accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        await session.execute(text(_ENDLESS))

    async def within_its_deadline(applying: Awaitable[None]) -> None:
        async with asyncio.timeout(0.1):
            await applying

    ended = await bench.run(credit, names, around=within_its_deadline)

    assert ended.there == (False, False, False)
    assert isinstance(ended.error, TimeoutError)
    await bench.require_next_right()
