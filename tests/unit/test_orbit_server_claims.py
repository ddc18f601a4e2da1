"""A claim reads by indexes what it may change, and comes to what the rules say of the whole window."""

import itertools
import random
from contextlib import suppress

import pytest

from inbox.testing.orbit_server import rules
from inbox.testing.orbit_server.provider import Granted
from inbox.testing.orbit_server.refusal import Conflict
from inbox.testing.orbit_server.rules import LAST_GENERATION, State, Terms
from inbox.testing.orbit_server.settings import OrbitServerSettings
from inbox.testing.orbit_server.store import _CLAIMABLE, _NEXT_TIME, Store
from tests.unit.test_orbit_server_provider import World

TERMS = Terms(lease=30.0, first_delay=1.0, longest_delay=8.0)


class History:
    """One subscription to which everything happens by chance."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn
        self.world = World(OrbitServerSettings(terms=TERMS))
        self.subscription = self.world.subscribe(
            window=drawn.randint(1, 12),
            budget=drawn.randint(1, 4),
            first_generation=drawn.choice([1, LAST_GENERATION - 2]),
        )
        self.given: list[Granted] = []
        self._holders = itertools.count()

    def publish(self) -> None:
        self.world.publish(self.drawn.randint(1, 6))

    def wait(self) -> None:
        self.world.time += self.drawn.choice([0.5, 1.0, 5.0, 31.0])

    def acknowledge(self) -> None:
        if self.given:
            granted = self.given.pop(self.drawn.randrange(len(self.given)))
            event = self.world.provider.event(self.subscription.id, granted.delivery.event_id)
            if event.standing.generation == granted.delivery.standing.generation:
                self.world.ack(self.subscription, granted)

    def change(self) -> None:
        provider, rows = self.world.provider, self.world.provider.events(self.subscription.id)
        if rows:
            event_id = self.drawn.choice(rows).event_id
            with suppress(Conflict):
                if self.drawn.random() < 0.5:
                    provider.replace_proof(self.subscription.id, event_id)
                else:
                    provider.add_budget(self.subscription.id, event_id, 1)

    def claim(self) -> None:
        provider, subscription = self.world.provider, self.subscription
        rows = [row for row in provider.events(subscription.id) if row.standing.state is not State.ACKNOWLEDGED]
        window, now, room = rows[: subscription.size], provider.now(), self.drawn.randint(1, 5)
        due = rules.claim([row.standing for row in window], room, now, TERMS, is_enabled=True)
        grants = provider.claim(subscription.id, f"holder {next(self._holders)}", room)
        assert [each.delivery.event_id for each in grants.granted] == [window[at].event_id for at in due.handed_out]
        assert grants.recovered == len(due.recovered)
        assert grants.look_again_in == (None if due.look_again_at is None else due.look_again_at - now)
        after = [provider.event(subscription.id, row.event_id).standing for row in window]
        assert after == list(due.standings)
        self.given += grants.granted


@pytest.mark.parametrize("seed", range(20))
def test_a_claim_is_what_the_rules_make_of_the_whole_window(seed: int) -> None:
    history = History(random.Random(seed))  # noqa: S311 - the same histories each time
    steps = [history.publish, *[history.claim] * 3, history.acknowledge, history.wait, history.change]
    for _ in range(120):
        history.drawn.choice(steps)()
    history.world.store.close()
    World.stores.clear()


@pytest.mark.parametrize("sql", [_CLAIMABLE, _NEXT_TIME])
def test_a_claim_reads_no_table_from_end_to_end(sql: str) -> None:
    store = Store(None)
    values = {"id": "", "now": 0, "size": 5, "room": 1, "last": ""}
    plan = [str(row[3]) for row in store._raw.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    store.close()
    assert not [step for step in plan if step.startswith("SCAN delivery")], plan
    assert [step for step in plan if "USING" in step and "INDEX" in step]
