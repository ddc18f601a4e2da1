"""Proof, at every start, that the guard sits where it must: it stands on private names of the drivers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from inbox.adapters.mysql.guard import UNIT, Guard, UnitToken
from inbox.adapters.mysql.lane import Lane, open_lane
from inbox.errors import Contended, GuardError, InboxError, UnitMisused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

_PROVER = "start-up proof"


async def prove_guard(engine: AsyncEngine) -> None:
    """Show on a connection of its own that the guard sees what it must. Run at every start.

    A COMMIT through SQLAlchemy, one by the driver's own cursor, one by the driver's `commit()` and one from a task that
    outlived its unit must be refused before they are sent; a text of two statements must be refused by the server, in
    case the guard missed it; and an error that dooms must be heard of.

    Args:
        engine: from `make_engine`.

    Raises:
        GuardError: a command went through that must not, or an error went by.
        Contended: the connection was lost meanwhile, which proves nothing.
        StoreUnavailable, ConfigurationError, TlsError: as `open_lane`.
    """
    lane = await open_lane(engine)
    guard = lane.driver.guard
    token = guard.start(_PROVER)
    carried = UNIT.set(token)
    try:
        await _prove(lane, guard, token)
        _require_link(lane)
    except Exception as error:
        if isinstance(error, Contended):
            raise
        # What answers with an error because it is gone has neither refused a command nor let one through.
        _require_link(lane, error)
        raise
    finally:
        UNIT.reset(carried)
        guard.stop()
        lane.discard()


def _require_link(lane: Lane, error: Exception | None = None) -> None:
    if not lane.driver.is_open:
        raise Contended("the connection was lost while the guard was proved") from error


async def _prove(lane: Lane, guard: Guard, token: UnitToken) -> None:
    for what, attempt in (
        ("a COMMIT through SQLAlchemy", lambda: lane.connection.exec_driver_sql("COMMIT")),
        ("a COMMIT by the driver's cursor", lambda: _by_cursor(lane, "COMMIT")),
        ("the driver's commit()", lambda: lane.connection.run_sync(_driver_commit)),
        ("a statement of a late task", lambda: _late(lane)),
    ):
        guard.doom, guard.token = None, token
        await _require_refusal(what, attempt)
    guard.doom, guard.token = None, token
    await _require_single_statements(lane)
    guard.doom = None
    await _require_hearing(lane, guard)


async def _require_refusal(what: str, attempt: Callable[[], Awaitable[object]]) -> None:
    try:
        await attempt()
    except UnitMisused:
        return
    except DBAPIError as error:
        raise _blind(what) from error
    raise _blind(what)


async def _require_single_statements(lane: Lane) -> None:
    """The server must refuse a second statement in a text; past the guard, which would refuse it first."""
    with contextlib.suppress(lane.driver.Error):
        await lane.driver.own(b"DO 1; DO 2")
        raise _blind("a text of two statements")


async def _require_hearing(lane: Lane, guard: Guard) -> None:
    """An error of the dooming kind, and a harmless one to make: there is no such savepoint."""
    with contextlib.suppress(DBAPIError, InboxError):
        await lane.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT guard_proof")
    if guard.doom is None or guard.doom.kind is not Contended:
        raise GuardError(
            "the guard does not hear of the server's errors: use versions of the driver and of PyMySQL that pyproject "
            "names"
        )


async def _by_cursor(lane: Lane, sql: str) -> None:
    driver: Any = lane.driver
    async with driver.cursor() as cursor:
        await cursor.execute(sql)


def _driver_commit(connection: Any) -> None:
    connection.connection.dbapi_connection.commit()


async def _late(lane: Lane) -> None:
    """As a task that was started by a unit which has ended since."""
    lane.driver.guard.token = None
    await asyncio.create_task(_by_cursor(lane, "DO 1"))


def _blind(what: str) -> GuardError:
    return GuardError(
        f"the guard does not see {what}; a handler could commit half of its unit. Use versions of the driver and of "
        "SQLAlchemy that pyproject names"
    )
