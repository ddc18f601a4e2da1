"""The business tables, and the inbox's beside them in the same database.

python -m examples.billing.models      creates them in BILLING_DATABASE_URL
"""

import asyncio
import re

from sqlalchemy import BigInteger, ForeignKey, String, Uuid
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox import define_tables, env


class Base(DeclarativeBase):
    """The application's own metadata: its Alembic migrations cover the inbox's tables too."""


INBOX_TABLES = define_tables(Base.metadata)


class Account(Base):
    """What a tenant owes."""

    __tablename__ = "account"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True)
    cents: Mapped[int] = mapped_column(BigInteger, default=0)


class Entry(Base):
    """One line of the ledger. Nothing here keeps a job from being entered twice: the inbox does."""

    __tablename__ = "entry"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey("account.tenant"))
    job_id: Mapped[object] = mapped_column(Uuid)
    kind: Mapped[str] = mapped_column(String(16))
    cents: Mapped[int] = mapped_column(BigInteger)


async def create(url: str) -> None:
    """Create every table that is missing."""
    # SQLAlchemy would take `mysql://` for another driver, which is not asynchronous.
    engine = create_async_engine(re.sub(r"^(mysql|mariadb)://", r"\1+aiomysql://", url))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create(env("BILLING_DATABASE_URL")))
