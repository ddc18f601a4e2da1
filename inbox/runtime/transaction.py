"""One unit of work for people who already have a consumer: `async with inbox.transaction(event)`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from inbox.core.records import Claim, Resolution
from inbox.errors import (
    AlreadyProcessed,
    CommitUnknown,
    CommitUnresolved,
    IdentityConflict,
    NotApplied,
    StoreError,
    Torn,
    TryAgain,
)
from inbox.units.verdict import to_its_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncSession

    from inbox.core.event import Event
    from inbox.ports import Store, UnitOfWork


@asynccontextmanager
async def transaction(store: Store, event: Event, deadline: float) -> AsyncIterator[AsyncSession]:
    """Claim `event`, run the block on its session, commit. The block cannot be run again from here.

    Args:
        store: an open store.
        event: a verified event.
        deadline: seconds that a connection and the claim may take together; who holds one transaction and waits in it
            for another could wait for ever.

    Yields:
        The session of the transaction that holds the claim.

    Raises:
        AlreadyProcessed: before the block: the event was applied; acknowledge it.
        IdentityConflict: before the block: its id is known with other content.
        TryAgain: contention or a lost connection; everything was undone.
        NotApplied: the connection was lost in COMMIT, and the commit did not take place.
        CommitUnresolved: the connection was lost in COMMIT, and nobody can say yet.
        Torn: a stored procedure ended the transaction from inside (only with `allow_call`): what it committed stays.
        UnitMisused: the block did what would have split the unit; everything was undone.
        Exception: whatever the block raised; everything was undone.
    """
    try:
        async with asyncio.timeout(deadline):
            unit = await _claimed(store, event)
    except TimeoutError as error:
        raise TryAgain("the database did not answer in time, or every connection is in use") from error
    is_over = False
    try:
        async with unit.session() as session:
            yield session
        is_over = True  # whatever becomes of it: a unit cannot be rolled back after COMMIT
        # In a task of its own: what is under way here may be cancelled whenever its owner likes.
        await to_its_end(unit.commit())
    except CommitUnknown as error:
        await _resolved(store, event, unit, error)
    except Torn:
        raise
    except StoreError as error:
        raise TryAgain("the unit was undone") from error
    finally:
        if not is_over:
            await unit.rollback()


async def _claimed(store: Store, event: Event) -> UnitOfWork:
    try:
        unit = await store.begin()
    except StoreError as error:
        raise TryAgain("no connection to the database") from error
    try:
        claim = await unit.claim(event.record)
    except BaseException as error:
        await unit.rollback()
        if isinstance(error, StoreError):
            raise TryAgain("the claim was lost to contention") from error
        raise
    if claim is Claim.DUPLICATE:
        raise AlreadyProcessed("the event was applied before")
    if claim is Claim.CONFLICT:
        raise IdentityConflict("the id is known with other content")
    return unit


async def _resolved(store: Store, event: Event, unit: UnitOfWork, error: CommitUnknown) -> None:
    resolution = await store.resolve(event.record, unit)
    if resolution is Resolution.ABSENT:
        raise NotApplied("the commit did not take place") from error
    if resolution is Resolution.UNRESOLVED:
        raise CommitUnresolved("nobody can say yet whether the commit took place") from error
