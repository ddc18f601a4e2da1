"""COMMIT was sent and not answered: what became of it is found out, and never guessed."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from inbox.adapters.mysql import MySQLStore
from inbox.core.records import Claim, Resolution
from inbox.errors import CommitUnknown
from inbox.ports import UnitOfWork
from inbox.testing.conformance.store import event, handler, record
from inbox.testing.faults import Catch, Cut, FaultProxy, MySqlFraming, is_commit
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    rig = MySQLRig(pair, driver)
    await rig.create()
    return rig


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(pair.database.host, pair.database.port, MySqlFraming) as proxy:
        yield proxy


@pytest.fixture
async def store(rig: MySQLRig, proxy: FaultProxy) -> AsyncIterator[MySQLStore]:
    """Through the proxy, with a deadline short enough to wait for."""
    store = rig.store(url=rig.through(proxy.port), deadline=2.0, connect_timeout=1.0)
    await store.open()
    yield store
    await store.close()


async def applied(rig: MySQLRig, store: MySQLStore) -> UnitOfWork:
    """A unit that has nothing left to do but to commit."""
    unit = await store.begin()
    assert await unit.claim(record()) is Claim.NEW
    await unit.apply(handler(lambda _, session: rig.effect(session, "one")), event(), None)
    return unit


async def test_the_answer_is_lost(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await applied(rig, store)
    proxy.trap(is_commit, Catch.LOSE_ANSWER)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.COMMITTED
    assert await (await store.begin()).claim(record()) is Claim.DUPLICATE
    assert await rig.effects() == ["one"]


async def test_the_answer_does_not_come(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await applied(rig, store)
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert trap.reached.is_set()
    assert await store.resolve(record(), unit) is Resolution.COMMITTED


async def test_a_caller_that_is_cancelled_does_not_cut_the_commit(
    rig: MySQLRig, store: MySQLStore, proxy: FaultProxy
) -> None:
    unit = await applied(rig, store)
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    committing = asyncio.ensure_future(unit.commit())
    await trap.wait()
    committing.cancel()
    trap.release()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert await rig.effects() == ["one"]


async def test_the_connection_is_cut_before_commit_arrives(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await applied(rig, store)
    proxy.trap(is_commit, Catch.CUT)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    assert await rig.effects() == []
    await (await applied(rig, store)).commit()
    assert await rig.effects() == ["one"]


async def test_commit_never_arrives_and_the_old_session_lives_behind_a_proxy(
    rig: MySQLRig, store: MySQLStore, proxy: FaultProxy
) -> None:
    unit = await applied(rig, store)
    trap = proxy.trap(is_commit, Catch.SWALLOW)
    with pytest.raises(CommitUnknown):
        await unit.commit()
    link = await trap.wait()
    # The session may be anybody's: the process list shows the proxy's address. Nothing is killed, nothing is guessed.
    assert await store.resolve(record(), unit) is Resolution.UNRESOLVED
    assert link in proxy.links
    link.cut(Cut.FIN)
    await link.ended.wait()
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    await (await applied(rig, store)).commit()
    assert await rig.effects() == ["one"]


async def test_commit_never_arrives_and_the_old_session_lives_and_is_ours(rig: MySQLRig) -> None:
    store = rig.store()
    await store.open()
    unit = await applied(rig, store)
    # What the store sees when its COMMIT was swallowed: an open transaction that holds the row.
    assert await store.resolve(record(), unit) is Resolution.ABSENT
    await unit.rollback()
    await (await applied(rig, store)).commit()
    assert await rig.effects() == ["one"]
    await store.close()


async def test_the_database_is_away(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await applied(rig, store)
    proxy.trap(is_commit, Catch.CUT)
    proxy.refuse()
    with pytest.raises(CommitUnknown):
        await unit.commit()
    assert await store.resolve(record(), unit) is Resolution.UNRESOLVED
    proxy.refuse(False)
    assert await store.resolve(record(), unit) is Resolution.ABSENT


async def test_the_database_is_silent(rig: MySQLRig, store: MySQLStore, proxy: FaultProxy) -> None:
    unit = await applied(rig, store)
    proxy.trap(is_commit, Catch.CUT)
    proxy.stall()
    with pytest.raises(CommitUnknown):
        await unit.commit()
    started = asyncio.get_running_loop().time()
    assert await store.resolve(record(), unit) is Resolution.UNRESOLVED
    assert asyncio.get_running_loop().time() - started < 6


async def test_a_process_is_killed_while_the_answer_of_its_commit_is_held(rig: MySQLRig, proxy: FaultProxy) -> None:
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.store_child", rig.through(proxy.port)
    )
    await trap.wait(timeout=30)
    child.kill()
    assert await child.wait() < 0
    assert await rig.effects() == ["child"]
    store = rig.store()
    await store.open()
    assert await (await store.begin()).claim(record()) is Claim.DUPLICATE
    await store.close()
