"""Which event loop a worker runs on: uvloop where it is installed, or asyncio's own."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

#: Stands for the option of `inbox run`.
LOOP_VARIABLE = "INBOX_LOOP"


class EventLoop(StrEnum):
    """What is asked for."""

    AUTO = "auto"
    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"

    def found(self) -> EventLoop:
        """Which one that is here: never `auto`.

        Raises:
            ConfigurationError: uvloop was asked for and is not installed; names the extra that brings it.
        """
        if self is EventLoop.ASYNCIO:
            return self
        if find_spec("uvloop") is not None:
            return EventLoop.UVLOOP
        if self is EventLoop.UVLOOP:
            raise ConfigurationError("the loop uvloop is not installed: pip install 'idempotent-inbox[uvloop]'")
        return EventLoop.ASYNCIO


def run_on(loop: EventLoop, main: Coroutine[object, object, T]) -> T:
    """As `asyncio.run`, on that loop.

    Args:
        loop: which one; one that `found` has returned.
        main: what to run.

    Raises:
        Exception: whatever `main` raised.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop is EventLoop.UVLOOP:
        factory = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
