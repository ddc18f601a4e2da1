"""Mistakes in a copy of the package, each found by the test that is named beside it; `make mutations` tells more."""

import pytest

from tests.mutations.catalog import MUTATIONS, Mutation
from tests.mutations.trial import id_of, try_mutation
from tests.pairs import Pair


@pytest.mark.drawn(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_is_found(pair: Pair, mutation: Mutation) -> None:
    servers = {service.offer.variable: service.dsn for service in (pair.database, pair.broker)}
    trial = try_mutation(mutation, pair.id, servers)
    assert trial.is_caught, f"{id_of(mutation, pair.id)} sees nothing wrong in {mutation}:\n{trial.said[-3000:]}"
