"""How long a start waits for a database that is not there, and a worker for one that takes no writes."""

import asyncio
import logging
from typing import Any

import pytest
from sqlalchemy import MetaData

from inbox.adapters.mysql import MySQL, MySQLStore
from inbox.adapters.mysql.side import AdHoc, Answer, Statement
from inbox.adapters.mysql.writable import WriteGate
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError, Contended, StoreUnavailable
from inbox.runtime.intake import LocalIntake
from inbox.runtime.worker import Exit, run_worker
from inbox.tables import define_tables
from inbox.testing.memory import MemoryStore, MemoryTransport
from tests.unit.engine import Engine, apply, delivery

OUT_OF_PATIENCE = StoreUnavailable("the database has not taken writes for 60 s (DatabaseSettings.patience): mend it")


# ------------------------------------------------------------------ the database that takes no writes
class Database:
    """Takes writes or not, and counts how often it was asked."""

    def __init__(self) -> None:
        self.is_writable = False
        self.hangs = False
        self.asked = 0

    is_stale = False

    async def connect(self) -> "Database":
        return self

    async def run(self, statement: Statement) -> Answer:
        if statement.sql.startswith("INSERT"):
            self.asked += 1
            if self.hangs:
                await asyncio.Event().wait()
            if not self.is_writable:
                raise StoreUnavailable("read-only", code=1290)
        return Answer()

    def discard(self) -> None:
        pass

    async def close(self) -> None:
        pass


def gate(database: Database, patience: float | None, answer: float = 5.0) -> WriteGate:
    return WriteGate(AdHoc(database.connect), define_tables(MetaData()), answer, patience)


async def test_patience_ends_for_all_who_wait_with_one_clear_line() -> None:
    made = gate(Database(), 0.05)
    ends = await asyncio.gather(*(made.wait() for _ in range(3)), return_exceptions=True)
    assert {str(end) for end in ends} == {
        "the database has not taken writes for 0.05 s (DatabaseSettings.patience): mend it, and start the worker again"
    }
    assert all(isinstance(end, StoreUnavailable) for end in ends)


async def test_a_question_that_hangs_does_not_lengthen_it() -> None:
    database = Database()
    database.hangs = True
    async with asyncio.timeout(2):
        with pytest.raises(StoreUnavailable, match=r"DatabaseSettings\.patience"):
            await gate(database, 0.05, answer=60.0).wait()


async def test_it_counts_from_when_the_waiting_began() -> None:
    database = Database()
    made = gate(database, 0.05)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await made.wait()
    database.is_writable = True
    await made.wait()


@pytest.mark.parametrize("patience", [None, 60.0])
async def test_with_patience_left_it_waits_until_writes_are_taken(patience: float | None) -> None:
    database = Database()
    waiting = asyncio.ensure_future(gate(database, patience).wait())
    async with asyncio.timeout(10):
        while database.asked < 3:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        database.is_writable = True
        await waiting


# ------------------------------------------------------------------ what the worker makes of it
async def test_an_intake_whose_patience_ended_begins_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.faults["wait_writable"] = [OUT_OF_PATIENCE]
    intake = LocalIntake(store, MemoryTransport(), most=10)
    with pytest.raises(StoreUnavailable):
        await intake.wait_for_store()
    assert intake.is_paused
    assert "intake resumed" not in caplog.messages


async def test_a_run_ends_with_nothing_settled_and_nothing_charged() -> None:
    engine = out_of_patience()
    with pytest.raises(StoreUnavailable, match=r"DatabaseSettings\.patience"):
        await engine.inbox.run()
    assert not engine.transport.acknowledged
    assert not engine.store.effects
    assert not engine.store.attempts
    assert not engine.store.quarantined
    assert not engine.store.is_open


def test_a_worker_says_that_one_line_and_ends_with_1(caplog: pytest.LogCaptureFixture) -> None:
    assert run_worker(out_of_patience().inbox) is Exit.FAILED
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == [str(OUT_OF_PATIENCE)]
    assert not any(line.exc_info for line in caplog.records)
    assert "intake resumed" not in caplog.messages


def out_of_patience() -> Engine:
    engine = Engine()
    engine.handle(apply)
    engine.store.faults["begin"] = [StoreUnavailable("gone", code=2013)] * 9
    engine.store.faults["wait_writable"] = [OUT_OF_PATIENCE] * 9
    engine.transport.publish(*(delivery(str(number)) for number in range(5)))
    return engine


# ------------------------------------------------------------------ the database that is not there yet
def starting(patience: float, *failures: Exception) -> MySQLStore:
    """A store whose connecting fails so often."""
    database = MySQL("mysql://u@db/d", DatabaseSettings(start_patience=patience))
    store = database.for_consumer("c", concurrency=1, deadline=1.0)
    left = [*failures]

    async def checked() -> list[Any]:
        if left:
            raise left.pop(0)
        return []

    store._checked = checked  # type: ignore[method-assign] # no server is asked
    return store


async def test_a_start_waits_for_a_database_that_comes(caplog: pytest.LogCaptureFixture) -> None:
    store = starting(30.0, Contended("gone", code=2013), StoreUnavailable("no one there", code=2003), TimeoutError())
    await store.open()
    assert caplog.messages == ["the database cannot be reached; waiting for it up to 30 s"]


async def test_a_start_without_patience_asks_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match="cannot connect to the database at db:3306"):
        await starting(0.0, StoreUnavailable("no one there", code=2003)).open()
    assert not caplog.messages


async def test_a_start_says_what_is_wrong_when_its_patience_has_ended() -> None:
    failures = [StoreUnavailable("no one there", code=2003)] * 100
    with pytest.raises(ConfigurationError, match="cannot connect to the database at db:3306"):
        await starting(0.01, *failures).open()


async def test_what_no_waiting_mends_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="wrong password"):
        await starting(60.0, ConfigurationError("wrong password")).open()
