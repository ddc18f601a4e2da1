"""RabbitMQ as a process of this run."""

import secrets
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.services.catalog import PASSWORD, USER, Offer
from tests.services.certificates import Certificates
from tests.services.installation import Installation
from tests.services.local import LocalService, free_port, write
from tests.services.processes import Processes, give_away, run
from tests.services.service import Tls


class LocalRabbit(LocalService):
    """A node of its own with its own name server, so that neither meets one that the machine runs."""

    def __init__(
        self, offer: Offer, processes: Processes, installation: Installation, certificates: Certificates
    ) -> None:
        tls = Tls(broker_dsn(free_port(), scheme="amqps"), certificates.authority)
        super().__init__(offer, broker_dsn(free_port()), processes=processes, installation=installation, tls=tls)
        self._certificates = certificates
        self._name_server_port = free_port()
        self._distribution_port = free_port()
        self._name_server: subprocess.Popen[bytes] | None = None

    def control(self, *arguments: str) -> str:
        command = self._installation.enter([self._program("rabbitmqctl"), *arguments])
        return run(command, log=self.home / "control.log", cwd=self.home, environment=self._environment())

    def _command(self) -> list[str]:
        return [self._program("rabbitmq-server")]

    def _prepare(self) -> None:
        if not (self.home / "rabbitmq.conf").exists():
            write(self.home / "rabbitmq.conf", self._settings())
            write(self.home / "plugins", "[].\n")
            give_away(write(self.home / ".erlang.cookie", secrets.token_hex(20), mode=0o400))
        if self._name_server is None or self._name_server.poll() is not None:
            epmd = [self._program("epmd"), "-port", str(self._name_server_port), "-address", "127.0.0.1"]
            self._name_server = self._processes.spawn(
                self._installation.enter(epmd), log=self.home / "epmd.log", cwd=self.home
            )

    def _settings(self) -> str:
        assert self.tls is not None
        return "\n".join(
            [
                f"listeners.tcp.1 = 127.0.0.1:{self.port}",
                f"listeners.ssl.1 = 127.0.0.1:{urlsplit(self.tls.dsn).port}",
                f"ssl_options.cacertfile = {self._certificates.authority}",
                f"ssl_options.certfile = {self._certificates.server}",
                f"ssl_options.keyfile = {self._certificates.server_key}",
                f"default_user = {USER}",
                f"default_pass = {PASSWORD}",
                "vm_memory_high_watermark.absolute = 1GB",
                "disk_free_limit.absolute = 100MB",
                "log.file.level = warning",
                "",
            ]
        )

    def _environment(self) -> Mapping[str, str]:
        nowhere = str(self.home / "none")
        return {
            "HOME": str(self.home),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "RUNNING_UNDER_SYSTEMD": "true",  # the start script then becomes the node instead of waiting for it
            "RABBITMQ_NODENAME": f"{self.name}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "ERL_EPMD_PORT": str(self._name_server_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.home / "data"),
            "RABBITMQ_LOG_BASE": str(self.home / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.home / "generated"),
            "RABBITMQ_CONF_ENV_FILE": nowhere,
            "RABBITMQ_ADVANCED_CONFIG_FILE": nowhere,
            # An idle scheduler that spins would take the tests' processor time.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _program(self, name: str) -> str:
        found = self._installation.find(name)
        assert found is not None, f"an installation without {name} was taken for one of RabbitMQ"
        return found


def broker_dsn(port: int, *, scheme: str = "amqp") -> str:
    return f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/"
