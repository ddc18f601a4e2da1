"""The two tables as SQLAlchemy knows them, for the consumers that use it; and the statement that is the effect."""

from __future__ import annotations

from sqlalchemy import LargeBinary, bindparam, insert, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.consumers.contract import UPDATE_ALL


class Base(DeclarativeBase):
    """The application's metadata."""


class Account(Base):
    """Where the effects are."""

    __tablename__ = "bench_account"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    balance: Mapped[int] = mapped_column(default=0)


class Seen(Base):
    """A row of the inbox, as far as a consumer by hand fills it."""

    __tablename__ = "inbox"

    consumer_name: Mapped[bytes] = mapped_column(LargeBinary(128), primary_key=True)
    event_id: Mapped[bytes] = mapped_column(LargeBinary(512), primary_key=True)


#: Takes `name` and `key`.
CLAIM = insert(Seen.__table__).values(consumer_name=bindparam("name"), event_id=bindparam("key"))  # type: ignore[arg-type]  # a table it is
#: Takes an order: `account` and `amount`.
CREDIT = (
    update(Account.__table__)  # type: ignore[arg-type]  # a table it is
    .where(Account.__table__.c.id == bindparam("account"))
    .values(balance=Account.__table__.c.balance + bindparam("amount"))
)
#: Takes `gains`, the pairs of account and sum as JSON.
CREDIT_ALL = text(UPDATE_ALL % ":gains")
