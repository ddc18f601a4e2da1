"""The business tables, and the inbox's beside them in the same database."""

from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox import define_tables


class Base(DeclarativeBase):
    """The application's own metadata: its Alembic migrations cover the inbox's tables too."""


INBOX_TABLES = define_tables(Base.metadata)


class Account(Base):
    """What a tenant owes."""

    __tablename__ = "account"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True)
    cents: Mapped[int] = mapped_column(BigInteger)


class Entry(Base):
    """One line of the ledger. Nothing here keeps a job from being entered twice: the inbox does."""

    __tablename__ = "entry"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    tenant: Mapped[str] = mapped_column(ForeignKey("account.tenant"))
    job_id: Mapped[UUID]
    kind: Mapped[str] = mapped_column(String(16))
    cents: Mapped[int] = mapped_column(BigInteger)
