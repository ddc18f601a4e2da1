"""The example's surroundings."""

import pytest

from tests.acceptance.billing import Billing
from tests.pairs import Pair


@pytest.fixture
async def billing(pair: Pair) -> Billing:
    queue = pair.unique("billing")
    pair.discard(f"{queue}.dead")
    made = Billing(pair, queue, pair.unique("jobs"))
    await made.create_tables()
    return made
