"""What every store promises: the sentences of `inbox.ports.Store` and `UnitOfWork`, one test each.

An adapter runs the whole suite. It subclasses `StoreConformance` in its tests and gives it a fixture `rig`:

```python
class TestMySQL(StoreConformance):
    @pytest.fixture
    def rig(self, database) -> StoreRig: ...
```

The tests are coroutines, so pytest needs a plugin that runs them.
"""

# ruff: noqa: S101, PLR2004 - a suite of tests: it asserts, on numbers, and its names say what

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.handler import Face, Handler
from inbox.core.records import Attempts, Claim, InboxRecord, Resolution
from inbox.errors import (
    Contended,
    QuarantineFull,
    StartupError,
    StoreError,
    UnitMisused,
)
from inbox.ports import Store

__all__ = ["Quarantined", "StoreConformance", "StoreRig"]

#: Seconds that anything here may take; nothing is slept for.
PATIENCE = 20.0


@dataclass(frozen=True, slots=True, repr=False)
class Quarantined:
    """A row of the quarantine, as a rig reads it."""

    reason: str
    detail: str
    event_id: bytes | None
    attempts: int
    times_seen: int
    headers: Mapping[str, object]
    body: bytes


class StoreRig(Protocol):
    """A database of the test's own, with the tables in it and a table for effects."""

    def store(self, consumer: str = "billing", **settings: Any) -> Store:
        """A store that is not open yet.

        Args:
            consumer: its name.
            settings: `concurrency`, `deadline`, `lock_wait` (1 where not given), `quarantine_rows`,
                `quarantine_bytes`.
        """
        ...

    async def effect(self, session: Any, label: str) -> None:
        """Write one effect through a handler's session."""
        ...

    async def effects(self) -> list[str]:
        """Labels of the effects that are committed, in order."""
        ...

    async def keys(self, consumer: str = "billing") -> set[bytes]:
        """Keys of the inbox rows that are committed."""
        ...

    async def quarantined(self, consumer: str = "billing") -> list[Quarantined]:
        """The rows of the quarantine."""
        ...

    async def drop_a_table(self) -> None:
        """Take away the inbox table."""
        ...


def record(key: bytes = b"e-1", fingerprint: bytes | None = b"f" * 32, consumer: str = "billing") -> InboxRecord:
    """What the events of this suite are stored as."""
    return InboxRecord(consumer, key, fingerprint, None if fingerprint is None else 11)


def event(key: bytes = b"e-1") -> Event:
    """A verified event under that key."""
    return Event(CloudEvent(id=key.decode("latin-1"), source="/s", type="t"), record(key), Origin("", "q"))


def delivery(body: bytes = b"{}", /, **headers: object) -> Delivery:
    """One arrival."""
    return Delivery(body, headers, "application/json", origin=Origin("events", "billing.t"), queue="billing")


def handler(function: Callable[[Event, Any], Awaitable[None]]) -> Handler:
    """A handler that gets a session."""
    return Handler("conformance", "t", Face.SESSION, function)


@contextlib.asynccontextmanager
async def opened(*stores: Store) -> AsyncIterator[None]:
    """The stores, open for the block, all within the suite's patience."""
    async with asyncio.timeout(PATIENCE):
        try:
            for store in stores:
                await store.open()
            yield
        finally:
            for store in stores:
                await store.close()


class _Suite:
    async def apply(self, rig: StoreRig, store: Store, key: bytes = b"e-1", label: str = "one") -> Claim:
        """One whole unit of work with one effect; ended whatever the claim says."""

        async def effect(_: Event, session: Any) -> None:
            await rig.effect(session, label)

        unit = await store.begin()
        claim = await unit.claim(record(key))
        if claim is Claim.NEW:
            await unit.apply(handler(effect), event(key), None)
            await unit.commit()
        return claim


class UnitConformance(_Suite):
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


class RaceConformance(_Suite):
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


