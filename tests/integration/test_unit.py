"""One delivery's transaction on real servers: what is claimed, what is committed, and what is left when it is not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import engine as engine_module
from inbox.adapters.mysql.engine import kill_session, make_engine, open_lane, prove_guard
from inbox.adapters.mysql.guard import Guard
from inbox.config import DatabaseSettings
from inbox.core.handler import Face, Handler
from inbox.core.records import Claim, InboxRecord
from inbox.errors import CommitUnknown, ConfigurationError, Contended, GuardError, StoreUnavailable, TlsError
from inbox.testing.faults import Catch, FaultProxy, MySqlFraming, begins_with, is_commit
from inbox.units.verdict import to_its_end
from tests.integration.bench import NO_EVENT, Bench, Witness, add, made_tables, opened
from tests.pairs import Driver, Pair


@pytest.fixture
async def bench(pair: Pair, driver: Driver) -> AsyncIterator[Bench]:
    made_tables(pair.database_url)
    async with opened(pair.database_url, driver) as made:
        yield made


async def claimed(bench: Bench, record: InboxRecord) -> None:
    unit = await bench.unit()
    assert await unit.claim(record) is Claim.NEW
    await unit.commit()


async def nothing(_: object, session: AsyncSession) -> None:
    pass


def handler(function: Any) -> Handler:
    return Handler("bench.credit", "t", Face.SESSION, function)


# ------------------------------------------------------------------ the claim
KEYS = [
    b"evt-A",
    b"evt-a",
    b"evt-a ",
    b"evt-a\0",
    "é".encode(),
    "e\u0301".encode(),
    b"\xff\xfe",
    b"'; DROP TABLE inbox",
    b"x" * 512,
]


async def test_ids_are_told_apart_octet_by_octet(bench: Bench) -> None:
    for key in KEYS:
        await claimed(bench, InboxRecord("bench", key))

    rows = bench.witness.run("SELECT event_id FROM inbox")
    assert sorted(row[0] for row in rows) == sorted(KEYS)


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize(
    ("stored", "arriving", "expected"),
    [
        ((b"f" * 32, 13), (b"f" * 32, 13), Claim.DUPLICATE),
        ((b"f" * 32, 13), (b"g" * 32, 13), Claim.CONFLICT),
        ((b"f" * 32, 13), (b"g" * 32, 5), Claim.DUPLICATE),
        ((b"f" * 32, 13), (None, None), Claim.DUPLICATE),
        ((None, None), (b"g" * 32, 13), Claim.DUPLICATE),
    ],
)
async def test_a_known_id(
    pair: Pair,
    driver: Driver,
    stored: tuple[bytes | None, int | None],
    arriving: tuple[bytes | None, int | None],
    expected: Claim,
    *,
    pipelined: bool,
) -> None:
    made_tables(pair.database_url)
    settings = DatabaseSettings(lock_wait=1, pipelined_duplicates=pipelined)
    async with opened(pair.database_url, driver, settings) as bench:
        await claimed(bench, InboxRecord("bench", b"known", *stored))
        unit = await bench.unit()

        assert await unit.claim(InboxRecord("bench", b"known", *arriving)) is expected
        assert bench.told[-1] is True
        # The duplicate's transaction and its shared lock are gone.
        bench.witness.run("DELETE FROM inbox WHERE event_id = 'known'")


async def test_the_same_id_of_another_consumer_is_new(bench: Bench) -> None:
    await claimed(bench, InboxRecord("bench", b"same"))
    await claimed(bench, InboxRecord("other", b"same"))


async def test_a_claim_waits_for_a_racing_one_and_no_longer_than_the_lock_wait(bench: Bench) -> None:
    bench.witness.run("BEGIN")
    bench.witness.run("INSERT INTO inbox (consumer_name, event_id) VALUES ('bench', 'raced')")
    unit = await bench.unit()

    with pytest.raises(Contended) as raised:
        await unit.claim(InboxRecord("bench", b"raced"))
    await unit.rollback()
    bench.witness.run("ROLLBACK")

    assert raised.value.code == 1205
    assert bench.told == [True]
    await claimed(bench, InboxRecord("bench", b"raced"))


async def test_of_racers_whose_holder_rolls_back_one_is_new_and_the_others_are_contended(
    bench: Bench, pair: Pair, driver: Driver
) -> None:
    record = InboxRecord("bench", b"raced", b"f" * 32, 13)
    bench.witness.run("BEGIN")
    bench.witness.run("INSERT INTO inbox (consumer_name, event_id) VALUES ('bench', 'raced')")
    others = [Bench(pair.database_url, driver) for _ in range(3)]
    racing = []
    for other in others:
        unit = await other.unit()
        racing.append((unit, asyncio.ensure_future(unit.claim(record))))
        await bench.witness.wait_until_runs(unit.lane.session.thread_id, "INSERT INTO")
    bench.witness.run("ROLLBACK")
    # The winner holds its row, so that those who are not chosen by the dead-lock detection wait out their time.
    answers = await asyncio.gather(*(claim for _, claim in racing), return_exceptions=True)
    for (unit, _), answer in zip(racing, answers, strict=True):
        await (unit.commit() if answer is Claim.NEW else unit.rollback())
    for other in others:
        await other.close()

    assert answers.count(Claim.NEW) == 1
    assert all(isinstance(answer, Contended) for answer in answers if answer is not Claim.NEW)


async def test_a_missing_table_is_transient(bench: Bench) -> None:
    unit = await bench.unit()
    bench.witness.run("DROP TABLE inbox")

    with pytest.raises(Contended) as raised:
        await unit.claim(bench.record())
    await unit.rollback()

    assert raised.value.code == 1146
    assert "inbox" not in str(raised.value)


# ------------------------------------------------------------------ order
async def test_a_unit_is_used_in_one_order(bench: Bench) -> None:
    unit = await bench.unit()
    with pytest.raises(RuntimeError):
        await unit.commit()
    await unit.claim(bench.record())
    with pytest.raises(RuntimeError):
        await unit.claim(bench.record())
    await unit.apply(handler(nothing), NO_EVENT, None)
    await unit.commit()
    for late in (unit.commit, unit.rollback, lambda: unit.apply(handler(nothing), NO_EVENT, None)):
        with pytest.raises(RuntimeError):
            await late()

    assert bench.told == [True]


async def test_after_a_failed_handler_nothing_can_be_committed(bench: Bench) -> None:
    async def fails(_: object, session: AsyncSession) -> None:
        raise ValueError

    unit = await bench.unit()
    await unit.claim(bench.record())
    with pytest.raises(ValueError, match=r"^$"):
        await unit.apply(handler(fails), NO_EVENT, None)
    with pytest.raises(RuntimeError):
        await unit.commit()
    await unit.rollback()


async def test_attempts_are_forgotten_in_the_same_transaction(bench: Bench) -> None:
    bench.witness.run("INSERT INTO inbox_attempt (consumer_name, attempt_key) VALUES ('bench', 'k'), ('other', 'k')")
    for finish in ("rollback", "commit"):
        unit = await bench.unit()
        await unit.claim(bench.record())
        await unit.forget(b"k")
        await getattr(unit, finish)()

    assert bench.witness.run("SELECT consumer_name FROM inbox_attempt") == [(b"other",)]


async def test_the_prepared_value_is_handed_on(bench: Bench) -> None:
    seen: list[object] = []

    async def takes(_: object, session: AsyncSession, prepared: object) -> None:
        seen.append(prepared)

    async def prepare(_: object) -> object:
        return None

    unit = await bench.unit()
    await unit.claim(bench.record())
    await unit.apply(Handler("h", "t", Face.SESSION, takes, prepare), NO_EVENT, "ready")
    await unit.commit()

    assert seen == ["ready"]


@pytest.mark.parametrize("ends", ["commit", "rollback", "duplicate"])
async def test_a_unit_inside_of_another_ones_handler(bench: Bench, pair: Pair, driver: Driver, ends: str) -> None:
    """Two inboxes, one calling the other: each has its own transaction, and neither misuses the other's."""
    inner = Bench(pair.database_url, driver)
    outer_names, inner_names = bench.open_accounts(), bench.open_accounts()
    known = bench.record()
    await claimed(bench, known)

    async def fails(_: object, session: AsyncSession) -> None:
        await add(session, inner_names[0])
        raise ValueError

    async def works(_: object, session: AsyncSession) -> None:
        await add(session, inner_names[0])

    async def calls(_: object, session: AsyncSession) -> None:
        await add(session, outer_names[0])
        if ends == "duplicate":
            assert await (await inner.unit()).claim(known) is Claim.DUPLICATE
        else:
            await inner.run(works if ends == "commit" else fails, accounts=inner_names)
        await add(session, outer_names[1])

    ended = await bench.run(calls, accounts=outer_names)
    await inner.close()

    assert (ended.error, ended.there, ended.reusable) == (None, (True, True, True), True)
    assert bench.witness.run("SELECT n FROM account WHERE name = %s", inner_names[0]) == [(int(ends == "commit"),)]


