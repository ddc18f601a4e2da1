"""Units of work that claim several records at once."""

# ruff: noqa: S101 - a suite of tests: it asserts, and its names say what

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from inbox.core.event import Event
from inbox.core.records import Claim, InboxRecord
from inbox.errors import Contended, UnitMisused
from inbox.testing.conformance.store_rig import StoreRig, Suite, event, handler, opened, record

KEYS = [b"e-3", b"e-1", b"e-2"]


class BatchConformance(Suite):
    """Claim several, apply in turn, commit once."""

    async def test_a_batch_commits_its_records_with_all_effects(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            assert await unit.claim_all([record(key) for key in KEYS]) == [Claim.NEW] * 3
            for key in KEYS:
                await unit.apply(handler(_effect(rig)), event(key), None)
            assert (await rig.effects(), await rig.keys()) == ([], set())
            await unit.commit()
            assert (await rig.effects(), await rig.keys()) == (["e-3", "e-1", "e-2"], set(KEYS))

    async def test_a_batch_is_undone_as_a_whole(self, rig: StoreRig) -> None:
        async def fails(_: Event, session: Any) -> None:
            await rig.effect(session, "undone")
            raise LookupError

        store = rig.store(concurrency=1)
        async with opened(store):
            unit = await store.begin()
            await unit.claim_all([record(key) for key in KEYS])
            await unit.apply(handler(_effect(rig)), event(KEYS[0]), None)
            with pytest.raises(LookupError):
                await unit.apply(handler(fails), event(KEYS[1]), None)
            with pytest.raises(RuntimeError):
                await unit.apply(handler(_effect(rig)), event(KEYS[2]), None)
            await unit.rollback()
            assert (await rig.effects(), await rig.keys()) == ([], set())
            assert await self.apply(rig, store) is Claim.NEW

    async def test_misuse_by_one_handler_undoes_the_batch(self, rig: StoreRig) -> None:
        async def misuses(_: Event, session: Any) -> None:
            await session.rollback()

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim_all([record(key) for key in KEYS])
            await unit.apply(handler(_effect(rig)), event(KEYS[0]), None)
            with pytest.raises(UnitMisused):
                await unit.apply(handler(misuses), event(KEYS[1]), None)
            await unit.rollback()
            assert (await rig.effects(), await rig.keys()) == ([], set())

    async def test_no_handler_goes_back_to_its_neighbours_savepoint(self, rig: StoreRig) -> None:
        """By itself it would find none, and fail; among others it must not undo what they did."""

        async def leaves(_: Event, session: Any) -> None:
            if hasattr(session, "execute"):
                await session.execute(text("SAVEPOINT left_open"))
            await rig.effect(session, "neighbour")

        async def goes_back(_: Event, session: Any) -> None:
            if not hasattr(session, "execute"):
                raise Contended("a store in memory has no savepoints")
            await session.execute(text("ROLLBACK TO SAVEPOINT left_open"))

        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim_all([record(key) for key in KEYS])
            for key in KEYS[:2]:  # one name may be used by each
                await unit.apply(handler(leaves), event(key), None)
            with pytest.raises(Exception):  # noqa: B017, PT011 - each server has its own
                await unit.apply(handler(goes_back), event(KEYS[2]), None)
            await unit.rollback()
            assert (await rig.effects(), await rig.keys()) == ([], set())

    @pytest.mark.parametrize("place", range(4))
    async def test_each_known_id_is_named_and_nothing_is_claimed(self, rig: StoreRig, place: int) -> None:
        store = rig.store(concurrency=1)
        async with opened(store):
            await self.apply(rig, store, b"known")
            records = [record(key) for key in KEYS]
            records.insert(place, record(b"known"))
            for _ in range(2):  # each returns the only connection there is
                claims = await (await store.begin()).claim_all(records)
                assert claims == [Claim.DUPLICATE if n == place else Claim.NEW for n in range(4)]
            assert await rig.keys() == {b"known"}

    async def test_a_known_id_with_other_content_is_a_conflict_in_a_batch(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.apply(rig, store, b"known")
            others = [record(b"known", b"g" * 32), record(b"new")]
            assert await (await store.begin()).claim_all(others) == [Claim.CONFLICT, Claim.NEW]
            others = [record(b"known", None), record(b"new"), InboxRecord("billing", b"other")]
            assert await (await store.begin()).claim_all(others) == [Claim.DUPLICATE, Claim.NEW, Claim.NEW]

    async def test_overlapping_batches_race_and_each_effect_is_there_once(self, rig: StoreRig) -> None:
        one, other = rig.store(lock_wait=10), rig.store(lock_wait=10)
        async with opened(one, other):
            unit = await one.begin()
            assert await unit.claim_all([record(key) for key in KEYS]) == [Claim.NEW] * 3
            racing = asyncio.create_task(_claims(other, [record(key) for key in [*reversed(KEYS), b"e-0"]]))
            await asyncio.sleep(0)
            await unit.apply(handler(_effect(rig)), event(KEYS[0]), None)
            await unit.commit()
            assert await racing == [Claim.DUPLICATE] * 3 + [Claim.NEW]
            assert await rig.keys() == set(KEYS)

    async def test_a_batch_that_waits_too_long_knows_nothing(self, rig: StoreRig) -> None:
        one, other = rig.store(), rig.store()
        async with opened(one, other):
            holder = await one.begin()
            await holder.claim(record(KEYS[0]))
            unit = await other.begin()
            with pytest.raises(Contended):
                await unit.claim_all([record(key) for key in KEYS])
            await unit.rollback()
            await holder.rollback()
            assert await rig.keys() == set()


async def _claims(store: Any, records: list[InboxRecord]) -> list[Claim]:
    found: list[Claim] = await (await store.begin()).claim_all(records)
    return found


def _effect(rig: StoreRig) -> Any:
    async def effect(applied: Event, session: Any) -> None:
        await rig.effect(session, applied.id)

    return effect
