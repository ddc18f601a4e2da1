"""Units of work: each by itself, and beside each other."""

# ruff: noqa: S101 - a suite of tests: it asserts, and its names say what

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from inbox.core.event import Event
from inbox.core.records import Attempts, Claim, InboxRecord
from inbox.errors import Contended, UnitMisused
from inbox.ports import Store
from inbox.testing.conformance.store_rig import StoreRig, Suite, event, handler, opened, record


class UnitConformance(Suite):
    """Claim, apply, commit, rollback."""

    async def test_a_unit_commits_the_record_with_the_effect(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert await self.apply(rig, store) is Claim.NEW
            assert await rig.effects() == ["one"]
            assert await rig.keys() == {b"e-1"}

    async def test_nothing_is_visible_before_the_commit(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            assert await rig.keys() == set()
            await unit.rollback()

    async def test_a_rollback_undoes_record_and_effect(self, rig: StoreRig) -> None:
        async def effect(_: Event, session: Any) -> None:
            await rig.effect(session, "undone")

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            await unit.apply(handler(effect), event(), None)
            await unit.rollback()
            assert (await rig.effects(), await rig.keys()) == ([], set())
            assert await self.apply(rig, store) is Claim.NEW

    async def test_a_known_id_is_a_duplicate_and_its_unit_is_over(self, rig: StoreRig) -> None:
        store = rig.store(concurrency=1)
        async with opened(store):
            await self.apply(rig, store)
            for _ in range(3):  # each returns the only connection there is
                assert await self.apply(rig, store) is Claim.DUPLICATE
            assert await rig.effects() == ["one"]

    async def test_a_known_id_with_other_content_is_a_conflict(self, rig: StoreRig) -> None:
        store = rig.store(concurrency=1)
        async with opened(store):
            await self.apply(rig, store)
            unit = await store.begin()
            assert await unit.claim(record(fingerprint=b"g" * 32)) is Claim.CONFLICT
            assert await self.apply(rig, store) is Claim.DUPLICATE

    async def test_what_has_no_fingerprint_or_another_scheme_is_not_compared(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.apply(rig, store)
            for other in (record(fingerprint=None), InboxRecord("billing", b"e-1", b"g" * 32, 3)):
                assert await (await store.begin()).claim(other) is Claim.DUPLICATE

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (b"evt-A", b"evt-a"),
            ("é".encode(), b"e"),
            ("ß".encode(), b"ss"),
            (b"evt", b"evt "),
            (b"evt", b"evt\0"),
            ("\u00e9".encode(), "e\u0301".encode()),
            ("a\u200bb".encode(), b"ab"),
            ("\uff41".encode(), b"a"),
            (b"\xff", b"\xfe"),
            (b"x" * 511 + b"1", b"x" * 511 + b"2"),
        ],
        ids=["case", "accent", "sharp-s", "space", "nul", "nfc-nfd", "zero-width", "full-width", "no-utf-8", "longest"],
    )
    async def test_ids_that_differ_in_one_octet_are_different(self, rig: StoreRig, one: bytes, other: bytes) -> None:
        store = rig.store()
        async with opened(store):
            assert await self.apply(rig, store, one) is Claim.NEW
            assert await self.apply(rig, store, other) is Claim.NEW
            assert await rig.keys() == {one, other}

    async def test_an_id_is_known_per_consumer(self, rig: StoreRig) -> None:
        billing, mail = rig.store("billing"), rig.store("mail")
        async with opened(billing, mail):
            await self.apply(rig, billing)
            unit = await mail.begin()
            assert await unit.claim(record(consumer="mail")) is Claim.NEW
            await unit.rollback()

    async def test_a_handler_error_comes_out_as_it_is(self, rig: StoreRig) -> None:
        class OfTheUser(Exception):
            pass

        async def fails(_: Event, __: Any) -> None:
            raise OfTheUser

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            with pytest.raises(OfTheUser):
                await unit.apply(handler(fails), event(), None)
            await unit.rollback()
            assert await rig.keys() == set()

    async def test_a_handler_that_rolls_back_is_refused(self, rig: StoreRig) -> None:
        async def rolls_back(_: Event, session: Any) -> None:
            with contextlib.suppress(Exception):
                await session.rollback()

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            with pytest.raises(UnitMisused):
                await unit.apply(handler(rolls_back), event(), None)
            await unit.rollback()
            assert await rig.keys() == set()

    async def test_a_block_of_code_may_stand_for_the_handler(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            async with unit.session() as session:
                await rig.effect(session, "one")
            await unit.commit()
            assert await rig.effects() == ["one"]

    async def test_a_block_left_by_an_exception_leaves_the_end_to_the_caller(self, rig: StoreRig) -> None:
        class OfTheUser(Exception):
            pass

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            with contextlib.suppress(OfTheUser):
                async with unit.session() as session:
                    await rig.effect(session, "one")
                    raise OfTheUser
                pytest.fail("the exception was swallowed")
            await unit.rollback()
            assert (await rig.effects(), await rig.keys()) == ([], set())

    async def test_a_unit_that_is_over_refuses_everything(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            await unit.commit()
            with pytest.raises(RuntimeError):
                await unit.claim(record(b"e-2"))
            with pytest.raises(RuntimeError):
                await unit.commit()

    async def test_a_rollback_may_come_before_the_claim(self, rig: StoreRig) -> None:
        store = rig.store(concurrency=1)
        async with opened(store):
            await (await store.begin()).rollback()
            assert await self.apply(rig, store) is Claim.NEW


class RaceConformance(Suite):
    """Units beside each other."""

    async def test_a_racing_duplicate_waits_for_the_first_ones_end(self, rig: StoreRig) -> None:
        store = rig.store(lock_wait=10)
        async with opened(store):
            first, second = await store.begin(), await store.begin()
            await first.claim(record())
            waiting = asyncio.ensure_future(second.claim(record()))
            await asyncio.wait([waiting], timeout=0.2)
            assert not waiting.done()
            await first.commit()
            assert await waiting is Claim.DUPLICATE

    async def test_the_wait_for_a_racing_duplicate_is_bounded(self, rig: StoreRig) -> None:
        store = rig.store(lock_wait=1)
        async with opened(store):
            first, second = await store.begin(), await store.begin()
            await first.claim(record())
            with pytest.raises(Contended):
                await second.claim(record())
            await second.rollback()
            await first.commit()

    async def test_when_the_first_one_rolls_back_one_waiter_claims_and_none_is_a_duplicate(self, rig: StoreRig) -> None:
        async def claim(store: Store) -> Claim | None:
            unit = await store.begin()
            try:
                claimed = await unit.claim(record())
            except Contended:
                await unit.rollback()
                return None
            if claimed is Claim.NEW:
                await unit.rollback()
            return claimed

        store = rig.store(lock_wait=5)
        async with opened(store):
            first = await store.begin()
            await first.claim(record())
            waiters = [asyncio.ensure_future(claim(store)) for _ in range(3)]
            await asyncio.wait(waiters, timeout=0.3)
            await first.rollback()
            ends = await asyncio.gather(*waiters)
            assert Claim.NEW in ends
            assert Claim.DUPLICATE not in ends
            assert await store.start_attempt(b"e-1") == Attempts()  # contention costs nobody an attempt

    async def test_begin_waits_while_all_connections_are_in_use(self, rig: StoreRig) -> None:
        store = rig.store(concurrency=2)
        async with opened(store):
            units = [await store.begin() for _ in range(2)]
            third = asyncio.ensure_future(store.begin())
            await asyncio.wait([third], timeout=0.1)
            assert not third.done()
            await units[0].rollback()
            await (await third).rollback()
            await units[1].rollback()

    async def test_a_cancel_storm_loses_no_connection(self, rig: StoreRig) -> None:
        async def work(number: int) -> None:
            unit = await store.begin()
            try:
                await unit.claim(record(b"%d" % number))
            finally:
                await asyncio.shield(asyncio.ensure_future(unit.rollback()))

        store = rig.store(concurrency=3)
        async with opened(store):
            tasks = [asyncio.ensure_future(work(number)) for number in range(60)]
            for turn, task in enumerate(tasks):
                await asyncio.sleep(0)
                if turn % 4:
                    task.cancel()
                if turn % 8 == 0:
                    await asyncio.sleep(0.002)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
            units = [await store.begin() for _ in range(3)]
            for number, unit in enumerate(units):
                assert await unit.claim(record(b"after-%d" % number)) is Claim.NEW
                await unit.rollback()