# ------------------------------------------------------------------ the end
@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    made_tables(pair.database_url)
    async with FaultProxy(pair.database.host, pair.database.port, framing=MySqlFraming) as made:
        yield made


@pytest.fixture
async def far(pair: Pair, proxy: FaultProxy, driver: Driver) -> AsyncIterator[Bench]:
    async with opened(pair.database_url, driver, port=proxy.port, deadline=1.0) as made:
        yield made


@pytest.mark.parametrize("catch", [Catch.SWALLOW, Catch.HOLD_ANSWER, Catch.CUT])
async def test_a_commit_without_an_answer_is_unknown(far: Bench, proxy: FaultProxy, catch: Catch) -> None:
    unit, record = await far.unit(), far.record()
    await unit.claim(record)
    trap = proxy.trap(is_commit, catch)

    with pytest.raises(CommitUnknown):
        await unit.commit()

    await trap.wait()
    assert far.told == [False]
    assert not unit.lane.driver.is_open
    if catch is Catch.HOLD_ANSWER:
        assert far.witness.run("SELECT 1 FROM inbox WHERE event_id = %s", record.key) == [(1,)]


async def test_a_cancelled_commit_is_carried_through_where_its_caller_asks_for_that(
    far: Bench, proxy: FaultProxy
) -> None:
    unit, record = await far.unit(), far.record()
    await unit.claim(record)
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    committing = asyncio.ensure_future(to_its_end(unit.commit()))
    await trap.wait()
    committing.cancel()
    await asyncio.sleep(0)
    committing.cancel()
    assert far.told == []
    trap.release()

    with pytest.raises(asyncio.CancelledError):
        await committing

    assert far.told == [True]
    assert far.witness.run("SELECT 1 FROM inbox WHERE event_id = %s", record.key) == [(1,)]


