"""The lanes: order, bounds, and what cancelling leaves behind."""

import asyncio
import random

import pytest

from inbox.errors import StoreUnavailable
from inbox.units.lanes import LanePool


class FakeLane:
    def __init__(self) -> None:
        self.is_stale = False
        self.closed = False

    def discard(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


class Opener:
    def __init__(self) -> None:
        self.made: list[FakeLane] = []
        self.fails = False

    async def __call__(self) -> FakeLane:
        await asyncio.sleep(0)
        if self.fails:
            raise StoreUnavailable("down")
        self.made.append(FakeLane())
        return self.made[-1]


async def test_the_one_used_last_is_handed_out_first() -> None:
    opener = Opener()
    pool = LanePool(opener, 3)
    lanes = [await pool.take() for _ in range(3)]
    for lane in lanes:
        pool.give_back(lane, usable=True)
    assert await pool.take() is lanes[2]
    assert len(opener.made) == 3


async def test_a_stale_one_is_replaced_before_it_is_used() -> None:
    opener = Opener()
    pool = LanePool(opener, 1)
    lane = await pool.take()
    pool.give_back(lane, usable=True)
    lane.is_stale = True
    assert await pool.take() is not lane
    assert lane.closed


async def test_a_lost_one_is_replaced() -> None:
    pool = LanePool(Opener(), 1)
    lane = await pool.take()
    pool.give_back(lane, usable=False)
    assert await pool.take() is not lane


async def test_waiters_are_served_in_order() -> None:
    pool = LanePool(Opener(), 1)
    lane = await pool.take()
    served: list[int] = []

    async def wait(number: int) -> None:
        mine = await pool.take()
        served.append(number)
        pool.give_back(mine, usable=True)

    waiters = [asyncio.ensure_future(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    pool.give_back(lane, usable=True)
    await asyncio.gather(*waiters)
    assert served == [0, 1, 2, 3, 4]


async def test_one_that_cannot_be_opened_costs_no_place() -> None:
    opener = Opener()
    pool = LanePool(opener, 1)
    opener.fails = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await pool.take()
    assert pool.free == 1


async def test_who_is_cancelled_when_its_turn_comes_passes_it_on() -> None:
    pool = LanePool(Opener(), 1)
    lane = await pool.take()
    first, second = (asyncio.ensure_future(pool.take()) for _ in range(2))
    await asyncio.sleep(0)
    pool.give_back(lane, usable=True)
    first.cancel()
    assert await asyncio.wait_for(second, 1) is lane
    assert first.cancelled() or isinstance(first.exception(), asyncio.CancelledError)


async def test_a_closed_pool_closes_what_is_out_and_turns_away_who_waits() -> None:
    pool = LanePool(Opener(), 1)
    lane = await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    assert lane.closed
    pool.give_back(lane, usable=True)
    assert pool.idle == 0
    with pytest.raises(StoreUnavailable):
        await pool.take()


@pytest.mark.parametrize("seed", range(20))
async def test_a_cancel_storm_returns_it_to_full_size(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - drawn tests, no secrets
    opener = Opener()
    pool = LanePool(opener, 4)
    out = 0

    async def work() -> None:
        nonlocal out
        lane = await pool.take()
        out += 1
        assert out <= 4
        try:
            await asyncio.sleep(chance.random() * 0.002)
        finally:
            out -= 1
            pool.give_back(lane, usable=chance.random() < 0.7)

    tasks = [asyncio.ensure_future(work()) for _ in range(100)]
    for task in tasks:
        if chance.random() < 0.5:
            task.cancel()
        await asyncio.sleep(chance.random() * 0.0003)
        opener.fails = chance.random() < 0.1
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(end is None or isinstance(end, (asyncio.CancelledError, StoreUnavailable)) for end in ends)
    assert pool.free == 4
    assert sum(not lane.closed for lane in opener.made) == pool.idle <= 4
