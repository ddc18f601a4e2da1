"""The desk on real servers: which index a list is read from, rows that nobody expects, decisions at the same time."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from inbox.adapters.mysql import MySQLStore
from inbox.adapters.mysql.quarantine_desk import QuarantineDeskSql
from inbox.adapters.mysql.side import Statement
from inbox.core.quarantine import QuarantineState, Selection
from inbox.testing.conformance.store import delivery, opened
from tests.integration.store_rig import MySQLRig
from tests.pairs import Pair

ALL = Selection((*QuarantineState,))


@pytest.fixture
async def rig(pair: Pair) -> MySQLRig:
    rig = MySQLRig(pair, pair.driver)
    await rig.create()
    return rig


async def refuse(store: MySQLStore, number: int) -> None:
    for n in range(number):
        await store.quarantine(delivery(b"%d" % n), None, "refused", "")


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_is_read_in_the_order_of_the_index(rig: MySQLRig, newest_first: bool) -> None:
    store = rig.store()
    async with opened(store):
        await refuse(store, 30)
        middle = (await store.desk.list(Selection(), limit=20))[-1]
        hour = timedelta(hours=1)
        filtered = Selection(
            reasons=("refused",), types=("t",), since=middle.first_at - hour, until=middle.first_at + hour
        )
        sql = QuarantineDeskSql(store.tables)
        for selection, after in ((Selection(), None), (Selection(), middle.cursor), (filtered, middle.cursor)):
            text, parameters = sql.page(selection, after, newest_first=newest_first)
            plan = await explained(rig, text, b"billing", "open", *parameters, 10)
            assert plan.startswith("inbox_quarantine_by_state: ")
            assert "filesort" not in plan, "no page sorts all the others"
            assert "temporary" not in plan


async def test_a_decision_locks_what_it_decides_and_nothing_else(rig: MySQLRig) -> None:
    store = rig.store()
    async with opened(store):
        await refuse(store, 30)
        digests = [entry.digest for entry in await store.desk.list(Selection(), limit=2)]
        sql = QuarantineDeskSql(store.tables)
        decided = ("replayed", None, b"billing", *digests, digests[0], 1, digests[1], 1)
        plan = await explained(rig, sql.decide(2), *decided)
        assert plan.startswith("PRIMARY: ")


async def explained(rig: MySQLRig, sql: str, *parameters: bytes | str | int | None) -> str:
    """Key and notes of the one step that the server makes of it."""
    (plan,) = await rig.sql(Statement(f"EXPLAIN FORMAT=TRADITIONAL {sql}", parameters).text().decode())
    key = plan[6] if rig.pair.is_mysql else plan[5]  # MySQL has a column more before it: partitions
    return f"{key}: {plan[-1]}"


async def test_lists_do_without_their_index(rig: MySQLRig) -> None:
    store = rig.store()
    async with opened(store):
        await refuse(store, 3)
        await rig.sql("ALTER TABLE inbox_quarantine DROP KEY inbox_quarantine_by_state")
        entries = await store.desk.list(Selection())
        assert [entry.first_at for entry in entries] == sorted(entry.first_at for entry in entries)
        assert len(entries) == 3


async def test_rows_of_another_hand_stand_in_nobodys_way(rig: MySQLRig) -> None:
    """Headers of another version's writing, or encrypted, are listed and left out of what is read whole."""
    store = rig.store()
    async with opened(store):
        await refuse(store, 2)
        first, second = await store.desk.list(Selection())
        await rig.sql(
            "UPDATE inbox_quarantine SET headers = 'x', event_type = %(t)s, detail = NULL, queue = NULL, "
            "origin_exchange = NULL, history = 'cut\n' WHERE digest = %(d)s",
            d=first.digest,
            t=b"\xff",
        )
        listed = (await store.desk.list(Selection()))[0]
        assert (listed.event_type, listed.detail, listed.queue) == ("\N{REPLACEMENT CHARACTER}", "", "")
        assert [line.words for line in listed.history] == ["cut"]
        found = await store.desk.get([first.digest, second.digest])
        assert [each.entry.digest for each in found] == [second.digest]


async def test_those_who_decide_at_once_decide_each_entry_once(rig: MySQLRig) -> None:
    stores = [rig.store() for _ in range(3)]
    async with opened(*stores):
        await refuse(stores[0], 300)
        entries = [*await stores[0].desk.list(Selection(), limit=300)]
        decided = await asyncio.gather(
            stores[0].desk.mark_replayed(entries),
            stores[1].desk.mark_replayed(entries[::-1]),
            stores[2].desk.discard(Selection(), "no"),
        )
        assert sum(decided) == 300
        assert await stores[0].desk.count(Selection()) == []


async def test_large_bodies_are_read_and_put_back(rig: MySQLRig) -> None:
    store, other = rig.store(), rig.store("mail")
    body = bytes(range(256)) * 16_384
    async with opened(store, other):
        await store.quarantine(delivery(body), None, "refused", "")
        entries = await store.desk.list(Selection())
        whole = await store.desk.get([entry.digest for entry in entries])
        assert whole[0].delivery.body == body
        assert whole[0].entry == entries[0]
        assert await other.desk.restore(whole) == 1
        (back,) = await other.desk.list(Selection())
        assert replace(back, digest=b"") == replace(entries[0], digest=b"")


async def test_a_desk_goes_on_after_its_connection_was_lost(rig: MySQLRig) -> None:
    store = rig.store()
    async with opened(store):
        await refuse(store, 1)
        entries = await store.desk.list(Selection())
        for (session,) in await rig.sql(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        ):
            await rig.sql(f"KILL {session}")
        assert await store.desk.list(Selection()) == entries
        assert await store.desk.mark_replayed(entries) == 1
