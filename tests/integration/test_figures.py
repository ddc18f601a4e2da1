"""Figures and reports on real servers: what the plans of the questions are, and what reports do beside the work."""

import asyncio
from datetime import timedelta

import pytest

from inbox.adapters.mysql import MySQLStore
from inbox.adapters.mysql.figures import FiguresSql
from inbox.adapters.mysql.side import Statement
from inbox.adapters.mysql.workers import WorkerSql
from inbox.core.figures import Figures, WorkerReport
from inbox.errors import StoreUnavailable
from inbox.testing.conformance.store import delivery, opened, record
from tests.integration.store_rig import MySQLRig
from tests.pairs import Pair

REPORT = WorkerReport(b"w" * 16, "host-1", 4711, "consuming", {"applied": 1})


@pytest.fixture
async def rig(pair: Pair) -> MySQLRig:
    made = MySQLRig(pair, pair.driver)
    await made.create()
    return made


@pytest.fixture
def store(rig: MySQLRig) -> MySQLStore:
    return rig.store()


_ROWS = {
    "inbox (consumer_name, event_id, processed_at)": (3000, "'{c}', 'e-{n}', UTC_TIMESTAMP(6) - INTERVAL {n} MINUTE"),
    "inbox_quarantine (consumer_name, digest, reason, headers, body, total_bytes, state)": (
        1500,
        "'{c}', UNHEX(SHA2('{n}', 256)), 'refused', REPEAT('h', 500), 'b', 2500, IF({n} % 3, 'replayed', 'open')",
    ),
    "inbox_worker (consumer_name, worker_id, host, pid, state, counts)": (
        500,
        "'{c}', UNHEX(LEFT(SHA2('{n}', 256), 32)), 'h', {n}, 'stopped', '{{}}'",
    ),
}


async def fill(rig: MySQLRig) -> None:
    """Rows of three consumers, so that reading one consumer's is worth an index, whatever the statistics say."""
    for table, (rows, row) in _ROWS.items():
        for consumer in ("a", "billing", "z"):
            values = ", ".join(f"({row.format(c=consumer, n=number)})" for number in range(rows))
            await rig.sql(f"INSERT INTO {table} VALUES {values}")  # noqa: S608 - rows of ours
        await rig.sql(f"ANALYZE TABLE {table.partition(' ')[0]}")


async def plan(rig: MySQLRig, sql: str, *parameters: bytes | int) -> list[tuple[object, ...]]:
    explain = "EXPLAIN FORMAT=TRADITIONAL" if rig.pair.is_mysql else "EXPLAIN"
    return [*await rig.sql(f"{explain} {Statement(sql, parameters).text().decode()}")]


async def test_each_question_about_the_large_tables_is_answered_by_an_index(rig: MySQLRig, store: MySQLStore) -> None:
    await fill(rig)
    sql = FiguresSql(store.tables)
    for statement, parameters in (
        (sql.since, (b"billing", 1)),
        (sql.since_exactly, (b"billing", 24)),
        (sql.rows, (b"billing",)),
        (sql.states, (b"billing",)),
        *((each, (b"b",)) for each in sql.next_consumers),
    ):
        found = await plan(rig, statement, *parameters)
        assert any("Using index" in str(row[-1]) for row in found), (statement, found)
        assert not any("ALL" in row for row in found if "derived" not in str(row)), (statement, found)
    (span,) = await plan(rig, sql.span, b"billing")
    assert "Select tables optimized away" in str(span[-1]), span
    (workers,) = await plan(rig, sql.workers, b"billing")
    assert "inbox_worker_by_time" in workers, workers
    assert "filesort" not in str(workers[-1])


