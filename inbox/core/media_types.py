"""Media types as RFC 2045 writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# RFC 2045, 5.1: type "/" subtype *(";" parameter); a value is a token or an RFC 822 quoted string.
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|{}~-]+"  # noqa: S105 - the grammar's word, no secret
_VALUE = rf'{_TOKEN}|"(?:[^"\\\r\n]|\\[^\r\n])*"'
# No group is repeated for good: `re` of Python before 3.11.5 takes a broken repetition for one (CPython, gh-101955).
# There is nothing to try twice all the same: what begins with a semicolon is one parameter.
_PARAMETER = rf"[ \t]*+;[ \t]*+{_TOKEN}=(?:{_VALUE})"
_MEDIA_TYPE = re.compile(rf"({_TOKEN}/{_TOKEN})((?:{_PARAMETER})*)[ \t]*+;?[ \t]*+")
_ONE_PARAMETER = re.compile(rf"[ \t]*+;[ \t]*+({_TOKEN})=({_VALUE})")


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type in the form in which two of them may be compared.

    RFC 2045, 5.1: "The type, subtype, and parameter names are not case sensitive"; their values are, except that of
    `charset` (RFC 2046, 4.1.2).

    Attributes:
        essence: type and subtype, lower case.
        parameters: name and unquoted value.
    """

    essence: str
    parameters: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_json(self) -> bool:
        """Whether it declares JSON: `*/json` or `*/*+json` (CloudEvents JSON format 1.0, 3.1.1)."""
        return self.essence.endswith(("/json", "+json"))

    @property
    def is_utf8(self) -> bool:
        """Whether its text is UTF-8: it names no other charset. US-ASCII is a part of UTF-8."""
        return all(value in ("utf-8", "us-ascii") for name, value in self.parameters if name == "charset")


@lru_cache(maxsize=64)  # a queue carries a handful of them, and every delivery has one
def parse_media_type(text: str) -> MediaType:
    """`text` as a media type.

    Raises:
        ValueError: `text` is none, or names a parameter twice. The message says nothing of the text.
    """
    match = _MEDIA_TYPE.fullmatch(text)
    if match is None:
        raise ValueError("not a media type")
    found = [(name.lower(), _unquoted(value)) for name, value in _ONE_PARAMETER.findall(match[2])]
    parameters = {name: value.lower() if name == "charset" else value for name, value in found}
    if len(parameters) != len(found):
        raise ValueError("a media type that names a parameter twice")
    return MediaType(match[1].lower(), frozenset(parameters.items()))


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
