"""What handlers do that must not split their unit: one adds to A, does this, swallows what it raises, and adds to B."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiomysql
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from inbox.errors import Contended, InboxError, UnitMisused
from tests.integration.bench import Account, Bench, Job

#: MySQL manual, "Prepared Statements" of the client/server protocol.
_COM_STMT_PREPARE = 22


@dataclass
class Scene:
    """Where an abuse happens."""

    bench: Bench
    session: AsyncSession
    connection: AsyncConnection
    #: The driver's own connection, and SQLAlchemy's wrapper of it.
    driver: Any
    dbapi: Any
    a: str
    b: str

    async def text(self, sql: str) -> None:
        await self.session.execute(text(sql))

    async def cursor(self, sql: str, cursor_class: type[Any] | None = None) -> None:
        async with self.driver.cursor(*([cursor_class] if cursor_class else [])) as cursor:
            await cursor.execute(sql)

    @property
    def thread_id(self) -> int:
        return int(self.driver.thread_id())


Act = Callable[[Scene], Awaitable[object]]


@dataclass
class Abuse:
    """One of them and its right end.

    Attributes:
        name: as the documentation of the guard's tests has it.
        act: what the handler does.
        error: None where the unit is to be committed.
        says: part of the error's text.
        discards: the connection must not run another unit.
        swallow: what the handler swallows.
    """

    name: str
    act: Act
    error: type[InboxError] | None = None
    says: str = ""
    discards: bool = False
    swallow: type[BaseException] = Exception

    def __str__(self) -> str:
        return self.name


ABUSES: list[Abuse] = []


def committed(name: str, *, discards: bool = False) -> Callable[[Act], Act]:
    """The unit is committed as if nothing had been."""
    return _register(Abuse(name, _nothing, discards=discards))


def undone(
    name: str,
    *,
    says: str,
    error: type[InboxError] = UnitMisused,
    discards: bool = True,
    swallow: type[BaseException] = Exception,
) -> Callable[[Act], Act]:
    """Nothing of the unit is there, and the error says why."""
    return _register(Abuse(name, _nothing, error, says, discards, swallow))


def _register(abuse: Abuse) -> Callable[[Act], Act]:
    def decorate(act: Act) -> Act:
        abuse.act = act
        ABUSES.append(abuse)
        return act

    return decorate


async def _nothing(scene: Scene) -> None:
    pass


# ------------------------------------------------------------------ control
committed("control: nothing")(_nothing)


@committed("control: two statements gathered on one session")
async def _(scene: Scene) -> None:
    # A clear error, or both: SQLAlchemy's lock makes it both.
    await asyncio.gather(scene.text("SELECT 1"), scene.text("SELECT 2"), return_exceptions=True)


@committed("control: a stream left half-read")
async def _(scene: Scene) -> None:
    for name in ("x", "y", "z"):
        await scene.session.execute(insert(Job).values(code=f"{name}-{scene.a}"))
    stream = await scene.connection.stream(text("SELECT code FROM job"))
    await stream.fetchone()


# ------------------------------------------------------------------ swallowed server errors
@undone("1205 on a row held elsewhere", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    await _meet_lock(scene, scene.text)


@undone("1205 by a raw cursor", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    await _meet_lock(scene, scene.cursor)


@undone("1205 by an unbuffered cursor", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    async def read(sql: str) -> None:
        stream = await scene.connection.stream(text("SELECT n FROM account WHERE name = 'held' FOR UPDATE"))
        await stream.all()

    await _meet_lock(scene, read)


@undone("1205 at executemany", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    async def write(_: str) -> None:
        rows = [{"name": "held"}, {"name": "nobody"}]
        await scene.session.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), rows)

    await _meet_lock(scene, write)


@undone("1205 inside begin_nested()", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    async def write(sql: str) -> None:
        async with scene.session.begin_nested():
            await scene.text(sql)

    await _meet_lock(scene, write)


@undone("1205 in an ORM flush", error=Contended, says="1205", discards=False)
async def _(scene: Scene) -> None:
    async def write(_: str) -> None:
        held = await scene.session.get(Account, "held")
        assert held is not None
        held.n += 1
        await scene.session.flush()

    await _meet_lock(scene, write)


@undone("1213 against another session", error=Contended, says="1213", discards=False)
async def _(scene: Scene) -> None:
    await _lose_deadlock(scene, scene.text)


@undone("1213 inside begin_nested() (shows as 1305)", error=Contended, says="1213", discards=False)
async def _(scene: Scene) -> None:
    async def write(sql: str) -> None:
        async with scene.session.begin_nested():
            await scene.text(sql)

    await _lose_deadlock(scene, write)


@undone("connection KILLed", error=Contended, says="the server ended the unit")
async def _(scene: Scene) -> None:
    scene.bench.witness.run(f"KILL {scene.thread_id}")
    await scene.bench.witness.wait_until_gone(scene.thread_id)
    await scene.text("SELECT 1")


@undone("connection KILLed inside begin_nested()", error=Contended, says="the server ended the unit")
async def _(scene: Scene) -> None:
    await scene.session.begin_nested()
    scene.session.add(Job(code=scene.a))
    await scene.session.flush()
    scene.bench.witness.run(f"KILL {scene.thread_id}")
    await scene.bench.witness.wait_until_gone(scene.thread_id)
    await scene.text("SELECT 1")


@undone("query KILLed", error=Contended, says="1317", discards=False)
async def _(scene: Scene) -> None:
    # SLEEP alone answers 1 when it is killed.
    query = asyncio.ensure_future(scene.text("UPDATE account SET n = n + SLEEP(30) WHERE name = 'held'"))
    await scene.bench.witness.wait_until_runs(scene.thread_id, "SLEEP(30)")
    scene.bench.witness.run(f"KILL QUERY {scene.thread_id}")
    await query


async def _meet_lock(scene: Scene, act: Callable[[str], Awaitable[None]]) -> None:
    witness = scene.bench.witness
    witness.run("BEGIN")
    witness.run("UPDATE account SET n = n WHERE name = 'held'")
    try:
        await act("UPDATE account SET n = n + 1 WHERE name = 'held'")
    finally:
        witness.run("ROLLBACK")


async def _lose_deadlock(scene: Scene, act: Callable[[str], Awaitable[None]]) -> None:
    """The witness has changed more rows, so that InnoDB picks the unit (manual, "Deadlock Detection")."""
    witness = scene.bench.witness
    witness.run("BEGIN")
    try:
        for number in range(30):
            witness.run("INSERT INTO job (code) VALUES (%s)", f"heavy-{scene.a}-{number}")
        witness.run("UPDATE account SET n = n WHERE name = 'held'")
        crossing = asyncio.ensure_future(witness.run_aside("UPDATE account SET n = n WHERE name = %s", scene.a))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):  # long enough to be waiting for A; if it is not, the other one meets it
                await asyncio.shield(crossing)
        try:
            await act("UPDATE account SET n = n + 1 WHERE name = 'held'")
        finally:
            await crossing
    finally:
        witness.run("ROLLBACK")


# ------------------------------------------------------------------ swallowed data errors
@committed("business 1062 by Core statement")
async def _(scene: Scene) -> None:
    for _ in range(2):
        await scene.session.execute(insert(Job).values(code=scene.a))


@committed("1062 inside begin_nested() with ORM objects")
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    async with scene.session.begin_nested():
        scene.session.add(Job(code=scene.a))


@committed("a missing table")
async def _(scene: Scene) -> None:
    await scene.text("UPDATE no_such_table SET n = 1")


@committed("a missing procedure's number, 1305, of a function")
async def _(scene: Scene) -> None:
    await scene.text("SELECT no_such_function_of_ours(1)")


@undone("1062 at an ORM autoflush outside begin_nested()", says="wrap it in begin_nested()", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    scene.session.add(Job(code=scene.a))
    await scene.text("SELECT 1 FROM job")
    await scene.session.get(Job, 1)


@undone("1062 at an ORM flush outside begin_nested()", says="wrap it in begin_nested()", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.execute(insert(Job).values(code=scene.a))
    scene.session.add(Job(code=scene.a))
    await scene.session.flush()


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


@committed("async with session.begin_nested(), left by an exception")
async def _(scene: Scene) -> None:
    async with scene.session.begin_nested():
        raise ValueError


@committed("a savepoint left open")
async def _(scene: Scene) -> None:
    await scene.session.begin_nested()


@undone("session.begin() left by an exception", says="begin() block", discards=False)
async def _(scene: Scene) -> None:
    async with scene.session.begin():
        raise ValueError


@undone("session.rollback()", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.rollback()


@undone("run_sync(lambda s: s.rollback())", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda session: session.rollback())


@undone("session.reset()", says="reset", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda session: session.reset() if hasattr(session, "reset") else session.rollback())


@undone("session.close() then more work", says="after closing it")
async def _(scene: Scene) -> None:
    await scene.session.close()


@undone("session.close() with unflushed changes, then more work", says="after closing it")
async def _(scene: Scene) -> None:
    scene.session.add(Job(code=scene.a))
    await scene.session.close()


@undone("session.invalidate()", says="closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.session.invalidate()


@undone("session.get_transaction().rollback()", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda session: _transaction_of(session).rollback())


@committed("session.get_transaction().commit()")
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda session: _transaction_of(session).commit())


def _transaction_of(session: Session) -> SessionTransaction:
    """The synchronous one: before SQLAlchemy 2.0.40 an AsyncSession cannot show its own."""
    transaction = session.get_transaction()
    assert transaction is not None
    return transaction


# ------------------------------------------------------------------ connection
@undone("connection().commit()", says="COMMIT")
async def _(scene: Scene) -> None:
    await scene.connection.commit()


@undone("connection().rollback()", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    await scene.connection.rollback()


@undone("connection().invalidate()", says="closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.connection.invalidate()


@undone("connection().invalidate(), rollback() and on with the next", says="closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.connection.invalidate()
    await scene.connection.rollback()
    await scene.connection.execute(text("UPDATE account SET n = n + 1 WHERE name = 'held'"))
    await scene.connection.commit()


@undone("connection().close()", says="closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.connection.close()


@undone("session.get_bind() of another connection", says="another connection", discards=False)
async def _(scene: Scene) -> None:
    async with scene.bench.engine.connect() as second:
        await second.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": scene.b})
        await second.commit()


@undone("session.get_bind().engine.begin()", says="another connection", discards=False)
async def _(scene: Scene) -> None:
    def work(session: Any) -> None:
        with session.get_bind().engine.begin() as second:
            second.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": scene.b})

    await scene.session.run_sync(work)


@undone("execution_options(isolation_level='AUTOCOMMIT') after a rollback", says="rollback()")
async def _(scene: Scene) -> None:
    await scene.connection.rollback()
    await scene.connection.execution_options(isolation_level="AUTOCOMMIT")


@committed("execution_options(isolation_level=…)", discards=True)
async def _(scene: Scene) -> None:
    await scene.connection.execution_options(isolation_level="SERIALIZABLE")


@committed("execution_options() that outlive the statement", discards=True)
async def _(scene: Scene) -> None:
    await scene.connection.execution_options(logging_token="mine")


@undone("a stream left half-read before a rollback", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    for name in ("x", "y", "z"):
        await scene.session.execute(insert(Job).values(code=f"{name}-{scene.a}"))
    stream = await scene.connection.stream(text("SELECT code FROM job"))
    await stream.fetchone()
    await scene.session.rollback()


# ------------------------------------------------------------------ texts
REFUSED_TEXTS = {
    "COMMIT": "COMMIT",
    "ROLLBACK": "ROLLBACK",
    "BEGIN": "BEGIN",
    "START TRANSACTION": "START",
    "/*! COMMIT */": "comment",
    "/*M! COMMIT */": "comment",
    "-- x\nCOMMIT": "COMMIT",
    "SELECT 1; COMMIT": "two statements",
    "UPDATE account SET n = 7 WHERE name = 'held'; COMMIT; SELECT 1": "two statements",
    "CREATE TABLE made (n INT)": "CREATE",
    "ALTER TABLE job ADD COLUMN made INT": "ALTER",
    "DROP TABLE IF EXISTS no_such_table": "DROP",
    "TRUNCATE TABLE job": "TRUNCATE",
    "CREATE USER made": "CREATE",
    "LOCK TABLES job WRITE": "LOCK",
    "UNLOCK TABLES": "UNLOCK",
    "SET autocommit=1": "SET",
    "SET @a=1, autocommit=1": "SET",
    "PREPARE made FROM 'COMMIT'": "PREPARE",
    "EXECUTE made": "EXECUTE",
    "CALL commits()": "allow_call",
}

#: More of each kind, each tried in a unit of its own and several in one test.
MORE_REFUSED_TEXTS = {
    "ROLLBACK AND CHAIN": "ROLLBACK",
    "/*!50000 COMMIT */": "comment",
    "/*M!100000 COMMIT */": "comment",
    "/* x */ /*! COMMIT */": "comment",
    "--\tx\nCOMMIT": "COMMIT",
    "--\nCOMMIT": "COMMIT",
    "# x\nCOMMIT": "COMMIT",
    "/* a /* b */ COMMIT": "COMMIT",
    "\v\f COMMIT": "COMMIT",
    "\ufeffCOMMIT": "does not begin with a keyword",
    "\u00a0COMMIT": "does not begin with a keyword",
    ";COMMIT": "does not begin with a keyword",
    "(COMMIT)": "shape",
    "COMMIT AND CHAIN": "COMMIT",
    "COMMIT/**/WORK": "COMMIT",
    "SELECT '; x'; COMMIT": "two statements",
    "SELECT 'it''s \\' so'; COMMIT": "two statements",
    "SELECT 1 /* ; */ -- ;\n; COMMIT": "two statements",
    "CREATE TEMPORARY TABLE made (n INT)": "CREATE",
    "RENAME TABLE job TO jobs": "RENAME",
    "ANALYZE TABLE job": "ANALYZE",
    "FLUSH TABLES": "FLUSH",
    "SET unique_checks = 0, foreign_key_checks = 0": "SET",
    "SET @@autocommit = 1": "SET",
    "SET @a='x', @@session.autocommit=ON": "SET",
    "SET @a = '\\', autocommit=1, @b='": "SET",
    "SET @a = (SELECT 1), autocommit = 1": "SET",
    "SET /*! autocommit = 1, */ @a = 1": "SET",
    "SET STATEMENT max_statement_time=1 FOR COMMIT": "SET",
    "SET GLOBAL max_execution_time = 1": "SET",
    "SET SESSION TRANSACTION READ ONLY": "SET",
    "SET NAMES latin1": "SET",
    "EXECUTE IMMEDIATE 'COMMIT'": "EXECUTE",
    "BEGIN NOT ATOMIC COMMIT; END": "BEGIN",
    "IF 1 THEN COMMIT; END IF": "IF",
    "savepoint: LOOP COMMIT; LEAVE savepoint; END LOOP": "shape",
    "made: BEGIN NOT ATOMIC COMMIT; END": "shape",
    "XA START 'made'": "XA",
    "XA COMMIT 'made' ONE PHASE": "XA",
    "HANDLER job OPEN": "HANDLER",
    "USE information_schema": "USE",
    "KILL 1": "KILL",
    "RELEASE SAVEPOINT inbox_1": "RELEASE",
    "SAVEPOINT `inbox_1`": "SAVEPOINT",
    "LOAD DATA INFILE 'x' INTO TABLE job": "LOAD",
    "": "does not begin with a keyword",
    "*/ COMMIT": "does not begin with a keyword",
}

for _text, _says in REFUSED_TEXTS.items():

    @undone(f"text {_text!r}", says=_says)
    async def _(scene: Scene, sql: str = _text) -> None:
        await scene.connection.exec_driver_sql(sql)


# ------------------------------------------------------------------ raw driver
@undone("cursor executing COMMIT", says="COMMIT")
async def _(scene: Scene) -> None:
    await scene.cursor("COMMIT")


@undone("cursor executing BEGIN", says="BEGIN")
async def _(scene: Scene) -> None:
    await scene.cursor("BEGIN")


@undone("driver_connection.commit()", says="COMMIT")
async def _(scene: Scene) -> None:
    await scene.driver.commit()


@undone("driver_connection.begin()", says="BEGIN")
async def _(scene: Scene) -> None:
    await scene.driver.begin()


@undone("driver_connection.rollback()", says="rollback()", discards=False)
async def _(scene: Scene) -> None:
    await scene.driver.rollback()


@undone("driver_connection.autocommit(True)", says="SET")
async def _(scene: Scene) -> None:
    await scene.driver.autocommit(True)


@undone("driver_connection.select_db()", says="command of the driver")
async def _(scene: Scene) -> None:
    await scene.driver.select_db("information_schema")


@undone("driver_connection.kill()", says="command of the driver")
async def _(scene: Scene) -> None:
    await scene.driver.kill(scene.thread_id)


@undone("driver_connection.ping() on a closed connection", says="closed")
async def _(scene: Scene) -> None:
    scene.driver.close()
    await scene.driver.ping()


@undone("driver_connection.ensure_closed()", says="closed")
async def _(scene: Scene) -> None:
    await scene.driver.ensure_closed()


@committed("driver_connection.ping()")
async def _(scene: Scene) -> None:
    await scene.driver.ping()


@undone("the driver's connection made anew", says="reconnect")
async def _(scene: Scene) -> None:
    await (scene.driver._connect() if isinstance(scene.driver, aiomysql.Connection) else scene.driver.connect())


@undone("two raw cursors at once", says="at the same time")
async def _(scene: Scene) -> None:
    await asyncio.gather(scene.cursor("SELECT SLEEP(0.01)"), scene.cursor("SELECT 2"))


@undone("SQLAlchemy's DBAPI connection.commit()", says="COMMIT")
async def _(scene: Scene) -> None:
    await scene.session.run_sync(lambda _: scene.dbapi.commit())


@undone("a prepared statement of the driver's", says="command of the driver")
async def _(scene: Scene) -> None:
    if hasattr(scene.driver, "prepare"):
        await scene.driver.prepare("COMMIT")
    else:  # aiomysql, and asyncmy before 0.2.13, do not use it themselves
        await scene.driver._execute_command(_COM_STMT_PREPARE, "COMMIT")


# ------------------------------------------------------------------ tasks and cancellation
@undone("a task of its own still at a statement", says="await its tasks")
async def _(scene: Scene) -> None:
    scene.bench.keep(scene.cursor("SELECT SLEEP(30) AS still_running"))
    await scene.bench.witness.wait_until_runs(scene.thread_id, "still_running")
    raise Leave


@undone("a statement from outside the handler's tasks", says="outside the handler's tasks")
async def _(scene: Scene) -> None:
    from contextvars import Context  # noqa: PLC0415 - beside its one use

    await asyncio.create_task(scene.text("SELECT 1"), context=Context())


@undone("swallowed CancelledError while idle", says="swallowed its cancellation", swallow=BaseException, discards=False)
async def _(scene: Scene) -> None:
    _cancel_me()
    await asyncio.sleep(30)


@undone("swallowed CancelledError during a query", says="cancelled under way", swallow=BaseException)
async def _(scene: Scene) -> None:
    task = asyncio.current_task()
    assert task is not None
    scene.bench.keep(_cancel_when_it_runs(scene, task))
    await scene.text("SELECT SLEEP(30) AS to_be_cancelled")


@undone("its own time-out during a query inside begin_nested()", says="cancelled under way")
async def _(scene: Scene) -> None:
    async with scene.session.begin_nested(), asyncio.timeout(0.05):
        await scene.text("SELECT SLEEP(30)")


@undone("a savepoint left open when the session is invalidated", says="closed or invalidated")
async def _(scene: Scene) -> None:
    await scene.session.begin_nested()
    await scene.session.invalidate()


@undone("its own time-out during a query", says="cancelled under way")
async def _(scene: Scene) -> None:
    async with asyncio.timeout(0.05):
        await scene.text("SELECT SLEEP(30)")


@undone("CancelledError raised by itself", says="nobody cancelled it", swallow=Exception, discards=False)
async def _(scene: Scene) -> None:
    raise asyncio.CancelledError


class Leave(BaseException):
    """Makes the scene's handler return at once, without B."""


def _cancel_me() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _cancel_when_it_runs(scene: Scene, task: asyncio.Task[Any]) -> None:
    await scene.bench.witness.wait_until_runs(scene.thread_id, "to_be_cancelled")
    task.cancel()


# ------------------------------------------------------------------ leftovers
LEFTOVERS = {
    "SET @left = 1": ("SELECT @left", None),
    "SELECT @left := 1": ("SELECT @left", None),
    "SELECT 1 INTO @left": ("SELECT @left", None),
    "SET time_zone = '+07:00'": ("SELECT @@time_zone = '+07:00'", 0),
    "SET SESSION sql_safe_updates = 1": ("SELECT @@sql_safe_updates", 0),
    "SELECT GET_LOCK('left', 0)": ("SELECT IS_USED_LOCK('left')", None),
    "DO GET_LOCK('left', 0)": ("SELECT IS_USED_LOCK('left')", None),
}

for _text in LEFTOVERS:

    @committed(f"leftover {_text!r}", discards=True)
    async def _(scene: Scene, sql: str = _text) -> None:
        await scene.connection.exec_driver_sql(sql)
