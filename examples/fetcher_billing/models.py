"""The business tables, and the inbox's beside them in the same database.

python -m examples.fetcher_billing.models      creates them in BILLING_DATABASE_URL
"""

import asyncio
from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox import define_tables, env


class Base(DeclarativeBase):
    """The application's own metadata."""


INBOX_TABLES = define_tables(Base.metadata)


class Account(Base):
    """What a tenant owes."""

    __tablename__ = "account"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True)
    cents: Mapped[int] = mapped_column(BigInteger)


class Charge(Base):
    """A job that was paid for. Nothing here keeps it from being paid for twice: the inbox does."""

    __tablename__ = "charge"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey("account.tenant"))
    job_id: Mapped[UUID]
    row_count: Mapped[int] = mapped_column(BigInteger)
    cents: Mapped[int] = mapped_column(BigInteger)
    completed_at: Mapped[datetime]


class Failure(Base):
    """A job that failed, for the people who look after it."""

    __tablename__ = "failure"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[UUID]
    message: Mapped[str | None] = mapped_column(Text)


async def create(url: str) -> None:
    """Create every table that is missing."""
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create(env("BILLING_DATABASE_URL")))
