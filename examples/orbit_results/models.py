"""The business tables, and the inbox's beside them in the same database.

python -m orbit_results.models      creates them in RESULTS_DATABASE_URL
"""

import asyncio

from sqlalchemy import BigInteger, String, Text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox import define_tables, env


class Base(DeclarativeBase):
    """The application's own metadata."""


INBOX_TABLES = define_tables(Base.metadata)


class Report(Base):
    """A task that succeeded. Nothing here keeps it from being counted twice: the inbox does."""

    __tablename__ = "report"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    task_id: Mapped[str] = mapped_column(String(32))
    pages: Mapped[int] = mapped_column(BigInteger)


class Total(Base):
    """The pages of all reports."""

    __tablename__ = "total"

    unit: Mapped[str] = mapped_column(String(16), primary_key=True)
    amount: Mapped[int] = mapped_column(BigInteger)


class Failure(Base):
    """A task that came to nothing."""

    __tablename__ = "failure"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    task_id: Mapped[str] = mapped_column(String(32))
    why: Mapped[str] = mapped_column(Text)


class Review(Base):
    """A task that a person has to look at."""

    __tablename__ = "review"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    task_id: Mapped[str] = mapped_column(String(32))
    question: Mapped[str] = mapped_column(Text)
    is_open: Mapped[bool] = mapped_column(default=True)


async def create(url: str) -> None:
    """Create every table that is missing."""
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create(env("RESULTS_DATABASE_URL")))
