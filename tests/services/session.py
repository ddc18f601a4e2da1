"""The services of one test run: each is found once, in a fixed order of places, and everything started is stopped."""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Self

from tests.services.brokers import LocalRabbit
from tests.services.catalog import PAIRS, SERVICES, Offer, Say, ServiceName
from tests.services.certificates import Certificates, make_certificates
from tests.services.databases import LocalMariaDB, LocalMySQL
from tests.services.docker import Compose, find_compose
from tests.services.environment import given_service
from tests.services.installation import Installation
from tests.services.packages import unpacked_installation
from tests.services.probe import probe
from tests.services.processes import Processes
from tests.services.programs import installed_programs
from tests.services.service import Service, ServiceError

PLACES = ("environment", "docker", "programs", "packages")

WITHOUT_MYSQL = """\
THIS RUN HAD NO MYSQL: MARIADB STOOD IN FOR IT IN BOTH PAIRS. NOTHING HERE WAS PROVED ON MYSQL.
{reason}"""


class Services:
    """Finds and starts what a run needs, hands out handles, and on leaving stops everything that it started.

    Places are asked in the order of PLACES; INBOX_SERVICES_FROM names the only ones to ask, separated by commas.

    Args:
        say: told what is found and started.
        data: where the servers that it starts itself have their data; None leaves it to `Processes`.
    """

    def __init__(self, say: Say = print, data: Path | None = None) -> None:
        self._say = say
        self._data = data
        self._running: dict[ServiceName, Service] = {}
        self._without_mysql: str | None = None
        self._made_processes: Processes | None = None
        self._made_compose: Compose | None = None
        chosen = os.environ.get("INBOX_SERVICES_FROM")
        self._places = tuple(chosen.split(",")) if chosen else PLACES
        if unknown := set(self._places) - set(PLACES):
            raise ServiceError(f"INBOX_SERVICES_FROM: no place is called {', '.join(unknown)}; there are {PLACES}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, names: Iterable[ServiceName]) -> None:
        """Start these side by side and return when all of them serve; those that run already are left alone."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._running]
        found = {name: self._find(SERVICES[name]) for name in wanted}
        if any(service is None for service in found.values()) and "mariadb" not in self._running | found.keys():
            found["mariadb"] = self._find(SERVICES["mariadb"])
        starting = {name: service for name, service in found.items() if service is not None}
        with ThreadPoolExecutor(max(1, len(starting))) as threads:
            try:
                for _ in threads.map(self._start, starting.values()):
                    pass
            except BaseException:
                self.close()  # ends what the other threads wait for
                raise
        self._running |= starting
        for name in found.keys() - starting.keys():
            self._running[name] = self._running["mariadb"]

    def __getitem__(self, name: ServiceName) -> Service:
        self.start([name])
        return self._running[name]

    def is_given(self, name: ServiceName) -> bool:
        """Whether someone else runs it, so that this run may not stop it."""
        return "environment" in self._places and SERVICES[name].variable in os.environ

    @property
    def warning(self) -> str | None:
        """What must stand beside the summary of the run."""
        return WITHOUT_MYSQL.format(reason=self._without_mysql) if self._without_mysql else None

    def close(self) -> None:
        """Stop what this run started; what was given stays as it is."""
        if self._made_processes is not None:
            self._made_processes.close()
        if self._made_compose is not None:
            self._made_compose.close()

    def _find(self, offer: Offer) -> Service | None:
        """The service, not yet started; None where MariaDB stands in for a MySQL that cannot be had."""
        reasons = []
        for place in self._places:
            try:
                found = self._ask(place, offer)
            except ServiceError as error:
                reasons.append(f"  {place}: {error}")
            else:
                self._say(f"services: {offer.name} from {place}")
                return found
        told = f"{offer} is nowhere to be had:\n" + "\n".join(reasons)
        if offer.name != "mysql":
            raise ServiceError(told)
        self._without_mysql = told
        return None

    def _ask(self, place: str, offer: Offer) -> Service:
        finders: dict[str, Callable[[], Service]] = {
            "environment": lambda: given_service(offer),
            "docker": lambda: self._compose.service(offer),
            "programs": lambda: self._local(offer, installed_programs(offer)),
            "packages": lambda: self._local(offer, unpacked_installation(offer, self._say)),
        }
        return finders[place]()

    def _local(self, offer: Offer, installation: Installation) -> Service:
        match offer.name:
            case "mysql":
                return LocalMySQL(self._processes, installation)
            case "mariadb":
                return LocalMariaDB(self._processes, installation)
            case "rabbit4" | "rabbit3":
                return LocalRabbit(offer, self._processes, installation, self._certificates)

    def _start(self, service: Service) -> None:
        begun = time.monotonic()
        service.start()
        service.version = probe(service)
        self._say(f"services: {service!r} serves after {time.monotonic() - begun:.1f} s")

    @cached_property
    def _compose(self) -> Compose:
        self._made_compose = Compose(find_compose(), self._processes, self._certificates)
        return self._made_compose

    @cached_property
    def _processes(self) -> Processes:
        self._made_processes = Processes(self._data)
        return self._made_processes

    @cached_property
    def _certificates(self) -> Certificates:
        return make_certificates(self._processes.directory("tls"))


def names_of(pairs: Iterable[str]) -> list[ServiceName]:
    return [name for pair in pairs for name in (PAIRS[pair].database, PAIRS[pair].broker)]
