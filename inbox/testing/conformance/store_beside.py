"""What a store does beside its units: it opens and closes, counts attempts, keeps a quarantine."""

# ruff: noqa: S101, PLR2004 - a suite of tests: it asserts, on numbers, and its names say what

from __future__ import annotations

import asyncio

import pytest

from inbox.core.event import CloudEvent
from inbox.core.records import Attempts, Resolution
from inbox.errors import QuarantineFull, StartupError, StoreError
from inbox.testing.conformance.store_rig import StoreRig, Suite, delivery, event, opened, record


class LifeConformance(Suite):
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


class AttemptConformance(Suite):
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

    async def test_a_start_that_another_process_left_open_makes_a_suspect_and_costs_nothing(
        self, rig: StoreRig
    ) -> None:
        stores = [rig.store() for _ in range(3)]
        async with opened(*stores):
            assert [await store.start_attempt(b"e-1") for store in stores] == [
                Attempts(),
                Attempts(suspect=True),
                Attempts(suspect=True),
            ]
            assert await stores[2].end_attempt(b"e-1", failed=True) == Attempts(failed=1)

    async def test_a_start_that_ran_alone_and_was_left_open_is_a_crash(self, rig: StoreRig) -> None:
        stores = [rig.store() for _ in range(4)]
        async with opened(*stores):
            assert [await store.start_attempt(b"e-1", alone=True) for store in stores[:3]] == [
                Attempts(),
                Attempts(crashed=1, suspect=True, reopened=True),
                Attempts(crashed=2, suspect=True, reopened=True),
            ]
            assert await stores[2].end_attempt(b"e-1", failed=True) == Attempts(failed=1, crashed=2)
            assert await stores[3].start_attempt(b"e-1") == Attempts(failed=1, crashed=2)

    async def test_a_start_that_is_repeated_alone_counts_as_alone(self, rig: StoreRig) -> None:
        store, next_process = rig.store(), rig.store()
        async with opened(store, next_process):
            await store.start_attempt(b"e-1")
            assert await store.start_attempt(b"e-1", alone=True) == Attempts()
            assert await next_process.start_attempt(b"e-1") == Attempts(crashed=1, suspect=True, reopened=True)
            # Charged once: the start that is open now is this process's, and runs beside others.
            assert await store.start_attempt(b"e-1") == Attempts(crashed=1, suspect=True)

    async def test_a_crash_is_told_by_the_start_that_charges_it_and_by_no_other(self, rig: StoreRig) -> None:
        dead, next_process, another = rig.store(), rig.store(), rig.store()
        async with opened(dead, next_process, another):
            await dead.start_attempt(b"e-1", alone=True)
            assert await next_process.start_attempt(b"e-1") == Attempts(crashed=1, suspect=True, reopened=True)
            assert await next_process.start_attempt(b"e-1") == Attempts(crashed=1)
            assert await next_process.end_attempt(b"e-1") == Attempts(crashed=1)
            for each in (another, next_process):
                assert await each.start_attempt(b"e-1") == Attempts(crashed=1)
                assert await each.end_attempt(b"e-1") == Attempts(crashed=1)
            assert await another.start_attempt(b"e-2") == Attempts()

    async def test_a_start_that_this_process_left_open_is_none(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.start_attempt(b"e-1")
            assert await store.start_attempt(b"e-1") == Attempts()

    async def test_a_start_between_anothers_rollback_and_its_note_costs_nothing(self, rig: StoreRig) -> None:
        one, other = rig.store(), rig.store()
        async with opened(one, other):
            await one.start_attempt(b"e-1", alone=True)
            charged = await other.start_attempt(b"e-1", alone=True)
            assert charged == Attempts(crashed=1, suspect=True, reopened=True)
            assert await one.end_attempt(b"e-1", failed=True) == Attempts(failed=1)
            # The start that is open now is the other's, and stays open.
            assert await one.start_attempt(b"e-1") == Attempts(failed=1, crashed=1, suspect=True, reopened=True)

    async def test_an_end_takes_back_nothing_where_nothing_was_charged(self, rig: StoreRig) -> None:
        dead, one, other = rig.store(), rig.store(), rig.store()
        async with opened(dead, one, other):
            await dead.start_attempt(b"e-1", alone=True)
            assert (await one.start_attempt(b"e-1")).crashed == 1
            assert await other.start_attempt(b"e-1") == Attempts(crashed=1, suspect=True)
            assert await one.end_attempt(b"e-1", failed=True) == Attempts(failed=1, crashed=1)

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

    async def test_whoever_finds_the_event_applied_deletes_all_that_was_noted(self, rig: StoreRig) -> None:
        died, store = rig.store(), rig.store()
        async with opened(died), opened(store):
            await died.end_attempt(b"e-1", failed=True)
            await died.end_attempt(b"e-2", failed=True)
            await died.start_attempt(b"e-1", alone=True)
            await store.forget_attempts(b"e-1")
            await store.forget_attempts(b"e-3")
            assert await store.start_attempt(b"e-1") == Attempts(), "neither a count nor an open start"
            assert (await store.end_attempt(b"e-2")).failed == 1, "another event's stay"

    async def test_an_error_text_of_any_length_is_taken(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            assert await store.end_attempt(b"e-1", failed=True, error="é\ud800'\\" * 400) == Attempts(failed=1)


class QuarantineConformance(Suite):
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
