"""Fixtures that every test may use: `pair` (and what hangs on it) and `driver`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.pairs import DRIVERS, Driver, Pair, create_schema, delete_names, drop_schema
from tests.services.catalog import PAIRS
from tests.services.session import Services

TESTS = Path(__file__).parent
KINDS = ("unit", "architecture", "conformance", "integration", "crash", "concurrency", "acceptance")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the folder it is in."""
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind in KINDS:
            item.add_marker(kind)


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    running = Services()
    yield running
    running.close()


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, services: Services) -> Iterator[Pair]:
    """Both pairs in turn: a database of this test's own, and a broker on which it takes `pair.unique` names."""
    names = PAIRS[request.param]
    database, broker = services[names.database], services[names.broker]
    made = Pair(request.param, database, broker, create_schema(database, request.node.name))
    yield made
    database.start()
    broker.start()
    drop_schema(database, made.schema)
    asyncio.run(delete_names(made))


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Driver:
    return cast(Driver, request.param)
