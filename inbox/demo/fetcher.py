"""The demo's business as a consumer of Fetcher's: with signatures, typed jobs, and both generations of types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from inbox.app import Inbox
from inbox.demo.ledger import CONSUMER, SETTINGS, Ledger
from inbox.errors import Reject
from inbox.fetcher import FetcherVerifier, JobCompleted, JobFailed, job_event_settings
from inbox.service import InboxService, handles

if TYPE_CHECKING:
    from sqlalchemy.sql.dml import Insert

    from inbox.ports import StoreFactory, Transport

__all__ = ["JobBookkeeping", "make_fetcher_inbox"]


class JobBookkeeping(InboxService):
    """Credits each finished job, and has each failed one on the record."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @handles(*JobCompleted.TYPES)
    async def credit(self, job: JobCompleted, session: AsyncSession) -> None:
        """Put the amount that the requester asked for on the tenant's account, and into the ledger."""
        accounts, cents = self._ledger.account, job.metadata["amountCents"]
        done = await session.execute(
            update(accounts).where(accounts.c.name == job.tenant).values(cents=accounts.c.cents + cents)
        )
        if done.rowcount == 0:  # type: ignore[attr-defined]  # of a CursorResult, which an UPDATE always gives
            raise Reject("the tenant has no account")
        await session.execute(self._entered(job, "completed", cents))

    @handles(*JobFailed.TYPES)
    def note(self, job: JobFailed, session: Session) -> None:
        """A failed job is worth nothing and is on the record."""
        session.execute(self._entered(job, "failed", 0))

    def _entered(self, job: JobCompleted | JobFailed, kind: str, cents: int) -> Insert:
        return insert(self._ledger.entry).values(event_id=job.event_id, account=job.tenant, kind=kind, cents=cents)


def make_fetcher_inbox(
    ledger: Ledger, store: StoreFactory, transport: Transport, *, key: bytes, exchange: str
) -> Inbox:
    """An Inbox that believes nobody without a signature.

    Args:
        ledger: the tables of the business.
        store: the database.
        transport: the queue.
        key: the external HMAC key.
        exchange: where the events are published; it is part of what is signed.
    """
    verifier = FetcherVerifier([key], exchange=exchange)
    settings = job_event_settings(SETTINGS)
    inbox = Inbox(CONSUMER, store=store, transport=transport, settings=settings, verifier=verifier)
    inbox.add_service(JobBookkeeping(ledger))
    return inbox