async def test_a_cancelled_commit_may_have_taken_place_and_its_connection_is_closed(
    far: Bench, proxy: FaultProxy
) -> None:
    unit, record = await far.unit(), far.record()
    await unit.claim(record)
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    committing = asyncio.ensure_future(unit.commit())
    await trap.wait()
    committing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await committing

    assert far.told == [False]
    assert not unit.lane.driver.is_open
    assert far.witness.run("SELECT 1 FROM inbox WHERE event_id = %s", record.key) == [(1,)]


async def test_an_error_answer_to_commit_is_unknown(bench: Bench) -> None:
    unit = await bench.unit()
    await unit.claim(bench.record())
    bench.witness.run(f"KILL {unit.lane.session.thread_id}")
    await bench.witness.wait_until_gone(unit.lane.session.thread_id)

    with pytest.raises(CommitUnknown):
        await unit.commit()

    assert bench.told == [False]


async def test_a_claim_cancelled_while_it_waits_leaves_nothing_on_the_server(bench: Bench) -> None:
    bench.witness.run("BEGIN")
    bench.witness.run("INSERT INTO inbox (consumer_name, event_id) VALUES ('bench', 'held')")
    unit = await bench.unit()
    thread = unit.lane.session.thread_id
    with Witness(bench.url) as other:
        claiming = asyncio.ensure_future(unit.claim(InboxRecord("bench", b"held")))
        await other.wait_until_runs(thread, "INSERT INTO")
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await unit.rollback()
        await other.wait_until_gone(thread)
    bench.witness.run("ROLLBACK")

    assert bench.told == [False]
    assert bench.witness.run("SELECT 1 FROM inbox") == []


