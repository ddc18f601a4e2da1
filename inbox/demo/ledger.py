"""The business of the demo: accounts, a ledger, and the handlers that keep them. Nothing here knows of duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, insert, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.demo.jobs import COMPLETED, FAILED
from inbox.demo.script import ACCOUNTS
from inbox.errors import Reject
from inbox.service import InboxService, handles

if TYPE_CHECKING:
    from sqlalchemy.sql.dml import Insert

    from inbox.ports import StoreFactory, Transport

__all__ = ["CONSUMER", "SETTINGS", "Bookkeeping", "Ledger", "make_inbox"]

CONSUMER: Final = "demo"

SETTINGS: Final = ConsumerSettings(
    concurrency=4,
    deadline=20,
    shutdown_patience=10,
    report_interval=None,
    # Nothing fails here but for contention, which a second of rest would make the longest part of the demo.
    retry=RetryPolicy(delays=(0.5,), first_delay=0.05, max_delay=1.0),
)

_NAME: Final = String(64)


class Ledger:
    """The tables of the business.

    Args:
        prefix: of their names, where others share the database.

    Attributes:
        account: what each tenant holds.
        entry: one line for each event. Nothing in it keeps an event from being entered twice: the inbox does.
    """

    def __init__(self, prefix: str = "") -> None:
        self.metadata = MetaData()
        self.account = Table(
            f"{prefix}account",
            self.metadata,
            Column("name", _NAME, primary_key=True),
            Column("cents", BigInteger, nullable=False),
        )
        self.entry = Table(
            f"{prefix}entry",
            self.metadata,
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("event_id", String(128), nullable=False),
            Column("account", _NAME, nullable=False),
            Column("kind", String(16), nullable=False),
            Column("cents", BigInteger, nullable=False),
        )

    def opening(self) -> Insert:
        """The statement that opens the accounts, with nothing on them."""
        return insert(self.account).values([{"name": name, "cents": 0} for name in ACCOUNTS])


class Bookkeeping(InboxService):
    """Credits each finished job, and has each failed one on the record."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @handles(COMPLETED)
    async def credit(self, event: Event, session: AsyncSession) -> None:
        """Put the amount that the event names on its tenant's account, and into the ledger."""
        account, cents = _tenant_of(event), event.json()["metadata"]["amountCents"]
        accounts = self._ledger.account
        done = await session.execute(
            update(accounts).where(accounts.c.name == account).values(cents=accounts.c.cents + cents)
        )
        if done.rowcount == 0:  # type: ignore[attr-defined]  # of a CursorResult, which an UPDATE always gives
            raise Reject("the tenant has no account")
        await session.execute(self._entered(event, account, "completed", cents))

    @handles(FAILED)
    def note(self, event: Event, session: Session) -> None:
        """A failed job is worth nothing and is on the record. A plain `def` gets a plain session."""
        session.execute(self._entered(event, _tenant_of(event), "failed", 0))

    def _entered(self, event: Event, account: str, kind: str, cents: int) -> Insert:
        return insert(self._ledger.entry).values(event_id=event.id, account=account, kind=kind, cents=cents)


def _tenant_of(event: Event) -> str:
    return str(event.extensions["tenantid"])


def make_inbox(ledger: Ledger, store: StoreFactory, transport: Transport) -> Inbox:
    """An ordinary Inbox with ordinary handlers."""
    inbox = Inbox(CONSUMER, store=store, transport=transport, settings=SETTINGS)
    inbox.add_service(Bookkeeping(ledger))
    return inbox
