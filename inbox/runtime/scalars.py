"""How single values of JSON become values of Python, strictly, and how a mismatch is told."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any
from uuid import UUID

from inbox.core.timestamps import parse_timestamp

# RFC 8259, 6. `[0-9]`, for `Decimal` takes the digits of every script, underscores and spaces.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FULL_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")  # RFC 3339, 5.6
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")  # RFC 9562, 4

# `1e999999999` is eleven octets, and `int()` of it, or its digits written out for a database, gigabytes.
_MOST_DIGITS = 1000
_MOST_SHOWN = 8  # of the choices, in a message

_WORDS: dict[type, str] = {
    NoneType: "null",
    bool: "a boolean",
    int: "an integer",
    Decimal: "a decimal number",
    str: "a text",
    list: "a list",
    dict: "an object",
}

#: The kinds of values that parsed JSON has, by their Python types: numbers that are no integers are `Decimal`.
KINDS = frozenset(_WORDS)


class Mismatch(Exception):
    """Data is not what an annotation says.

    Args:
        said: what was expected, and which kind of value was there; never a value.
        steps: where, the innermost first; who passes it on adds its own.
    """

    said = ""

    def __init__(self, said: str, *steps: str) -> None:
        self.said = said
        self.steps = [*steps]
        super().__init__(said)

    @property
    def path(self) -> str:
        """The way from the payload to the value, such as `.items[3].amount`."""
        return "".join(reversed(self.steps))


@dataclass(frozen=True, slots=True)
class Field:
    """What becomes one argument of a dataclass.

    Attributes:
        name: of the argument.
        keys: the members that it may be read from; one of them at most may be there.
        converter: for the member's value.
        is_required: it has no default.
    """

    name: str
    keys: tuple[str, ...]
    converter: Converter
    is_required: bool


@dataclass(frozen=True, slots=True)
class Converter:
    """What makes one annotation's values.

    Attributes:
        expected: what it takes, for people.
        kinds: the kinds of JSON values that it may take.
        convert: makes the value, or raises `Mismatch`.
        choices: the values that it takes, each with its type, where these are counted.
        fields: of a dataclass.
    """

    expected: str
    kinds: frozenset[type]
    convert: Callable[[Any], Any]
    choices: Mapping[tuple[type, object], object] = field(default_factory=dict)
    fields: Sequence[Field] = ()


def word_for(value: object) -> str:
    """The kind of a parsed value, in words."""
    return _WORDS.get(type(value), "a number")


def unlike(expected: str, value: object, kinds: Iterable[type] = ()) -> Mismatch:
    """The mismatch of `value`: another kind than those of `kinds`, or of a right kind and all the same none."""
    tail = " that is none" if type(value) in kinds else ""
    return Mismatch(f"expected {expected}, got {word_for(value)}{tail}")


def exact_number(text: str) -> Decimal:
    """A JSON number that is no integer, without going through a float.

    Raises:
        Mismatch: its exponent has more digits than any number that can be held.
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        raise Mismatch("holds a number beyond every range") from None


def choice_of(choices: Mapping[tuple[type, object], object]) -> Converter:
    """Takes one of some values; `1`, `true` and `1.0` are different ones."""
    names = [json.dumps(value, ensure_ascii=False) for _, value in choices]
    more = ", …" if len(names) > _MOST_SHOWN else ""
    expected = f"one of {', '.join(names[:_MOST_SHOWN])}{more}" if len(names) > 1 else "".join(names)
    kinds = frozenset(kind for kind, _ in choices)

    def convert(value: object) -> object:
        if type(value) in kinds and (type(value), value) in choices:
            return choices[type(value), value]
        raise unlike(expected, value, kinds)

    return Converter(expected, kinds, convert, choices)


def plain(value: object) -> object:
    """A parsed value as `Event.json` gives it: with floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {key: plain(member) for key, member in value.items()} if isinstance(value, dict) else value


def whole_text(text: str) -> str:
    """`text`, unless it holds half of a surrogate pair: JSON can write that, and nothing can store it.

    Raises:
        Mismatch: it does.
    """
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise Mismatch("expected a text, got one with half of a surrogate pair") from None
    return text


def _scalar(expected: str, readers: Mapping[type, Callable[[Any], object]]) -> Converter:
    """Takes the kinds of `readers`, each of which makes the value or raises `ValueError` or `ArithmeticError`."""
    kinds = frozenset(readers)

    def convert(value: object) -> object:
        read = readers.get(type(value))
        if read is None:
            raise unlike(expected, value)
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise unlike(expected, value, kinds) from None

    return Converter(expected, kinds, convert)


def _same(value: object) -> object:
    return value


def _finite(value: int | Decimal) -> float:
    number = float(value)  # an integer that is too large raises OverflowError, a Decimal becomes infinite
    if not math.isfinite(number):
        raise ValueError("no float is that large")
    return number


def _decimal(value: int | Decimal) -> Decimal:
    number = Decimal(value)
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return number


def _decimal_text(text: str) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a number")
    return _decimal(Decimal(text))


def _date(text: str) -> date:
    if _FULL_DATE.fullmatch(text) is None:
        raise ValueError("not a full-date")
    return date.fromisoformat(text)


def _uuid(text: str) -> UUID:
    if _UUID.fullmatch(text) is None:
        raise ValueError("not 36 characters of a UUID")
    return UUID(text)


def _octets(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


#: By annotation.
SCALARS: dict[Any, Converter] = {
    NoneType: _scalar("null", {NoneType: _same}),
    bool: _scalar("a boolean", {bool: _same}),
    int: _scalar("an integer", {int: _same}),
    float: _scalar("a finite number", {int: _finite, Decimal: _finite}),
    str: _scalar("a text", {str: whole_text}),
    Decimal: _scalar("a decimal number", {int: _decimal, Decimal: _decimal, str: _decimal_text}),
    datetime: _scalar("an RFC 3339 date-time", {str: parse_timestamp}),
    date: _scalar("a date such as 2026-01-31", {str: _date}),
    UUID: _scalar("a UUID", {str: _uuid}),
    bytes: _scalar("base64", {str: _octets}),
    Any: Converter("anything", KINDS, plain),
    object: Converter("anything", KINDS, plain),
}
