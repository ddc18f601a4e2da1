"""The server turns read-only under use, and back: units wait, nothing is lost, nothing is charged."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from inbox.adapters.mysql import MySQLStore
from inbox.core.records import Attempts, Claim, Resolution
from inbox.errors import CommitUnknown, Contended, StoreUnavailable
from inbox.ports import UnitOfWork
from inbox.testing.conformance.store import delivery, event, handler, record
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair
from tests.services.probe import connect_database

# They turn the whole server read-only, so it has to be one of this run's own.
pytestmark = pytest.mark.controls_services

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


class Switch:
    """The server's own: MySQL binds everybody, MariaDB all but those with READ ONLY ADMIN."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def read_only(self) -> None:
        self._set(["super_read_only = ON"] if self._pair.is_mysql else ["read_only = ON"])

    def writable(self) -> None:
        self._set(["super_read_only = OFF", "read_only = OFF"] if self._pair.is_mysql else ["read_only = OFF"])

    def _set(self, assignments: list[str]) -> None:
        with connect_database(self._pair.database.dsn) as connection, connection.cursor() as cursor:
            for assignment in assignments:
                cursor.execute(f"SET GLOBAL {assignment}")


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    await rig.sql("CREATE USER IF NOT EXISTS 'plain'@'%' IDENTIFIED BY 'plain'")
    await rig.sql(f"GRANT {_RIGHTS} ON `{pair.schema}`.* TO 'plain'@'%'")
    return rig


@pytest.fixture
async def store(rig: MySQLRig) -> AsyncIterator[MySQLStore]:
    store = rig.store(url=rig.pair.url_for(rig.driver, user="plain", password="plain"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def switch(pair: Pair) -> AsyncIterator[Switch]:
    switch = Switch(pair)
    try:
        yield switch
    finally:
        switch.writable()


async def test_every_step_says_unavailable_and_waiting_ends_with_it(
    rig: MySQLRig, store: MySQLStore, switch: Switch
) -> None:
    await store.end_attempt(b"e-1", failed=True)
    switch.read_only()
    unit = await store.begin()
    with pytest.raises(StoreUnavailable):
        await unit.claim(record())
    await unit.rollback()
    with pytest.raises(StoreUnavailable):
        await store.start_attempt(b"e-1")
    with pytest.raises(StoreUnavailable):
        await store.quarantine(delivery(), None, "refused", "")
    assert not await store.knows(record())

    waiting = asyncio.ensure_future(store.wait_writable())
    await asyncio.wait([waiting], timeout=1)
    assert not waiting.done()
    switch.writable()
    await asyncio.wait_for(waiting, 15)
    assert await store.start_attempt(b"e-1") == Attempts(failed=1)
    assert await rig.quarantined() == []


async def test_it_turns_read_only_between_claim_and_commit(rig: MySQLRig, store: MySQLStore, switch: Switch) -> None:
    unit = await store.begin()
    await unit.claim(record())
    switching = asyncio.ensure_future(asyncio.to_thread(switch.read_only))
    await asyncio.wait([switching], timeout=1)
    committed = await finish(rig, store, unit, b"e-1")
    await switching
    switch.writable()
    assert await rig.effects() == (["e-1"] if committed else [])
    assert await rig.keys() == ({b"e-1"} if committed else set())


async def finish(rig: MySQLRig, store: MySQLStore, unit: UnitOfWork, key: bytes) -> bool:
    """Apply and commit, or undo, or find out; whether it is committed."""
    try:
        await unit.apply(handler(lambda _, session: rig.effect(session, key.decode())), event(key), None)
        await unit.commit()
    except CommitUnknown:
        resolution = await store.resolve(record(key), unit)
        assert resolution is not Resolution.UNRESOLVED
        return resolution is Resolution.COMMITTED
    except (StoreUnavailable, Contended):
        await unit.rollback()
        return False
    return True


async def test_under_load_every_event_is_applied_once(rig: MySQLRig, store: MySQLStore, switch: Switch) -> None:
    waits = 0

    async def deliver(number: int) -> None:
        nonlocal waits
        key = b"e-%d" % number
        while True:
            unit = await store.begin()
            try:
                claim = await unit.claim(record(key))
            except (StoreUnavailable, Contended):
                await unit.rollback()
            else:
                if claim is Claim.DUPLICATE or await finish(rig, store, unit, key):
                    return
            waits += 1
            await store.wait_writable()

    async def toggle(done: Callable[[], bool]) -> None:
        while not done():
            for change in (switch.read_only, switch.writable):
                await asyncio.to_thread(change)
                await asyncio.sleep(0.3)

    work = asyncio.gather(*(deliver(number) for number in range(300)))
    await toggle(work.done)
    await work
    assert waits
    assert sorted(await rig.effects()) == sorted(f"e-{number}" for number in range(300))
    assert await store.end_attempt(b"e-1") == Attempts()