async def test_a_rollback_that_is_not_answered_ends_all_the_same(far: Bench, proxy: FaultProxy) -> None:
    unit = await far.unit()
    await unit.claim(far.record())
    proxy.trap(begins_with("ROLLBACK"), Catch.SWALLOW)

    await unit.rollback()

    assert far.told == [False]


async def test_an_orphan_on_a_half_open_link_is_ended_by_the_server(pair: Pair, proxy: FaultProxy) -> None:
    async with opened(pair.database_url, pair.driver, port=proxy.port, deadline=0.5) as bench:
        unit = await bench.unit()
        await unit.claim(bench.record())
        proxy.stall()
        await unit.rollback()

        # Nobody can KILL it: behind the proxy its address is not ours. `wait_timeout` is 6 seconds here.
        await bench.witness.wait_until_gone(unit.lane.session.thread_id)


async def test_a_rollback_on_a_dead_link_raises_nothing(far: Bench, proxy: FaultProxy) -> None:
    unit = await far.unit()
    await unit.claim(far.record())
    proxy.refuse()
    proxy.cut()

    await unit.rollback()

    assert far.told == [False]


async def test_a_link_lost_in_the_handler_is_contention(far: Bench, proxy: FaultProxy) -> None:
    async def meets_a_cut(_: object, session: AsyncSession) -> None:
        await add(session, "a")
        proxy.cut()
        await add(session, "b")

    ended = await far.run(meets_a_cut)

    assert isinstance(ended.error, Contended)
    assert ended.reusable is False


# ------------------------------------------------------------------ the session and its lane
async def test_how_a_session_is_set_up(bench: Bench, pair: Pair) -> None:
    lane = (await bench.unit()).lane
    isolation = b"@@transaction_isolation" if pair.is_mysql else b"@@tx_isolation"
    rows = await lane.driver.own_rows(
        b"SELECT @@autocommit, @@completion_type, "
        + isolation
        + b", @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@wait_timeout"
    )

    assert tuple(rows[0]) == (0, "NO_CHAIN", "READ-COMMITTED", 1, 1, 25)


async def test_multi_statements_are_off(bench: Bench) -> None:
    lane = (await bench.unit()).lane

    with pytest.raises(lane.driver.Error):
        await lane.driver.own(b"DO 1; DO 2")


async def test_kill_leaves_strangers_alone(bench: Bench) -> None:
    mine = (await bench.unit()).lane.session
    stranger = type(mine)(bench.witness.run("SELECT CONNECTION_ID()")[0][0], mine.host, mine.port)
    gone = type(mine)(2**31 - 1, mine.host, mine.port)

    assert await kill_session(bench.engine, stranger) is False
    assert await kill_session(bench.engine, gone) is True
    assert bench.witness.run("SELECT 1") == [(1,)]


async def test_a_lane_knows_that_it_was_closed(bench: Bench) -> None:
    lane = (await bench.unit()).lane
    assert not lane.is_stale
    bench.witness.run(f"KILL {lane.session.thread_id}")
    await bench.witness.wait_until_gone(lane.session.thread_id)
    async with asyncio.timeout(10):
        while not lane.is_stale:
            await asyncio.sleep(0.01)
    lane.discard()
    await lane.close()
    lane.discard()


