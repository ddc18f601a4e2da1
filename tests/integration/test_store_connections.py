"""Connections that are killed, cut, idle or refused: the unit is undone or resolved, and the next one works."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQLStore
from inbox.adapters.mysql.quarantine import QuarantineSql
from inbox.adapters.mysql.side import Statement
from inbox.core.event import Event
from inbox.core.records import Attempts, Claim, Resolution
from inbox.errors import CommitUnknown, Contended, QuarantineFull, StoreUnavailable
from inbox.testing.conformance.store import delivery, event, handler, opened, record
from inbox.testing.faults import FaultProxy, MySqlFraming, begins_with
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    return rig


@pytest.fixture
async def store(rig: MySQLRig) -> AsyncIterator[MySQLStore]:
    store = rig.store(concurrency=1)
    await store.open()
    yield store
    await store.close()


async def kill(rig: MySQLRig, command: str | None = None) -> None:
    """KILL every session of the test's database but the asker's, or those that run `command`."""
    rows = await rig.sql("SELECT id, info FROM information_schema.processlist WHERE db = %(db)s", db=rig.pair.schema)
    for number, running in rows:
        if "information_schema" in (running or "") or (command and command not in (running or "")):
            continue
        with contextlib.suppress(Exception):
            await rig.sql(f"KILL {number:d}")


async def apply(rig: MySQLRig, store: MySQLStore) -> Claim:
    """One whole delivery, undone where it fails."""
    unit = await store.begin()
    try:
        claim = await unit.claim(record())
        if claim is Claim.NEW:
            await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(), None)
    except (StoreUnavailable, Contended):
        await unit.rollback()
        raise
    if claim is Claim.NEW:
        await unit.commit()
    return claim


async def test_killed_before_the_unit(rig: MySQLRig, store: MySQLStore) -> None:
    unit = await store.begin()
    await kill(rig)
    with pytest.raises(Contended):
        await unit.claim(record())
    await unit.rollback()
    await kill(rig)
    assert await apply(rig, store) is Claim.NEW
    assert await rig.effects() == ["one"]


async def test_killed_between_claim_and_handler(rig: MySQLRig, store: MySQLStore) -> None:
    unit = await store.begin()
    await unit.claim(record())
    await kill(rig)
    with pytest.raises(Contended):
        await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(), None)
    await unit.rollback()
    assert await apply(rig, store) is Claim.NEW
    assert await rig.effects() == ["one"]


async def test_killed_during_the_handlers_statement(rig: MySQLRig, store: MySQLStore) -> None:
    running = asyncio.Event()

    async def sleeps(_: Event, session: AsyncSession) -> None:
        await rig.effect(session, "lost")
        running.set()
        with contextlib.suppress(Exception):  # swallowed, as handlers do
            await session.execute(text("SELECT SLEEP(20)"))

    unit = await store.begin()
    await unit.claim(record())
    applying = asyncio.ensure_future(unit.apply(handler(sleeps), event(), None))
    await running.wait()
    while not await rig.sql("SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"):
        await asyncio.sleep(0.01)
    await kill(rig, "SLEEP")
    with pytest.raises(Contended):
        await applying
    await unit.rollback()
    assert await apply(rig, store) is Claim.NEW
    assert await rig.effects() == ["one"]


async def test_killed_after_the_handler(rig: MySQLRig, store: MySQLStore) -> None:
    unit = await store.begin()
    await unit.claim(record())
    await unit.apply(handler(lambda _, session: rig.effect(session, "lost")), event(), None)
    await kill(rig)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    assert await apply(rig, store) is Claim.NEW
    assert await rig.effects() == ["one"]


async def test_the_connection_beside_the_units_is_reopened(rig: MySQLRig, store: MySQLStore) -> None:
    assert await store.end_attempt(b"e-1", failed=True) == Attempts(failed=1)
    await kill(rig)
    assert await store.end_attempt(b"e-1", failed=True) == Attempts(failed=2)
    await kill(rig)
    await store.quarantine(delivery(), None, "refused", "")
    await kill(rig)
    assert not await store.knows(record())
    assert len(await rig.quarantined()) == 1


async def test_cancelled_beside_the_units_it_answers_the_next_in_step(rig: MySQLRig, store: MySQLStore) -> None:
    for number in range(20):
        asking = asyncio.ensure_future(store.start_attempt(b"e-%d" % number))
        await asyncio.sleep(number * 0.0002)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await store.end_attempt(b"other", failed=True) == Attempts(failed=number + 1)


async def test_a_database_that_is_away_is_unavailable_and_comes_back(rig: MySQLRig, pair: Pair) -> None:
    async with FaultProxy(pair.database.host, pair.database.port, MySqlFraming) as proxy:
        store = rig.store(url=rig.through(proxy.port), connect_timeout=1.0)
        await store.open()
        proxy.refuse()
        proxy.cut()
        with pytest.raises((StoreUnavailable, Contended)):
            await store.start_attempt(b"e-1")
        with pytest.raises((StoreUnavailable, Contended)):
            await apply(rig, store)
        with pytest.raises((StoreUnavailable, Contended)):
            await store.begin()
        waiting = [asyncio.ensure_future(store.wait_writable()) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.5)
        assert not any(task.done() for task in waiting)
        waiting.pop().cancel()
        proxy.refuse(False)
        await asyncio.wait_for(asyncio.gather(*waiting), 15)
        assert await apply(rig, store) is Claim.NEW
        await store.close()


async def test_a_lane_that_was_idle_for_long_is_replaced_and_not_asked(rig: MySQLRig, pair: Pair) -> None:
    async with FaultProxy(pair.database.host, pair.database.port, MySqlFraming) as proxy:
        store = rig.store(url=rig.through(proxy.port), concurrency=1)
        await store.open()
        (lane,) = store.lanes._idle
        while len(proxy.links) > 1:  # those of the start are closing
            await asyncio.sleep(0.01)
        (link,) = proxy.links
        before = proxy.traffic.copy()
        assert store.lanes.idle == 1
        unit = await store.begin()
        assert (proxy.traffic - before).packets == 0
        await unit.rollback()
        lane.driver.last_own -= 1000
        fresh = await store.begin()
        await asyncio.wait_for(link.ended.wait(), 5)
        assert fresh.lane is not lane
        assert (proxy.traffic - before).connections == 1
        await fresh.rollback()
        await store.close()


async def test_a_first_delivery_costs_three_packets_and_its_effect(rig: MySQLRig, pair: Pair) -> None:
    async with FaultProxy(pair.database.host, pair.database.port, MySqlFraming, record=True) as proxy:
        store = rig.store(url=rig.through(proxy.port), concurrency=1)
        await store.open()
        await apply_key(rig, store, b"warm")
        before = proxy.traffic.copy()
        await apply_key(rig, store, b"e-1")
        assert (proxy.traffic - before).commands <= 4
        before = proxy.traffic.copy()
        assert await apply_key(rig, store, b"e-1") is Claim.DUPLICATE
        duplicate = proxy.traffic - before
        assert (duplicate.commands, duplicate.round_trips) == (3, 2)
        assert not [command for command in proxy.commands if begins_with("BEGIN")(command)]
        await store.close()


async def apply_key(rig: MySQLRig, store: MySQLStore, key: bytes) -> Claim:
    unit = await store.begin()
    claim = await unit.claim(record(key))
    if claim is Claim.NEW:
        await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(key), None)
        await unit.commit()
    return claim


async def test_a_duplicate_key_of_the_users_is_no_duplicate_event(rig: MySQLRig, store: MySQLStore) -> None:
    await rig.sql("INSERT INTO owners (name) VALUES ('a')")

    async def inserts(_: Event, session: Any) -> None:
        await session.execute(text("INSERT INTO owners (name) VALUES ('a')"))

    unit = await store.begin()
    assert await unit.claim(record()) is Claim.NEW
    with pytest.raises(IntegrityError):
        await unit.apply(handler(inserts), event(), None)
    await unit.rollback()
    assert await rig.keys() == set()


async def test_two_processes_that_note_attempts_beside_their_units_do_not_lock_each_other_out(rig: MySQLRig) -> None:
    async def deliver(store: MySQLStore, number: int) -> None:
        key = b"e-%d" % (number % 10)
        while True:
            unit = await store.begin()
            try:
                claim = await unit.claim(record(key))
                if claim is not Claim.NEW:
                    return None
                await store.start_attempt(key)
                await unit.apply(handler(lambda _, session: rig.effect(session, key.decode())), event(key), None)
                await unit.forget(key)
            except Contended:
                await unit.rollback()
                continue
            if number % 3:
                return await unit.commit()
            await unit.rollback()
            await store.end_attempt(key, failed=True)
            return None

    stores = [rig.store(concurrency=8, lock_wait=5) for _ in range(2)]
    async with opened(*stores):
        await asyncio.gather(*(deliver(stores[number % 2], number) for number in range(200)))
    assert sorted(await rig.effects()) == sorted(f"e-{number}" for number in range(10))
    (counts,) = await rig.sql("SELECT COALESCE(SUM(crashed), 0), COUNT(open_token) FROM inbox_attempt")
    assert counts == (0, 0)


async def test_a_delivery_larger_than_a_packet_is_refused_before_it_costs_the_connection(
    rig: MySQLRig, store: MySQLStore
) -> None:
    ((limit,),) = await rig.sql("SELECT @@max_allowed_packet")
    with pytest.raises(QuarantineFull, match="max_allowed_packet"):
        await store.quarantine(delivery(bytes(limit // 2)), None, "refused", "")
    await store.quarantine(delivery(bytes(limit // 2 - 20_000)), None, "refused", "")
    ((stored,),) = await rig.sql("SELECT LENGTH(body) FROM inbox_quarantine")
    assert stored == limit // 2 - 20_000


async def test_the_bounds_are_counted_in_an_index(rig: MySQLRig, store: MySQLStore) -> None:
    sql = Statement(QuarantineSql(store.tables).tally, (b"billing",)).text().decode()
    explain = "EXPLAIN FORMAT=TRADITIONAL" if rig.pair.is_mysql else "EXPLAIN"
    (plan,) = await rig.sql(f"{explain} {sql}")
    assert "inbox_quarantine_by_state" in plan
    assert "Using index" in plan[-1]


async def test_without_that_index_they_are_counted_all_the_same(rig: MySQLRig, store: MySQLStore) -> None:
    await rig.sql("ALTER TABLE inbox_quarantine DROP INDEX inbox_quarantine_by_state")
    await store.quarantine(delivery(), None, "refused", "")
    assert len(await rig.quarantined()) == 1
