"""MySQL and MariaDB as processes of this run."""

from abc import abstractmethod

from tests.services.catalog import DATABASE, DATABASE_SETTINGS, PASSWORD, SERVICES, USER
from tests.services.installation import Installation
from tests.services.local import LocalService, free_port, write
from tests.services.processes import Processes, run

# Run by the server at every start, before it accepts connections.
INIT_SQL = f"""\
CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""


class _LocalDatabase(LocalService):
    def _arguments(self) -> list[str]:
        settings = {
            **DATABASE_SETTINGS,
            "datadir": f"{self.home}/data",
            "socket": f"{self.home}/sock",
            "pid-file": f"{self.home}/pid",
            "tmpdir": str(self.home),
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "server-id": "1",
            "log-bin": "binlog",
        }
        return ["--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]

    def _command(self) -> list[str]:
        return [self._program("mysqld", "mariadbd"), *self._arguments(), f"--init-file={self.home}/init.sql"]

    def _prepare(self) -> None:
        for left_by_a_killed_server in ("sock", "sock.lock", "pid"):
            (self.home / left_by_a_killed_server).unlink(missing_ok=True)
        if (self.home / "init.sql").exists():
            return
        command = self._installation.enter(self._initialise_command())
        run(command, log=self.log, cwd=self.home)
        write(self.home / "init.sql", INIT_SQL)

    @abstractmethod
    def _initialise_command(self) -> list[str]: ...

    def _program(self, *names: str) -> str:
        found = self._installation.find(*names)
        assert found is not None, f"an installation without {names[0]} was taken for one of {self.offer.product}"
        return found


class LocalMySQL(_LocalDatabase):
    def __init__(self, processes: Processes, installation: Installation) -> None:
        super().__init__(SERVICES["mysql"], database_dsn(free_port()), processes=processes, installation=installation)

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--mysqlx=OFF", "--secure-file-priv="]

    def _initialise_command(self) -> list[str]:
        return [self._program("mysqld"), *self._arguments(), "--initialize-insecure"]


class LocalMariaDB(_LocalDatabase):
    def __init__(self, processes: Processes, installation: Installation) -> None:
        super().__init__(SERVICES["mariadb"], database_dsn(free_port()), processes=processes, installation=installation)

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--binlog-format=ROW"]

    def _command(self) -> list[str]:
        return [self._program("mariadbd"), *super()._command()[1:]]

    def _initialise_command(self) -> list[str]:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        return [self._program("mariadb-install-db"), "--no-defaults", f"--datadir={self.home}/data", *options]


def database_dsn(port: int) -> str:
    return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
