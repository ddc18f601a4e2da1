"""The services of one test run: each is found once, in a fixed order of places, and everything started is stopped."""

from collections.abc import Callable, Iterable

from tests.services.catalog import PAIRS, SERVICES, ServiceName
from tests.services.environment import given_service
from tests.services.probe import probe
from tests.services.service import Service, ServiceError

Say = Callable[[str], None]


class Services:
    """`start` what the run needs, hand out handles, `close` at its end whatever happened."""

    def __init__(self, say: Say = print) -> None:
        self._say = say
        self._running: dict[ServiceName, Service] = {}

    def start(self, names: Iterable[ServiceName]) -> None:
        for name in names:
            if name in self._running:
                continue
            service = given_service(SERVICES[name])
            if service is None:
                raise ServiceError(f"{name}: set {SERVICES[name].variable}")
            service.version = probe(service)
            self._say(f"services: {service!r} (given)")
            self._running[name] = service

    def __getitem__(self, name: ServiceName) -> Service:
        self.start([name])
        return self._running[name]

    def close(self) -> None:
        """Stop what this run started; what was given stays as it is."""


def names_of(pairs: Iterable[str]) -> list[ServiceName]:
    return [name for pair in pairs for name in (PAIRS[pair].database, PAIRS[pair].broker)]
