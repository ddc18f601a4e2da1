"""The store on SQLite where it differs: two files, one writer, tables that make themselves."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import AlreadyProcessed, ConsumerSettings, Delivery, Inbox
from inbox.adapters.embedded import SQLite, SQLiteStore, clock
from inbox.config import DatabaseSettings
from inbox.core.records import Attempts, Claim, Resolution
from inbox.core.retention import Pruned
from inbox.errors import CommitUnknown, ConfigurationError, Contended, SchemaError, StoreUnavailable
from inbox.tables import TableNames
from inbox.testing.conformance.store import event, handler, opened, record
from tests.conformance.embedded_rigs import SQLiteRig


@pytest.fixture
def rig(tmp_path: Path) -> SQLiteRig:
    return SQLiteRig(tmp_path)


@pytest.fixture
async def store(rig: SQLiteRig) -> AsyncIterator[SQLiteStore]:
    store = rig.store()
    async with opened(store):
        yield store


# ------------------------------------------------------------------ one writer
async def test_what_a_connection_of_ours_is(store: SQLiteStore) -> None:
    unit = await store.begin()
    found = await unit.lane.driver.own(
        lambda raw: [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    )
    await unit.rollback()
    assert found == ["wal", 2], "2 is FULL"


async def test_another_process_that_writes_is_waited_for(rig: SQLiteRig, store: SQLiteStore) -> None:
    with closing(rig.connect()) as other:
        other.execute("BEGIN IMMEDIATE")
        unit = await store.begin()
        waiting = asyncio.ensure_future(unit.claim(record()))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        other.execute("COMMIT")
        assert await waiting is Claim.NEW
        await unit.commit()


async def test_another_process_that_writes_for_too_long_is_contention(rig: SQLiteRig, store: SQLiteStore) -> None:
    with closing(rig.connect()) as other:
        other.execute("BEGIN IMMEDIATE")
        unit = await store.begin()
        with pytest.raises(Contended):
            await unit.claim(record())
        await unit.rollback()
    unit = await store.begin()
    assert await unit.claim(record()) is Claim.NEW
    await unit.rollback()


async def test_a_file_that_is_locked_for_a_moment_is_opened_behind_that(rig: SQLiteRig) -> None:
    await rig.create()
    store = rig.store(lock_wait=10)
    with closing(rig.connect()) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM effects")
        other.execute("COMMIT")  # the locks stay
        opening = asyncio.ensure_future(store.open())
        await asyncio.wait([opening], timeout=0.2)
        assert not opening.done()
    await opening
    begun = await store.begin()
    await begun.rollback()
    await store.close()


async def test_a_claim_that_is_cancelled_while_it_waits_holds_nothing_up(rig: SQLiteRig, store: SQLiteStore) -> None:
    first, second, third = [await store.begin() for _ in range(3)]
    await first.claim(record())
    waiting = [asyncio.ensure_future(unit.claim(record(key))) for unit, key in ((second, b"e-2"), (third, b"e-3"))]
    await asyncio.wait(waiting, timeout=0.05)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    await second.rollback()
    await first.rollback()
    assert await waiting[1] is Claim.NEW
    await third.rollback()


# ------------------------------------------------------------------ commits
async def test_a_commit_that_fails_is_asked_about_and_did_not_take_place(rig: SQLiteRig, store: SQLiteStore) -> None:
    rig.sql("CREATE TABLE owner (id INTEGER PRIMARY KEY)")
    rig.sql("CREATE TABLE debt (owner INTEGER REFERENCES owner (id) DEFERRABLE INITIALLY DEFERRED)")

    async def owes(_: object, session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO debt VALUES (4711)"))

    unit = await store.begin()
    await unit.claim(record())
    await unit.apply(handler(owes), event(), None)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    assert (await rig.keys(), rig.sql("SELECT * FROM debt")) == (set(), [])


async def test_as_long_as_a_writer_is_there_nobody_can_say(store: SQLiteStore) -> None:
    unit = await store.begin()
    await unit.claim(record())
    assert await store.resolve(record(), unit) is Resolution.UNRESOLVED
    await unit.rollback()
    assert await store.resolve(record(), unit) is Resolution.ABSENT


async def test_a_connection_that_is_lost_undoes_its_unit(rig: SQLiteRig, store: SQLiteStore) -> None:
    async def effect(_: object, session: AsyncSession) -> None:
        await rig.effect(session, "one")

    unit = await store.begin()
    await unit.claim(record())
    await unit.apply(handler(effect), event(), None)
    await unit.lane.driver.finish()
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    assert await rig.effects() == []
    unit = await store.begin()
    assert await unit.claim(record()) is Claim.NEW
    await unit.rollback()


async def test_counts_that_a_dead_process_left_behind_its_commit_go_with_the_duplicate(
    rig: SQLiteRig, store: SQLiteStore
) -> None:
    dead = rig.store()
    async with opened(dead):
        await dead.start_attempt(b"e-1", alone=True)
        unit = await dead.begin()
        await unit.claim(record())
        await unit.commit()  # and no forget
    unit = await store.begin()
    assert await unit.claim(record()) is Claim.DUPLICATE
    await store.forget_attempts(record().key)  # as the engine does with a duplicate that came before
    assert rig.sql("SELECT * FROM inbox_attempt") == []
    assert await store.start_attempt(b"e-1") == Attempts()


async def test_attempts_reports_and_quarantine_do_not_wait_for_a_unit(store: SQLiteStore) -> None:
    unit = await store.begin()
    await unit.claim(record())
    async with asyncio.timeout(0.9):  # less than the lock wait
        await store.start_attempt(b"e-2")
        await store.end_attempt(b"e-2", failed=True)
        await store.quarantine(Delivery(b"x", {}), None, "refused", "")
        assert (await store.figures()).attempts.failed == 1
    await unit.commit()


# ------------------------------------------------------------------ files and tables
async def test_several_processes_may_make_the_tables_at_once(rig: SQLiteRig) -> None:
    stores = [rig.store(lock_wait=10) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await store.close()
    assert rig.sql("SELECT version FROM inbox_schema") == [(1,)]


async def test_tables_that_were_there_are_never_made_anew(rig: SQLiteRig) -> None:
    await rig.create()
    await rig.drop_a_table()
    store = rig.store()
    with pytest.raises(SchemaError, match="no table inbox"):
        await store.open()
    await store.close()


@pytest.mark.parametrize("gone", ["-inbox", "-inbox-wal"])
async def test_a_second_file_that_is_gone_is_not_begun_anew(rig: SQLiteRig, gone: str) -> None:
    await rig.create()
    await asyncio.to_thread(Path(f"{rig.path}{gone}").unlink, missing_ok=True)
    store = rig.store()
    if gone == "-inbox":
        with pytest.raises(SchemaError, match="the file beside it has no table inbox_attempt"):
            await store.open()
    else:  # a log that was written back is no loss
        await store.open()
    await store.close()


async def test_a_missing_column_is_named(rig: SQLiteRig) -> None:
    await rig.create()
    rig.sql("ALTER TABLE beside.inbox_quarantine RENAME COLUMN state_note TO note")
    store = rig.store()
    with pytest.raises(SchemaError, match="inbox_quarantine in the file beside it has no column state_note"):
        await store.open()
    await store.close()


async def test_told_not_to_it_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    store = SQLite(path, creates=False).for_consumer("billing", concurrency=1, deadline=5)
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        await store.open()
    await store.close()
    assert await asyncio.to_thread(path.exists) is False


async def test_names_of_ones_own(rig: SQLiteRig) -> None:
    names = TableNames("seen", "tried", "refused", "fleet", "versions", None)
    made = SQLite(rig.path, DatabaseSettings(lock_wait=1), names).for_consumer("billing", concurrency=1, deadline=5)
    async with opened(made):
        unit = await made.begin()
        await unit.claim(record())
        await unit.commit()
        await made.end_attempt(b"e-2", failed=True)
        await made.quarantine(Delivery(b"x", {}), None, "refused", "")
        assert (await made.figures()).quarantine.open == 1
    tables = {name for (name,) in rig.sql("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    assert {"seen", "versions"} <= tables
    assert not {"inbox", "inbox_view", "inbox_schema"} & tables
    assert rig.sql("SELECT failed FROM tried") == [(1,)]


@pytest.mark.parametrize("kind", ["folder", "text", "nowhere"])
async def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = {"folder": tmp_path, "text": tmp_path / "text.db", "nowhere": tmp_path / "no" / "shop.db"}[kind]
    if kind == "text":
        path.write_text("this is no database, and long enough to be looked at" * 40)
    store = SQLite(path).for_consumer("billing", concurrency=1, deadline=5)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        await store.open()
    await store.close()


# ------------------------------------------------------------------ waiting
async def test_wait_writable_waits_for_whoever_holds_the_file(rig: SQLiteRig, store: SQLiteStore) -> None:
    with closing(rig.connect()) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.wait_writable())
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        other.execute("ROLLBACK")
    await waiting
    assert (await rig.keys(), rig.sql("SELECT * FROM inbox_attempt")) == (set(), []), "it leaves nothing"


async def test_the_patience_with_a_file_ends(rig: SQLiteRig) -> None:
    store = rig.store(patience=0.3)
    async with opened(store):
        with closing(rig.connect()) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="has not taken writes"):
                await store.wait_writable()


# ------------------------------------------------------------------ clean-ups
async def test_one_clean_up_is_at_work_at_a_time(rig: SQLiteRig, store: SQLiteStore) -> None:
    for number in range(4):
        unit = await store.begin()
        await unit.claim(record(b"e-%d" % number))
        await unit.commit()
    await rig.age(7200)
    second: list[Pruned] = []
    began = asyncio.Event()

    def progress(_: Pruned) -> bool:
        began.set()
        return True

    first = asyncio.ensure_future(store.prune(3600, batch=1, pause=0.05, progress=progress))
    await began.wait()
    second.append(await rig.store().prune(3600, batch=1, pause=0, progress=lambda _: True))
    unit = await store.begin()
    assert await unit.claim(record(b"new")) is Claim.NEW, "a unit goes on beside it"
    await unit.commit()
    assert await first == Pruned(inbox=4)
    assert second == [Pruned(is_skipped=True, is_complete=False)]
    assert await rig.keys() == {b"new"}


async def test_a_row_that_came_back_young_is_not_deleted(rig: SQLiteRig, store: SQLiteStore) -> None:
    unit = await store.begin()
    await unit.claim(record())
    await unit.commit()
    rig.sql("UPDATE inbox SET processed_at = ?", clock.before(3600 - 5))
    assert await store.prune(3600, batch=10, pause=0, progress=lambda _: True) == Pruned()


async def test_what_has_no_tables_cannot_be_cleaned_up(rig: SQLiteRig) -> None:
    await rig.create()
    await rig.drop_a_table()
    with pytest.raises(SchemaError):
        await rig.store().prune(3600, batch=10, pause=0, progress=lambda _: True)


# ------------------------------------------------------------------ the face
async def test_a_transaction_of_ones_own_consumer(rig: SQLiteRig) -> None:
    inbox = Inbox("billing", store=SQLite(f"sqlite:///{rig.path}"), settings=ConsumerSettings(concurrency=2))
    headers = {"ce-id": "é", "ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}
    async with inbox:
        verified = await inbox.verify(Delivery(b"{}", headers, "application/json"))
        async with inbox.transaction(verified) as session:
            await rig.effect(session, "one")
        with pytest.raises(AlreadyProcessed):
            async with inbox.transaction(verified) as session:
                await rig.effect(session, "two")
        other = await inbox.verify(Delivery(b"{}", {**headers, "ce-id": "e-2"}, "application/json"))
        with suppress(LookupError):
            async with inbox.transaction(other) as session:
                await rig.effect(session, "three")
                raise LookupError
    assert await rig.effects() == ["one"]
    assert await rig.keys() == {"é".encode()}


def test_the_schema_is_what_the_sqlite_shell_takes(tmp_path: Path) -> None:
    """As its first comment says, with the second file attached."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as raw:
        raw.execute("ATTACH ? AS beside", (str(tmp_path / "app.db-inbox"),))
        script = (Path(__file__).parents[2] / "schema" / "sqlite" / "0001_inbox.sql").read_text("utf-8")
        for _ in range(2):
            raw.executescript(script)
        assert raw.execute("SELECT version FROM inbox_schema").fetchall() == [(1,)]
