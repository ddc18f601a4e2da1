"""One running server, and what a test may do to it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.catalog import Offer, Version


class ServiceError(Exception):
    """A server could not be found, started or stopped. The message names it and says what to do."""


class ServiceNotOursError(ServiceError):
    """A test wants to kill or stop a server that this run did not start."""


@dataclass(frozen=True)
class Tls:
    """How the broker is reached over TLS: the address, and the certificate of the authority that signed its own."""

    dsn: str
    authority: Path


class Service(ABC):
    """A server that accepts connections. Its calls block: in a coroutine, hand them to a thread.

    `dsn` stays the same over kill and start.
    """

    def __init__(self, offer: Offer, dsn: str, *, tls: Tls | None = None) -> None:
        self.offer = offer
        self.dsn = dsn
        self.tls = tls
        self.version: Version = ()

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def host(self) -> str:
        return urlsplit(self.dsn).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.dsn).port or (3306 if self.offer.is_database else 5672)

    @property
    @abstractmethod
    def is_ours(self) -> bool:
        """Whether this run started the server, so that the calls below work."""

    @abstractmethod
    def is_running(self) -> bool: ...

    @abstractmethod
    def start(self) -> None:
        """Start it unless it runs, on the data it had; returns when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it in its own orderly way; returns when it is gone."""

    @abstractmethod
    def kill9(self) -> None:
        """SIGKILL it; returns when it is gone.

        A quorum queue declared within the last second loses what was confirmed to it, and for a second after the next
        start a queue's declared count may still be 0: fetch, or wait until it is what it must be.
        """

    @abstractmethod
    def pause(self) -> None:
        """Freeze it with every connection open (SIGSTOP)."""

    @abstractmethod
    def resume(self) -> None:
        """Let a paused server go on."""

    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` with these arguments and return what it printed. Takes a second or more."""
        raise ServiceNotOursError(f"{self.name} has no rabbitmqctl {arguments[0]}")

    def restart(self) -> None:
        self.stop()
        self.start()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.offer.product} {'.'.join(map(str, self.version))} at port {self.port}>"
