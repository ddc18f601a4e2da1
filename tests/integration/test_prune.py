"""Clean-ups on both servers: their plans and locks, what stands in their way, and what others may do meanwhile."""

# ruff: noqa: S608 - statements of ours, about tables of ours

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.mysql import MySQL, MySQLStore, retention
from inbox.adapters.mysql.retention import RetentionSql, Sweep
from inbox.adapters.mysql.side import Statement
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.policy import RetryPolicy
from inbox.core.quarantine import QuarantineState
from inbox.core.records import Claim
from inbox.core.retention import Pruned
from inbox.errors import ConfigurationError, Contended, SchemaError, StoreUnavailable
from inbox.tables import TableNames, define_tables
from inbox.testing.conformance.store import delivery, event, opened, record
from inbox.testing.faults import FaultProxy
from inbox.testing.memory import MemoryTransport
from tests.integration.retention_rig import MySQLRetentionRig
from tests.pairs import Pair
from tests.services.probe import connect_database
from tests.unit.engine import delivery as unit_delivery

HOUR = 3600.0
OLD = "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR"
_DIGITS = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
NUMBERS = f"(SELECT a.n * 100 + b.n * 10 + c.n AS n FROM {_DIGITS} a JOIN {_DIGITS} b JOIN {_DIGITS} c) AS numbers"
SWEEPS = RetentionSql(define_tables(MetaData())).sweeps


@pytest.fixture
async def rig(pair: Pair) -> MySQLRetentionRig:
    rig = MySQLRetentionRig(pair, pair.driver)
    await rig.create()
    return rig


async def fill(rig: MySQLRetentionRig, rows: int = 1000, consumer: str = "billing", at: str = OLD) -> None:
    """Processed events `e-000000`, …, that all have one time."""
    await rig.sql(
        "INSERT INTO inbox (consumer_name, event_id, processed_at) "
        f"SELECT %(c)s, CONCAT('e-', LPAD(n, 6, '0')), {at} FROM {NUMBERS} WHERE n < %(rows)s",
        c=consumer.encode(),
        rows=rows,
    )


async def prune(store: MySQLStore, batch: int = 500, pause: float = 0.0) -> Pruned:
    return await store.prune(HOUR, batch=batch, pause=pause, progress=lambda _: True)


@asynccontextmanager
async def beside(rig: MySQLRetentionRig) -> AsyncIterator[pymysql.cursors.Cursor]:
    """A connection with a transaction of its own, which gives up waiting after a second."""
    with (
        closing(connect_database(rig.pair.database.dsn, database=rig.pair.schema)) as connection,
        connection.cursor() as cursor,
    ):
        variable = "transaction_isolation" if rig.pair.is_mysql else "tx_isolation"
        cursor.execute(f"SET SESSION autocommit = 0, innodb_lock_wait_timeout = 1, {variable} = 'READ-COMMITTED'")
        yield cursor


# ------------------------------------------------------------------ plans and locks
def plan(cursor: pymysql.cursors.Cursor, statement: Statement, *, mysql: bool) -> list[dict[str, Any]]:
    cursor.execute(f"EXPLAIN {'FORMAT=TRADITIONAL ' if mysql else ''}{statement.text().decode()}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")  # EXPLAIN answers with the query as it was rewritten
@pytest.mark.parametrize("refused", [0, 3, 1000])
async def test_every_statement_has_its_plan_however_many_rows_there_are(rig: MySQLRetentionRig, refused: int) -> None:
    await fill(rig)
    await fill(rig, 1000, "mail")
    await rig.sql(
        "INSERT INTO inbox_quarantine (consumer_name, digest, record_key, reason, headers, body, state, state_at)"
        f" SELECT 'billing', UNHEX(SHA2(n, 256)), CONCAT('e-', LPAD(n, 6, '0')), '', '', REPEAT('x', 500),"
        f" ELT(1 + n MOD 3, 'open', 'replayed', 'discarded'), {OLD} FROM {NUMBERS} WHERE n < %(n)s",
        n=refused,
    )
    await rig.sql(
        f"INSERT INTO inbox_attempt (consumer_name, attempt_key, last_at) SELECT 'billing', n, {OLD} FROM {NUMBERS}"
    )
    for table in ("inbox", "inbox_quarantine", "inbox_attempt", "inbox_worker"):
        await rig.sql(f"ANALYZE TABLE {table}")
    async with beside(rig) as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6) - INTERVAL 1 HOUR")
        cut_off = str(cursor.fetchall()[0][0])
        for sweep in SWEEPS:
            _expect_plans(cursor, sweep, cut_off, mysql=rig.pair.is_mysql)


