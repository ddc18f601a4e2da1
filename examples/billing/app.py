"""The billing service: `inbox run examples.billing.app:inbox`.

Settings come from the environment: BILLING_DATABASE_URL, BILLING_AMQP_URL and, where they differ from
the defaults, BILLING_EXCHANGE and BILLING_QUEUE.
"""

import uuid
from typing import Any

from sqlalchemy.dialects.mysql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from examples.billing.models import Account, Entry
from inbox import Binding, ConsumerSettings, Event, Inbox, InboxService, MySQL, RabbitMQ, Reject, env, handles

CENTS_PER_JOB = 25
CENTS_PER_THOUSAND_ROWS = 10

COMPLETED = "studio.lerian.job.completed"
FAILED = "studio.lerian.job.failed"


def price(rows: int) -> int:
    """What a job with so many rows costs."""
    return CENTS_PER_JOB + CENTS_PER_THOUSAND_ROWS * (rows // 1000)


class Billing(InboxService):
    """Enters each job into the ledger and onto its tenant's account, in one transaction."""

    @handles(COMPLETED)
    async def charge(self, event: Event, session: AsyncSession) -> None:
        """A finished job is paid for."""
        job = event.json()
        tenant = tenant_of(event)
        cents = price(job["result"].get("rowCount", 0))  # absent means 0
        await session.execute(owes(tenant, cents))
        session.add(Entry(tenant=tenant, job_id=job_id_of(job), kind="completed", cents=cents))

    @handles(FAILED)
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


def job_id_of(job: dict[str, Any]) -> uuid.UUID:
    """The job's id from the body, in either spelling of the contract."""
    return uuid.UUID(job.get("jobId") or job["job_id"])


def make_inbox(database_url: str, amqp_url: str, *, queue: str, exchange: str) -> Inbox:
    """The consumer, for these addresses."""
    bindings = [Binding(exchange, key, declare="topic") for key in ("job.completed", "job.failed")]
    inbox = Inbox(
        "billing",
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, bindings),
        settings=ConsumerSettings(concurrency=8),
    )
    inbox.add_service(Billing())
    return inbox


def inbox() -> Inbox:
    """The consumer that the environment describes."""
    return make_inbox(
        env("BILLING_DATABASE_URL"),
        env("BILLING_AMQP_URL"),
        queue=env("BILLING_QUEUE", "billing"),
        exchange=env("BILLING_EXCHANGE", "fetcher.job.events"),
    )
