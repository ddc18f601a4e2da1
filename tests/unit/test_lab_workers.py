"""Which process dies, and what is said of one that does not start."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inbox import ConfigurationError, Inbox
from inbox.core.crashpoints import CrashPoint
from inbox.core.lifecycle import Command, Outcome
from inbox.testing.crash import CrashProbe, CrashWorker, WorkerStartError


def passage(event_type: str | None) -> Any:
    return SimpleNamespace(event=None if event_type is None else SimpleNamespace(type=event_type))


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: made.append((pid, number)))
    return made


def probe(told: list[str], **options: Any) -> CrashProbe:
    return CrashProbe(CrashPoint.parse("before:commit"), 1, told.append, **options)


def test_only_an_event_of_that_type_kills(kills: list[tuple[int, int]]) -> None:
    told: list[str] = []
    one = probe(told, event_type="paid")
    for event_type in (None, "other"):
        one.before(Command.COMMIT, passage(event_type))
    one.after(Command.COMMIT, Outcome.DONE, passage("paid"))
    assert (told, kills) == ([], [])
    one.before(Command.COMMIT, passage("paid"))
    one.before(Command.COMMIT, passage("paid"))
    assert (told, kills) == (["before:commit"], [(os.getpid(), signal.SIGKILL)])


def test_of_several_with_one_mark_the_first_dies(kills: list[tuple[int, int]], tmp_path: Path) -> None:
    told: list[str] = []
    racing = [probe(told, mark=str(tmp_path / "killed")) for _ in range(3)]
    for each in racing:
        each.before(Command.COMMIT, passage(None))
    assert (told, len(kills)) == (["before:commit"], 1)


class Refuses:
    """Stands for an `Inbox` that cannot start."""

    def add_probe(self, probe: object) -> None: ...

    def stop(self) -> None: ...

    async def run(self, started: object) -> None:
        raise ConfigurationError("set SHOP_DATABASE_URL in the environment")


def make() -> Inbox:
    return cast("Inbox", Refuses())


def test_a_worker_that_does_not_start_says_why() -> None:
    worker = CrashWorker(make)
    worker.start()
    with pytest.raises(WorkerStartError, match="the worker did not start: set SHOP_DATABASE_URL"):
        worker.wait_ready()
    assert worker.exit_code == 2
