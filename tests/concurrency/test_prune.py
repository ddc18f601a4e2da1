"""Clean-ups under live traffic, also under duplicates of the very rows that are being deleted: nobody waits for long.

`benchmarks/prune.py` measures the same with millions of rows.
"""

# ruff: noqa: S608 - statements of ours, about tables of ours

import asyncio
import itertools
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from inbox.adapters.mysql import MySQLStore
from inbox.core.records import Claim
from inbox.core.retention import Pruned
from inbox.errors import StoreError
from inbox.testing.conformance.store import delivery, event, handler, record
from tests.integration.retention_rig import MySQLRetentionRig
from tests.integration.test_prune import NUMBERS
from tests.pairs import Pair

pytestmark = pytest.mark.timeout(600)

#: Old rows, by the thousand; every hundredth is in quarantine, and stays.
ROWS = int(os.environ.get("INBOX_TEST_PRUNE_ROWS", "30000"))
HOUR = 3600.0
UNITS = 4


@dataclass
class Traffic:
    """Units that claim new ids, duplicates of old ones, and refused deliveries between them."""

    rig: MySQLRetentionRig
    store: MySQLStore
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ends: Counter[str] = field(default_factory=Counter)
    claimed: set[bytes] = field(default_factory=set)
    numbers: Any = field(default_factory=itertools.count)

    async def run(self) -> None:
        while not self.done.is_set():
            number = next(self.numbers)
            if number % 20 == 7:
                await self.store.quarantine(delivery(b"%d" % number), event(b"r-%d" % number), "refused", "")
                await self.store.end_attempt(b"r-%d" % number, failed=True)
            # An id of each kind is used once: two who wait for one row are another test's business.
            is_old = number % 3 == 0
            await self.unit(b"e-%07d" % (number * 7 % ROWS) if is_old else b"new-%d" % number)

    async def unit(self, key: bytes) -> None:
        unit = await self.store.begin()
        try:
            claim = await unit.claim(record(key, fingerprint=None))
            if claim is Claim.NEW:
                await unit.apply(handler(lambda _, session: self.rig.effect(session, key.decode())), event(key), None)
                await unit.commit()
                self.claimed.add(key)
        except StoreError as error:
            self.ends[f"{type(error).__name__} {error.code}"] += 1
            await unit.rollback()
        else:
            self.ends[claim.value] += 1


async def fill(rig: MySQLRetentionRig) -> None:
    for thousand in range(ROWS // 1000):
        await rig.sql(
            "INSERT INTO inbox (consumer_name, event_id, processed_at) SELECT 'billing', "
            f"CONCAT('e-', LPAD(%(t)s * 1000 + n, 7, '0')), UTC_TIMESTAMP(6) - INTERVAL 2 HOUR FROM {NUMBERS}",
            t=thousand,
        )
    await rig.sql(
        "INSERT INTO inbox_quarantine (consumer_name, digest, record_key, reason, headers, body) "
        "SELECT 'billing', UNHEX(SHA2(event_id, 256)), event_id, 'torn', '', '' FROM inbox "
        "WHERE event_id LIKE 'e-%%00'",
        _=0,
    )


async def test_live_traffic_sees_no_lock_and_every_claim_holds(pair: Pair) -> None:
    rig = MySQLRetentionRig(pair, pair.driver)
    await rig.create()
    await fill(rig)
    kept = {row[0] for row in await rig.sql("SELECT record_key FROM inbox_quarantine")}
    assert len(kept) == ROWS // 100
    store, cleaner = rig.store(concurrency=UNITS, lock_wait=1), rig.store()
    async with asyncio.timeout(600), asyncio.TaskGroup() as group:
        await store.open()
        traffic = Traffic(rig, store)
        for _ in range(UNITS):
            group.create_task(traffic.run())
        done = await cleaner.prune(HOUR, batch=500, pause=0.01, progress=lambda _: True)
        traffic.done.set()
    await store.close()

    assert set(traffic.ends) == {"new", "duplicate"}, "no lock wait ended, no dead-lock, nothing was released"
    assert done.is_complete
    assert done.kept == len(kept)
    assert done.inbox == ROWS - len(kept)
    assert await rig.keys() == kept | traffic.claimed, "old ids that came again after they were forgotten are new ones"
    assert sorted(await rig.effects()) == sorted(key.decode() for key in traffic.claimed), "one effect each"
    assert await cleaner.prune(HOUR, batch=500, pause=0.0, progress=lambda _: True) == Pruned(kept=len(kept))
