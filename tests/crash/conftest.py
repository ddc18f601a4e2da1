"""A ledger to kill workers at."""

import pytest

from tests.crash.world import World, make_world
from tests.pairs import Pair


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks back on the others comes last."""
    items.sort(key=lambda item: item.path.name == "test_reached.py")


@pytest.fixture
async def world(pair: Pair) -> World:
    return await make_world(pair)
