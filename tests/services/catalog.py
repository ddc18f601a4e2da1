"""What the tests demand of their servers: kinds, oldest versions, credentials and settings, and how they are paired."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

ServiceName = Literal["mysql", "mariadb", "rabbit4", "rabbit3"]
Say = Callable[[str], None]
Version = tuple[int, ...]

USER: Final = "inbox"
PASSWORD: Final = "inbox"
DATABASE: Final = "inbox"


@dataclass(frozen=True)
class Offer:
    """One service: what it must at least be, and where a DSN for it may stand."""

    name: ServiceName
    product: Literal["MySQL", "MariaDB", "RabbitMQ"]
    at_least: Version

    @property
    def variable(self) -> str:
        return f"INBOX_{self.name.upper()}_DSN"

    @property
    def tls_variable(self) -> str:
        return f"INBOX_{self.name.upper()}_TLS_DSN"

    @property
    def is_database(self) -> bool:
        return self.product != "RabbitMQ"

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.at_least))} or newer"


@dataclass(frozen=True)
class PairNames:
    """A database and a broker of one age: what the tests run on together."""

    database: ServiceName
    broker: ServiceName


SERVICES: Final[dict[ServiceName, Offer]] = {
    "mysql": Offer("mysql", "MySQL", (8, 4)),
    "mariadb": Offer("mariadb", "MariaDB", (10, 11)),
    "rabbit4": Offer("rabbit4", "RabbitMQ", (4, 0)),
    "rabbit3": Offer("rabbit3", "RabbitMQ", (3, 10)),
}

PAIRS: Final[dict[str, PairNames]] = {
    "newest": PairNames("mysql", "rabbit4"),
    "oldest": PairNames("mariadb", "rabbit3"),
}

# The settings that the promises of the framework rest on; docker-compose.yml and our own start give the same.
DATABASE_SETTINGS: Final = {
    "innodb-flush-log-at-trx-commit": "1",
    "sync-binlog": "1",
    "character-set-server": "utf8mb4",
    "max-connections": "400",
    "skip-name-resolve": "ON",
}
