"""An event loop in a thread of its own, for what is asynchronous below a face that is not."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines and waits for them, wherever the caller stands: also inside another event loop.

    So the laboratory needs no plugin for asyncio, and disturbs none. A caller's own loop is blocked meanwhile.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="inbox lab", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 60.0) -> T:
        """Run `work` to its end.

        Args:
            work: what to run.
            timeout: seconds it may take.

        Raises:
            TimeoutError: it took longer, and was cancelled.
            Exception: whatever `work` raised.
        """

        async def bounded() -> T:
            async with asyncio.timeout(timeout):
                return await work

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    def close(self) -> None:
        """End the thread. May be called twice."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
