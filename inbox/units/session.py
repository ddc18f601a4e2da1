"""The session a handler gets: SQLAlchemy's, narrowed only in what ends a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

from inbox.units.guard import ROLLED_BACK, Guard

_FLUSH_FAILED: Final = "a flush failed outside of begin_nested(), and SQLAlchemy rolled back: wrap it in begin_nested()"
_BLOCK_FAILED: Final = "swallowed an exception that left its begin() block: use begin_nested() for a part that may fail"
_CLOSED: Final = "used its session after closing it"
_CLOSED_EARLY: Final = "closed its session with changes that were not flushed: flush() or commit() first"
_RESET: Final = "reset its session, which would drop the unit's work: raise an exception to undo"


class UnitSession(Session):
    """A session inside a unit of work. The unit commits when the handler returns, and undoes when it raises.

    `commit()` flushes. `begin()` is a block that flushes at its end. `begin_nested()` is a real savepoint.
    `rollback()`, `close()` followed by more work, and a flush that fails outside of `begin_nested()` doom the unit: it
    is undone, whatever the handler returns. SQLAlchemy's `after_commit` events of the session do not fire: nothing is
    committed while the handler runs.

    Args:
        bind: the unit's connection, in its transaction.
        guard: the connection's doorkeeper.
        settings: of SQLAlchemy's session.
    """

    def __init__(self, bind: Connection | None = None, *, guard: Guard, **settings: Any) -> None:
        # The transaction is the unit's: the session may give it up, and never commits it (SQLAlchemy manual,
        # "Joining a Session into an External Transaction").
        super().__init__(bind, join_transaction_mode="rollback_only", **settings)
        self._guard = guard
        self._is_closed = False
        self._is_over = False

    # -------------------------------------------------------------- the unit's half
    @property
    def has_leftovers(self) -> bool:
        """Whether `finish` has anything to do."""
        return self.has_changes or self.in_nested_transaction()

    @property
    def has_changes(self) -> bool:
        """Whether a flush might write something."""
        return bool(self.new or self.dirty or self.deleted)

    def finish(self) -> None:
        """Release the savepoints the handler left open, and flush.

        Raises:
            Exception: of the flush; it has doomed the unit.
        """
        nested = self.get_nested_transaction()
        while nested is not None:
            nested.commit()
            nested = self.get_nested_transaction()
        self.flush()

    def end(self) -> None:
        """The unit is over: forget everything. Sends nothing, provided that no savepoint of its own is open."""
        self._is_over = True
        super().close()

    # -------------------------------------------------------------- the handler's half
    def commit(self) -> None:
        """Flush. The unit is committed as a whole when the handler has returned."""
        self.flush()

    def rollback(self) -> None:
        """Doom the unit: it will be undone as a whole."""
        self._guard.misuse(ROLLED_BACK, mild=True)
        super().rollback()

    def begin(self, nested: bool = False) -> Any:
        """A block that flushes at its end; with `nested`, a savepoint."""
        return super().begin(nested=True) if nested else FlushingBlock(self)

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        """As SQLAlchemy's; outside of `begin_nested()` a failure dooms the unit, for SQLAlchemy rolls back."""
        if not self.in_nested_transaction():
            self._guard.rollback_means = _FLUSH_FAILED
        try:
            super().flush(objects)
        finally:
            self._guard.rollback_means = ROLLED_BACK

    def close(self) -> None:
        """End the session. What was flushed stays part of the unit; more work dooms it."""
        if not self._is_over:
            if self.has_leftovers:
                self._guard.misuse(_CLOSED_EARLY, mild=True)
            self._is_closed = True
        super().close()

    def reset(self) -> None:
        """Doom the unit: what SQLAlchemy calls a reset drops its work."""
        self._guard.misuse(_RESET, mild=True)
        super().close()

    def get_bind(self, *args: Any, **arguments: Any) -> Engine | Connection:
        """As SQLAlchemy's. All work of a session asks here first, so that work after `close()` is seen.

        Raises:
            UnitMisused: the session was closed, or its unit is over.
        """
        if self._is_closed or self._is_over:
            self._guard.refuse(_CLOSED)
        return super().get_bind(*args, **arguments)


class FlushingBlock:
    """What `begin()` gives: it looks like SQLAlchemy's transaction and ends none.

    Args:
        session: whose.
    """

    nested = False

    def __init__(self, session: UnitSession) -> None:
        self.session = session
        self.is_active = True

    def commit(self) -> None:
        """Flush."""
        self.is_active = False
        self.session.flush()

    def rollback(self) -> None:
        """Doom the unit."""
        self.is_active = False
        self.session.rollback()

    def close(self) -> None:
        """Doom the unit, unless the block was left in order."""
        if self.is_active:
            self.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            if self.is_active:
                self.commit()
            return
        self.session._guard.misuse(_BLOCK_FAILED, mild=True)  # noqa: SLF001 - the same concept in two classes
        self.rollback()
