"""What a reference server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inbox.config import require
from inbox.testing.orbit_server.rules import Terms

if TYPE_CHECKING:
    import ssl

__all__ = [
    "MOST_BUDGET",
    "MOST_SECONDS",
    "MOST_WINDOW",
    "OrbitServerSettings",
]

MOST_SECONDS: Final = 86_400.0
MOST_BUDGET: Final = 1_000_000
MOST_WINDOW: Final = 10_000
_MOST_PORT: Final = 65_535
_LEAST_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class OrbitServerSettings:
    """How a reference server behaves. What the provider's description says is the default.

    Attributes:
        host: address to listen on.
        port: to listen on; 0 takes one that is free.
        file: SQLite file that outlives the server; None keeps everything in memory.
        terms: lease and back-off. From 1 ms to a day each.
        budget: hand-outs of an event, where a subscription does not say otherwise; 1 to 1,000,000.
        window: events that a subscription may have open, where it does not say otherwise; 1 to 10,000.
        new_delivery_ids: whether each hand-out of an event has an id of its own; else only generation and secret
            change. The description allows for both.
        most_connections: of one subscription at once; one more is answered BUSY.
        handshake: seconds in which a connection must have registered.
        idle: seconds after which a connection that sends nothing is closed: three missed heartbeats.
        tls: context with the server's certificate; None serves without encryption.
    """

    host: str = "127.0.0.1"
    port: int = 0
    file: Path | None = None
    terms: Terms = field(default_factory=Terms)
    budget: int = 5
    window: int = 256
    new_delivery_ids: bool = False
    most_connections: int = 64
    handshake: float = 8.0
    idle: float = 45.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require(0 <= self.port <= _MOST_PORT, f"port must be 0 to {_MOST_PORT}")
        require(1 <= self.budget <= MOST_BUDGET, f"budget must be 1 to {MOST_BUDGET}")
        require(1 <= self.window <= MOST_WINDOW, f"window must be 1 to {MOST_WINDOW}")
        require(self.most_connections >= 1, "most_connections must be at least 1")
        for name in ("handshake", "idle"):
            self._require_seconds(name, getattr(self, name))
        for name in ("lease", "first_delay", "longest_delay"):
            self._require_seconds(f"terms.{name}", getattr(self.terms, name))
        require(self.terms.first_delay <= self.terms.longest_delay, "terms.longest_delay must not be the shorter one")

    @staticmethod
    def _require_seconds(name: str, given: float) -> None:
        require(_LEAST_SECONDS <= given <= MOST_SECONDS, f"{name} must be 0.001 to {MOST_SECONDS:g} seconds")
