"""Stored results in the engine: read before anything is begun, and each error in its row of the failure table."""

import json
from typing import Any

import pytest

from inbox.core.delivery import Delivery
from inbox.core.lifecycle import Command, Outcome
from inbox.fetcher import JobCompleted, Result, ResultReader
from inbox.fetcher.models import JobResult
from inbox.fetcher.objects import Objects
from tests.unit.engine import Engine, delivery
from tests.unit.fetcher_results import EXTERNAL, PATH, STORAGE, MemoryObjects, sealed, stored

COMPLETED = JobCompleted.TYPES[0]
PLAIN = b'{"db":{"t":[{"id":1},{"id":2}]}}'


def event_of(said: JobResult, **options: Any) -> Delivery:
    result = {"path": said.path, "sizeBytes": said.size_bytes, "rowCount": said.row_count, "format": "json"}
    result |= {"hmac": said.hmac, "protection": {"encrypted": True, "mode": "adapter-managed", "appliedBy": "adapter"}}
    body = {"jobId": PATH[14:-5], "metadata": {}, "status": "completed", "result": result}
    body["completedAt"] = "2026-07-02T08:15:30Z"
    return delivery(PATH, json.dumps(body).encode(), kind=COMPLETED, **options)


def engine_with(objects: Objects, **options: Any) -> Engine:
    engine = Engine()
    reader = ResultReader(objects, keys=[EXTERNAL], storage_keys=[STORAGE], **options)

    async def bill(job: JobCompleted, session: Any, result: Result) -> None:
        for row in result.rows("db", "t"):
            session.write(row.values["id"])

    engine.handle(bill, COMPLETED, prepare=reader.prepare)
    return engine


async def test_it_is_read_before_anything_is_begun() -> None:
    engine = engine_with(MemoryObjects({PATH: sealed(PLAIN)}))
    await engine.settle(event_of(stored(PLAIN, 2)))
    assert engine.store.effects == [1, 2]
    assert engine.probe.commands.index("prepare") < engine.probe.commands.index("begin")


async def test_what_is_not_there_yet_is_there_the_next_time() -> None:
    objects = MemoryObjects()
    engine = engine_with(objects)

    class Late:
        def before(self, command: Command, passage: Any) -> None: ...

        def after(self, command: Command, outcome: Outcome, passage: Any) -> None:
            if command is Command.RECORD:
                objects.content[PATH] = sealed(PLAIN)

    engine.inbox.add_probe(Late())
    await engine.settle(event_of(stored(PLAIN, 2)))
    assert engine.store.effects == [1, 2]
    assert objects.asked == [PATH, PATH]
    assert (Command.PREPARE, Outcome.FAILED) in engine.probe.seen


async def test_what_never_comes_is_quarantined_when_its_attempts_are_used_up() -> None:
    objects = MemoryObjects()
    engine = engine_with(objects)
    await engine.settle(event_of(stored(PLAIN, 2)))
    assert engine.reasons == ["retries-used-up"]
    assert len(objects.asked) == 3
    assert "begin" not in engine.probe.commands


@pytest.mark.parametrize(
    ("content", "said", "options", "reason"),
    [
        (sealed(PLAIN), stored(PLAIN, 2, path="../x"), {}, "result-bad-path"),
        (sealed(PLAIN), stored(PLAIN, 2), {"max_bytes": 1}, "result-too-large"),
        (sealed(PLAIN), stored(PLAIN, 2), {"storage_keys": None}, "result-no-key"),
        (sealed(PLAIN)[:-4], stored(PLAIN, 2), {}, "result-not-decryptable"),
        (sealed(PLAIN), stored(PLAIN, 2, hmac="0" * 64), {}, "result-not-authentic"),
        (sealed(PLAIN), stored(PLAIN, 3), {}, "result-malformed"),
    ],
)
async def test_what_can_never_be_had_is_quarantined_at_once_with_its_word(
    content: bytes, said: JobResult, options: dict[str, Any], reason: str
) -> None:
    engine = Engine()
    keys: dict[str, Any] = {"keys": [EXTERNAL], "storage_keys": [STORAGE]}
    reader = ResultReader(MemoryObjects({PATH: content}), **(keys | options))

    async def bill(job: JobCompleted, session: Any, result: Result) -> None:
        session.write(job.event_id)

    engine.handle(bill, COMPLETED, prepare=reader.prepare)
    await engine.settle(event_of(said))
    assert engine.reasons == [reason]
    assert engine.store.effects == []
    assert "begin" not in engine.probe.commands
