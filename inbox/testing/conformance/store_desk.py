"""What a store offers at its desk: the quarantine is read, decided and put back."""

# ruff: noqa: S101, PLR2004 - a suite of tests: it asserts, on numbers, and its names say what

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_type_hints

import pytest

from inbox.core.delivery import (
    ATTEMPT_KEY,
    ORIGIN_EXCHANGE,
    ORIGIN_ROUTING_KEY,
    WAIT_LEFT,
    WAITED,
    Delivery,
    Origin,
)
from inbox.core.event import CloudEvent
from inbox.core.quarantine import (
    QuarantinedDelivery,
    QuarantineEntry,
    QuarantineState,
    Selection,
)
from inbox.errors import QuarantineFull, Refused, Undecodable
from inbox.testing.conformance.store_rig import StoreRig, Suite, delivery, event, opened

if TYPE_CHECKING:
    from inbox.ports import Store

ALL = Selection((*QuarantineState,))


class DeskConformance(Suite):
    """Read, decided, put back."""

    async def put(self, store: Store, *bodies: bytes, reason: str = "refused") -> None:
        """Refuse deliveries, one after the other."""
        for body in bodies:
            await store.quarantine(delivery(body), None, reason, "no reason at all")

    async def entry(self, store: Store) -> QuarantineEntry:
        """The only one."""
        (entry,) = await store.desk.list(ALL)
        return entry

    # -------------------------------------------------------- what is kept
    async def test_an_entry_tells_all_but_the_payload(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.end_attempt(b"e-1", failed=True, error="ValueError at app.py:3")
            await store.end_attempt(b"e-1", released=True, error="contended")
            before = await store.desk.now()
            await store.quarantine(delivery(b"secret", n=1), event(), "handler-error", "ValueError at app.py:3")
            entry = await self.entry(store)
            after = await store.desk.now()
        assert (entry.state, entry.reason, entry.detail) == ("open", "handler-error", "ValueError at app.py:3")
        assert (entry.event_id, entry.record_key, entry.event_type, entry.source) == (b"e-1", b"e-1", "t", "/s")
        assert (entry.origin, entry.queue) == (Origin("events", "billing.t"), "billing")
        assert (entry.attempts, entry.times_seen, entry.body_bytes) == (1, 1, 6)
        assert [(line.kind, line.words) for line in entry.history] == [
            ("failed", "ValueError at app.py:3"),
            ("released", "contended"),
        ]
        assert all(line.at is not None and line.at.tzinfo is UTC for line in entry.history)
        assert before <= entry.first_at <= after
        assert entry.total_bytes > entry.body_bytes
        assert (entry.state_at, entry.state_note) == (None, None)
        assert len(entry.digest) == 32
        assert "secret" not in repr(entry)

    async def test_what_was_never_decoded_has_no_id_and_what_was_never_verified_no_key(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.put(store, b"1")
            entry = await self.entry(store)
            assert (entry.event_id, entry.event_type, entry.source, entry.record_key) == (None, None, None, None)
            assert (entry.attempts, entry.history) == (0, ())
            await store.quarantine(delivery(b"1"), CloudEvent(id="e", source="s", type="t"), "unauthentic", "")
            assert (await self.entry(store)).record_key is None

    async def test_what_the_newest_run_has_cost_counts(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(), event(), "handler-error", "")
            assert (await self.entry(store)).attempts == 0
            await store.end_attempt(b"e-1", failed=True, error="again")
            await store.quarantine(delivery(), event(), "deadline", "too long")
            entry = await self.entry(store)
            assert (entry.attempts, [line.words for line in entry.history]) == (1, ["again"])
            assert (entry.times_seen, entry.reason, entry.detail) == (2, "deadline", "too long")
            await store.quarantine(delivery(), None, "unauthentic", "")
            entry = await self.entry(store)
            assert (entry.attempts, entry.record_key, len(entry.history)) == (1, b"e-1", 1)

    async def test_a_copy_of_ours_is_kept_as_what_it_was_made_of(self, rig: StoreRig) -> None:
        store = rig.store()
        original = delivery(b"1", a=b"x")
        copy = replace(
            original,
            headers={
                **original.headers,
                ORIGIN_EXCHANGE: "events",
                ORIGIN_ROUTING_KEY: "billing.t",
                ATTEMPT_KEY: b"e-1",
                WAITED: 1000,
                WAIT_LEFT: 0,
                "x-death": [{"count": 1, "queue": "billing.retry.1"}],
                "x-first-death-queue": "billing.retry.1",
                "x-delivery-count": 2,
            },
            pristine=False,
            waited=1.0,
        )
        async with opened(store):
            await store.quarantine(copy, event(), "handler-error", "")
            entry = await self.entry(store)
            (of_the_copy,) = await store.desk.get([entry.digest])
            await store.quarantine(original, event(), "handler-error", "")
            assert (await self.entry(store)).times_seen == 2
        found = of_the_copy.delivery
        assert (found.headers, found.body, found.origin) == (original.headers, original.body, original.origin)
        assert (found.content_type, found.queue, found.waited) == (original.content_type, original.queue, 0)

    async def test_what_a_broker_counted_of_an_original_is_kept(self, rig: StoreRig) -> None:
        store = rig.store()
        deaths: dict[str, object] = {"x-death": [{"count": 2, "reason": "rejected"}], "x-delivery-count": 3}
        async with opened(store):
            await store.quarantine(delivery(b"1", **deaths), None, "dead-lettered", "")
            (found,) = await store.desk.get([(await self.entry(store)).digest])
            assert found.delivery.headers == deaths

    # -------------------------------------------------------- read whole
    async def test_it_is_got_whole_and_as_a_replay(self, rig: StoreRig) -> None:
        store = rig.store()
        given = Delivery(
            b"\0\xff'\\",
            {"n": 1, "f": 1.5, "raw": b"\xff", "deep": {"list": [1, None, {"x": bytearray(b"y")}]}},
            "application/octet-stream",
            {"priority": 3, "timestamp": datetime(2026, 1, 1, tzinfo=UTC)},
            Origin("é", "k" * 300),
            "q",
            receipt=object(),
        )
        async with opened(store):
            await store.quarantine(given, None, "refused", "")
            entry = await self.entry(store)
            (found,) = await store.desk.get([entry.digest])
        assert found.entry == entry
        for name in get_type_hints(Delivery, localns={"Mapping": dict, "Refused": Refused}):
            if name not in ("pristine", "is_replay", "receipt"):
                assert getattr(found.delivery, name) == getattr(given, name), name
        assert (found.delivery.pristine, found.delivery.is_replay, found.delivery.receipt) == (False, True, None)
        assert "\\xff" not in repr(found)

    async def test_what_was_refused_again_as_a_replay_finds_its_own_row(self, rig: StoreRig) -> None:
        store = rig.store()
        given = delivery(
            b"1", a=bytearray(b"\xff"), b=[{"c": 1.5}, None], d={"e": b"f"}, g=datetime(9999, 1, 1, tzinfo=UTC), h=True
        )
        async with opened(store):
            await store.quarantine(given, None, "refused", "")
            (found,) = await store.desk.get([(await self.entry(store)).digest])
            await store.quarantine(found.delivery, None, "refused", "again")
            entry = await self.entry(store)
            assert (entry.times_seen, entry.detail) == (2, "again")

    async def test_what_could_not_be_parsed_is_refused_again_and_a_dead_letter_is_not(self, rig: StoreRig) -> None:
        store = rig.store()
        unreadable = replace(delivery(b"1"), refusal=Undecodable("cannot be parsed", code="unreadable-header"))
        dead = replace(delivery(b"2"), refusal=Refused("given up", code="dead-lettered"))
        async with opened(store):
            await store.quarantine(unreadable, None, "unreadable-header", "cannot be parsed")
            await store.quarantine(dead, None, "dead-lettered", "given up")
            entries = await store.desk.list(Selection())
            found = {each.entry.reason: each for each in await store.desk.get([entry.digest for entry in entries])}
        refusal = found["unreadable-header"].delivery.refusal
        assert isinstance(refusal, Undecodable)
        assert (refusal.code, refusal.detail) == ("unreadable-header", "cannot be parsed")
        assert found["dead-lettered"].delivery.refusal is None

    async def test_they_are_got_in_the_order_asked_for_and_what_is_not_there_is_left_out(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.put(store, b"1", b"2", b"3")
            digests = [entry.digest for entry in await store.desk.list(Selection())][::-1]
            found = await store.desk.get([digests[0], b"\0" * 32, *digests[1:]])
            assert [each.entry.digest for each in found] == digests
            assert await store.desk.get([]) == []

    # -------------------------------------------------------- lists and sums
    async def test_pages_follow_each_other_and_leave_nothing_out(self, rig: StoreRig) -> None:
        store = rig.store()
        bodies = [b"x" * (number % 5) + b"%d" % number for number in range(23)]
        async with opened(store):
            await self.put(store, *bodies)
            for newest_first in (False, True):
                seen: list[QuarantineEntry] = []
                while page := await store.desk.list(
                    Selection(), after=seen[-1].cursor if seen else None, limit=5, newest_first=newest_first
                ):
                    assert len(page) <= 5
                    seen += page
                assert len({entry.digest for entry in seen}) == len(seen) == 23
                times = [entry.first_at for entry in seen]
                assert times == sorted(times, reverse=newest_first)

    async def test_pages_over_several_states_are_in_one_order(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.put(store, *(b"%d" % number for number in range(9)))
            entries = await store.desk.list(Selection())
            await store.desk.mark_replayed(entries[::3])
            await store.desk.discard(Selection(digests=(entries[1].digest.hex(),)), "no")
            seen: list[QuarantineEntry] = []
            while page := await store.desk.list(ALL, after=seen[-1].cursor if seen else None, limit=2):
                seen += page
            assert [entry.digest for entry in seen] == [entry.digest for entry in entries]
            assert len(await store.desk.list(Selection(("open", "discarded")))) == 6

    async def test_a_selection_meets_every_condition(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            for number in range(6):
                what = CloudEvent(id=f"é-{number}", source="/s", type=f"t-{number % 2}")
                await store.quarantine(delivery(b"%d" % number), what, f"r-{number % 3}", "")
            every = await store.desk.list(Selection())
            third = every[2]
            for selection, expected in (
                (Selection(reasons=("r-0",)), [0, 3]),
                (Selection(reasons=("r-0", "r-1")), [0, 1, 3, 4]),
                (Selection(types=("t-1",)), [1, 3, 5]),
                (Selection(types=("t-1",), reasons=("r-0",)), [3]),
                (Selection(ids=("é-4", "é-5", "e-1")), [4, 5]),
                (Selection(digests=(third.digest.hex()[:9].upper(),)), [2]),
                (Selection(digests=(third.digest.hex(),), reasons=("r-0",)), []),
                (Selection(since=third.first_at), [2, 3, 4, 5]),
                (Selection(until=third.first_at), [0, 1]),
                (Selection(since=third.first_at, until=third.first_at + timedelta(microseconds=1)), [2]),
                (Selection(("replayed",)), []),
                (Selection(types=("'; --",)), []),
            ):
                found = await store.desk.list(selection)
                assert [entry.digest for entry in found] == [every[number].digest for number in expected], selection
                assert sum(count.entries for count in await store.desk.count(selection)) == len(expected)
                assert all(selection.covers(entry) == (entry in found) for entry in every)

    async def test_sums_are_by_state_and_reason(self, rig: StoreRig) -> None:
        store, other = rig.store(), rig.store("mail")
        async with opened(store, other):
            await self.put(store, b"1", b"22", reason="a")
            await self.put(store, b"333", reason="b")
            await self.put(other, b"1", reason="a")
            entries = await store.desk.list(Selection())
            await store.desk.mark_replayed(entries[:1])
            counts = await store.desk.count(ALL)
            assert [(each.state, each.reason, each.entries) for each in counts] == [
                ("open", "a", 1),
                ("open", "b", 1),
                ("replayed", "a", 1),
            ]
            assert [each.oldest for each in counts] == [entries[1].first_at, entries[2].first_at, entries[0].first_at]
            assert sum(each.octets for each in counts) == sum(entry.total_bytes for entry in entries)
            assert await other.desk.count(Selection(reasons=("b",))) == []

    # -------------------------------------------------------- decided
    async def test_what_was_replayed_is_closed_and_what_was_refused_meanwhile_is_not(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.put(store, b"1", b"2")
            entries = await store.desk.list(Selection())
            await self.put(store, b"1")
            assert await store.desk.mark_replayed(entries) == 1
            assert await store.desk.mark_replayed(entries) == 0
            (left,) = await store.desk.list(Selection())
            assert left.digest == entries[0].digest
            (closed,) = await store.desk.list(Selection(("replayed",)))
            assert closed.state_at is not None
            assert closed.state_at >= closed.first_at
            assert await store.desk.mark_replayed([]) == 0

    async def test_what_is_discarded_keeps_its_note_and_is_open_again_when_it_is_refused_again(
        self, rig: StoreRig
    ) -> None:
        store = rig.store()
        note = "a test of the producer's: é' \\"
        async with opened(store):
            await self.put(store, b"1", b"2", reason="a")
            await self.put(store, b"3", reason="b")
            told: list[int] = []
            assert await store.desk.discard(Selection(reasons=("a",)), note, progress=told.append) == 2
            assert sum(told) == 2
            assert await store.desk.discard(Selection(reasons=("a",)), "again") == 0
            closed = await store.desk.list(Selection(("discarded",)))
            assert [(entry.state, entry.state_note) for entry in closed] == [("discarded", note)] * 2
            await self.put(store, b"1", reason="c")
            (entry,) = await store.desk.list(Selection(reasons=("c",)))
            assert (entry.state, entry.state_note, entry.times_seen) == ("open", None, 2)
            assert entry.state_at is not None

    async def test_decisions_go_beyond_one_page(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await self.put(store, *(b"%d" % number for number in range(410)))
            entries = await store.desk.list(Selection(), limit=1000)
            assert await store.desk.mark_replayed(entries[:205]) == 205
            assert await store.desk.discard(Selection(), "no") == 205
            assert await store.desk.count(Selection()) == []

    # -------------------------------------------------------- put back
    async def test_what_is_put_back_is_as_it_was(self, rig: StoreRig) -> None:
        store, other = rig.store(), rig.store("mail")
        async with opened(store, other):
            await store.end_attempt(b"e-1", failed=True, error="ValueError")
            await store.quarantine(delivery(b"1", a=b"\xff"), event(), "handler-error", "x")
            await self.put(store, b"2", b"2", b"3")
            await store.desk.discard(Selection(reasons=("refused",)), "no")
            entries = await store.desk.list(ALL)
            whole = await store.desk.get([entry.digest for entry in entries])
            assert await store.desk.restore(whole) == 0
            assert await other.desk.restore(whole, dry_run=True) == 3
            assert await other.desk.list(ALL) == []
            assert await other.desk.restore(whole) == 3
            assert await other.desk.restore(whole) == 0
            again = await other.desk.list(ALL)
            assert [replace(entry, digest=b"") for entry in again] == [replace(entry, digest=b"") for entry in entries]
            back = await other.desk.get([entry.digest for entry in again])
            assert [each.delivery.headers for each in back] == [each.delivery.headers for each in whole]
            assert [each.delivery.body for each in back] == [each.delivery.body for each in whole]
            # Refused once more, it finds its own row there: the digest is the other consumer's.
            await other.quarantine(delivery(b"1", a=b"\xff"), event(), "handler-error", "x")
            assert len(await other.desk.list(ALL)) == 3

    async def test_what_is_put_back_respects_the_bounds(self, rig: StoreRig) -> None:
        store, small = rig.store(), rig.store("mail", quarantine_rows=2)
        async with opened(store, small):
            await self.put(store, b"1", b"2", b"3")
            whole = await store.desk.get([entry.digest for entry in await store.desk.list(Selection())])
            with pytest.raises(QuarantineFull):
                await small.desk.restore(whole)
            assert len(await small.desk.list(Selection())) == 2
            assert await small.desk.restore(whole[:2]) == 0, "what is there needs no room"

    async def test_no_payload_shows_in_a_repr(self, rig: StoreRig) -> None:
        store = rig.store()
        async with opened(store):
            await store.quarantine(delivery(b"secret", word="secret"), None, "refused", "")
            (found,) = await store.desk.get([(await self.entry(store)).digest])
            assert isinstance(found, QuarantinedDelivery)
            assert "secret" not in repr([found, found.entry, found.delivery])
