"""The doorkeeper of one driver connection: for whom it is open, and whether its unit can still be committed.

Databases end or split transactions in ways that a handler does not notice. A unit is therefore protected in two ways:
what would split it is refused before it is sent, and what has already broken it dooms it, whether or not the handler
swallows what it was told. Which commands and errors these are, each adapter knows of its driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

from inbox.errors import Contended, DeadlineExceeded, InboxError, StoreUnavailable, UnitMisused


class Door(Enum):
    """Whom a connection lets through."""

    #: Everybody: connections that run no units.
    OPEN = "open"
    #: A running unit, within the rules; between units nobody.
    KEPT = "kept"
    #: Nobody any more: the connection is being thrown away.
    SHUT = "shut"


@dataclass(eq=False, slots=True)
class UnitToken:
    """Carried, in a context variable, by the task that runs a handler and by every task started from it.

    Attributes:
        guard: the doorkeeper of the unit's connection.
        handler: name of the handler.
    """

    guard: Guard
    handler: str

    @property
    def is_live(self) -> bool:
        """Whether its unit is still running."""
        return self.guard.token is self


UNIT: ContextVar[UnitToken | None] = ContextVar("inbox_unit", default=None)


@contextmanager
def outside_units() -> Iterator[None]:
    """Run the framework's own work as nobody's unit, also where a handler's context leads to it."""
    before = UNIT.set(None)
    try:
        yield
    finally:
        UNIT.reset(before)


@dataclass(frozen=True, slots=True)
class Doom:
    """Why a unit can only be undone.

    Attributes:
        kind: the framework's error for it.
        what: one sentence for people, without values.
        code: the server's error number, or 0.
        cause: the driver's error.
        mild: the handler asked for it (`rollback()`), so that the exception it leaves with says more.
    """

    kind: type[Contended | StoreUnavailable | DeadlineExceeded | UnitMisused]
    what: str
    code: int = 0
    cause: BaseException | None = None
    mild: bool = False

    def error(self, handler: str | None) -> InboxError:
        """A fresh error; the driver's is its cause."""
        made: InboxError
        if issubclass(self.kind, UnitMisused):
            made = self.kind(self.what, handler=handler)
        elif issubclass(self.kind, DeadlineExceeded):
            made = self.kind(f"handler {handler}: {self.what}")
        else:
            made = self.kind(self.what, code=self.code or None)
        made.__cause__ = self.cause
        return made


ROLLED_BACK: Final = "called rollback(): raise an exception to undo, begin_nested() for a part"


class Guard:
    """State of one connection's guard. Told of what happens on it; sends nothing itself.

    Attributes:
        door: whom it lets through.
        token: of the running unit; None between units.
        doom: why the unit can only be undone; None while it can be committed.
        tripped: the connection's state is in doubt: a command was refused, or it was closed.
        traces: the unit may have left something on the session.
    """

    __slots__ = ("doom", "door", "rollback_means", "token", "traces", "tripped")

    def __init__(self) -> None:
        self.door = Door.OPEN
        self.token: UnitToken | None = None
        self.doom: Doom | None = None
        self.tripped = False
        self.traces = False
        #: What a rollback by SQLAlchemy is to be called, where the session knows better.
        self.rollback_means = ROLLED_BACK

    # -------------------------------------------------------------- the unit
    def start(self, handler: str) -> UnitToken:
        """Let one unit through, until `stop`. Whoever carries the returned token in `UNIT` is that unit."""
        self.doom = None
        self.tripped = self.traces = False
        self.rollback_means = ROLLED_BACK
        self.token = UnitToken(self, handler)
        return self.token

    def stop(self) -> None:
        """Let nobody through; the verdict stays until the next `start`."""
        self.token = None

    @property
    def leaves_nothing(self) -> bool:
        """Whether the session is as it was before the unit, as far as can be seen from its statements."""
        return not self.tripped and not self.traces

    # -------------------------------------------------------------- asked before
    def admit_close(self, *, by_driver: bool) -> None:
        """Somebody closes the connection.

        Args:
            by_driver: the driver itself does, in the course of a command whose error is yet to come.

        Raises:
            UnitMisused: a task that outlived its handler wanted to.
        """
        if self.door is not Door.KEPT or by_driver:
            return
        if UNIT.get() is not None:
            self.known()
        if self.token is not None:
            self.tripped = True
            self.undo("closed or invalidated the unit's connection")

    # -------------------------------------------------------------- told after
    def note_rollback(self) -> None:
        """SQLAlchemy or the handler rolls back. Nothing is sent: the unit is undone when the handler is out.

        Raises:
            UnitMisused: a task that outlived its handler did.
        """
        if UNIT.get() is not None and self.door is not Door.SHUT:
            self.known()
        if self.token is not None:
            self.undo(self.rollback_means, mild=True)

    def misuse(self, what: str, *, mild: bool = False) -> None:
        """The handler did, through its session, what can only be undone.

        Args:
            what: what it did and what to do instead.
            mild: it asked for being undone, so that the exception it leaves with says more.

        Raises:
            UnitMisused: the caller is no part of the running unit, which is left alone.
        """
        self.known()
        self.undo(what, mild=mild)

    def refuse(self, what: str) -> NoReturn:
        """The handler wants, through its session, what cannot be let happen.

        Raises:
            UnitMisused: always; the unit is doomed, if the caller is part of it.
        """
        self.known()
        self.trip(what)

    def undo(self, what: str, *, mild: bool = False) -> None:
        """Doom the running unit. The first reason stays, unless it was a mild one."""
        if self.doom is None or (self.doom.mild and not mild):
            self.doom = Doom(UnitMisused, what, mild=mild)

    def trip(self, what: str) -> NoReturn:
        """Doom the running unit and its connection.

        Raises:
            UnitMisused: always.
        """
        self.tripped = True
        if self.doom is None or self.doom.mild:
            self.doom = Doom(UnitMisused, what)
        raise UnitMisused(what, handler=self.token.handler if self.token else None)

    def known(self) -> UnitToken:
        """The running unit's token, if the caller carries it.

        Raises:
            UnitMisused: it does not. A caller with an old token is a task that outlived its handler, and the unit that
                runs now has nothing to do with it. A caller with another running unit's token dooms that one: its
                statement is missing there. One without a token may well work for this unit, so this one is doomed.
        """
        caller = UNIT.get()
        if caller is not None and caller is self.token:
            return caller
        if caller is None:
            what = "a statement came from outside the handler's tasks: only they may use the unit"
            if self.token is not None:
                self.trip(what)
            raise UnitMisused(what)
        if caller.is_live:
            caller.guard.trip("used the connection of another unit")
        raise UnitMisused(
            "a task that outlived its handler used the unit's connection: await it in the handler",
            handler=caller.handler,
        )
