"""The packet budget of one delivery, counted on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inbox.config import DatabaseSettings
from inbox.core.handler import Face
from inbox.core.records import Claim, InboxRecord
from inbox.testing.faults import FaultProxy, MySqlFraming, Traffic
from tests.integration.bench import Account, Bench, made_tables, opened
from tests.pairs import Driver, Pair

COM_QUIT = b"\x01"
UPDATE = text("UPDATE account SET n = n + 1 WHERE name = 'a'")


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    made_tables(pair.database_url)
    async with FaultProxy(pair.database.host, pair.database.port, framing=MySqlFraming, record=True) as made:
        yield made


@pytest.fixture
async def bench(pair: Pair, proxy: FaultProxy, driver: Driver) -> AsyncIterator[Bench]:
    async with opened(pair.database_url, driver, port=proxy.port) as made:
        await warmed(made, proxy)
        yield made


async def warmed(bench: Bench, proxy: FaultProxy) -> None:
    """The lane is open, and what a new connection costs is not counted."""
    bench.witness.run("INSERT INTO account (name, n) VALUES ('a', 0)")
    await bench.run(by_session)
    proxy.commands.clear()


async def by_session(_: object, session: AsyncSession) -> None:
    await session.execute(UPDATE)


async def by_connection(_: object, connection: AsyncConnection) -> None:
    await connection.execute(UPDATE)


def by_sync_session(_: object, session: Session) -> None:
    session.execute(UPDATE)


FACES: dict[Face, Callable[..., Any]] = {
    Face.SESSION: by_session,
    Face.CONNECTION: by_connection,
    Face.SYNC_SESSION: by_sync_session,
}


def spent(proxy: FaultProxy, before: Traffic) -> tuple[int, int, int]:
    used = proxy.traffic - before
    return used.connections, used.packets, used.round_trips


@pytest.mark.parametrize("face", Face)
async def test_a_first_delivery_costs_three_packets(bench: Bench, proxy: FaultProxy, face: Face) -> None:
    unit, before = await bench.unit(), proxy.traffic.copy()

    await bench.applied(unit, FACES[face], face)

    assert spent(proxy, before) == (0, 3, 3)
    assert [command[1:7] for command in proxy.commands] == [b"INSERT", b"UPDATE", b"COMMIT"]


@pytest.mark.parametrize("face", Face)
async def test_an_undone_delivery_costs_one_rollback(bench: Bench, proxy: FaultProxy, face: Face) -> None:
    async def raises(_: object, session: AsyncSession | AsyncConnection) -> None:
        await session.execute(UPDATE)
        raise ValueError

    def raises_too(_: object, session: Session) -> None:
        session.execute(UPDATE)
        raise ValueError

    unit, before = await bench.unit(), proxy.traffic.copy()
    with pytest.raises(ValueError, match=r"^$"):
        await bench.applied(unit, raises_too if face is Face.SYNC_SESSION else raises, face)
    await unit.rollback()

    assert spent(proxy, before) == (0, 3, 3)


async def test_a_flush_at_the_end_costs_its_own_statements_only(bench: Bench, proxy: FaultProxy) -> None:
    async def adds(_: object, session: AsyncSession) -> None:
        session.add(Account(name="added"))

    unit, before = await bench.unit(), proxy.traffic.copy()
    await bench.applied(unit, adds, Face.SESSION)

    assert spent(proxy, before) == (0, 3, 3)


async def test_an_ignored_event_costs_two_packets(bench: Bench, proxy: FaultProxy) -> None:
    unit, before = await bench.unit(), proxy.traffic.copy()
    await unit.claim(bench.record())
    await unit.commit()

    assert spent(proxy, before) == (0, 2, 2)


@pytest.mark.parametrize(("fingerprint", "packets", "round_trips"), [(b"f" * 32, 3, 2), (None, 2, 2)])
async def test_a_duplicate(
    bench: Bench, proxy: FaultProxy, fingerprint: bytes | None, packets: int, round_trips: int
) -> None:
    record = InboxRecord("bench", b"twice", fingerprint, None if fingerprint is None else 13)
    first = await bench.unit()
    await first.claim(record)
    await first.commit()

    unit, before = await bench.unit(), proxy.traffic.copy()
    assert await unit.claim(record) is Claim.DUPLICATE
    # The last command's answer has been read, so that the count is complete.
    assert spent(proxy, before) == (0, packets, round_trips)
    assert bench.told[-1] is True


async def test_a_duplicate_one_by_one(pair: Pair, proxy: FaultProxy, driver: Driver) -> None:
    settings = DatabaseSettings(lock_wait=1, pipelined_duplicates=False)
    async with opened(pair.database_url, driver, settings, port=proxy.port) as bench:
        await warmed(bench, proxy)
        record = bench.record()
        first = await bench.unit()
        await first.claim(record)
        await first.commit()

        unit, before = await bench.unit(), proxy.traffic.copy()
        assert await unit.claim(record) is Claim.DUPLICATE
        assert spent(proxy, before) == (0, 3, 3)


async def test_with_call_enabled_it_is_five_packets(pair: Pair, proxy: FaultProxy, driver: Driver) -> None:
    settings = DatabaseSettings(lock_wait=1, allow_call=True)
    async with opened(pair.database_url, driver, settings, port=proxy.port) as bench:
        await warmed(bench, proxy)
        unit, before = await bench.unit(), proxy.traffic.copy()
        await bench.applied(unit, by_session, Face.SESSION)

        assert spent(proxy, before) == (0, 5, 5)
        assert [command[1:5] for command in proxy.commands] == [b"INSE", b"SAVE", b"UPDA", b"RELE", b"COMM"]


async def test_what_a_new_lane_costs_beside_its_log_in(bench: Bench, proxy: FaultProxy) -> None:
    assert bench.lane is not None
    await bench.lane.close()
    bench.lane = None
    proxy.commands.clear()
    await bench.unit()

    # Off with multi-statements, one SET for the whole session, and SQLAlchemy's own.
    assert [command[:10] for command in proxy.commands if command != COM_QUIT] == [
        b"\x1b\x01\x00",
        b"\x03SET SESSI",
        b"\x03SET NAMES",
    ]


async def test_rows_are_no_answer_to_what_should_only_be_done_and_end_the_connection(bench: Bench) -> None:
    driver = (await bench.unit()).lane.driver
    with pytest.raises(driver.OperationalError, match="another answer than OK"):
        await driver.own_done(b"SELECT 1")
    assert not driver.is_open


async def test_sqlalchemy_begins_its_own_transaction_once_for_all_units_of_a_lane(bench: Bench) -> None:
    seen = []

    async def look(_: object, connection: AsyncConnection) -> None:
        seen.append(connection.sync_connection.get_transaction() if connection.sync_connection else None)
        await connection.execute(UPDATE)

    for _ in range(3):
        assert (await bench.run(look, Face.CONNECTION)).error is None
    assert seen[0] is not None
    assert seen == [seen[0]] * 3
