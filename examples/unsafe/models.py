"""The tables of a shop, and the inbox's beside them."""

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inbox import define_tables


class Base(DeclarativeBase):
    """The shop's own metadata."""


INBOX_TABLES = define_tables(Base.metadata)


class Invoice(Base):
    """What a customer has to pay."""

    __tablename__ = "invoice"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer: Mapped[str] = mapped_column(String(64))
    cents: Mapped[int]


class Letter(Base):
    """An order to tell a customer; whoever sends letters reads it, and sends each once for its id."""

    __tablename__ = "letter"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    invoice: Mapped[int] = mapped_column(ForeignKey("invoice.id"))
    customer: Mapped[str] = mapped_column(String(64))