async def test_the_guard_proves_itself(bench: Bench) -> None:
    await prove_guard(bench.engine)


@pytest.mark.parametrize("blindness", ["admit", "observe"])
async def test_a_blind_guard_is_found_out(bench: Bench, monkeypatch: pytest.MonkeyPatch, blindness: str) -> None:
    monkeypatch.setattr(Guard, blindness, lambda *_, **__: None)

    with pytest.raises(GuardError):
        await prove_guard(bench.engine)


async def test_multi_statements_left_on_are_found_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inbox.adapters.mysql.drivers._MULTI_STATEMENTS_OFF", b"\x00\x00")

    with pytest.raises(GuardError, match="two statements"):
        await prove_guard(bench.engine)


# ------------------------------------------------------------------ connecting
async def test_nobody_there(pair: Pair, driver: Driver) -> None:
    async with FaultProxy(pair.database.host, pair.database.port) as proxy:
        port = proxy.port
    engine = make_engine(f"mysql+{driver}://inbox:s3cret@127.0.0.1:{port}/x", DatabaseSettings(), 1.0)

    with pytest.raises(StoreUnavailable) as raised:
        await open_lane(engine)

    assert "s3cret" not in str(raised.value)


async def test_a_link_that_is_cut_at_the_handshake(pair: Pair, driver: Driver) -> None:
    async with FaultProxy(pair.database.host, pair.database.port) as proxy:
        proxy.refuse()
        engine = make_engine(f"mysql+{driver}://inbox:inbox@127.0.0.1:{proxy.port}/x", DatabaseSettings(), 1.0)
        with pytest.raises((Contended, StoreUnavailable)):
            await open_lane(engine)


async def test_a_server_that_says_nothing(pair: Pair, driver: Driver) -> None:
    settings = DatabaseSettings(connect_timeout=0.2)
    async with FaultProxy(pair.database.host, pair.database.port) as proxy:
        proxy.stall()
        engine = make_engine(f"mysql+{driver}://inbox:inbox@127.0.0.1:{proxy.port}/x", settings, 1.0)
        with pytest.raises(StoreUnavailable):
            await open_lane(engine)


@pytest.mark.parametrize("wrong", ["password", "database"])
async def test_a_server_that_does_not_want_us(pair: Pair, driver: Driver, wrong: str) -> None:
    url = pair.url_for(driver, password="s3cret") if wrong == "password" else pair.url_for(driver) + "_absent"

    with pytest.raises(ConfigurationError) as raised:
        await open_lane(make_engine(url, DatabaseSettings(), 1.0))

    assert "URL" in str(raised.value)
    assert "s3cret" not in str(raised.value)


async def test_tls_that_is_asked_for_and_not_given(pair: Pair, driver: Driver) -> None:
    """MariaDB offers none here; MySQL offers a certificate of its own making, which no authority vouches for."""
    with pytest.raises(TlsError):
        await open_lane(make_engine(pair.url_for(driver), DatabaseSettings(tls=True), 1.0))


async def test_tls_that_is_given(pair: Pair, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE  # the server's certificate is of its own making
    monkeypatch.setattr(engine_module, "_tls_context", lambda _: trusting)
    engine = make_engine(pair.url_for(driver), DatabaseSettings(tls=True), 1.0)
    if not pair.is_mysql:
        with pytest.raises(TlsError, match="does not offer"):
            await open_lane(engine)
        return
    lane = await open_lane(engine)
    rows = await lane.driver.own_rows(b"SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    await lane.close()

    assert rows[0][1]


async def test_statements_of_the_handler_are_plain_text_to_sqlalchemy(bench: Bench) -> None:
    """What is bound arrives as it was, percent signs and quotes included."""
    seen: list[object] = []
    given = "100 % 'of' \"it\" \\ %s := @x ; COMMIT"

    async def asks(_: object, session: AsyncSession) -> None:
        seen.append(await session.scalar(text("SELECT :given"), {"given": given}))

    ended = await bench.run(asks)

    assert seen == [given]
    assert ended.reusable is True
