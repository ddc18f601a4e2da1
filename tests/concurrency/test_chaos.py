"""200 events and a handler that fails in every way: each is applied once, or put away for what it did."""

import asyncio
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inbox.testing.crash import CrashWorker
from tests.concurrency import chaos
from tests.concurrency.chaos import DEADLY, EXIT_CODE, FREE, MAX_ATTEMPTS, REASONS, SEED, SETTINGS, Diary, Fate, Run
from tests.crash.app import connect
from tests.crash.world import World

EVENTS = 200
#: As many of them are published twice.
TWICE = 50
WORKERS = 3
PATIENCE = 180

#: What the counts were when a success deleted them. A trigger on UPDATE would do more harm (see `schema_compare`).
AUDIT = """
CREATE TRIGGER audit AFTER DELETE ON inbox_attempt FOR EACH ROW
INSERT INTO audit (consumer_name, attempt_key, failed, crashed, history)
VALUES (OLD.consumer_name, OLD.attempt_key, OLD.failed, OLD.crashed, OLD.history)
ON DUPLICATE KEY UPDATE
  failed = failed + OLD.failed,
  crashed = crashed + OLD.crashed,
  history = CONCAT(COALESCE(history, ''), COALESCE(OLD.history, ''))
"""


class Crew:
    """Workers of which each is replaced when it has died."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._workers: list[CrashWorker] = []
        self.deaths: Counter[int | None] = Counter()

    async def work_until_drained(self) -> None:
        """Work, then stop in an orderly way."""
        self._workers = [self._world.worker() for _ in range(WORKERS)]
        replacing = asyncio.ensure_future(self._replace_the_dead())
        try:
            await self._world.wait_copies_back(PATIENCE)
        finally:
            replacing.cancel()
            codes = await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in self._workers))
        self.deaths.update(code for code in codes if code != 0)

    async def _replace_the_dead(self) -> None:
        while True:
            for number, worker in enumerate(self._workers):
                if not worker.is_alive():
                    self.deaths[worker.exit_code] += 1
                    self._workers[number] = self._world.worker()
            await asyncio.sleep(0.02)


@dataclass
class Account:
    """What became of one event."""

    fate: Fate
    runs: list[Run]
    effects: int = 0
    rows: int = 0
    reasons: list[str] = field(default_factory=list)
    attempts: int = 0
    #: Ever, also where that was taken back or the row deleted.
    failed: int = 0
    crashed: int = 0
    history: str = ""

    def __str__(self) -> str:
        ended = f"quarantined as {self.reasons} with {self.attempts} attempts" if self.reasons else "applied"
        return f"{self.fate}: {len(self.runs)} runs, {ended}"

    def judge(self) -> None:
        """Applied exactly once, or quarantined for what its runs really did; charged for nothing else."""
        deeds = Counter(run.deed for run in self.runs)
        if self.fate.lasting is None:
            assert (self.effects, self.rows, self.reasons) == (1, 1, [])
        else:
            assert (self.effects, self.rows, self.reasons) == (0, 0, [REASONS[self.fate.lasting]])
        # One more for each time that a neighbour killed the process while it was on its way into quarantine.
        assert (self.attempts >= MAX_ATTEMPTS) is (self.fate.lasting is not None and self.fate.lasting not in FREE)
        deaths = sum(deeds[deed] for deed in DEADLY)
        assert self.crashed <= deaths, f"only its own deaths are its own:\n{self.history}"
        assert self.failed <= sum(deeds[deed] for deed in REASONS if deed not in FREE | DEADLY), self.history
        if self.fate.is_innocent:
            assert (self.failed, self.crashed) == (0, 0), f"an innocent was charged:\n{self.history}"


@pytest.mark.timeout(600)
async def test_two_hundred_events_through_chaos(world: World, tmp_path: Path) -> None:
    began = time.monotonic()
    await prepare(world, tmp_path)
    await world.publish("chaos", ["chaos"] * EVENTS, copies=1)
    await world.publish("chaos", ["chaos"] * TWICE, copies=1)
    crew = Crew(world)
    await crew.work_until_drained()
    for _ in range(5):
        if await world.left_in_queue() == 0:
            break
        await crew.work_until_drained()  # a second delivery of what had ended was in hand
    accounts = account(world, Diary(tmp_path))
    for identifier, one in accounts.items():
        print(f"{identifier}: {one}")
        one.judge()
    assert await world.left_in_queue() == 0, "nothing waits: not to be consumed, not for its time, not as a dead letter"
    assert not world.query("SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL"), (
        "no start is left open"
    )
    assert {*crew.deaths} == {-9, EXIT_CODE}, "handlers killed them, and nothing else did"
    innocents = [one for one in accounts.values() if one.fate.is_innocent]
    beside = [one for one in innocents if ran_beside_a_crasher(one, accounts)]
    print(
        f"seed {SEED}: {len(innocents)} innocents, {len(beside)} of them ran beside a crasher, "
        f"{crew.deaths.total()} deaths, {time.monotonic() - began:.1f} s"
    )
    assert len(innocents) >= 100
    assert len(beside) >= 20


# ------------------------------------------------------------------ steps
async def prepare(world: World, folder: Path) -> None:
    """Tables, and the queues: there is a backlog of everything before the first worker looks."""
    world.factory, world.extra = chaos.make, (str(folder),)
    world.delays = SETTINGS.retry.steps
    for name in world.retry_queues:
        world.pair.discard(name)
    with closing(connect(world.pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in [*chaos.TABLES, "CREATE TABLE audit LIKE inbox_attempt", AUDIT]:
            cursor.execute(statement)
        rows = [(f"{whose} chaos-{number}".encode(),) for number in range(EVENTS) for whose in ("ours", "theirs")]
        cursor.executemany("INSERT INTO pit (id) VALUES (%s)", rows)
        connection.commit()
    declaring = world.worker()
    await asyncio.to_thread(declaring.wait_ready)
    assert await asyncio.to_thread(declaring.stop) == 0


# ------------------------------------------------------------------ facts
def account(world: World, diary: Diary) -> dict[str, Account]:
    accounts = {
        identifier: Account(Fate.of(identifier), diary.runs(identifier))
        for identifier in (f"chaos-{number}" for number in range(EVENTS))
    }
    others: defaultdict[str, Account] = defaultdict(lambda: Account(Fate(), []))

    def of(identifier: bytes) -> Account:
        return accounts.get(identifier.decode()) or others[identifier.decode()]

    for (identifier,) in world.query("SELECT event_id FROM effect"):
        of(identifier).effects += 1
    for (identifier,) in world.query("SELECT event_id FROM inbox"):
        of(identifier).rows += 1
    for identifier, reason, attempts in world.query("SELECT event_id, reason, attempts FROM inbox_quarantine"):
        one = of(identifier)
        one.reasons.append(reason if isinstance(reason, str) else reason.decode())
        one.attempts = attempts
    for table in ("audit", "inbox_attempt"):
        for identifier, failed, crashed, history in world.query(
            f"SELECT attempt_key, failed, crashed, CAST(history AS CHAR) FROM {table}"  # noqa: S608 - names of ours
        ):
            of(identifier).failed += failed
            of(identifier).crashed += max(crashed, (history or "").count(" crashed: "))
            of(identifier).history += history or ""
    for identifier, one in others.items():
        assert identifier.startswith("behind-"), "an event that nobody published"
        one.judge()
    return accounts


def ran_beside_a_crasher(one: Account, accounts: dict[str, Account]) -> bool:
    """Whether its handler was running in a process when another event's handler killed that."""
    killed = {run.worker for each in accounts.values() for run in each.runs if run.deed in DEADLY}
    return any(run.worker in killed and not run.has_ended for run in one.runs)
