"""Strict JSON objects, some of whose members are told together with the text that they were read from.

What is parsed and written again has other octets, and other numbers beyond 53 bits; so the text is kept instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inbox.core.event import STRICT_JSON


@dataclass(frozen=True, slots=True)
class Source:
    """A value and the text that it was read from."""

    value: object
    text: str


class _TooLong:
    """A number of more digits than any that is looked at. Python would take quadratic time, or refuse."""


_MOST_DIGITS: Final = 20
_JSON: Final = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else _TooLong(),
    parse_constant=STRICT_JSON.parse_constant,
    object_pairs_hook=STRICT_JSON.object_pairs_hook,
)
_SPACE: Final = re.compile(r"[ \t\n\r]*+")


class Reader:
    """Reads one object from its first to its last character, in one pass.

    Args:
        text: the object.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self, opened: Mapping[str, frozenset[str]]) -> dict[str, Any]:
        """The members of the object, which has to be all of the text.

        Args:
            opened: members that are objects whose own members are looked at one by one, each with the names of those
                that are told as a `Source`.

        Raises:
            ValueError, RecursionError: it is not one strict JSON object.
        """
        members = self._object(opened)
        if self._at != len(self._text):
            raise ValueError("something follows")
        return members

    def _object(self, opened: Mapping[str, frozenset[str]], kept: frozenset[str] = frozenset()) -> dict[str, Any]:
        """An object; of it `opened` are read member by member, and of `kept` the text is told too."""
        members: dict[str, Any] = {}
        self._mark("{")
        if self._text[self._at : self._at + 1] == "}":
            self._mark("}")
            return members
        while True:
            name = self._value()
            if not isinstance(name, str) or name in members:
                raise ValueError("a name that is no string, or there twice")
            self._mark(":")
            members[name] = self._member(name, opened, kept)
            if self._mark(",}") == "}":
                return members

    def _member(self, name: str, opened: Mapping[str, frozenset[str]], kept: frozenset[str]) -> object:
        if name in opened and self._text[self._at : self._at + 1] == "{":
            return self._object({}, opened[name])
        start = self._at
        value = self._value()
        return Source(value, self._text[start : self._at]) if name in kept else value

    def _value(self) -> object:
        value, self._at = _JSON.raw_decode(self._text, self._at)
        return value

    def _mark(self, marks: str) -> str:
        """Go on after one of `marks` with space around it, and tell which it was."""
        self._skip()
        mark = self._text[self._at : self._at + 1]
        if not mark or mark not in marks:
            raise ValueError("not the mark expected")
        self._at += 1
        self._skip()
        return mark

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