def _expect_plans(cursor: pymysql.cursors.Cursor, sweep: Sweep, cut_off: str, *, mysql: bool) -> None:
    place = {2: ("2020-01-01", b"e-000500"), 3: ("2020-01-01", 1, b"\0" * 32)}[len(sweep.order)]
    for after in ((), place):
        first, *others = plan(cursor, sweep.page(b"billing", cut_off, after, 500), mysql=mysql)
        assert first["key"] == sweep.index
        assert "filesort" not in str(first["Extra"])
        assert [other["key"] for other in others] in ([], ["inbox_quarantine_by_record"])
    for keys in ([b"e-000001", b"e-000002"], [b"e-%06d" % n for n in range(retention.MOST_IN_BATCH)]):
        first, *others = plan(cursor, sweep.delete(b"billing", cut_off, keys), mysql=mysql)
        assert (first["key"], first["type"]) == ("PRIMARY", "range"), first
        assert int(first["rows"]) <= len(keys)
        assert [(other["key"], other["type"]) for other in others] in ([], [("inbox_quarantine_by_record", "ref")])


async def test_a_delete_locks_its_rows_and_nothing_between_them(rig: MySQLRetentionRig) -> None:
    await fill(rig)
    await rig.sql(
        "INSERT INTO inbox_quarantine (consumer_name, digest, record_key, reason, headers, body)"
        " VALUES ('billing', UNHEX(SHA2(1, 256)), 'e-000400', '', '', '')"
    )
    (inbox,) = (sweep for sweep in SWEEPS if sweep.counts == "inbox")
    keys = [b"e-%06d" % number for number in range(500)]
    store = rig.store()
    async with beside(rig) as cursor, opened(store):
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        cut_off = str(cursor.fetchall()[0][0])
        assert cursor.execute(inbox.delete(b"billing", cut_off, keys).text().decode()) == 499
        for new in (b"e-", b"e-000000-", b"e-000400-", b"e-000499-", b"e-9"):
            unit = await store.begin()
            assert await unit.claim(record(new)) is Claim.NEW, "no claim of a new id waits"
            await unit.commit()
        assert await store.knows(record(b"e-000001")), "nor does a read"
        await store.end_attempt(b"e-000001", failed=True)
        await store.quarantine(delivery(), event(b"e-000001"), "refused", "")
        await store.quarantine(delivery(b"other"), event(b"e-000400"), "refused", "")


async def test_a_million_rows_of_one_time_are_read_once(rig: MySQLRetentionRig) -> None:
    await fill(rig, 1000)
    await rig.sql(
        "INSERT INTO inbox_quarantine (consumer_name, digest, record_key, reason, headers, body)"
        " SELECT 'billing', UNHEX(SHA2(n, 256)), CONCAT('e-', LPAD(n, 6, '0')), '', '', ''"
        f" FROM {NUMBERS} WHERE n < 600"
    )
    assert await prune(rig.store(), batch=100) == Pruned(inbox=400, kept=600)
    (inbox,) = (sweep for sweep in SWEEPS if sweep.counts == "inbox")
    async with beside(rig) as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6), MAX(processed_at) FROM inbox")
        ((cut_off, time),) = cursor.fetchall()
        before = _rows_read(cursor)
        cursor.execute(inbox.page(b"billing", str(cut_off), (str(time), b"e-000549"), 10).text().decode())
        assert [row[1] for row in cursor.fetchall()] == [b"e-%06d" % number for number in range(550, 560)]
        assert _rows_read(cursor) - before < 50, "it begins where it is told to"


