"""Who waits for messages in this process: told at once, while other processes look now and then."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["forget", "listen", "tell"]

_Listener = tuple[asyncio.Event, asyncio.AbstractEventLoop]

_lock: Final = Lock()
_listeners: Final[defaultdict[Path, set[_Listener]]] = defaultdict(set)


def listen(path: Path, event: asyncio.Event) -> None:
    """Set `event`, on the running loop, when something was published into the file."""
    with _lock:
        _listeners[path.resolve()].add((event, asyncio.get_running_loop()))


def forget(path: Path, event: asyncio.Event) -> None:
    """Set it no more. May be called twice."""
    with _lock:
        listeners = _listeners.get(path.resolve(), set())
        listeners.difference_update([each for each in listeners if each[0] is event])
        if not listeners:
            _listeners.pop(path.resolve(), None)


def tell(path: Path) -> None:
    """Something was published into the file. From any thread."""
    with _lock:
        listeners = [*_listeners.get(path.resolve(), ())]
    for event, loop in listeners:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)
