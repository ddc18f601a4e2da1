"""The named moments at which a process may die: before and after each command of the lifecycle.

They are generated, so that a new command brings its own kill test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from inbox.core.lifecycle import COMMANDS, Command

if TYPE_CHECKING:
    from collections.abc import Iterator


class When(Enum):
    """On which side of a command."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One named moment, written `before:commit` or `after:commit`."""

    when: When
    command: Command

    def __str__(self) -> str:
        return f"{self.when.value}:{self.command.value}"

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """The point that `text` names.

        Raises:
            ValueError: no such point.
        """
        when, _, command = text.partition(":")
        return cls(When(when), Command(command))


def crash_points() -> Iterator[CrashPoint]:
    """Every moment at which the lifecycle can be interrupted."""
    for command in dict.fromkeys(COMMANDS.values()):
        for when in When:
            yield CrashPoint(when, command)