def _rows_read(cursor: pymysql.cursors.Cursor) -> int:
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_next'")
    return int(cursor.fetchall()[0][1])


# ------------------------------------------------------------------ the quarantine
async def test_what_is_just_being_quarantined_is_waited_for(rig: MySQLRetentionRig) -> None:
    await fill(rig, 10)
    async with beside(rig) as cursor:
        cursor.execute(
            "INSERT INTO inbox_quarantine (consumer_name, digest, record_key, reason, headers, body)"
            " VALUES ('billing', UNHEX(SHA2(1, 256)), 'e-000004', '', '', '')"
        )
        pruning = asyncio.ensure_future(prune(rig.store()))
        await asyncio.wait([pruning], timeout=0.5)
        assert not pruning.done(), "a delete that took no notice would be through"
        cursor.execute("COMMIT")
        assert (await pruning).inbox == 9
    assert await rig.keys() == {b"e-000004"}


async def test_a_replay_that_was_under_way_finds_the_row(rig: MySQLRetentionRig) -> None:
    await fill(rig, 3)
    store = rig.store()
    async with opened(store):
        await store.quarantine(delivery(), event(b"e-000001"), "handler-error", "")
        await rig.age(HOUR * 100)
        await rig.decide(QuarantineState.REPLAYED)  # published, and not yet delivered
        assert await prune(store) == Pruned(inbox=2, kept=1)
        unit = await store.begin()
        assert await unit.claim(record(b"e-000001", fingerprint=None)) is Claim.DUPLICATE


async def test_large_deliveries_are_deleted_in_smaller_batches(rig: MySQLRetentionRig) -> None:
    store = rig.store()
    steps: list[int] = []
    async with opened(store):
        for number in range(6):
            await store.quarantine(delivery(b"%d" % number + b"x" * (3 << 20)), None, "refused", "")
        await rig.decide(QuarantineState.DISCARDED)
        await rig.age(HOUR * 2)

        def note(done: Pruned) -> bool:
            steps.append(done.quarantine)
            return True

        done = await store.prune(HOUR, batch=500, pause=0.0, progress=note)
    assert done == Pruned(quarantine=6)
    assert steps == [2, 4, 6]


# ------------------------------------------------------------------ another one
async def test_two_clean_ups_of_the_same_tables_are_one(rig: MySQLRetentionRig) -> None:
    await fill(rig)
    await fill(rig, 1000, "mail")
    began = asyncio.Event()

    def note(_: Pruned) -> bool:
        began.set()
        return True

    first = asyncio.ensure_future(rig.store().prune(HOUR, batch=10, pause=60.0, progress=note))
    await began.wait()
    for consumer in ("billing", "mail"):
        assert await prune(rig.store(consumer)) == Pruned(is_skipped=True, is_complete=False), (
            "told, and not kept waiting"
        )
    would = await rig.store().prune(HOUR, batch=500, pause=0.0, progress=lambda _: True, dry_run=True)
    assert would == Pruned(inbox=990), "who only counts may"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(10):
        while (done := await prune(rig.store())).is_skipped:
            await asyncio.sleep(0.05)
    assert done == Pruned(inbox=990)
    assert await prune(rig.store("mail")) == Pruned(inbox=1000), "the lock was given back"


