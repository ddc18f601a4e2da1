"""Start-up proves that a handler cannot end its unit: the seams that the guard sits on are the drivers' own affair."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError

from inbox.adapters.embedded.guard import UNIT
from inbox.adapters.embedded.lane import open_lane
from inbox.adapters.embedded.statements import BEGIN, ROLLBACK
from inbox.errors import GuardError, InboxError, UnitMisused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from inbox.adapters.embedded.lane import Lane

__all__ = ["prove_guard"]

_PROVER: Final = "the proof of the guard"


async def prove_guard(engine: AsyncEngine) -> None:
    """See that what would end a unit is refused, on every way to it, and that an end is noticed. Changes nothing.

    Raises:
        GuardError: something was let through.
        Contended, StoreUnavailable: the file cannot be opened now.
    """
    lane = await open_lane(engine)
    guard = lane.driver.guard
    await lane.driver.own(lambda raw: raw.execute(BEGIN))
    token = guard.start(_PROVER)
    carried = UNIT.set(token)
    try:
        await _prove(lane)
    finally:
        UNIT.reset(carried)
        guard.stop()
        await lane.close()


async def _prove(lane: Lane) -> None:
    guard, driver = lane.driver.guard, lane.driver
    token = guard.token
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "a COMMIT as a text": lambda: lane.connection.exec_driver_sql("COMMIT"),
        "a COMMIT of a cursor": lambda: _by_cursor(lane, "COMMIT"),
        "a COMMIT of the driver": driver.commit,
        "a script": lambda: driver.executescript("SELECT 1"),
        "a call beside it": lambda: driver.create_function("proof", 0, int),
        "ATTACH": lambda: _by_cursor(lane, "ATTACH ':memory:' AS other"),
        "a PRAGMA": lambda: _by_cursor(lane, "PRAGMA synchronous = OFF"),
        "a late task": lambda: _late(lane),
    }
    for what, attempt in ways.items():
        await _require_refusal(what, attempt)
        guard.doom, guard.token = None, token
    if not await driver.own(lambda raw: raw.in_transaction):
        raise _blind("the end of a unit")
    await _require_notice(lane)


async def _require_refusal(what: str, attempt: Callable[[], Awaitable[object]]) -> None:
    try:
        await attempt()
    except UnitMisused:
        return
    except (DBAPIError, sqlite3.Error) as error:
        raise _blind(what) from error
    raise _blind(what)


async def _require_notice(lane: Lane) -> None:
    """A unit whose transaction was rolled back must be doomed by its next call."""
    await lane.driver.own(lambda raw: raw.execute(ROLLBACK))
    with suppress(DBAPIError, InboxError):
        await lane.connection.exec_driver_sql("SELECT 1")
    if lane.driver.guard.doom is None:
        raise _blind("that a transaction was rolled back")


async def _by_cursor(lane: Lane, sql: str) -> None:
    driver: Any = lane.driver
    async with driver.cursor() as cursor:
        await cursor.execute(sql)


async def _late(lane: Lane) -> None:
    """As a task that was started by a unit which has ended since."""
    lane.driver.guard.token = None
    await asyncio.create_task(_by_cursor(lane, "SELECT 1"))


def _blind(what: str) -> GuardError:
    return GuardError(
        f"the guard does not see {what}; a handler could commit half of its unit. Use versions of aiosqlite and of "
        "SQLAlchemy that pyproject names"
    )
