"""The Fetcher example as the application that is killed: its own handlers, its verifier, and stored results.

What a job's requester sent along says what happens to its handler the first time, so that every command is led through.
"""

from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from examples.fetcher_billing.app import Billing, make_inbox
from inbox import Event, Inbox, InboxService, Reject, handles
from inbox.fetcher import DirectoryObjects, FetcherKeys, JobCompleted, JobFailed, Result, ResultReader
from tests.crash import app


class Faults(InboxService):
    """The example's service, and a fault after its work where a job asks for one."""

    def __init__(self, url: str) -> None:
        self._billing = Billing()
        self._faults = app.Ledger(url)

    async def charge(self, job: JobCompleted, event: Event, session: AsyncSession, result: Result) -> None:
        assert sum(1 for _ in result.rows()) == job.result.row_count
        await self._billing.charge(job, session)
        match job.metadata.get("fault"):
            case "flaky" if self._faults.is_first_run(event):
                raise LookupError("the first time always fails")
            case "reject":
                raise Reject("never wanted")
            case "lose_connection" if self._faults.is_first_run(event):
                await self._cut(session, notice=True)
            case "lose_often" if self._faults.count_run(event) <= app.CUTS:
                await self._cut(session, notice=True)
            case "lose_commit" if self._faults.is_first_run(event):
                await self._cut(session, notice=False)

    @handles(*JobFailed.TYPES)
    async def remember(self, job: JobFailed, session: AsyncSession) -> None:
        await session.run_sync(lambda plain: self._billing.remember(job, plain))

    async def _cut(self, session: AsyncSession, *, notice: bool) -> None:
        await session.flush()
        self._faults.cut((await session.execute(text("SELECT CONNECTION_ID()"))).scalar_one())
        if notice:
            await session.execute(text("SELECT 1"))


def make(*where: str) -> Inbox:
    """By database, broker, queue, exchange, the one key of events and results in hex, and the folder of these."""
    database_url, amqp_url, queue, exchange, key, folder = where
    faults = Faults(database_url)
    inbox = make_inbox(
        faults,
        database_url=database_url,
        amqp_url=amqp_url,
        queue=queue,
        exchange=exchange,
        keys=FetcherKeys(key),
        settings=app.SETTINGS,
    )
    reader = ResultReader(DirectoryObjects(Path(folder)), keys=key, storage_keys=key)
    inbox.handler(*JobCompleted.TYPES, prepare=reader.prepare)(faults.charge)
    return inbox
