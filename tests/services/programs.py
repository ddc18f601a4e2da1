"""Servers whose programs this machine has."""

import subprocess
from pathlib import Path

from tests.services.catalog import Offer, Version
from tests.services.installation import Installation
from tests.services.probe import parse_version
from tests.services.processes import is_root
from tests.services.service import ServiceError

VERSION_PATIENCE = 30


def installed_programs(offer: Offer) -> Installation:
    """The machine's own programs. Raises ServiceError that says what they lack."""
    installation = Installation()
    if is_root() and installation.find("setpriv") is None:
        raise ServiceError("without setpriv a server would run as root")
    if offer.product == "RabbitMQ":
        _require(installation, offer, "rabbitmq-server", "rabbitmqctl", "epmd")
        _require_at_least(offer, _broker_version(str(installation.find("rabbitmq-server"))))
    elif offer.product == "MySQL":
        _require(installation, offer, "mysqld")
        _require_at_least(offer, _database_version(offer, str(installation.find("mysqld"))))
    else:
        _require(installation, offer, "mariadbd", "mariadb-install-db")
        _require_at_least(offer, _database_version(offer, str(installation.find("mariadbd"))))
    return installation


def _require(installation: Installation, offer: Offer, *programs: str) -> None:
    missing = [program for program in programs if installation.find(program) is None]
    if missing:
        raise ServiceError(f"{', '.join(missing)} of {offer.product} not found on PATH")


def _database_version(offer: Offer, program: str) -> Version:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_PATIENCE)
    if offer.product == "MySQL" and "mariadb" in done.stdout.lower():
        raise ServiceError(f"{program} is MariaDB")
    return parse_version(done.stdout.rpartition("Ver ")[2])


def _broker_version(program: str) -> Version:
    """Read off the files beside the start script: asking rabbitmqctl leaves an Erlang name server running."""
    home = Path(program).resolve().parent.parent
    for application in (*home.glob("plugins/rabbit-*"), *home.glob("lib/rabbitmq_server-*/plugins/rabbit-*")):
        return parse_version(application.name)
    raise ServiceError(f"no version of RabbitMQ found beside {program}")


def _require_at_least(offer: Offer, version: Version) -> None:
    if version < offer.at_least:
        raise ServiceError(f"this machine has {offer.product} {'.'.join(map(str, version))}, the tests need {offer}")
