"""A sample of the model's traces, drawn by a seed, is replayed against real servers, step by step.

`tests/unit/test_model.py` walks through all worlds of `tests/unit/model.py`. Here two real workers are led through some
of them: each stops before and after every command, and goes on when it is its turn in the trace. After each step the
database holds what the model says: rows, effects, entries of the quarantine.

The variable INBOX_TRACE=seed:number replays one trace alone; who fails says which, and every step of it.
"""

import os
import random
import secrets
from contextlib import closing

import pytest

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.core.lifecycle import COMMANDS, TRANSITIONS, Command, Outcome
from tests.crash import app
from tests.crash.trace import GIVES_UP, LEFT, WAITS, Means, Trace
from tests.crash.trace_app import SETTINGS
from tests.crash.trace_hands import OtherwiseError, crew
from tests.crash.trace_replay import Replay, Servers, Stage
from tests.crash.trace_walk import chosen, draw
from tests.crash.world import World
from tests.unit.model import Model

#: With a seed of the run, and without: about how many seconds the traces take, and of how many they are chosen.
SAMPLE, ALL = (11, 150), (60, 800)

#: That are open, of events that were applied and never refused.
STARTS = """\
SELECT attempt_key FROM inbox_attempt JOIN inbox ON event_id = attempt_key
 WHERE open_since IS NOT NULL AND event_id NOT IN (SELECT event_id FROM inbox_quarantine WHERE event_id IS NOT NULL)"""
#: Walks in which everything comes about that can.
ENOUGH = 1000

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("lock_wait", [GIVES_UP, WAITS], ids=["gives-up", "waits"])
async def test_what_the_model_says_is_what_happens(
    world: World, lock_wait: int, request: pytest.FixtureRequest
) -> None:
    seed, traces = drawn(request.config.getoption("--rotate"), is_patient=lock_wait == WAITS)
    world.delays = SETTINGS.retry.steps
    for name in world.retry_queues:
        world.pair.discard(name)
    steps = 0
    async with Publisher(world.pair.amqp_url) as publisher, crew(world, lock_wait) as workers:
        with closing(app.connect(world.pair.database_url)) as connection:
            stage = Stage(world, workers, Servers(world, connection), publisher)
            for trace in traces:
                name = f"{seed}-{trace.number}-{secrets.token_hex(3)}"
                try:
                    await Replay(stage, trace, name).run()
                except OtherwiseError as error:
                    again = f"INBOX_TRACE={seed}:{trace.number} pytest '{request.node.nodeid}'"
                    pytest.fail(f"{error}\nThis repeats it: {again}", pytrace=False)
                steps += len(trace.steps)
        await workers.stop()
    print(f"seed {seed}: {len(traces)} traces, {steps} steps")
    assert await world.left_in_queue() == 0
    assert not world.query(STARTS), "no start is left open of what was applied"


def drawn(seed: int | None, *, is_patient: bool) -> tuple[int, list[Trace]]:
    """The traces of this run."""
    model = Model()
    if (asked := os.environ.get("INBOX_TRACE")) is not None:
        number, _, which = asked.partition(":")
        trace = draw(model, int(number), int(which), is_patient=is_patient)
        return int(number), [] if trace is None else [trace]
    seconds, count = ALL if seed is None else SAMPLE
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - to be repeated
    return seed, chosen(model, seed, seconds=seconds, drawn=count, is_patient=is_patient)


def test_all_is_drawn_but_what_is_left_to_the_model() -> None:
    model = Model()
    done: set[tuple[Command, Outcome]] = set()
    means: set[Means] = set()
    wanted = {(COMMANDS[state], outcome) for state, outcome in TRANSITIONS} - LEFT.keys()
    for number in range(ENOUGH):
        for is_patient in (False, True):
            trace = draw(model, 0, number, is_patient=is_patient)
            for step in () if trace is None else trace.steps:
                means.add(step.means)
                if step.move.command is not None and step.move.outcome is not None:
                    done.add((step.move.command, step.move.outcome))
        if means == {*Means} and wanted <= done:
            break
    assert means == {*Means}
    assert done == wanted
