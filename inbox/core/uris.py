"""URIs by the grammar of RFC 3986, appendix A. Nothing is resolved, normalised or unescaped."""

from __future__ import annotations

import re

_UNRESERVED_OR_SUB_DELIMS = r"A-Za-z0-9._~!$&'()*+,;=\-"
_ESCAPED = r"%[0-9A-Fa-f]{2}"
# Characters are taken for good, groups are not: `re` of Python before 3.11.5 takes a broken repetition of a group for
# one (CPython, gh-101955). What a group takes can be taken in one way only, so nothing is tried twice.
_NAME = rf"(?:[{_UNRESERVED_OR_SUB_DELIMS}]++|{_ESCAPED})*"
_USER = rf"(?:[{_UNRESERVED_OR_SUB_DELIMS}:]++|{_ESCAPED})*@"
_AUTHORITY = rf"//(?:{_USER})?(?:\[[0-9A-Za-z.:]+\]|{_NAME})(?::[0-9]*+)?(?=[/?#]|\Z)"
_PATH = rf"(?:[{_UNRESERVED_OR_SUB_DELIMS}:@/]++|{_ESCAPED})*"
_QUERY = rf"(?:[{_UNRESERVED_OR_SUB_DELIMS}:@/?]++|{_ESCAPED})*"
_HIERARCHY = rf"(?:{_AUTHORITY}|(?!//)){_PATH}(?:\?{_QUERY})?(?:\#{_QUERY})?"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*+:"

_URI = re.compile(rf"{_SCHEME}{_HIERARCHY}")


def is_uri(text: str) -> bool:
    """Whether `text` is a URI with a scheme (RFC 3986, 3); a fragment may follow."""
    return _URI.fullmatch(text) is not None
