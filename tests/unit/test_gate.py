"""Runs side by side, and one alone."""

import asyncio
from collections.abc import Coroutine

import pytest

from inbox.runtime.gate import RunGate

LONG = 30.0


async def settle() -> None:
    """Let every task go on as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def waiting(call: Coroutine[object, object, object]) -> "asyncio.Task[object]":
    task = asyncio.ensure_future(call)
    await settle()
    return task


async def test_runs_go_in_beside_each_other() -> None:
    gate = RunGate(LONG)
    await gate.enter()
    await gate.enter()
    gate.leave()
    gate.leave()


async def test_one_alone_waits_for_those_inside_and_keeps_the_others_out() -> None:
    gate = RunGate(LONG)
    await gate.enter()
    await gate.enter()
    alone = await waiting(gate.enter_alone())
    late = await waiting(gate.enter())
    gate.leave()
    await settle()
    assert not alone.done(), "one is still inside"
    gate.leave()
    assert await alone is True
    await settle()
    assert not late.done(), "one is alone"
    gate.leave_alone()
    await late
    gate.leave()


async def test_two_who_want_to_be_alone_go_one_after_the_other_and_before_the_rest() -> None:
    gate = RunGate(LONG)
    assert await gate.enter_alone()
    second = await waiting(gate.enter_alone())
    late = await waiting(gate.enter())
    gate.leave_alone()
    assert await second is True
    await settle()
    assert not late.done()
    gate.leave_alone()
    await late


async def test_who_wants_to_be_alone_in_the_moment_the_gate_opens_still_goes_first() -> None:
    gate = RunGate(LONG)
    assert await gate.enter_alone()
    late = await waiting(gate.enter())
    gate.leave_alone()
    alone = asyncio.ensure_future(gate.enter_alone())
    await settle()
    assert alone.done() is not late.done(), "never both"
    if late.done():
        gate.leave()
    assert await alone is True
    gate.leave_alone()
    await late


async def test_one_that_is_stuck_is_not_waited_for_for_ever_and_nobody_is_kept_out() -> None:
    gate = RunGate(0.01)
    await gate.enter()
    assert await gate.enter_alone() is False
    await asyncio.wait_for(gate.enter(), LONG)
    gate.leave()
    gate.leave()
    assert await gate.enter_alone() is True, "once it has come back"


async def test_patience_begins_with_the_turn() -> None:
    gate = RunGate(0.05)
    assert await gate.enter_alone()
    second = await waiting(gate.enter_alone())
    await asyncio.wait({second}, timeout=0.2)
    assert not second.done(), "who is alone in an orderly way is no one who is stuck"
    gate.leave_alone()
    assert await second is True


@pytest.mark.parametrize("has_turn", [False, True])
async def test_who_no_longer_wants_to_be_alone_keeps_nobody_out(has_turn: bool) -> None:
    gate = RunGate(LONG)
    if has_turn:
        await gate.enter()
    else:
        assert await gate.enter_alone()
    alone = await waiting(gate.enter_alone())
    late = await waiting(gate.enter())
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    if has_turn:
        await late
        gate.leave()
        gate.leave()
    else:
        gate.leave_alone()
        await late
        gate.leave()
    assert await gate.enter_alone() is True


async def test_one_that_stays_without_being_alone_lets_others_in() -> None:
    gate = RunGate(LONG)
    assert await gate.enter_alone()
    late = await waiting(gate.enter())
    gate.let_others_in()
    await late
    gate.leave()
    alone = await waiting(gate.enter_alone())
    assert not alone.done(), "it has not come out"
    gate.leave()
    assert await alone is True
