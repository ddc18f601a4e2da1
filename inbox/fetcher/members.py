"""Members of a JSON object that has two generations of names: `jobId` of 2.0.x, `job_id` of the later line.

One of the two is read, whichever is there (job event contract, section 11). Two that say the same are one; two that
differ are refused, for nobody can say which is meant.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from inbox.core.headers import text_of
from inbox.errors import Refused

_GAP = re.compile(r"_([a-z])")


class _Absent:
    """What stands for a member that is not there; null is another thing."""


ABSENT: Final = _Absent()


def both_names(name: str) -> tuple[str, str]:
    """The name of the older generation, and that of the later one."""
    return _GAP.sub(lambda gap: gap[1].upper(), name), name


def unfit(where: str, said: str) -> Refused:
    """The refusal of a payload: where, and what was expected there; never what stood there."""
    return Refused(f"{where}: {said}", code="invalid-payload")


class Members:
    """Reads the members of one object strictly: nothing is converted, and an integer is an integer.

    Args:
        members: the object, as parsed.
        where: what it is called in messages.

    Every method raises `Refused` with the code `invalid-payload`, which names the member and what was expected of it.
    """

    def __init__(self, members: dict[str, Any], where: str) -> None:
        self._members = members
        self._where = where

    def path(self, name: str) -> str:
        """The member `name` in messages, as it is spelt there."""
        camel, snake = both_names(name)
        return f"{self._where}.{snake if snake in self._members else camel}"

    def find(self, name: str) -> object:
        """The member's value, `ABSENT` where there is none.

        Args:
            name: as the later line spells it.
        """
        camel, snake = both_names(name)
        found = self._members.get(camel, ABSENT)
        if camel == snake:
            return found
        other = self._members.get(snake, ABSENT)
        if found is ABSENT or other is ABSENT:
            return other if found is ABSENT else found
        if not _is_same(found, other):
            raise unfit(self.path(name), f"there twice, also as {camel}, with another value")
        return found

    def optional_text(self, name: str) -> str | None:
        value = self.find(name)
        return None if value is ABSENT else self._text(name, value)

    def text(self, name: str) -> str:
        return self._text(name, self.find(name))

    def integer(self, name: str, default: int | None = None) -> int:
        """The member, which must be there unless there is a default."""
        value = self.find(name)
        if value is ABSENT and default is not None:
            return default
        if type(value) is not int:
            raise unfit(self.path(name), "expected an integer")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """An integer that is not negative."""
        value = self.integer(name, default)
        if value < 0:
            raise unfit(self.path(name), "expected an integer that is not negative")
        return value

    def flag(self, name: str) -> bool:
        value = self.find(name)
        if not isinstance(value, bool):
            raise unfit(self.path(name), "expected true or false")
        return value

    def optional_nested(self, name: str) -> Members | None:
        return None if self.find(name) is ABSENT else self.nested(name)

    def nested(self, name: str) -> Members:
        return Members(self.plain(name), self.path(name))

    def plain(self, name: str) -> dict[str, Any]:
        """An object whose members are nobody's business here."""
        value = self.find(name)
        if not isinstance(value, dict):
            raise unfit(self.path(name), "expected an object")
        return value

    def _text(self, name: str, value: object) -> str:
        text = text_of(value) if isinstance(value, str) else None
        if text is None:  # half of a surrogate pair can be written in JSON, and be stored nowhere
            raise unfit(self.path(name), "expected a text")
        return text


def _is_same(one: object, other: object) -> bool:
    """Whether two parsed values are the same text in JSON: to Python, `1 == True == 1.0`."""
    try:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    except RecursionError:
        return False