class LifeConformance(_Suite):
    """Opening, closing, and what is asked beside the units."""

    async def test_a_store_without_its_tables_does_not_open(self, rig: StoreRig) -> None:
        await rig.drop_a_table()
        store = rig.store()
        with pytest.raises(StartupError):
            await store.open()
        await store.close()
        await store.close()

    async def test_a_store_may_be_closed_twice_and_before_it_was_opened(self, rig: StoreRig) -> None:
        store = rig.store()
        await store.close()
        await store.open()
        await store.close()
        await store.close()

    async def test_a_closed_store_gives_no_units(self, rig: StoreRig) -> None:
        store = rig.store()
        await store.open()
        await store.close()
        with pytest.raises(StoreError):
            await store.begin()

    async def test_it_describes_itself_in_words(self, rig: StoreRig) -> None:
        assert all(isinstance(word, str) for pair in rig.store().describe().items() for word in pair)

    async def test_knows_reads_without_claiming(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert not await store.knows(record())
            await self.apply(rig, store)
            assert await store.knows(record())

    async def test_resolve_tells_a_commit_from_none(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            await unit.commit()
            assert await store.resolve(record(), unit) is Resolution.COMMITTED
            assert await store.resolve(record(b"e-2"), unit) is Resolution.ABSENT

    async def test_resolve_takes_another_events_row_for_none(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            await unit.commit()
            assert await store.resolve(record(fingerprint=b"g" * 32), unit) is Resolution.ABSENT

    async def test_wait_writable_returns_where_writes_are_taken(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await asyncio.gather(*(store.wait_writable() for _ in range(5)))


class AttemptConformance(_Suite):
    """How often an event was tried."""

    async def test_failed_runs_and_hand_backs_are_counted_apart(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert await store.end_attempt(b"e-1", failed=True, error="ValueError") == Attempts(failed=1)
            assert await store.end_attempt(b"e-1", released=True) == Attempts(failed=1, released=1)
            assert await store.end_attempt(b"e-1", failed=True) == Attempts(failed=2, released=1)
            assert await store.end_attempt(b"e-2", failed=True) == Attempts(failed=1)

    async def test_a_start_that_was_ended_is_no_crash(self, rig: StoreRig) -> None:
        store, next_process = rig.store(), rig.store()
        async with opened(store, next_process):
            assert await store.start_attempt(b"e-1") == Attempts()
            assert await store.end_attempt(b"e-1") == Attempts()
            assert await next_process.start_attempt(b"e-1") == Attempts()

    async def test_a_start_that_another_process_left_open_is_a_crash(self, rig: StoreRig) -> None:
        stores = [rig.store() for _ in range(3)]
        async with opened(*stores):
            assert [await store.start_attempt(b"e-1") for store in stores] == [Attempts(crashed=n) for n in range(3)]
            assert await stores[2].end_attempt(b"e-1", failed=True) == Attempts(failed=1, crashed=2)

    async def test_a_start_that_this_process_left_open_is_none(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.start_attempt(b"e-1")
            assert await store.start_attempt(b"e-1") == Attempts()

    async def test_a_start_between_anothers_rollback_and_its_note_costs_nothing(self, rig: StoreRig) -> None:
        one, other = rig.store(), rig.store()
        async with opened(one, other):
            await one.start_attempt(b"e-1")
            assert await other.start_attempt(b"e-1") == Attempts(crashed=1)
            assert await one.end_attempt(b"e-1", failed=True) == Attempts(failed=1)
            # The start that is open now is the other's, and stays open.
            assert await one.start_attempt(b"e-1") == Attempts(failed=1, crashed=1)

    async def test_an_end_without_a_charge_makes_no_trouble_of_an_event(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert await store.end_attempt(b"e-1") == Attempts()

    async def test_attempts_are_counted_while_a_unit_is_open(self, rig: StoreRig) -> None:
        store = rig.store(concurrency=1)
        async with opened(store):
            unit = await store.begin()
            await unit.claim(record())
            await store.start_attempt(b"e-1")
            await unit.rollback()
            assert await store.end_attempt(b"e-1", failed=True) == Attempts(failed=1)

    async def test_forget_is_part_of_the_unit(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.end_attempt(b"e-1", failed=True)
            for ending, left in (("rollback", Attempts(failed=1)), ("commit", Attempts())):
                unit = await store.begin()
                await unit.claim(record())
                await unit.forget(b"e-1")
                await getattr(unit, ending)()
                assert await store.end_attempt(b"e-1") == left

    async def test_an_error_text_of_any_length_is_taken(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert await store.end_attempt(b"e-1", failed=True, error="é\ud800'\\" * 400) == Attempts(failed=1)


class QuarantineConformance(_Suite):
    """Refused deliveries, whole."""

    async def test_a_delivery_is_stored_whole(self, rig: StoreRig) -> None:
        store = rig.store()
        headers: dict[str, object] = {
            "ce-id": "é",
            "raw": b"\xff\0'",
            "big": bytearray(b"x"),
            "n": 1,
            "rate": 1.5,
            "on": True,
            "no": None,
        }
        async with opened(store):
            await store.quarantine(delivery(b"\0'\xff\\", **headers), None, "undecodable", "no id")
            (row,) = await rig.quarantined()
            assert (row.reason, row.detail, row.body, row.event_id) == ("undecodable", "no id", b"\0'\xff\\", None)
            assert row.headers == headers
            assert [type(row.headers[name]) for name in headers] == [type(value) for value in headers.values()]

    async def test_the_same_delivery_is_stored_once_whatever_the_broker_counts(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(a=1), None, "refused", "")
            again: dict[str, object] = {"x-delivery-count": 3, "x-death": [{"count": 1}], "x-first-death-queue": "q"}
            await store.quarantine(delivery(a=1, **again), None, "refused", "")
            (row,) = await rig.quarantined()
            assert row.times_seen == 2

    async def test_deliveries_that_differ_are_stored_apart(self, rig: StoreRig) -> None:
        store, mail = rig.store(), rig.store("mail")
        async with opened(store, mail):
            for each in (
                delivery(),
                delivery(b"{} "),
                delivery(a=1),
                delivery(a="1"),
                delivery(a=b"1"),
                delivery(a=True),
            ):
                await store.quarantine(each, None, "refused", "")
            await mail.quarantine(delivery(), None, "refused", "")
            assert len(await rig.quarantined()) == 6

    async def test_it_names_the_event_and_what_it_has_cost(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.end_attempt(b"e-1", failed=True)
            await store.quarantine(delivery(), event(), "handler-error", "ValueError")
            (row,) = await rig.quarantined()
            assert (row.event_id, row.attempts) == (b"e-1", 1)
            assert await store.end_attempt(b"e-1") == Attempts(failed=1)

    async def test_an_id_that_is_too_long_is_left_out_and_not_cut(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            long = CloudEvent(id="x" * 600, source="s" * 3000, type="t" * 3000)
            await store.quarantine(delivery(), long, "id-too-long", "d" * 3000)
            (row,) = await rig.quarantined()
            assert row.event_id is None

    async def test_a_full_quarantine_refuses_and_still_counts_what_it_holds(self, rig: StoreRig) -> None:
        store = rig.store(quarantine_rows=2)
        async with opened(store):
            for number in range(2):
                await store.quarantine(delivery(b"%d" % number), None, "refused", "")
            with pytest.raises(QuarantineFull):
                await store.quarantine(delivery(b"2"), None, "refused", "")
            await store.quarantine(delivery(b"1"), None, "refused", "")
            assert sorted(row.times_seen for row in await rig.quarantined()) == [1, 2]

    async def test_the_bound_in_octets_holds_too(self, rig: StoreRig) -> None:
        store = rig.store(quarantine_bytes=2000)
        async with opened(store):
            await store.quarantine(delivery(b"x" * 1000), None, "refused", "")
            with pytest.raises(QuarantineFull):
                await store.quarantine(delivery(b"y" * 1000), None, "refused", "")
            assert len(await rig.quarantined()) == 1


class StoreConformance(UnitConformance, RaceConformance, LifeConformance, AttemptConformance, QuarantineConformance):
    """The whole suite."""