async def test_figures_of_many_rows_are_right(rig: MySQLRig, store: MySQLStore) -> None:
    await fill(rig)
    async with opened(store):
        figures = await store.figures()
        exact = await store.figures(exact=True)
        assert await store.consumers() == ["a", "billing", "z"]
    assert (figures.inbox.last_hour, figures.inbox.last_day, figures.inbox.rows) == (60, 1440, None)
    assert (exact.inbox.last_hour, exact.inbox.last_day, exact.inbox.rows) == (60, 1440, 3000)
    assert figures.inbox.oldest is not None
    assert timedelta(minutes=2998) < figures.at - figures.inbox.oldest < timedelta(minutes=3001)
    # An estimate, of all three; both servers sample the index.
    assert 4000 < figures.inbox.table_rows < 14_000
    assert {state: tally.rows for state, tally in figures.quarantine.by_state.items()} == {
        "open": 500,
        "replayed": 1000,
    }
    assert figures.quarantine.by_reason["refused"].octets == 500 * 2500
    assert len(figures.workers) == 500


async def test_a_table_is_estimated_as_it_is_now_and_not_as_it_was_when_somebody_looked(
    rig: MySQLRig, store: MySQLStore
) -> None:
    async with opened(store):
        await store.figures()
        await fill(rig)
        assert (await store.figures()).inbox.table_rows > 1000


async def test_without_its_index_the_quarantine_is_counted_all_the_same(rig: MySQLRig, store: MySQLStore) -> None:
    async with opened(store):
        await store.quarantine(delivery(), None, "refused", "")
        await rig.sql("ALTER TABLE inbox_quarantine DROP INDEX inbox_quarantine_by_state")
        assert (await store.figures()).quarantine.open == 1


async def test_figures_wait_for_no_lock_of_a_unit(rig: MySQLRig, store: MySQLStore) -> None:
    asking = rig.store("mail")
    async with opened(store, asking):
        await store.end_attempt(b"e-1", failed=True)
        unit = await store.begin()
        await unit.claim(record())
        await unit.forget(b"e-1")
        async with asyncio.timeout(5):
            figures = await asking.figures("billing")
        await unit.rollback()
    assert figures.inbox.oldest is None, "what is not committed is not counted"
    assert figures.attempts.failed == 1


async def test_a_worker_that_has_not_reported_for_a_week_gives_way_to_the_next(
    rig: MySQLRig, store: MySQLStore
) -> None:
    await fill(rig)
    await rig.sql("UPDATE inbox_worker SET seen_at = UTC_TIMESTAMP(6) - INTERVAL 8 DAY WHERE pid < 490")
    async with opened(store):
        await store.report(REPORT)
        assert len((await store.figures()).workers) == 11
        assert len((await store.figures("a")).workers) == 500, "another consumer's are none of ours"
    (found,) = await plan(rig, WorkerSql(store.tables).forget.replace("DELETE FROM", "SELECT 1 FROM"), b"billing")
    assert "inbox_worker_by_time" in found


async def test_a_report_that_is_cut_leaves_the_connection_in_step(rig: MySQLRig, store: MySQLStore) -> None:
    async with opened(store):
        for _ in range(20):
            task = asyncio.create_task(store.report(REPORT))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        counts = await store.end_attempt(b"e-1", failed=True)
        await store.report(REPORT)
        (worker,) = (await store.figures()).workers
    assert counts.failed == 1
    assert worker.report == REPORT


async def test_a_host_and_a_state_of_any_length_and_octets_have_room(rig: MySQLRig, store: MySQLStore) -> None:
    long = WorkerReport(b"\0" * 16, "é" * 999, 2**32 - 1, "paused: " + "\U0001f600'\\" * 999, {"é" * 9000: 1, "b": 2})
    async with opened(store):
        await store.report(long)
        (worker,) = (await store.figures()).workers
    assert (len(worker.report.host), len(worker.report.state)) == (255, 255)
    assert worker.report.counts == {"b": 2}


async def test_figures_that_take_too_long_are_given_up(
    rig: MySQLRig, store: MySQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object, **__: object) -> Figures:
        await asyncio.Event().wait()
        raise AssertionError

    async with opened(store):
        monkeypatch.setattr(store._ledger, "_patience", 0.01)
        monkeypatch.setattr(store._ledger, "_figures", hang)
        with pytest.raises(StoreUnavailable, match="in time"):
            await store.figures()
        monkeypatch.undo()
        assert (await store.figures()).attempts.events == 0
