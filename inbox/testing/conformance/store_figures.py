"""What a store tells about its consumers, and keeps of what workers say."""

# ruff: noqa: S101, PLR2004 - a suite of tests: it asserts, on numbers, and its names say what

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inbox.core.figures import AttemptFigures, InboxFigures, Tally, WorkerReport
from inbox.testing.conformance.store_rig import StoreRig, Suite, delivery, event, opened

_REPORT = WorkerReport(b"\0'\xff\\" * 4, "host-1", 4711, "consuming", {"applied": 3, "failed:handler-error": 1})


class FiguresConformance(Suite):
    """Figures and reports."""

    async def test_a_consumer_that_has_done_nothing_has_figures(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            figures = await store.figures()
            assert figures.consumer == "billing"
            assert figures.schema_version is not None
            assert replace(figures.inbox, table_rows=0) == InboxFigures()
            assert figures.attempts == AttemptFigures()
            assert (figures.quarantine.open, figures.quarantine.oldest_open, figures.quarantine.share) == (0, None, 0)
            assert (figures.workers, figures.counts) == ([], {})
            assert await store.consumers() == []

    async def test_figures_are_a_consumers_own_and_can_be_asked_for_by_another(self, rig: StoreRig) -> None:
        store, mail = rig.store(), rig.store("mail")
        async with opened(store, mail):
            for number in range(3):
                await self.apply(rig, store, b"e-%d" % number)
            await mail.end_attempt(b"e-1", failed=True)
            assert (await mail.figures()).inbox.last_hour == 0
            assert (await mail.figures("billing")).inbox.last_hour == 3
            assert (await mail.figures("billing")).consumer == "billing"
            assert (await store.figures("mail")).attempts.events == 1
            assert (await store.figures("nobody")).inbox.oldest is None

    async def test_processed_events_are_counted_and_dated(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            for number in range(3):
                await self.apply(rig, store, b"e-%d" % number)
            inbox = (figures := await store.figures()).inbox
            assert (inbox.last_hour, inbox.last_day, inbox.rows) == (3, 3, None)
            assert inbox.oldest is not None
            assert inbox.newest is not None
            assert inbox.oldest <= inbox.newest <= figures.at < inbox.oldest + timedelta(hours=1)
            assert (await store.figures(exact=True)).inbox.rows == 3

    async def test_events_in_trouble_are_summed(self, rig: StoreRig) -> None:
        store, next_process = rig.store(), rig.store()
        async with opened(store, next_process):
            await store.end_attempt(b"e-1", failed=True)
            await store.end_attempt(b"e-1", failed=True)
            await store.end_attempt(b"e-2", released=True)
            await store.start_attempt(b"e-3", alone=True)
            await next_process.start_attempt(b"e-3", alone=True)
            attempts = (figures := await store.figures()).attempts
            assert attempts.oldest is not None
            assert attempts.oldest <= figures.at
            assert replace(attempts, oldest=None) == AttemptFigures(3, 1, None, failed=2, crashed=1, released=1)

    async def test_the_quarantine_is_summed_by_state_and_reason_and_measured_by_its_bounds(self, rig: StoreRig) -> None:
        store = rig.store(quarantine_rows=10)
        async with opened(store):
            for number in range(3):
                await store.quarantine(delivery(b"%d" % number), event(), "handler-error", "")
            await store.quarantine(delivery(b"x" * 5000), None, "undecodable", "")
            quarantine = (figures := await store.figures()).quarantine
            assert (quarantine.open, quarantine.bound_rows, quarantine.share) == (4, 10, 0.4)
            assert {reason: tally.rows for reason, tally in quarantine.by_reason.items()} == {
                "handler-error": 3,
                "undecodable": 1,
            }
            assert quarantine.by_reason["undecodable"].octets > 5000
            octets = sum(tally.octets for tally in quarantine.by_reason.values())
            assert quarantine.by_state == {"open": Tally(4, octets)}
            assert quarantine.oldest_open is not None
            assert quarantine.oldest_open <= figures.at

    async def test_a_report_replaces_the_workers_last_one(self, rig: StoreRig) -> None:
        store, other = rig.store(), rig.store()
        async with opened(store, other):
            await store.report(_REPORT)
            await other.report(replace(_REPORT, worker_id=b"2" * 16, pid=4712))
            (first,) = [worker for worker in (await store.figures()).workers if worker.report == _REPORT]
            assert first.started_at == first.seen_at
            later = replace(_REPORT, state="paused: é\ud800" + "x" * 999, counts={"applied": 4})
            await store.report(later)
            figures = await store.figures()
            newest, older = figures.workers
            assert newest.report.worker_id == _REPORT.worker_id
            assert newest.report.state.startswith("paused: é")
            assert newest.report.counts == {"applied": 4}
            assert newest.started_at == first.started_at
            assert newest.seen_at >= first.seen_at
            assert older.report.pid == 4712
            assert 0 <= newest.age <= older.age < 60
            assert figures.counts == {"applied": 7, "failed:handler-error": 1}

    async def test_a_worker_is_silent_unless_it_said_good_bye(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.report(_REPORT)
            (worker,) = (await store.figures()).workers
            assert (worker.is_silent(60), worker.is_silent(-1)) == (False, True)
            await store.report(replace(_REPORT, state="stopped"))
            (worker,) = (await store.figures()).workers
            assert (worker.is_stopped, worker.is_silent(-1)) == (True, False)

    async def test_every_consumer_that_has_any_row_is_named(self, rig: StoreRig) -> None:
        stores = [rig.store(name) for name in ("billing", "é", "attempts", "refused")]
        async with opened(*stores):
            await self.apply(rig, stores[0])
            await stores[1].report(_REPORT)
            await stores[2].end_attempt(b"e-1", failed=True)
            await stores[3].quarantine(delivery(), None, "refused", "")
            await stores[3].report(_REPORT)
            assert await stores[0].consumers() == ["attempts", "billing", "refused", "é"]
