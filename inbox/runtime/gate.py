"""Which handlers may run at the same time: all beside each other, or one alone.

An event beside which a process died may have been the cause, or only its neighbour. Run alone it shows which: if the
process dies again, nothing else can have done it.
"""

from __future__ import annotations

import asyncio


class RunGate:
    """Lets runs through, side by side, or one while there is no other. Whoever wants to be alone goes first.

    Args:
        patience: seconds that the runs under way are waited for by one that wants to be alone.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._inside = 0
        self._wanting = 0  # to be alone, or alone
        self._turn = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def enter(self) -> None:
        """Go in beside others; waits only while one is alone, or is waiting for that."""
        while self._wanting:
            await self._open.wait()
        self._go_in()

    async def enter_alone(self) -> bool:
        """Go in when nobody else is there, and keep others out until `leave_alone`.

        Returns:
            False, and not inside, where a run did not come out within the patience: its handler is stuck.
        """
        self._wanting += 1
        self._open.clear()
        is_inside = False
        try:
            await self._turn.acquire()
            try:
                async with asyncio.timeout(self._patience):
                    await self._quiet.wait()
                is_inside = True
            except TimeoutError:
                return False
            finally:
                if not is_inside:
                    self._turn.release()
        finally:
            if not is_inside:
                self._want_no_more()
        self._go_in()
        return True

    def leave(self) -> None:
        """Come out. Exactly once for each time inside."""
        self._inside -= 1
        if not self._inside:
            self._quiet.set()

    def leave_alone(self) -> None:
        """Come out after `enter_alone`, and let others in."""
        self.let_others_in()
        self.leave()

    def let_others_in(self) -> None:
        """Stay inside, and be alone no more: afterwards one comes out by `leave`."""
        self._turn.release()
        self._want_no_more()

    def _go_in(self) -> None:
        self._inside += 1
        self._quiet.clear()

    def _want_no_more(self) -> None:
        self._wanting -= 1
        if not self._wanting:
            self._open.set()
