"""Servers as containers of docker-compose.yml, where a Docker engine answers."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.services.brokers import broker_dsn
from tests.services.catalog import Offer
from tests.services.certificates import Certificates
from tests.services.databases import database_dsn
from tests.services.local import free_port, write
from tests.services.probe import wait_until_it_serves
from tests.services.processes import Processes, run
from tests.services.service import Service, ServiceError, Tls

COMPOSE_FILE: Final = Path(__file__).parents[2] / "docker-compose.yml"
ENGINE_PATIENCE: Final = 10.0  # a client without an engine may wait for one
PULL_PATIENCE: Final = 900.0

# What only the tests need of a broker: a TLS listener, with the certificate of this run.
BROKER_OVERRIDE: Final = """\
  {name}:
    ports: ["127.0.0.1:{tls_port}:5671"]
    volumes:
      - {tls}:/inbox-tls:ro
      - {settings}:/etc/rabbitmq/conf.d/90-inbox-tls.conf:ro
"""
BROKER_SETTINGS: Final = """\
listeners.ssl.default = 5671
ssl_options.cacertfile = /inbox-tls/authority.pem
ssl_options.certfile = /inbox-tls/server.pem
ssl_options.keyfile = /inbox-tls/server-key.pem
"""


def find_compose() -> list[str]:
    """The command that starts Compose. Raises ServiceError where no engine answers."""
    docker = shutil.which("docker")
    if docker is None:
        raise ServiceError("no docker on PATH")
    for arguments, lacking in (
        (["version", "--format", "{{.Server.Version}}"], "no Docker engine answers"),
        (["compose", "version"], "docker has no compose plugin"),
    ):
        try:
            done = subprocess.run(
                [docker, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ENGINE_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ServiceError(lacking) from None
        if done.returncode != 0:
            raise ServiceError(lacking)
    return [docker, "compose"]


class Compose:
    """One project of this run's own, on ports of its own, beside whatever else the engine runs."""

    def __init__(self, command: list[str], processes: Processes, certificates: Certificates) -> None:
        self._processes = processes
        self.home = processes.directory("compose")
        self._certificates = certificates
        self._ports = {name: free_port() for name in ("mysql", "mariadb", "rabbit4", "rabbit3")}
        self._tls_ports = {name: free_port() for name in ("rabbit4", "rabbit3")}
        self._one_at_a_time = threading.Lock()  # commands that make the project's network must not race
        files = ["--file", str(COMPOSE_FILE), "--file", str(self._write_override())]
        project = ["--project-name", processes.home.name, "--profile", "oldest"]
        self._command = [*command, *project, *files]
        processes.at_death([*self._command, "down", "--volumes", "--timeout", "5"])

    def service(self, offer: Offer) -> Service:
        port = self._ports[offer.name]
        if offer.is_database:
            return ComposeService(offer, database_dsn(port), self)
        tls = Tls(broker_dsn(self._tls_ports[offer.name], scheme="amqps"), self._certificates.authority)
        return ComposeService(offer, broker_dsn(port), self, tls=tls)

    def run(self, *arguments: str, timeout: float = 120) -> str:
        ports = {f"INBOX_{name.upper()}_PORT": str(port) for name, port in self._ports.items()}
        with self._one_at_a_time:
            return run(
                [*self._command, *arguments],
                log=self.home / "log",
                cwd=self.home,
                environment={**os.environ, **ports},
                timeout=timeout,
            )

    def close(self) -> None:
        self.run("down", "--volumes", "--timeout", "5")

    def _write_override(self) -> Path:
        settings = write(self.home / "tls.conf", BROKER_SETTINGS)
        # Read by the image's own user, whatever its id.
        self._certificates.server_key.chmod(0o444)
        parts = [
            BROKER_OVERRIDE.format(name=name, tls_port=port, tls=self._certificates.authority.parent, settings=settings)
            for name, port in self._tls_ports.items()
        ]
        return write(self.home / "override.yml", "services:\n" + "".join(parts))


class ComposeService(Service):
    def __init__(self, offer: Offer, dsn: str, compose: Compose, *, tls: Tls | None = None) -> None:
        super().__init__(offer, dsn, tls=tls)
        self._compose = compose

    @property
    def is_ours(self) -> bool:
        return True

    def is_running(self) -> bool:
        return bool(self._compose.run("ps", "--quiet", "--status", "running", self.name).strip())

    def start(self) -> None:
        self._compose.run("up", "--detach", "--no-deps", self.name, timeout=PULL_PATIENCE)
        wait_until_it_serves(self, self._last_lines)

    def stop(self) -> None:
        self._compose.run("stop", self.name)

    def kill9(self) -> None:
        self._compose.run("kill", "--signal", "SIGKILL", self.name)

    def pause(self) -> None:
        self._compose.run("pause", self.name)

    def resume(self) -> None:
        self._compose.run("unpause", self.name)

    def control(self, *arguments: str) -> str:
        return self._compose.run("exec", "--no-TTY", self.name, "rabbitmqctl", *arguments)

    def _last_lines(self) -> str:
        return self._compose.run("logs", "--tail", "12", self.name)
