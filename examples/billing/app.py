"""The billing service: `inbox run billing.app:inbox`, from the folder that holds `billing`.

Settings come from the environment: BILLING_DATABASE_URL, BILLING_AMQP_URL and, where they differ from
the defaults, BILLING_EXCHANGE and BILLING_QUEUE.
"""

from typing import Any
from uuid import UUID

from sqlalchemy.dialects.mysql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from inbox import Binding, Event, Inbox, InboxService, MySQL, RabbitMQ, Reject, env, handles

from .models import INBOX_TABLES, Account, Entry


class Billing(InboxService):
    """Enters each job into the ledger and onto its tenant's account, in one transaction."""

    @handles("studio.lerian.job.completed")
    async def charge(self, event: Event, session: AsyncSession) -> None:
        """A finished job is paid for: 25 cents, and 10 for each thousand rows."""
        job = event.json()
        tenant = tenant_of(event)
        cents = 25 + 10 * (job["result"].get("rowCount", 0) // 1000)
        await session.execute(owes(tenant, cents))
        session.add(Entry(tenant=tenant, job_id=job_id_of(job), kind="completed", cents=cents))

    @handles("studio.lerian.job.failed")
    def note(self, event: Event, session: Session) -> None:
        """A failed job costs nothing and is on the record. A plain `def` gets a plain session."""
        tenant = tenant_of(event)
        session.execute(owes(tenant, 0))
        session.add(Entry(tenant=tenant, job_id=job_id_of(event.json()), kind="failed", cents=0))


def owes(tenant: str, cents: int) -> Insert:
    """Adds to what the tenant owes, opening its account with the first job."""
    return insert(Account).values(tenant=tenant, cents=cents).on_duplicate_key_update(cents=Account.cents + cents)


def tenant_of(event: Event) -> str:
    """The tenant an event belongs to.

    Raises:
        Reject: it names none, so nobody can be billed.
    """
    tenant = event.extensions.get("tenantid")
    if not isinstance(tenant, str) or not tenant:
        raise Reject("the event names no tenant")
    return tenant


def job_id_of(job: dict[str, Any]) -> UUID:
    """The job's id from the body, in either spelling of the contract."""
    return UUID(job.get("jobId") or job["job_id"])


def inbox() -> Inbox:
    """The consumer that the environment describes."""
    exchange = env("BILLING_EXCHANGE", "fetcher.job.events")
    bindings = [Binding(exchange, key, declare="topic") for key in ("job.completed", "job.failed")]
    made = Inbox(
        "billing",
        store=MySQL(env("BILLING_DATABASE_URL"), tables=INBOX_TABLES),
        transport=RabbitMQ(env("BILLING_AMQP_URL"), env("BILLING_QUEUE", "billing"), bindings),
    )
    made.add_service(Billing())
    return made
