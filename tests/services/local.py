"""A server that this run starts as a process of its own."""

import fcntl
import random
import signal
import socket
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.services.catalog import Offer
from tests.services.installation import Installation
from tests.services.probe import wait_until_it_serves
from tests.services.processes import Processes, end, last_lines
from tests.services.service import Service, ServiceError, Tls


class LocalService(Service):
    """Knows how to start, signal and await; what is started, and with which arguments, its heirs say."""

    def __init__(
        self, offer: Offer, dsn: str, *, processes: Processes, installation: Installation, tls: Tls | None = None
    ) -> None:
        super().__init__(offer, dsn, tls=tls)
        self._processes = processes
        self._installation = installation
        self._process: subprocess.Popen[bytes] | None = None
        self.home = processes.directory(offer.name)
        self.log = self.home / "log"

    @property
    def is_ours(self) -> bool:
        return True

    @property
    def pid(self) -> int | None:
        """The id of the server itself, no wrapper's; None while it is down."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.is_running():
            return
        self._prepare()
        self._process = self._processes.spawn(
            self._installation.enter(self._command()),
            log=self.log,
            cwd=self.home,
            environment=self._environment(),
        )
        wait_until_it_serves(self, lambda: last_lines(self.log))

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @abstractmethod
    def _prepare(self) -> None:
        """What must be there before a start: called before each, so it does only what is still missing."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _environment(self) -> Mapping[str, str] | None:
        return None

    def _end(self, sig: signal.Signals) -> None:
        if self._process is not None:
            end(self._process, sig=sig)

    def _signal(self, sig: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ServiceError(f"{self.name} is not running")
        self._process.send_signal(sig)


def free_port() -> int:
    """A port of this run's own, below those that the kernel gives to clients: a killed server must get it back."""
    while True:
        port = random.randint(20_000, 30_000)  # noqa: S311 - no secret
        if _is_free(port) and claim_port(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


#: Open as long as this process lives, and with them the locks on what they name.
_CLAIMS: list[IO[str]] = []


def claim_port(port: int) -> bool:
    """Keep the port from the other runs on this machine until its server has bound it, and while that is down."""
    folder = Path(tempfile.gettempdir()) / "inbox-test-ports"
    folder.mkdir(exist_ok=True)
    claim = (folder / str(port)).open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        return False
    _CLAIMS.append(claim)
    return True


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path
