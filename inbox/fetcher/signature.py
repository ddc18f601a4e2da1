"""The signature of a job event: its headers, and the octets that it covers (job event contract, section 6)."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from inbox.core.headers import text_of
from inbox.fetcher.refusals import InvalidJobEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.fetcher.refusals import InvalidReason

SIGNATURE: Final = "x-message-signature"
TIMESTAMP: Final = "t"
VERSION: Final = "signature-version"
TENANT: Final = "X-Tenant-ID"

#: The only version there is. The label does not tell the layouts apart: 1.x says `v1` of its own as well.
V1: Final = "v1"

# `[0-9]`, for `int` takes the digits of every script, spaces and underscores as well. The provider's own parser takes
# a sign and leading zeros too, which its builder never writes.
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_LATEST: Final = (1 << 63) - 1
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Envelope(NamedTuple):
    """The headers of a signature.

    Attributes:
        signature: octets of its text, as received: upper-case hex is another one.
        timestamp: Unix seconds of the publish.
        tenant: verbatim; None where the header is absent, which is signed as an empty line.
    """

    signature: bytes
    timestamp: int
    tenant: str | None


def read_envelope(headers: Mapping[str, object]) -> Envelope:
    """The headers of the signature, checked as far as they can be without a key.

    Args:
        headers: as the transport's client library typed them. Names are case-sensitive.

    Raises:
        InvalidJobEvent: one is absent, of a wrong type or malformed.
    """
    signature = _text(headers, SIGNATURE, "missing-signature")
    timestamp = _timestamp(headers)
    if _text(headers, VERSION, "missing-version") != V1:
        raise InvalidJobEvent("unsupported-version", "signature-version is not v1")
    return Envelope(signature.encode(), timestamp, _tenant(headers))


def is_line(text: str) -> bool:
    """Whether `text` can be a line of the signed octets.

    Control characters could let text slide from one line to the next: a tenant that ends in a line feed and another's
    job id would be signed as another tenant's. Half of a surrogate pair has no octets.
    """
    if text.isascii():
        return text.isprintable() or _CONTROL.search(text) is None
    return _CONTROL.search(text) is None and text_of(text) is not None


def signed_head(timestamp: int, tenant: str, job_id: str, exchange: str, routing_key: str) -> bytes:
    """The six lines before the body. Each must be a line: see `is_line`."""
    return f"{timestamp}\n{V1}\n{tenant}\n{job_id}\n{exchange}\n{routing_key}\n".encode()


def body_only_head(timestamp: int) -> bytes:
    """What stands before the body in the layout of 1.x, which signs neither tenant nor route."""
    return b"%d." % timestamp


def sign(key: bytes, body: bytes, *, timestamp: int, tenant: str, job_id: str, exchange: str, routing_key: str) -> str:
    """The signature `v1` of a job event.

    Args:
        key: the external HMAC key, 32 octets.
        body: the octets that are sent.
        timestamp: Unix seconds of the publish, as in the header `t`.
        tenant: as in the header `X-Tenant-ID`; empty where that is not sent.
        job_id: `jobId` of the body.
        exchange: of the first publish.
        routing_key: of the first publish.

    Returns:
        64 lower-case hex digits.
    """
    return mac(key, signed_head(timestamp, tenant, job_id, exchange, routing_key) + body)


def mac(key: bytes, octets: bytes) -> str:
    """HMAC-SHA256 as 64 lower-case hex digits."""
    return hmac.digest(key, octets, hashlib.sha256).hex()


def _text(headers: Mapping[str, object], name: str, missing: InvalidReason) -> str:
    if name not in headers:
        raise InvalidJobEvent(missing, f"the header {name} is absent")
    text = text_of(headers[name])
    if text is None:
        raise InvalidJobEvent("bad-header", f"the header {name} is not text in UTF-8")
    return text


def _timestamp(headers: Mapping[str, object]) -> int:
    if TIMESTAMP not in headers:
        raise InvalidJobEvent("missing-timestamp", f"the header {TIMESTAMP} is absent")
    given = headers[TIMESTAMP]
    if type(given) is int:  # a boolean is an integer to Python, and none to the producer
        timestamp = given
    else:
        text = text_of(given)
        if text is None or _DECIMAL.fullmatch(text) is None:
            raise InvalidJobEvent("bad-timestamp", "t is not written in plain decimal")
        timestamp = int(text)
    if not 0 <= timestamp <= _LATEST:
        raise InvalidJobEvent("bad-timestamp", "t is no time in seconds since 1970 that 63 bits hold")
    return timestamp


def _tenant(headers: Mapping[str, object]) -> str | None:
    if TENANT not in headers:
        return None
    tenant = text_of(headers[TENANT])
    if tenant is None:
        raise InvalidJobEvent("bad-header", f"the header {TENANT} is not text in UTF-8")
    if not is_line(tenant):
        raise InvalidJobEvent("control-character", f"the header {TENANT} holds a control character")
    return tenant
