"""A ledger to kill workers at."""

import pytest

from tests.crash.world import World, make_world
from tests.pairs import Pair


@pytest.fixture
async def world(pair: Pair) -> World:
    return await make_world(pair)
