"""Where processes have really died in this run of pytest, by the round in which a kill test takes its turn."""

from collections import defaultdict
from collections.abc import Iterable

from inbox.testing.crash import CrashWorker

ONE = "one worker is killed"
THREE = "three racing workers are killed"

DIED: defaultdict[str, set[str]] = defaultdict(set)


def note(round_: str, victims: Iterable[CrashWorker]) -> None:
    """Keep the points at which `victims` have died by their own hand: what each told with its last breath."""
    for victim in victims:
        DIED[round_].update(victim.reached)
