"""The rows of a stored result, one after the other, out of the octets that were authenticated.

A result is JSON of a fixed shape: an object of data sources, each an object of tables, each an array of row objects.
A window of text is read ahead, and a row is decoded whole by the standard library's decoder, which is in C, and knows
integers and, told so, decimals exactly.

ijson was tried and is not used. Its C parser turns half of a surrogate pair into a question mark and says nothing; all
its parsers let a repeated name pass; deep nesting took all memory of the machine, for a path is kept for each level;
and it names tables by paths with dots in between, while names of tables have dots themselves.
"""

from __future__ import annotations

import codecs
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inbox.core.event import STRICT_JSON
from inbox.fetcher.result_errors import ResultMalformed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["Row", "scan"]

#: Octets that are read ahead.
_WINDOW: Final = 1 << 16
#: Characters that a row, or a name, has at most: more than a column of any of the provider's sources should hold.
_LONGEST_ROW: Final = 1 << 24
_SPACE: Final = re.compile(r"[ \t\n\r]*")

_DECODER: Final = json.JSONDecoder(
    parse_float=Decimal, parse_constant=STRICT_JSON.parse_constant, object_pairs_hook=STRICT_JSON.object_pairs_hook
)


class Row(NamedTuple):
    """One row of a result.

    Attributes:
        source: name of the data source that it was read from.
        table: name of its table there, as the provider normalises it.
        values: by column. Integers are `int` and other numbers `decimal.Decimal`, both exact.
    """

    source: str
    table: str
    values: dict[str, Any]


def scan(plaintext: memoryview) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Every table, and after it its rows.

    Args:
        plaintext: authentic, and unchanged while this is used.

    Yields:
        Source, table and None where a table begins; source, table and its values for each row.

    Raises:
        ResultMalformed: it is no strict JSON of that shape, as far as it was read by then.
    """
    text = _Text(plaintext)
    try:
        for source in text.names():
            for table in text.names():
                yield source, table, None
                for values in text.rows():
                    yield source, table, values
        text.end()
    except (ValueError, ArithmeticError, RecursionError) as error:
        # Not UTF-8, a NaN, a repeated name, a number beyond all measure, or nested too deeply.
        raise ResultMalformed("the result is not strict JSON") from error


class _Text:
    """The text, and the place in it."""

    def __init__(self, octets: memoryview) -> None:
        self._octets = octets
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._text = ""
        self._at = 0

    def names(self) -> Generator[str, None, None]:
        """The names of an object's members; whoever asks takes each value before the next name."""
        self._take("{")
        seen: set[str] = set()
        ended = self._skip("}")
        while not ended:
            name = self._value('"')
            if name in seen:
                raise ResultMalformed("the result has two sources or tables of one name")
            seen.add(name)
            self._take(":")
            yield name
            ended = self._take(",}") == "}"

    def rows(self) -> Generator[dict[str, Any], None, None]:
        """The objects of an array."""
        self._take("[")
        ended = self._skip("]")
        while not ended:
            yield self._value("{")
            ended = self._take(",]") == "]"

    def end(self) -> None:
        """Nothing may follow."""
        if self._next():
            raise ResultMalformed("something follows the result")

    def _value(self, first: str) -> Any:
        """The string or object that begins with `first`. Each tells by itself where it ends."""
        if self._next() != first:
            raise ResultMalformed("the result has another shape than sources, tables and rows")
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                # It may go on behind the window; where there is no more, it is none.
                if not self._fill():
                    raise
            else:
                return value

    def _take(self, wanted: str) -> str:
        found = self._next()
        if not found or found not in wanted:
            raise ResultMalformed("the result has another shape than sources, tables and rows")
        self._at += 1
        return found

    def _skip(self, wanted: str) -> bool:
        if self._next() != wanted:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None  # noqa: S101 - it matches nothing as well
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _fill(self) -> bool:
        """Read on, as much again as there is; False at the end."""
        rest = self._text[self._at :]
        if len(rest) > _LONGEST_ROW:
            raise ResultMalformed(f"a row of the result has more than {_LONGEST_ROW:,} characters")
        if self._read >= len(self._octets):
            return False
        end = min(self._read + max(_WINDOW, len(rest)), len(self._octets))
        more = self._decoder.decode(self._octets[self._read : end], final=end == len(self._octets))
        self._text, self._at, self._read = rest + more, 0, end
        return True
