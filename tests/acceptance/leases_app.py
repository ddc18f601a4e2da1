"""What the lab kills over leases: a shop in a file whose handlers end in every way, and results that are not safe."""

from pathlib import Path

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inbox import Event, Inbox, MySQL, Reject, SQLite, env
from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport


def transport() -> OrbitTransport:
    """To the platform that the environment names, where nobody may be asked for anything."""
    settings = OrbitSettings(capacity=2, quarantine="rejected")
    return OrbitTransport(
        env("ORBIT_URL"), env("ORBIT_SUBSCRIPTION"), Credential(env("ORBIT_CREDENTIAL")), settings=settings
    )


async def enter(event: Event, session: AsyncSession) -> None:
    entry = {"task": event.subject, "number": event.extensions["sequence"], "source": event.source}
    await session.execute(text("INSERT INTO entry (task, number, source) VALUES (:task, :number, :source)"), entry)


async def reject(event: Event, session: AsyncSession) -> None:
    await enter(event, session)
    raise Reject("never wanted")


async def break_down(event: Event, session: AsyncSession) -> None:
    await enter(event, session)
    raise LookupError("always")


def files() -> Inbox:
    """Safe, and over a file."""
    made = Inbox("shop", store=SQLite(Path(env("SHOP_FILE"))), transport=transport())
    for event_type, function in (("succeeded", enter), ("cancelled", reject), ("failed", break_down)):
        made.handler(f"task.{event_type}")(function)
    return made


async def count_behind_its_back(event: Event, session: AsyncSession) -> None:
    """Unsafe: another engine is another transaction."""
    from orbit_results.models import Report  # type: ignore[import-not-found] # noqa: PLC0415 - of examples, where it runs

    engine = create_async_engine(env("RESULTS_DATABASE_URL"))
    async with engine.begin() as other:
        await other.execute(insert(Report).values(task_id=event.json()["task_id"], pages=event.json()["pages"]))
    await engine.dispose()


def unsafe() -> Inbox:
    """The results of `examples/orbit_results`, but not safe."""
    made = Inbox("orbit-results", store=MySQL(env("RESULTS_DATABASE_URL")), transport=transport())
    made.handler("task.succeeded")(count_behind_its_back)
    return made
