"""Handlers that misuse their unit: each ends as it must, on both servers, over both drivers.

A unit ends committed (row, A and B all there) or undone (none of them, an error that names the handler and the cause,
the connection thrown away where its state is in doubt). Anything in between is a defect.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.config import DatabaseSettings
from inbox.core.handler import Face
from inbox.errors import Contended, InboxError, Torn, UnitMisused
from tests.integration.abuses import ABUSES, LEFTOVERS, MORE_REFUSED_TEXTS, Abuse, Leave, Scene
from tests.integration.bench import Bench, Job, add, made_database, opened
from tests.pairs import Driver, Pair
from tests.services.catalog import PAIRS
from tests.services.service import Service
from tests.services.session import Services


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Service], str]]:
    """One database for each server: a thousand tests here make their rows, not their tables."""
    with ExitStack() as stack:
        made: dict[str, str] = {}

        def database_on(service: Service) -> str:
            if service.name not in made:
                made[service.name] = make_url(stack.enter_context(made_database(service, "abuses"))).database or ""
            return made[service.name]

        yield database_on


@pytest.fixture
def pair(request: pytest.FixtureRequest, services: Services, databases: Callable[[Service], str]) -> Pair:
    names = PAIRS[request.param]
    database, broker = services[names.database], services[names.broker]
    return Pair(request.param, database, broker, databases(database))


@pytest.fixture
def url(pair: Pair) -> str:
    return pair.database_url


@pytest.fixture
async def bench(url: str, driver: Driver) -> AsyncIterator[Bench]:
    async with opened(url, driver) as made:
        made.witness.run("INSERT IGNORE INTO account (name, n) VALUES ('held', 0)")
        yield made


async def scene_of(bench: Bench, session: AsyncSession, names: tuple[str, str]) -> Scene:
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    return Scene(bench, session, connection, raw.driver_connection, raw.dbapi_connection, *names)


@pytest.mark.parametrize("abuse", ABUSES, ids=str)
async def test_abuse(bench: Bench, abuse: Abuse) -> None:
    names = bench.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, names)
        await add(session, names[0])
        try:
            await abuse.act(scene)
        except Leave:
            return
        except abuse.swallow:
            pass
        await add(session, names[1])

    ended = await bench.run(credit, accounts=names)

    if abuse.error is None:
        assert ended.error is None
        assert ended.there == (True, True, True)
    else:
        assert ended.there == (False, False, False)
        assert isinstance(ended.error, abuse.error)
        assert abuse.says in str(ended.error)
        if abuse.error is UnitMisused:
            assert "bench.credit" in str(ended.error)
    assert ended.reusable is not abuse.discards
    await the_next_unit_is_right(bench)


#: Of those that differ only in how the server is met, one is enough; each costs a second of waiting.
STUBBORN = [abuse for abuse in ABUSES if abuse.error is not None and not abuse.name.startswith(("text ", "1205 "))]


@pytest.mark.parametrize("abuse", [*STUBBORN, *(abuse for abuse in ABUSES if "raw cursor" in abuse.name)], ids=str)
async def test_abuse_whose_every_consequence_is_swallowed(bench: Bench, abuse: Abuse) -> None:
    names = bench.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, names)
        await add(session, names[0])
        acts: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: abuse.act(scene),
            lambda: add(session, names[1]),
        )
        for act in acts:
            with suppress(Leave, abuse.swallow):
                await act()

    ended = await bench.run(credit, accounts=names)

    assert ended.there == (False, False, False)
    assert isinstance(ended.error, cast("type[InboxError]", abuse.error))
    await the_next_unit_is_right(bench)


async def the_next_unit_is_right(bench: Bench) -> None:
    names = bench.open_accounts()

    async def both(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        await add(session, names[1])

    ended = await bench.run(both, accounts=names)
    assert (ended.error, ended.there, ended.reusable) == (None, (True, True, True), True)


# ------------------------------------------------------------------ the other faces
@pytest.mark.parametrize("sql", ["COMMIT", "/*! COMMIT */", "SET @a=1, autocommit=1", "CREATE TABLE made (n INT)"])
@pytest.mark.parametrize("face", [Face.CONNECTION, Face.SYNC_SESSION])
async def test_refused_text_on_the_other_faces(bench: Bench, face: Face, sql: str) -> None:
    names = bench.open_accounts()

    async def by_connection(_: object, connection: AsyncConnection) -> None:
        await connection.execute(text("UPDATE account SET n = 1 WHERE name = :name"), {"name": names[0]})
        with pytest.raises(UnitMisused):
            await connection.exec_driver_sql(sql)

    def by_session(_: object, session: Session) -> None:
        session.execute(text("UPDATE account SET n = 1 WHERE name = :name"), {"name": names[0]})
        with pytest.raises(UnitMisused):
            session.connection().exec_driver_sql(sql)

    ended = await bench.run(by_connection if face is Face.CONNECTION else by_session, face, accounts=names)

    assert ended.there == (False, False, False)
    assert isinstance(ended.error, UnitMisused)
    await the_next_unit_is_right(bench)


@pytest.mark.parametrize("act", ["commit", "rollback", "close"])
async def test_the_sync_session_is_narrowed_too(bench: Bench, act: str) -> None:
    names = bench.open_accounts()

    def credit(_: object, session: Session) -> None:
        session.execute(text("UPDATE account SET n = 1 WHERE name = :name"), {"name": names[0]})
        getattr(session, act)()
        with suppress(UnitMisused):
            session.execute(text("UPDATE account SET n = 1 WHERE name = :name"), {"name": names[1]})

    ended = await bench.run(credit, Face.SYNC_SESSION, accounts=names)

    assert ended.there == ((True,) * 3 if act == "commit" else (False,) * 3)


async def test_a_session_that_is_closed_with_unflushed_changes_undoes(bench: Bench) -> None:
    names = bench.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        session.add(Job(code=names[0]))
        await session.close()

    ended = await bench.run(credit, accounts=names)

    assert ended.there == (False, False, False)
    assert "not flushed" in str(ended.error)


async def test_a_session_that_is_closed_in_order_commits(bench: Bench) -> None:
    names = bench.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        async with session:
            await add(session, names[0])
            session.add(Job(code=names[0]))
            await session.commit()

    ended = await bench.run(credit, accounts=names)

    assert (ended.error, ended.there) == (None, (True, True, False))


async def test_an_open_savepoint_of_the_connection_face_is_released(bench: Bench) -> None:
    names = bench.open_accounts()

    async def credit(_: object, connection: AsyncConnection) -> None:
        await connection.begin_nested()
        await connection.begin_nested()
        for name in names:
            await connection.execute(text("UPDATE account SET n = 1 WHERE name = :name"), {"name": name})

    ended = await bench.run(credit, Face.CONNECTION, accounts=names)

    assert (ended.error, ended.there) == (None, (True, True, True))


async def test_no_value_of_a_refused_statement_is_in_the_error(bench: Bench) -> None:
    async def credit(_: object, session: AsyncSession) -> None:
        await session.execute(text("SET @card = '4000-secret', autocommit = 1"))

    ended = await bench.run(credit)

    assert "bench.credit" in str(ended.error)
    assert "SET" in str(ended.error)
    assert "secret" not in str(ended.error)


@pytest.mark.parametrize("chunk", range(4))
async def test_more_texts_are_refused_before_they_are_sent(bench: Bench, chunk: int) -> None:
    for sql, says in list(MORE_REFUSED_TEXTS.items())[chunk::4]:
        names = bench.open_accounts()

        async def credit(_: object, session: AsyncSession, sql: str = sql, names: tuple[str, str] = names) -> None:
            await add(session, names[0])
            with suppress(Exception):
                await (await session.connection()).exec_driver_sql(sql)

        ended = await bench.run(credit, accounts=names)

        assert ended.there == (False, False, False), sql
        assert isinstance(ended.error, UnitMisused), sql
        assert says in str(ended.error), sql
        assert ended.reusable is False, sql
    await the_next_unit_is_right(bench)


# ------------------------------------------------------------------ tasks
@pytest.mark.parametrize("way", ["session", "connection", "cursor", "commit", "rollback", "close"])
async def test_a_task_that_outlives_its_handler_is_refused_while_the_next_unit_runs(bench: Bench, way: str) -> None:
    first, second = bench.open_accounts(), bench.open_accounts()
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def leaves_a_task(_: object, session: AsyncSession) -> None:
        scene = await scene_of(bench, session, first)
        await add(session, first[0])
        await add(session, first[1])

        async def outlives() -> None:
            await go.wait()
            update = "UPDATE account SET n = 9 WHERE name = 'held'"
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "session": lambda: session.execute(text(update)),
                "connection": lambda: scene.connection.execute(text(update)),
                "cursor": lambda: scene.cursor(update),
                "commit": scene.driver.commit,
                "rollback": session.rollback,
                "close": scene.driver.ensure_closed,
            }
            await ways[way]()

        late.append(asyncio.create_task(outlives()))

    async def meets_it(_: object, session: AsyncSession) -> None:
        await add(session, second[0])
        go.set()
        await asyncio.wait(late)
        await add(session, second[1])

    ended = await bench.run(leaves_a_task, accounts=first)
    lane = bench.lane
    after = await bench.run(meets_it, accounts=second)

    assert (ended.error, ended.there) == (None, (True, True, True))
    assert isinstance(late[0].exception(), UnitMisused)
    assert "outlived its handler" in str(late[0].exception())
    assert bench.lane is lane, "both units ran on one lane"
    assert (after.error, after.there) == (None, (True, True, True))
    assert bench.witness.run("SELECT n FROM account WHERE name = 'held'") == [(0,)]


async def test_a_task_that_outlives_its_handler_is_refused_between_units(bench: Bench) -> None:
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def leaves_a_task(_: object, session: AsyncSession) -> None:
        async def outlives() -> None:
            await go.wait()
            await add(session, "held")

        late.append(asyncio.create_task(outlives()))

    await bench.run(leaves_a_task)
    go.set()
    await asyncio.wait(late)

    assert isinstance(late[0].exception(), UnitMisused)
    await the_next_unit_is_right(bench)


async def test_a_statement_on_another_units_session_dooms_the_unit_that_sent_it(bench: Bench, driver: Driver) -> None:
    borrowed, done = asyncio.Event(), asyncio.Event()
    lent: list[AsyncSession] = []
    names, others = bench.open_accounts(), bench.open_accounts()
    neighbour = Bench(bench.url, driver)

    async def lends(_: object, session: AsyncSession) -> None:
        lent.append(session)
        await add(session, names[0])
        borrowed.set()
        await done.wait()
        await add(session, names[1])

    async def borrows(_: object, session: AsyncSession) -> None:
        await borrowed.wait()
        await add(session, others[0])
        try:
            await add(lent[0], others[1])
        except UnitMisused:
            pass
        finally:
            done.set()

    lender, borrower = await asyncio.gather(bench.run(lends, accounts=names), neighbour.run(borrows, accounts=others))
    await neighbour.close()

    assert (lender.error, lender.there) == (None, (True, True, True))
    assert borrower.there == (False, False, False)
    assert "another unit" in str(borrower.error)


# ------------------------------------------------------------------ cancellation
async def test_a_deadline_that_is_swallowed_undoes(bench: Bench) -> None:
    names = bench.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await add(session, names[1])

    async def within_its_deadline(applying: Awaitable[None]) -> None:
        async with asyncio.timeout(0.1):
            await applying

    ended = await bench.run(credit, accounts=names, around=within_its_deadline)

    assert ended.there == (False, False, False)
    assert isinstance(ended.error, UnitMisused)
    await the_next_unit_is_right(bench)


async def test_a_cancelled_query_is_killed_on_the_server(bench: Bench) -> None:
    names = bench.open_accounts()
    threads: list[int] = []

    async def credit(_: object, session: AsyncSession) -> None:
        threads.append((await scene_of(bench, session, names)).thread_id)
        await add(session, names[0])
        await session.execute(text("SELECT SLEEP(600) AS cut_short"))

    async def cancel_at_the_query(applying: Awaitable[None]) -> None:
        task = asyncio.ensure_future(applying)
        while not threads:
            await asyncio.sleep(0)
        await bench.witness.wait_until_runs(threads[0], "cut_short")
        task.cancel()
        await task

    ended = await bench.run(credit, accounts=names, around=cancel_at_the_query)

    assert isinstance(ended.error, asyncio.CancelledError)
    assert ended.there == (False, False, False)
    assert ended.reusable is False
    await bench.witness.wait_until_gone(threads[0])
    await the_next_unit_is_right(bench)


# ------------------------------------------------------------------ leftovers
@pytest.mark.filterwarnings("ignore:Setting user variables")  # MySQL's own, as aiomysql hands it on
@pytest.mark.parametrize("sql", LEFTOVERS)
async def test_the_next_unit_sees_nothing_of_a_leftover(bench: Bench, sql: str) -> None:
    question, answer = LEFTOVERS[sql]
    seen: list[object] = []

    async def leaves(_: object, session: AsyncSession) -> None:
        await (await session.connection()).exec_driver_sql(sql)

    async def looks(_: object, session: AsyncSession) -> None:
        seen.append(await session.scalar(text(question)))

    assert (await bench.run(leaves)).error is None
    await bench.run(looks)

    assert seen == [answer]


# ------------------------------------------------------------------ procedures
PROCEDURES = {
    "harmless": "UPDATE account SET n = n + 1 WHERE name = 'held'",
    "commits": "COMMIT",
    "commits_and_goes_on": "BEGIN COMMIT; UPDATE account SET n = n + 1 WHERE name = 'held'; END",
    "rolls_back": "ROLLBACK",
    "makes_a_table": "BEGIN CREATE TABLE IF NOT EXISTS made_inside (n INT); END",
    "starts_over": "BEGIN START TRANSACTION; UPDATE account SET n = n + 1 WHERE name = 'held'; END",
}


@pytest.fixture
async def calling(url: str, driver: Driver) -> AsyncIterator[Bench]:
    settings = DatabaseSettings(lock_wait=1, allow_call=True)
    async with opened(url, driver, settings) as made:
        made.witness.run("INSERT IGNORE INTO account (name, n) VALUES ('held', 0)")
        for name, body in PROCEDURES.items():
            made.witness.run(f"DROP PROCEDURE IF EXISTS {name}")
            made.witness.run(f"CREATE PROCEDURE {name}() {body}")
        yield made


@pytest.mark.parametrize("procedure", PROCEDURES)
async def test_call_enabled(calling: Bench, procedure: str) -> None:
    names = calling.open_accounts()

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        await session.execute(text(f"CALL {procedure}()"))
        await add(session, names[1])

    ended = await calling.run(credit, accounts=names)

    if procedure == "harmless":
        assert (ended.error, ended.there) == (None, (True, True, True))
    else:
        assert isinstance(ended.error, Torn)
        assert ended.there[2] is False, "what came behind the procedure's own end is undone"
    assert ended.reusable is False
    await the_next_unit_is_right(calling)


async def test_call_that_meets_1205_outside_of_a_handler_of_its_own(calling: Bench) -> None:
    names = calling.open_accounts()
    calling.witness.run("BEGIN")
    calling.witness.run("UPDATE account SET n = n WHERE name = 'held'")

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        with suppress(Exception):
            await session.execute(text("CALL harmless()"))

    ended = await calling.run(credit, accounts=names)
    calling.witness.run("ROLLBACK")

    assert isinstance(ended.error, Contended)
    assert ended.there == (False, False, False)


async def test_a_procedure_that_swallows_1205_inside_is_a_documented_limit(calling: Bench) -> None:
    """Nothing of it reaches the connection: no error, and the savepoint stands. What is left out stays left out."""
    calling.witness.run("DROP PROCEDURE IF EXISTS swallows")
    calling.witness.run(
        "CREATE PROCEDURE swallows() BEGIN DECLARE CONTINUE HANDLER FOR 1205 BEGIN END; "
        "UPDATE account SET n = n + 1 WHERE name = 'held'; END"
    )
    names = calling.open_accounts()
    calling.witness.run("BEGIN")
    calling.witness.run("UPDATE account SET n = n WHERE name = 'held'")

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, names[0])
        await session.execute(text("CALL swallows()"))
        await add(session, names[1])

    ended = await calling.run(credit, accounts=names)
    calling.witness.run("ROLLBACK")

    assert (ended.error, ended.there) == (None, (True, True, True))


async def test_an_error_in_a_result_the_handler_did_not_read(calling: Bench) -> None:
    """The first of a procedure's answers is read, the second is an error that would doom."""
    calling.witness.run("DROP PROCEDURE IF EXISTS late_error")
    calling.witness.run(
        "CREATE PROCEDURE late_error() BEGIN SELECT 1; UPDATE account SET n = n + 1 WHERE name = 'held'; END"
    )
    names = calling.open_accounts()
    calling.witness.run("BEGIN")
    calling.witness.run("UPDATE account SET n = n WHERE name = 'held'")

    async def credit(_: object, session: AsyncSession) -> None:
        scene = await scene_of(calling, session, names)
        await add(session, names[0])
        opened = scene.driver.cursor()  # not in `async with`, whose end reads what is left
        cursor = await opened if inspect.isawaitable(opened) else opened  # asyncmy before 0.2.13 gives it at once
        await cursor.execute("CALL late_error()")
        await cursor.fetchall()

    ended = await calling.run(credit, accounts=names)
    calling.witness.run("ROLLBACK")

    assert isinstance(ended.error, Contended)
    assert ended.there == (False, False, False)
