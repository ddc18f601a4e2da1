"""The service: `inbox run orbit_results.app:inbox`, from the folder that holds `orbit_results`.

Settings come from the environment: RESULTS_DATABASE_URL, ORBIT_URL, ORBIT_SUBSCRIPTION and ORBIT_CREDENTIAL.
"""

from dataclasses import dataclass

from sqlalchemy.dialects.mysql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inbox import ConsumerSettings, Inbox, MySQL, env
from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport

from .models import INBOX_TABLES, Failure, Report, Review, Total

inbox = Inbox(
    "orbit-results",
    store=MySQL(env("RESULTS_DATABASE_URL"), tables=INBOX_TABLES),
    transport=OrbitTransport(
        env("ORBIT_URL"), env("ORBIT_SUBSCRIPTION"), Credential(env("ORBIT_CREDENTIAL")), OrbitSettings.from_env()
    ),
    settings=ConsumerSettings.from_env(),
)


@dataclass(frozen=True)
class Succeeded:
    """What is read of a snapshot; other members of it are left alone."""

    task_id: str
    pages: int


@dataclass(frozen=True)
class Unsuccessful:
    """The same of a task that failed or was cancelled."""

    task_id: str
    status: str
    error: str = ""


@dataclass(frozen=True)
class NeedsReview:
    """The same of one that a person has to look at."""

    task_id: str
    question: str


@inbox.handler("task.succeeded")
async def count(task: Succeeded, session: AsyncSession) -> None:
    """Keep the report, and add its pages to those of all."""
    session.add(Report(task_id=task.task_id, pages=task.pages))
    pages = insert(Total).values(unit="pages", amount=task.pages)
    await session.execute(pages.on_duplicate_key_update(amount=Total.amount + task.pages))


@inbox.handler("task.failed", "task.cancelled")
async def note(task: Unsuccessful, session: AsyncSession) -> None:
    """It is over, and came to nothing."""
    session.add(Failure(task_id=task.task_id, why=task.error or task.status))


@inbox.handler("task.needs_review")
async def ask(task: NeedsReview, session: AsyncSession) -> None:
    """Neither success nor failure: a person decides."""
    session.add(Review(task_id=task.task_id, question=task.question))
