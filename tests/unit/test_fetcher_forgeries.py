"""Not one bit can be changed, and what was refused uses up no id."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.config import ConsumerSettings
from inbox.core.delivery import Delivery, Origin
from inbox.fetcher import FetcherVerifier, JobCompleted, JobFailed, job_event_settings
from tests.unit.engine import FAST, Engine
from tests.unit.fetcher_cases import JOB_ID, KEY, NEWER, NOW, make, resigned, with_headers

#: As small as a job event can be: each of its bits costs a delivery.
SMALL = json.dumps({"jobId": JOB_ID, "metadata": {}, "status": "failed"}, separators=(",", ":")).encode()
EVENT_ID = f"fetcher.job.failed.{JOB_ID}"


class Consumer(Engine):
    def __init__(self, **settings: Any) -> None:
        verifier = FetcherVerifier([KEY], **{"routes": ["origin"], "clock": lambda: NOW, **settings})
        super().__init__(job_event_settings(FAST), verifier)

        @self.inbox.handler(*JobFailed.TYPES)
        async def note(job: JobFailed, session: AsyncSession) -> None:
            session.write(job.event_id)  # type: ignore[attr-defined]

        @self.inbox.handler(*JobCompleted.TYPES)
        async def credit(job: JobCompleted, session: AsyncSession) -> None:
            session.write(f"{job.event_id} {job.result.row_count}")  # type: ignore[attr-defined]

    async def takes(self, *deliveries: Delivery) -> None:
        await self.settle(*deliveries)


def flipped(octets: bytes) -> Iterator[bytes]:
    """`octets` with each of its bits changed in turn."""
    for place in range(len(octets) * 8):
        changed = bytearray(octets)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)


def forgeries(given: Delivery) -> Iterator[Delivery]:
    for body in flipped(given.body):
        yield replace(given, body=body)
    for name in ("X-Tenant-ID", "t", "signature-version", "x-message-signature", "ce-id", "ce-tenantid", "ce-type"):
        value: Any = given.headers[name]
        for octets in flipped(value.encode() if isinstance(value, str) else bytes(value)):
            yield replace(given, headers={**given.headers, name: bytearray(octets)})
    for exchange in flipped(given.origin.exchange.encode()):
        yield replace(given, origin=Origin(exchange.decode("latin-1"), given.origin.routing_key))
    for routing_key in flipped(given.origin.routing_key.encode()):
        yield replace(given, origin=Origin(given.origin.exchange, routing_key.decode("latin-1")))


async def test_no_single_bit_can_be_changed_and_the_genuine_event_is_applied_after_all_that() -> None:
    genuine = make(SMALL)
    forged = [*forgeries(genuine)]
    assert len(forged) > 2000
    consumer = Consumer()
    await consumer.takes(*forged)
    assert consumer.store.effects == []
    assert consumer.store.rows == {}
    assert len(consumer.reasons) == len(forged)
    assert {"invalid", "inconsistent"} <= {*consumer.reasons}

    again = Consumer()
    again.store.database = consumer.store.database
    await again.takes(genuine, genuine)
    assert again.store.effects == [EVENT_ID]


@pytest.mark.parametrize(
    "forged",
    [
        with_headers(make(SMALL), x_message_signature="0" * 64),
        with_headers(make(), ce_id=EVENT_ID),  # a genuine one of another end of the job
        with_headers(make(), ce_type=JobFailed.TYPES[0]),
        replace(make(SMALL, now=NOW + 3600)),
    ],
)
async def test_what_is_refused_uses_up_no_id(forged: Delivery) -> None:
    consumer = Consumer()
    await consumer.takes(forged, make(SMALL))
    assert consumer.store.effects == [EVENT_ID]
    assert len(consumer.reasons) == 1
    assert [*consumer.store.rows] == [EVENT_ID.encode()]


async def test_a_genuine_event_under_another_type_reaches_no_handler_and_no_policy() -> None:
    """`unknown_types` may ignore a type, which writes the inbox row: a changed `ce-type` would burn the id."""
    settings = replace(FAST, unknown_types={"audit.*": "ignore"})
    consumer = Consumer()
    consumer.inbox.settings = job_event_settings(settings)
    consumer.inbox.registry._unknown.update(settings.unknown_types)
    await consumer.takes(with_headers(make(SMALL), ce_type="audit.job.failed"), make(SMALL))
    assert consumer.store.effects == [EVENT_ID]
    assert consumer.reasons == ["inconsistent"]


# ---------------------------------------------------------------- identity
async def test_whatever_a_re_emission_changes_it_is_a_duplicate() -> None:
    first, later = make(), make(now=NOW + 20)
    other_body = make(executionTimeMs=7)
    consumer = Consumer()
    await consumer.takes(first, later, other_body, make(sender=NEWER), with_headers(make(), ce_source="fetcher"))
    assert consumer.store.effects == [f"fetcher.job.completed.{JOB_ID} 2"]
    assert consumer.reasons == []


async def test_without_the_ready_made_setting_true_duplicates_would_go_to_quarantine() -> None:
    assert job_event_settings() == ConsumerSettings(identity="id", fingerprint=None)
    consumer = Engine(FAST, FetcherVerifier([KEY], clock=lambda: NOW))

    @consumer.inbox.handler(*JobCompleted.TYPES)
    async def credit(job: JobCompleted, session: AsyncSession) -> None:
        session.write(job.event_id)  # type: ignore[attr-defined]

    await consumer.settle(make(), make(executionTimeMs=7))
    assert consumer.reasons == ["identity-conflict"]


async def test_both_ends_of_one_job_are_two_events() -> None:
    consumer = Consumer()
    await consumer.takes(make(), make(SMALL))
    assert sorted(map(str, consumer.store.effects)) == [f"fetcher.job.completed.{JOB_ID} 2", EVENT_ID]


async def test_a_payload_that_does_not_fit_is_quarantined_and_uses_up_no_id() -> None:
    body = json.dumps({"jobId": JOB_ID, "metadata": {}, "status": "completed", "result": {}}).encode()
    consumer = Consumer()
    await consumer.takes(resigned(make(), body, line=JOB_ID), make())
    assert consumer.reasons == ["invalid-payload"]
    assert consumer.store.effects == [f"fetcher.job.completed.{JOB_ID} 2"]
