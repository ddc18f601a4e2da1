"""How a unit ends: what is to be said of a handler that has returned or raised, and work that is not cut short."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy.exc import InvalidRequestError

from inbox.errors import UnitMisused

if TYPE_CHECKING:
    from inbox.units.guard import Doom, Guard


class Stage(Enum):
    """How far a unit is."""

    BEGUN = "begun"
    CLAIMED = "claimed"
    FAILED = "failed"
    APPLIED = "applied"
    OVER = "over"


def judge_return(guard: Guard, handler: str, *, cancelled: bool) -> None:
    """The handler returned: whether it may be committed."""
    if guard.doom is not None:
        raise guard.doom.error(handler)
    if cancelled:
        raise UnitMisused("swallowed its cancellation: let asyncio.CancelledError pass", handler=handler)


def judge_exception(guard: Guard, handler: str, error: BaseException, *, cancelled: bool) -> NoReturn:
    """The handler raised: what is to be said about it.

    A cancellation goes on as it is. What the server did to the unit counts more than what the handler made of it, and
    so does a command that was refused. Otherwise the handler's own exception says most.
    """
    if not isinstance(error, Exception | asyncio.CancelledError) or (
        isinstance(error, asyncio.CancelledError) and cancelled
    ):
        raise error
    doom = guard.doom
    if doom is not None and not _says_more(error, doom):
        raise doom.error(handler) from error
    if isinstance(error, asyncio.CancelledError):
        raise UnitMisused("raised CancelledError, though nobody cancelled it", handler=handler) from error
    raise error


def _says_more(error: BaseException, doom: Doom) -> bool:
    """Whether the exception a handler left with tells more than the reason for which its unit is doomed."""
    if isinstance(error, UnitMisused):
        return doom.kind is UnitMisused
    # What SQLAlchemy says about a transaction or connection that is over is a consequence.
    return doom.mild and not isinstance(error, InvalidRequestError)


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Let `work` end whatever happens to the caller; a cancellation goes on afterwards."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        # As `asyncio.wait` for one task, at two thirds of its price: this is done once for each event.
        waiter: asyncio.Future[None] = loop.create_future()
        wake = functools.partial(_wake, waiter)
        task.add_done_callback(wake)
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancellation = error
            task.remove_done_callback(wake)
    if cancellation is not None:
        raise cancellation from (None if task.cancelled() else task.exception())
    task.result()


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)
