"""What a store deletes when it is told to, and what it must keep.

A suite of its own, for its rig does what others need not: it lets time pass.
"""

# ruff: noqa: S101, PLR2004 - a suite of tests: it asserts, on numbers, and its names say what

from __future__ import annotations

from typing import Protocol

import pytest

from inbox.core.figures import WorkerReport
from inbox.core.quarantine import QuarantineState
from inbox.core.records import Attempts, Claim
from inbox.core.retention import Pruned
from inbox.ports import Store
from inbox.testing.conformance.store_rig import StoreRig, Suite, delivery, event, opened, record

_HOUR = 3600.0
_DECIDED = [QuarantineState.REPLAYED, QuarantineState.DISCARDED]


class RetentionRig(StoreRig, Protocol):
    """See `StoreRig`."""

    async def age(self, seconds: float, consumer: str = "billing") -> None:
        """Make every row that the consumer has older by so much."""
        ...

    async def decide(self, state: QuarantineState, consumer: str = "billing") -> None:
        """Give every row that the consumer has in quarantine this state, now."""
        ...


class RetentionConformance(Suite):
    """Clean-ups."""

    async def prune(self, store: Store, batch: int = 100, *, dry_run: bool = False) -> Pruned:
        """Delete what is older than an hour."""
        return await store.prune(_HOUR, batch=batch, pause=0.0, progress=lambda _: True, dry_run=dry_run)

    async def fill(self, store: Store, label: str, consumer: str = "billing") -> None:
        """A row of each kind: processed, in trouble, in quarantine, and a worker's."""
        unit = await store.begin()
        assert await unit.claim(record(label.encode(), consumer=consumer)) is Claim.NEW
        await unit.commit()
        await store.end_attempt(label.encode(), failed=True)
        await store.quarantine(delivery(label.encode()), None, "refused", "")
        await store.report(WorkerReport(label.encode().ljust(16), "host", 1, "stopped"))

    async def test_there_may_be_nothing_to_delete(self, rig: RetentionRig) -> None:
        store = rig.store()
        assert await self.prune(store) == Pruned(), "it needs no store that is open"
        async with opened(store):
            await self.fill(store, "young")
            assert await self.prune(store) == Pruned()

    async def test_what_is_old_goes_and_what_is_not_stays(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.fill(store, "old")
            await rig.decide(QuarantineState.DISCARDED)
            await rig.age(_HOUR + 60)
            await self.fill(store, "young")
            assert await self.prune(store) == Pruned(inbox=1, attempts=1, quarantine=1, workers=1)
            assert await rig.keys() == {b"young"}
            assert [row.body for row in await rig.quarantined()] == [b"young"]
            assert await store.end_attempt(b"young") == Attempts(failed=1)
            assert await store.end_attempt(b"old") == Attempts()
            assert [w.report.worker_id for w in (await store.figures()).workers] == [b"young".ljust(16)]
            assert await self.prune(store) == Pruned()

    async def test_what_is_not_older_than_the_window_stays(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.fill(store, "one")
            await rig.decide(QuarantineState.REPLAYED)
            await rig.age(_HOUR - 60)
            assert await self.prune(store) == Pruned()
            assert await rig.keys() == {b"one"}

    async def test_another_consumers_rows_stay(self, rig: RetentionRig) -> None:
        store, mail = rig.store(), rig.store("mail")
        async with opened(store, mail):
            for each, name in ((store, "billing"), (mail, "mail")):
                await self.fill(each, "old", name)
                await rig.decide(QuarantineState.DISCARDED, name)
                await rig.age(_HOUR * 2, name)
            assert await self.prune(mail) == Pruned(inbox=1, attempts=1, quarantine=1, workers=1)
            assert (await rig.keys(), await rig.keys("mail")) == ({b"old"}, set())
            assert len(await rig.quarantined()) == 1
            assert await self.prune(store) == Pruned(inbox=1, attempts=1, quarantine=1, workers=1)

    async def test_an_id_that_was_forgotten_is_a_new_one(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.apply(rig, store)
            await rig.age(_HOUR * 2)
            assert await self.apply(rig, store) is Claim.DUPLICATE
            await self.prune(store)
            assert await self.apply(rig, store) is Claim.NEW

    @pytest.mark.parametrize(
        "key", [b"\0'\xff\\%s", b" ", b"e ", b"x" * 512], ids=["odd", "space", "padded", "longest"]
    )
    async def test_ids_are_octets(self, rig: RetentionRig, key: bytes) -> None:
        store = rig.store()
        async with opened(store):
            await self.apply(rig, store, key)
            await store.end_attempt(key, failed=True)
            await rig.age(_HOUR * 2)
            for young in (key[:-1], key[:-1] + b"y"):
                if young:
                    await self.apply(rig, store, young)
            left = await rig.keys() - {key}
            assert await self.prune(store) == Pruned(inbox=1, attempts=1)
            assert await rig.keys() == left

    async def test_what_is_in_quarantine_stays_until_it_is_decided_and_that_is_long_ago(
        self, rig: RetentionRig
    ) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(), event(), "handler-error", "")
            await rig.age(_HOUR * 1000)
            assert await self.prune(store) == Pruned()
            for state in _DECIDED:
                await rig.decide(state)
                assert await self.prune(store) == Pruned()
            await rig.age(_HOUR * 2)
            assert await self.prune(store) == Pruned(quarantine=1)
            assert await rig.quarantined() == []

    async def test_what_is_refused_again_is_open_again_and_stays(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(), event(), "handler-error", "")
            await rig.decide(QuarantineState.REPLAYED)
            await rig.age(_HOUR * 2)
            await store.quarantine(delivery(), event(), "handler-error", "")
            await rig.age(_HOUR * 2)
            assert await self.prune(store) == Pruned()

    @pytest.mark.parametrize("state", _DECIDED)
    async def test_a_processed_event_is_not_forgotten_while_it_could_be_replayed(
        self, rig: RetentionRig, state: QuarantineState
    ) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(), event(), "handler-error", "")
            for key in (b"e-1", b"e-2", b"e-3"):
                await self.apply(rig, store, key)
            await rig.age(_HOUR * 2)
            assert await self.prune(store) == Pruned(inbox=2, kept=1)
            # A copy that was just replayed is under way.
            await rig.decide(state)
            assert await self.prune(store) == Pruned(kept=1)
            assert await self.apply(rig, store) is Claim.DUPLICATE
            await rig.age(_HOUR * 2)
            assert await self.prune(store) == Pruned(inbox=1, quarantine=1)

    async def test_an_event_of_another_consumer_in_quarantine_keeps_nothing(self, rig: RetentionRig) -> None:
        store, mail = rig.store(), rig.store("mail")
        async with opened(store, mail):
            await mail.quarantine(delivery(), event(), "handler-error", "")
            await self.apply(rig, store)
            await rig.age(_HOUR * 2)
            assert await self.prune(store) == Pruned(inbox=1)

    async def test_what_was_tried_just_now_keeps_its_counts(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.end_attempt(b"e-1", failed=True)
            await store.start_attempt(b"e-2")
            await rig.age(_HOUR * 2)
            await store.start_attempt(b"e-1")
            assert await self.prune(store) == Pruned(attempts=1)
            assert await store.end_attempt(b"e-1") == Attempts(failed=1)

    async def test_a_dry_run_counts_and_changes_nothing(self, rig: RetentionRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(b"open"), event(b"kept"), "handler-error", "")
            await self.apply(rig, store, b"kept")
            for label in ("a", "b", "c"):
                await self.fill(store, label)
            await rig.age(_HOUR * 2)
            would = await self.prune(store, 2, dry_run=True)
            assert would == Pruned(inbox=3, attempts=3, workers=3, kept=1)
            assert len(await rig.keys()) == 4
            assert await self.prune(store, 2) == would

    async def test_it_goes_in_batches_and_ends_where_it_is_told_to(self, rig: RetentionRig) -> None:
        store = rig.store()
        seen: list[int] = []

        def twice(done: Pruned) -> bool:
            seen.append(done.inbox)
            return len(seen) < 2

        async with opened(store):
            for number in range(7):
                await self.apply(rig, store, b"e-%d" % number)
            await rig.age(_HOUR * 2)
            done = await store.prune(_HOUR, batch=3, pause=0.0, progress=twice)
            assert (done, seen) == (Pruned(inbox=6, is_complete=False), [3, 6])
            assert len(await rig.keys()) == 1
            assert await self.prune(store) == Pruned(inbox=1)
