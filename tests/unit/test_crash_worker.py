"""What a kill test is told when nobody dies."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from inbox import Inbox
from inbox.core.crashpoints import CrashPoint
from inbox.testing.crash import CrashWorker, PointNotReachedError


class Idle:
    """Stands for an `Inbox` to which nothing comes."""

    def __init__(self, *, ends: bool) -> None:
        self._stopped = asyncio.Event()
        if ends:
            self.stop()

    def add_probe(self, probe: object) -> None:
        """It passes no point."""

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, started: Callable[[], None]) -> None:
        started()
        await self._stopped.wait()


def make(ends: bool) -> Inbox:
    return cast("Inbox", Idle(ends=ends))


@pytest.mark.parametrize(
    ("ends", "patience", "said"),
    [
        (True, 30.0, "ended with exit code 0"),
        (False, 0.1, "was still alive after 0.1 s: either no event came, or its handler failed"),
    ],
)
def test_whoever_did_not_die_is_told_of_with_the_point_and_where_to_look(
    ends: bool, patience: float, said: str
) -> None:
    worker = CrashWorker(make, (ends,), crash=CrashPoint.parse("after:commit"))
    worker.start()
    worker.wait_ready()
    with pytest.raises(PointNotReachedError, match="did not reach after:commit") as raised:
        worker.wait_killed(patience)
    assert said in str(raised.value)
    assert "INBOX_TEST_LOG" in str(raised.value)
    assert worker.stop() == 0
