"""Header values as text, strictly: the one place that turns what a client library typed into `str`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from inbox.errors import Undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

# CloudEvents 1.0, Type System, String: "The following characters are disallowed: the control characters in the
# ranges U+0000-U+001F and U+007F-U+009F [...], code points identified as noncharacters by Unicode, code points
# identifying Surrogates [...] unless used properly in pairs". In a Python string every surrogate is unpaired.
_NONCHARACTERS = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_DISALLOWED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef" + _NONCHARACTERS + "]")

# A union written in the call would be made anew for each of an event's dozen headers.
_OCTETS = (bytes, bytearray, memoryview)


def text_header(headers: Mapping[str, object], name: str) -> str | None:
    """The header `name` as text; None where it is absent.

    Args:
        headers: as the transport's client library typed them. Names are case-sensitive in AMQP.
        name: the header's exact name.

    Returns:
        The text, which always has a UTF-8 form. Control characters are not looked for.

    Raises:
        Undecodable: `bad-header`: the value is neither text nor octets, or its octets are not UTF-8.
    """
    if name not in headers:
        return None
    text = text_of(headers[name])
    if text is None:
        raise Undecodable(f"the header {name} is not text in UTF-8", code="bad-header")
    return text


def text_of(value: object) -> str | None:
    """`value` as text, or None where it is none.

    Client libraries hand one and the same AMQP byte array over as `bytes` (pika, py-amqp) or as `bytearray`
    (aio-pika). Both are read as strict UTF-8 (RFC 3629); `str(value)` would make two texts, and so two
    identities, of one event.

    Args:
        value: `str`, `bytes`, `bytearray` or `memoryview`; whatever else is no text.
    """
    if isinstance(value, str):
        return value if value.isascii() or _has_octets(value) else None
    if isinstance(value, _OCTETS):
        try:
            return str(value, "utf-8", "strict")
        except UnicodeDecodeError:
            return None
    return None


def is_attribute_text(text: str) -> bool:
    """Whether `text` holds only characters that a CloudEvents attribute may hold (CloudEvents 1.0, Type System)."""
    return _DISALLOWED.search(text) is None


def _has_octets(text: str) -> bool:
    """Whether `text` can be encoded at all: a lone surrogate cannot, and would raise wherever it is used."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
