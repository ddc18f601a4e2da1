"""What a subscription is told: where the platform is, who asks, which subscription, and how to behave."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import ClassVar, Final
from urllib.parse import urlsplit

from inbox.adapters.websocket.codec import LEAST_CAPACITY, MOST_CAPACITY
from inbox.config import EnvironmentSettings, require
from inbox.core.lease import QuarantinedOverLease
from inbox.core.proof import Secret, is_id
from inbox.errors import ConfigurationError

_SHORTEST_SHUTDOWN: Final = 0.001
_LONGEST_SHUTDOWN: Final = 300.0
_LEAST_DELAY: Final = 0.01
_MOST_DELAY: Final = 30.0
#: A day: no lease lasts longer, and no unit should.
_LONGEST_UNIT: Final = 86_400.0


class Credential(Secret):
    """What a bearer shows; sent as `Authorization: Bearer …`, and shown nowhere else.

    Args:
        text: the token, without `Bearer`.

    Raises:
        ConfigurationError: it is empty, or holds what a header cannot.
    """

    __slots__ = ()

    def __init__(self, text: str) -> None:
        # Visible ASCII only: a line break would add a header of somebody else's making.
        if not _is_token(text):
            del text
            raise ConfigurationError("a credential is a text of visible ASCII characters, without spaces")
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class OrbitSettings(EnvironmentSettings):
    """How a leased subscription is consumed.

    Attributes:
        capacity: events in hand at once, and handlers; the platform hands out no more over one connection.
        shutdown_timeout: seconds for a stop: handlers are cancelled and come back, and what they had committed is
            acknowledged. Between a millisecond and 5 minutes.
        reconnect_min_delay: seconds before the first attempt after a loss; each further one waits up to twice as
            long, and a successful acknowledgement begins anew. At least 10 milliseconds.
        reconnect_max_delay: seconds that no wait between attempts exceeds; at most 30.
        unit_deadline: seconds that a unit may take, whatever the consumer's own deadline is. Less than the lease of 30
            seconds, or the event is handed out again while it is still at work; that does no harm but costs work.
        quarantine: `nothing`, so that the platform's budget decides about what handlers make of an event; `rejected`
            puts what a handler rejects into quarantine and acknowledges it; `failed` also what has used up its attempts
            here.
        tls_ca: file with the certificate authorities to trust (PEM); None takes the system's.
        plaintext: allow `ws://` to other hosts than this one, which shows the credential to the network.
    """

    environment_area: ClassVar[str] = "ORBIT_"

    capacity: int = 4
    shutdown_timeout: float = 30.0
    reconnect_min_delay: float = 0.2
    reconnect_max_delay: float = 5.0
    unit_deadline: float = 25.0
    quarantine: QuarantinedOverLease = "nothing"
    tls_ca: str | None = None
    plaintext: bool = False

    def __post_init__(self) -> None:
        _require_capacity(self.capacity)
        _require_between(self, "shutdown_timeout", _SHORTEST_SHUTDOWN, _LONGEST_SHUTDOWN)
        _require_between(self, "reconnect_min_delay", _LEAST_DELAY, _MOST_DELAY)
        _require_between(self, "reconnect_max_delay", _LEAST_DELAY, _MOST_DELAY)
        require(
            self.reconnect_min_delay <= self.reconnect_max_delay,
            "reconnect_max_delay must be at least reconnect_min_delay",
        )
        _require_between(self, "unit_deadline", _SHORTEST_SHUTDOWN, _LONGEST_UNIT)
        require(
            self.quarantine in ("nothing", "rejected", "failed"),
            "quarantine must be 'nothing', 'rejected' or 'failed'",
        )


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[!-~]+", text) is not None


def _require_capacity(given: object) -> None:
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    require(
        is_whole and LEAST_CAPACITY <= given <= MOST_CAPACITY,  # type: ignore[operator] # a number, then
        f"capacity must be a whole number between {LEAST_CAPACITY} and {MOST_CAPACITY}",
    )


def _require_between(settings: object, name: str, least: float, most: float) -> None:
    given = getattr(settings, name)
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    require(is_number and least <= given <= most, f"{name} must be between {least:g} and {most:g} seconds")


@dataclass(frozen=True, slots=True)
class EventRegistration:
    """What one connection is for.

    Attributes:
        url: `wss://host/path` of the platform's event connections.
        credential: who asks: the one that made the subscription.
        subscription_id: 32 lower-case hexadecimal digits.
        capacity: deliveries at once, 1 to 32; there is no default for it.
        tls: how to trust the platform; None trusts whom the system trusts. Made by `tls_context`.
        plaintext: see `OrbitSettings`.
    """

    url: str = field(repr=False)
    credential: Credential
    subscription_id: str
    capacity: int
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    plaintext: bool = False

    def __post_init__(self) -> None:
        _check_url(self.url, plaintext=self.plaintext)
        credential: object = self.credential
        require(isinstance(credential, Credential), "the credential is given as Credential(text), which hides it")
        require(is_id(self.subscription_id), "a subscription id is 32 lower-case hexadecimal digits")
        _require_capacity(self.capacity)

    @property
    def place(self) -> str:
        """Host and port, for people."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if self.is_tls else 80)}"

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "wss"


def tls_context(ca: str | None) -> ssl.SSLContext:
    """How to trust the platform: verification cannot be switched off.

    Args:
        ca: file with the authorities to trust (PEM); None takes the system's.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the certificates in {ca} cannot be read: give tls_ca a PEM file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check_url(url: str, *, plaintext: bool) -> None:
    """The message never shows the address: somebody may have put a credential into it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except (ValueError, TypeError, AttributeError):
        host, parts = None, urlsplit("")
    require(
        parts.scheme in ("ws", "wss") and bool(host) and not parts.fragment,
        "the platform's address is written wss://host/path",
    )
    require(
        parts.username is None and parts.password is None,
        "the platform's address must not hold a user or password: the credential is given apart",
    )
    require(
        parts.scheme == "wss" or plaintext or _is_here(host or ""),
        "ws:// would show the credential to the network: write wss://, or allow it with plaintext=True",
    )


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
