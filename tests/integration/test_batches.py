"""Batches on servers: what is sent for one, and what one handler may leave to the next."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from inbox.adapters.mysql import MySQLStore
from inbox.core.event import Event
from inbox.core.handler import Face
from inbox.core.records import Claim, Resolution
from inbox.errors import CommitUnknown, Contended
from inbox.testing.conformance.store import event, handler, record
from inbox.testing.faults import Catch, FaultProxy, MySqlFraming, is_commit
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair

KEYS = [b"e-%d" % n for n in range(8)]


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    return rig


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(pair.database.host, pair.database.port, MySqlFraming, record=True) as proxy:
        yield proxy


@pytest.fixture
async def store(rig: MySQLRig, proxy: FaultProxy) -> AsyncIterator[MySQLStore]:
    store = rig.store(url=rig.through(proxy.port), deadline=5.0, connect_timeout=3.0)
    await store.open()
    yield store
    await store.close()


async def test_a_batch_of_n_costs_n_and_two_commands(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    await (await store.begin()).rollback()
    proxy.commands.clear()
    unit = await store.begin()
    assert await unit.claim_all([record(key) for key in KEYS]) == [Claim.NEW] * 8
    for key in KEYS:
        await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(key), None)
    await unit.commit()
    assert [command[1:7] for command in proxy.commands] == [b"INSERT", *[b"INSERT"] * 8, b"COMMIT"]


async def test_a_batch_of_known_events_costs_four_commands(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await store.begin()
    await unit.claim_all([record(key) for key in KEYS])
    await unit.commit()
    proxy.commands.clear()
    assert await (await store.begin()).claim_all([record(key) for key in KEYS]) == [Claim.DUPLICATE] * 8
    assert [command[1:7] for command in proxy.commands] == [b"INSERT", b"ROLLBA", b"SELECT", b"ROLLBA"]


async def test_the_answer_to_the_commit_of_a_batch_is_lost(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await store.begin()
    await unit.claim_all([record(key) for key in KEYS])
    await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(KEYS[0]), None)
    proxy.trap(is_commit, Catch.LOSE_ANSWER)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert {await store.resolve(record(key), unit) for key in KEYS} == {Resolution.COMMITTED}
    assert await rig.effects() == ["one"]


async def test_no_handler_sees_what_its_neighbour_left_on_the_session(rig: MySQLRig) -> None:
    async def leaves(_: Event, session: object) -> None:
        await session.execute(text("SET @left = 1"))  # type: ignore[attr-defined]

    store = rig.store()
    await store.open()
    try:
        unit = await store.begin()
        await unit.claim_all([record(key) for key in KEYS])
        await unit.apply(handler(leaves), event(KEYS[0]), None)
        with pytest.raises(Contended, match="left something"):
            await unit.apply(handler(leaves), event(KEYS[1]), None)
        await unit.rollback()
        assert await rig.keys() == set()
    finally:
        await store.close()


async def test_procedures_and_batches_do_not_go_together(rig: MySQLRig) -> None:
    store = rig.store(allow_call=True)
    await store.open()
    try:
        assert "allow_call" in (store.why_no_batches or "")
        unit = await store.begin()
        with pytest.raises(Contended, match="allow_call"):
            await unit.claim_all([record(key) for key in KEYS])
        await unit.rollback()
    finally:
        await store.close()


async def test_racing_workers_with_overlapping_batches(rig: MySQLRig) -> None:
    """Whoever loses knows all that it lost, or is told that nothing is known; no effect is there twice."""
    stores = [rig.store(lock_wait=10) for _ in range(4)]
    for store in stores:
        await store.open()

    async def work(store: MySQLStore, keys: list[bytes]) -> None:
        while keys:
            unit = await store.begin()
            try:
                claims = await unit.claim_all([record(key) for key in keys])
            except Contended:
                await unit.rollback()
                continue
            new = [key for key, claim in zip(keys, claims, strict=True) if claim is Claim.NEW]
            if len(new) < len(keys):
                keys = new
                continue
            for key in keys:
                await unit.apply(handler(lambda e, session: rig.effect(session, e.id)), event(key), None)
            await unit.commit()
            return

    try:
        async with asyncio.timeout(30):
            keys = [b"r-%02d" % n for n in range(20)]
            await asyncio.gather(
                *(work(store, [*keys[5 * n :], *keys[: 5 * n]]) for n, store in enumerate(stores)),
                *(work(store, keys[n::2]) for n, store in enumerate(stores[:2])),
            )
        assert sorted(await rig.effects()) == sorted(key.decode() for key in keys)
    finally:
        for store in stores:
            await store.close()


async def test_what_one_handler_does_to_its_connection_the_next_does_not_see(rig: MySQLRig) -> None:
    """They have SQLAlchemy's transaction in common, as long as each leaves it as it was."""
    seen: list[tuple[bool, dict[object, object]]] = []

    async def looks(event: Event, connection: AsyncConnection) -> None:
        sync = connection.sync_connection
        assert sync is not None
        seen.append((connection.in_nested_transaction(), dict(sync.info)))
        await connection.begin_nested()
        sync.info["tenant"] = event.id
        await connection.execute(text("INSERT INTO effects (label) VALUES (:label)"), {"label": event.id})

    store = rig.store()
    await store.open()
    try:
        unit = await store.begin()
        await unit.claim_all([record(key) for key in KEYS[:3]])
        for key in KEYS[:3]:
            await unit.apply(replace(handler(looks), face=Face.CONNECTION), event(key), None)
        await unit.commit()
    finally:
        await store.close()
    assert seen == [(False, {})] * 3
    assert len(await rig.effects()) == 3