async def test_other_tables_have_a_lock_of_their_own(rig: MySQLRetentionRig) -> None:
    names = TableNames(inbox="a", attempt="b", quarantine="c", worker="d", schema="e", view=None)
    tables = define_tables(MetaData(), names)
    engine = create_async_engine(rig.url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(tables.inbox.metadata.create_all)
    await engine.dispose()
    await fill(rig)
    others = MySQL(rig.url, DatabaseSettings(), names).for_consumer("billing", concurrency=1, deadline=10.0)
    ends: list[Pruned] = []

    async def both() -> None:
        ends.append(await prune(others))

    loop = asyncio.get_running_loop()
    beside_it: list[asyncio.Task[None]] = []

    def note(_: Pruned) -> bool:
        if not beside_it:
            beside_it.append(loop.create_task(both()))
        return True

    assert await rig.store().prune(HOUR, batch=10, pause=0.01, progress=note) == Pruned(inbox=1000)
    await beside_it[0]
    assert ends == [Pruned()]


# ------------------------------------------------------------------ what stands in its way
async def test_a_lost_connection_ends_it_in_order_and_the_next_one_goes_on(
    rig: MySQLRetentionRig, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(rig)
    async with FaultProxy(rig.pair.database.host, rig.pair.database.port) as proxy:

        def cut(done: Pruned) -> bool:
            if done.inbox == 300:
                proxy.cut()
            return True

        store = rig.store(url=rig.through(proxy.port))
        done = await store.prune(HOUR, batch=100, pause=0.0, progress=cut)
    assert done == Pruned(inbox=300, is_complete=False)
    (line,) = [text for text in caplog.messages if "ended early" in text]
    assert "the next one goes on" in line
    async with asyncio.timeout(10):
        while (rest := await prune(rig.store())).is_skipped:
            await asyncio.sleep(0.05)
    assert rest == Pruned(inbox=700)


async def test_a_killed_session_is_a_lost_connection(rig: MySQLRetentionRig) -> None:
    await fill(rig)

    def kill(done: Pruned) -> bool:
        if done.inbox == 300:
            rig._sql(f"KILL CONNECTION {rig._sql('SELECT IS_USED_LOCK(%(lock)s)', {'lock': lock_name(rig)})[0][0]}", {})
        return True

    done = await rig.store().prune(HOUR, batch=100, pause=0.0, progress=kill)
    assert done == Pruned(inbox=300, is_complete=False)


def lock_name(rig: MySQLRetentionRig) -> str:
    return retention.lock_name(rig.pair.schema, "inbox")


async def test_rows_that_others_hold_locked_are_left_to_the_next_one(
    rig: MySQLRetentionRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "_TRIES", 1)
    await fill(rig)
    async with beside(rig) as cursor:
        cursor.execute("SELECT 1 FROM inbox WHERE consumer_name = 'billing' AND event_id = 'e-000150' FOR UPDATE")
        assert await prune(rig.store(), batch=100) == Pruned(inbox=900, is_complete=False)
    assert [text for text in caplog.messages if "left 100 rows" in text]
    assert await prune(rig.store()) == Pruned(inbox=100)


async def test_a_lock_that_is_soon_given_back_is_waited_for(rig: MySQLRetentionRig) -> None:
    await fill(rig, 10)
    async with beside(rig) as cursor:
        cursor.execute("SELECT 1 FROM inbox WHERE consumer_name = 'billing' AND event_id = 'e-000005' FOR UPDATE")
        pruning = asyncio.ensure_future(prune(rig.store()))
        await asyncio.wait([pruning], timeout=1.5)
        assert not pruning.done()
        cursor.execute("COMMIT")
        assert await pruning == Pruned(inbox=10)


async def test_a_row_that_is_young_again_is_not_deleted(rig: MySQLRetentionRig) -> None:
    """Between the read of its key and the delete it was deleted by hand, and its id came again."""
    await fill(rig, 10)
    async with beside(rig) as cursor:
        cursor.execute("DELETE FROM inbox WHERE event_id = 'e-000005'")
        cursor.execute("INSERT INTO inbox (consumer_name, event_id) VALUES ('billing', 'e-000005')")
        pruning = asyncio.ensure_future(prune(rig.store()))
        await asyncio.wait([pruning], timeout=0.5)
        cursor.execute("COMMIT")
        assert await pruning == Pruned(inbox=9)
    assert await rig.keys() == {b"e-000005"}


async def test_what_only_a_person_can_mend_is_said(rig: MySQLRetentionRig) -> None:
    store = rig.store()
    await rig.sql("DROP INDEX inbox_by_time ON inbox")
    with pytest.raises(SchemaError, match="inbox schema check"):
        await prune(store)
    await rig.drop_a_table()
    with pytest.raises(SchemaError, match="inbox schema check"):
        await prune(store)


async def test_a_user_who_may_not_delete_is_told(rig: MySQLRetentionRig) -> None:
    await fill(rig, 10)
    user = f"u{secrets.token_hex(4)}"
    await rig.sql(f"CREATE USER '{user}'@'%%' IDENTIFIED BY 'reader'", _=0)
    try:
        await rig.sql(f"GRANT SELECT ON `{rig.pair.schema}`.* TO '{user}'@'%%'", _=0)
        store = rig.store(url=rig.pair.url_for(rig.driver, user=user, password="reader"))
        with pytest.raises(ConfigurationError, match="GRANT SELECT and DELETE"):
            await prune(store)
        assert len(await rig.keys()) == 10
    finally:
        await rig.sql(f"DROP USER '{user}'@'%%'", _=0)


async def test_no_connection_is_an_error_and_nothing_was_done(rig: MySQLRetentionRig) -> None:
    async with FaultProxy(rig.pair.database.host, rig.pair.database.port) as proxy:
        proxy.refuse()
        with pytest.raises((Contended, StoreUnavailable)):
            await prune(rig.store(url=rig.through(proxy.port)))


# ------------------------------------------------------------------ clocks, ids, workers
async def test_the_clock_is_the_databases(rig: MySQLRetentionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(rig, 10, at="UTC_TIMESTAMP(6) - INTERVAL 3590 SECOND")
    await fill(rig, 10, "mail", at="UTC_TIMESTAMP(6) - INTERVAL 3610 SECOND")
    connect = MySQLStore._connect

    async def elsewhere(store: MySQLStore) -> Any:
        wire = await connect(store)
        await wire.run(Statement("SET SESSION time_zone = '+11:00'"))
        return wire

    monkeypatch.setattr(MySQLStore, "_connect", elsewhere)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    assert await prune(rig.store()) == Pruned()
    assert await prune(rig.store("mail")) == Pruned(inbox=10)
    for window in (1e9, 1e15):
        assert (await rig.store().prune(window, batch=1, pause=0.0, progress=lambda _: True)).rows == 0


async def test_a_name_and_an_id_may_be_any_octets(rig: MySQLRetentionRig) -> None:
    names = ["billing", "billing ", "Billing", "bïlling%s'"]
    odd = [b"\0", b"%s'\\\xff", b"' OR 1=1 -- ", bytes(range(256)), b"\xff" * 512]
    for name in names:
        for key in odd:
            await rig.sql(
                f"INSERT INTO inbox (consumer_name, event_id, processed_at) VALUES (%(c)s, %(k)s, {OLD})",
                c=name.encode(),
                k=key,
            )
    await rig.sql("INSERT INTO inbox (consumer_name, event_id) VALUES ('billing', %(k)s)", k=b"\xff" * 511)
    for number, name in enumerate(names, 1):
        assert await prune(rig.store(name), batch=2) == Pruned(inbox=5)
        left = await rig.sql("SELECT COUNT(*) FROM inbox")
        assert left[0][0] == 5 * (len(names) - number) + 1
    assert await rig.keys() == {b"\xff" * 511}


async def test_a_worker_deletes_what_its_consumer_keeps_no_longer(
    rig: MySQLRetentionRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "inbox")
    quick = RetryPolicy(max_attempts=1, delays=(0.001,), max_releases=0)
    settings = ConsumerSettings(concurrency=1, deadline=5, retry=quick, retention=HOUR, retention_interval=0.2)
    await fill(rig)
    await fill(rig, 10, "mail")
    transport = MemoryTransport()
    database = replace(MySQL(rig.url), settings=DatabaseSettings(lock_wait=1))
    inbox = Inbox("billing", store=database, transport=transport, settings=settings)

    @inbox.handler("t")
    async def ignore(event: Any, session: AsyncSession) -> None: ...

    running = asyncio.create_task(inbox.run())
    async with asyncio.timeout(30):
        while not caplog.messages:
            await asyncio.sleep(0.05)
    transport.publish(unit_delivery("young"))
    await transport.wait_settled(lambda: bool(transport.acknowledged))
    inbox.stop()
    await running
    assert caplog.messages[0] == (
        "old rows deleted: inbox=1000 attempts=0 quarantine=0 workers=0; kept for the quarantine: 0"
    )
    assert await rig.keys() == {b"young"}
    assert len(await rig.keys("mail")) == 10
