"""The billing service: `inbox run examples.fetcher_billing.app:inbox`.

Settings come from the environment: BILLING_DATABASE_URL, BILLING_AMQP_URL, FETCHER_EXTERNAL_HMAC_KEY and, where they
differ from the defaults, BILLING_EXCHANGE, BILLING_QUEUE and BILLING_TENANT.
"""

from datetime import UTC

from sqlalchemy.dialects.mysql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from inbox import Binding, ConsumerSettings, Inbox, InboxService, MySQL, RabbitMQ, Reject, env, handles
from inbox.fetcher import FetcherKeys, FetcherVerifier, JobCompleted, JobFailed, job_event_settings

from .models import INBOX_TABLES, Account, Charge, Failure


def price(rows: int) -> int:
    """What a job with so many rows costs, in cents: 25, and 10 for each thousand."""
    return 25 + 10 * (rows // 1000)


class Billing(InboxService):
    """Enters each job into the books of its tenant."""

    @handles(*JobCompleted.TYPES)
    async def charge(self, job: JobCompleted, session: AsyncSession) -> None:
        """A job is paid for by the rows that it brought."""
        tenant, cents = tenant_of(job), price(job.result.row_count)
        owes = insert(Account).values(tenant=tenant, cents=cents)
        await session.execute(owes.on_duplicate_key_update(cents=Account.cents + cents))
        # The column has no zone, and the Worker writes its own.
        moment = job.completed_at.astimezone(UTC).replace(tzinfo=None)
        session.add(
            Charge(tenant=tenant, job_id=job.job_id, row_count=job.result.row_count, cents=cents, completed_at=moment)
        )

    @handles(*JobFailed.TYPES)
    def remember(self, job: JobFailed, session: Session) -> None:
        """A failed job costs nothing. A plain `def` gets a plain session."""
        session.add(Failure(tenant=tenant_of(job), job_id=job.job_id, message=job.error))


def tenant_of(job: JobCompleted | JobFailed) -> str:
    """Whom the job belongs to.

    Raises:
        Reject: it names nobody, so nobody can be billed.
    """
    if not job.tenant:
        raise Reject("the event names no tenant")
    return job.tenant


def make_inbox(
    service: InboxService,
    *,
    database_url: str,
    amqp_url: str,
    queue: str,
    exchange: str,
    keys: FetcherKeys,
    tenant: str | None = None,
    settings: ConsumerSettings | None = None,
) -> Inbox:
    """The consumer of one queue.

    The queue and its bindings are this service's own. The exchange is Fetcher's: it must be there, and is not declared.
    """
    made = Inbox(
        "fetcher-billing",
        store=MySQL(database_url, tables=INBOX_TABLES),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "job.completed"), Binding(exchange, "job.failed")]),
        settings=job_event_settings(settings),
        verifier=FetcherVerifier(keys, exchange=exchange, tenant=tenant),
    )
    made.add_service(service)
    return made


def inbox() -> Inbox:
    """The consumer that the environment describes."""
    return make_inbox(
        Billing(),
        database_url=env("BILLING_DATABASE_URL"),
        amqp_url=env("BILLING_AMQP_URL"),
        queue=env("BILLING_QUEUE", "fetcher-billing"),
        exchange=env("BILLING_EXCHANGE", "fetcher.job.events"),
        keys=FetcherKeys.from_env(),
        tenant=env("BILLING_TENANT", "") or None,
        settings=ConsumerSettings.from_env(),
    )
