"""Job events as values: both generations, exact numbers and times, and what is refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.core.event import Event
from inbox.errors import ConfigurationError, Refused
from inbox.fetcher import JobCompleted, JobFailed, JobResult, ResultIntegrity, ResultProtection
from inbox.fetcher.members import Members, both_names
from inbox.fetcher.models import _metadata
from inbox.fetcher.moments import parse_moment, unix_nanoseconds
from inbox.runtime.payloads import decoder_of, is_payload_class
from inbox.service import InboxService, handles
from tests.unit.engine import Engine
from tests.unit.fetcher_cases import DELIVERIES, JOB_ID, NEWER, body_of, delivery_of, event_of, make, with_headers

MAC = "5d173131feadbe6063459769060d1567cef6c65e8ff4f1d3d8cea7fdbf09833a"
MINUS_THREE = timezone(timedelta(hours=-3))


def event(name: str) -> Event:
    """An event with the provider's body of this name."""
    status = "failed" if name.startswith("failed") else "completed"
    return event_of(replace(delivery_of(f"v-{status}"), body=body_of(name)))


def changed(**members: Any) -> Event:
    """An event with the plain body, these members of it changed."""
    return event_of(make(**members))


def result(**members: Any) -> dict[str, Any]:
    """The plain body's result, these members of it changed."""
    return {**json.loads(body_of("completed-typical"))["result"], **members}


def bare(event: Event, **members: Any) -> Event:
    """`event` with another body, which needs no signature here."""
    body = json.dumps({**json.loads(event.data or b""), **members}).encode()
    return Event(replace(event.cloudevent, data=body), event.record, event.origin)


# ---------------------------------------------------------------- what is read
def test_a_completed_job_is_read_whole() -> None:
    job = JobCompleted.from_event(event("completed-typical"))
    assert job == JobCompleted(
        job_id=UUID(JOB_ID),
        metadata={"correlationId": "c-42", "source": "plugin_crm"},
        tenant="single-tenant",
        source="//lerian.fetcher/worker",
        raw=body_of("completed-typical"),
        result=JobResult(
            path=f"external-data/{JOB_ID}.json",
            size_bytes=229,
            row_count=2,
            format="json",
            hmac=MAC,
            integrity=ResultIntegrity("HMAC-SHA256", MAC),
            protection=ResultProtection(True, "adapter-managed", "adapter"),
        ),
        execution_time_ms=1834,
        completed_at=datetime(2026, 6, 25, 14, 19, 58, 123456, UTC),
        completed_nanosecond=789,
    )
    assert job.product == "plugin_crm"
    assert job.event_id == f"fetcher.job.completed.{JOB_ID}"
    assert job.completed_at_ns == 1_782_397_198_123_456_789


def test_both_generations_say_the_same() -> None:
    older, later = (JobCompleted.from_event(event(f"completed-{name}")) for name in ("typical", "snake-case"))
    assert replace(later, raw=b"") == replace(older, raw=b"")


def test_a_failed_job_is_read_whole() -> None:
    message = "engine extraction: dial tcp [redacted] connect: connection refused"
    metadata = {"correlationId": "c-42", "error": {"message": message}, "source": "plugin_crm"}
    assert JobFailed.from_event(event("failed-typical")) == JobFailed(
        job_id=UUID(JOB_ID),
        metadata=metadata,
        tenant="single-tenant",
        source="//lerian.fetcher/worker",
        raw=body_of("failed-typical"),
        error=message,
    )
    assert JobFailed.from_event(event("failed-snake-case")).error == "lookup [redacted]: no such host"
    unreadable = JobFailed.from_event(event("failed-invalid-request-message"))
    assert unreadable.product is None
    assert unreadable.event_id == "fetcher.job.failed.01979c3a-7c1f-7000-8000-000000000001"


@pytest.mark.parametrize("metadata", [{}, {"error": "text"}, {"error": {}}, {"error": {"message": 7}}])
def test_a_failed_job_without_its_text_has_failed_all_the_same(metadata: dict[str, Any]) -> None:
    assert JobFailed.from_event(bare(event("failed-typical"), metadata=metadata)).error is None


def test_only_the_status_says_how_a_job_ended() -> None:
    name = "completed-user-metadata-has-error-key"
    assert JobCompleted.from_event(event(name)).metadata["error"] == {"message": "set by the requester"}
    with pytest.raises(Refused, match=r"^invalid-payload: data\.status: expected failed$"):
        JobFailed.from_event(event(name))


def test_what_is_zero_is_left_out_and_read_as_zero() -> None:
    job = JobCompleted.from_event(event("completed-zero-rows-zero-ms-local-zone"))
    assert (job.result.row_count, job.execution_time_ms) == (0, 0)
    assert job.completed_at.utcoffset() == timedelta(hours=-3)


def test_what_1x_does_not_send_is_none() -> None:
    sent = {name: value for name, value in result().items() if name not in {"hmac", "integrity", "protection"}}
    read = JobCompleted.from_event(changed(result=sent)).result
    assert (read.hmac, read.integrity, read.protection) == (None, None, None)


def test_what_may_come_is_read_and_what_is_unknown_is_not() -> None:
    protection = {"encrypted": False, "mode": "m", "appliedBy": "a", "keyVersion": 3, "new": {}}
    integrity = {"algorithm": "a", "signature": "s", "digest": "d"}
    read = JobCompleted.from_event(changed(result=result(protection=protection, integrity=integrity), new=[1])).result
    assert read.protection == ResultProtection(encrypted=False, mode="m", applied_by="a", key_version=3)
    assert read.integrity == ResultIntegrity("a", "s", "d")


def test_integers_are_exact() -> None:
    huge = 123_456_789_012_345_678_901_234_567_890
    job = JobCompleted.from_event(changed(result=result(sizeBytes=huge), metadata={"big": huge}, executionTimeMs=huge))
    assert (job.result.size_bytes, job.metadata["big"], job.execution_time_ms) == (huge, huge, huge)
    assert JobCompleted.from_event(event("completed-large-integers-metadata")).metadata["huge"] == 12345678901234567000


def test_every_event_of_the_providers_that_is_one_is_read() -> None:
    kinds: dict[str, type[JobCompleted | JobFailed]] = {"completed": JobCompleted, "failed": JobFailed}
    for name, given in DELIVERIES.items():
        if given.get("binding") == "ok":
            delivery = delivery_of(name)
            job = kinds[given["routing_key"].removeprefix("job.")].from_event(event_of(delivery))
            assert job.event_id.encode() == bytes(delivery.headers["ce-id"])  # type: ignore[call-overload]
            assert job.raw == delivery.body


def test_an_event_without_a_tenant_has_none() -> None:
    assert JobCompleted.from_event(event_of(delivery_of("v-no-tenant-header"))).tenant is None
    assert JobCompleted.from_event(event_of(with_headers(make(), ce_tenantid=7))).tenant is None


# ---------------------------------------------------------------- times
@pytest.mark.parametrize(
    ("text", "moment", "nanosecond"),
    [
        ("2026-06-25T14:19:58Z", datetime(2026, 6, 25, 14, 19, 58, tzinfo=UTC), 0),
        ("2026-06-25T14:19:58.1Z", datetime(2026, 6, 25, 14, 19, 58, 100_000, UTC), 0),
        ("2026-06-25T14:19:58.123456Z", datetime(2026, 6, 25, 14, 19, 58, 123_456, UTC), 0),
        ("2026-06-25T14:19:58.1234567Z", datetime(2026, 6, 25, 14, 19, 58, 123_456, UTC), 700),
        ("2026-06-25T14:19:58.000000001Z", datetime(2026, 6, 25, 14, 19, 58, 0, UTC), 1),
        ("2026-06-25T11:19:58.999999999-03:00", datetime(2026, 6, 25, 11, 19, 58, 999_999, MINUS_THREE), 999),
        ("1969-12-31T23:59:59.999999999+00:00", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), 999),
    ],
)
def test_no_digit_of_a_time_is_lost(text: str, moment: datetime, nanosecond: int) -> None:
    job = JobCompleted.from_event(changed(completedAt=text))
    assert (job.completed_at, job.completed_nanosecond) == (moment, nanosecond)
    assert job.completed_at.utcoffset() == moment.utcoffset()
    assert parse_moment(text) == (moment, nanosecond)


def test_nanoseconds_are_counted_exactly_before_1970_too() -> None:
    assert unix_nanoseconds(*parse_moment("1969-12-31T23:59:59.999999999Z")) == -1
    assert unix_nanoseconds(*parse_moment("9999-12-31T23:59:59.999999999Z")) == 253_402_300_799_999_999_999
    assert unix_nanoseconds(*parse_moment("0001-01-01T00:00:00Z")) == -62_135_596_800_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "2026-06-25T14:19:58.1234567890Z",
        "2026-06-25T14:19:58",
        "2026-06-25",
        "2026-06-25T14:19:60Z",
        "2026-06-25T14:19:58.Z",
        "",
        1782397198,
        None,
    ],
)
def test_what_is_no_time_is_refused(text: object) -> None:
    with pytest.raises(Refused, match=r"^invalid-payload: data\.completedAt: expected "):
        JobCompleted.from_event(bare(event("completed-typical"), completedAt=text))


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"status": "failed"}, "data.status: expected completed"),
        ({"status": 7}, "data.status: expected a text"),
        ({"jobId": JOB_ID.upper()}, "data.jobId: expected a lower-case UUID with hyphens"),
        ({"jobId": 7}, "data.jobId: expected a text"),
        ({"metadata": None}, "data.metadata: expected an object"),
        ({"metadata": []}, "data.metadata: expected an object"),
        ({"result": []}, "data.result: expected an object"),
        ({"result": result(sizeBytes=2.0)}, "data.result.sizeBytes: expected an integer"),
        ({"result": result(sizeBytes=True)}, "data.result.sizeBytes: expected an integer"),
        ({"result": result(sizeBytes="229")}, "data.result.sizeBytes: expected an integer"),
        ({"result": result(rowCount=None)}, "data.result.rowCount: expected an integer"),
        ({"result": result(rowCount=-1)}, "data.result.rowCount: expected an integer that is not negative"),
        ({"result": result(path=None)}, "data.result.path: expected a text"),
        ({"result": result(path="\ud800")}, "data.result.path: expected a text"),
        ({"result": result(hmac=7)}, "data.result.hmac: expected a text"),
        ({"result": result(integrity=[])}, "data.result.integrity: expected an object"),
        ({"result": result(integrity={"algorithm": "x"})}, "data.result.integrity.signature: expected a text"),
        (
            {"result": result(protection={"encrypted": 1, "mode": "m", "appliedBy": "a"})},
            "data.result.protection.encrypted: expected true or false",
        ),
        ({"executionTimeMs": 1.5}, "data.executionTimeMs: expected an integer"),
        ({"metadata": {"a": ["\udc00"]}}, "data.metadata: holds half of a surrogate pair"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_without_its_value(members: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as refused:
        JobCompleted.from_event(bare(event("completed-typical"), **members))
    assert (refused.value.code, refused.value.detail) == ("invalid-payload", said)


def test_a_text_beyond_the_basic_plane_is_whole() -> None:
    """It is written as a pair of surrogates, both of which are there."""
    job = JobCompleted.from_event(bare(event("completed-typical"), metadata={"a": "\N{PARTY POPPER}"}))
    assert job.metadata == {"a": "\N{PARTY POPPER}"}


@pytest.mark.parametrize("missing", ["jobId", "metadata", "status", "result", "completedAt"])
def test_what_must_be_there_must_be_there(missing: str) -> None:
    whole = event("completed-typical")
    kept = {name: value for name, value in json.loads(whole.data or b"").items() if name != missing}
    without = Event(replace(whole.cloudevent, data=json.dumps(kept).encode()), whole.record, whole.origin)
    with pytest.raises(Refused, match=rf"^invalid-payload: data\.{missing}: expected "):
        JobCompleted.from_event(without)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, "bad-json"),
        (b"not json", "bad-json"),
        (b"[]", "invalid-payload"),
        (b"\xef\xbb\xbf{}", "bad-json"),
        (b'{"a":NaN}', "bad-json"),
        (b'{"a":1,"a":1}', "bad-json"),
        (b'{"a":"\xff"}', "bad-json"),
        (b'{"jobId":"x","metadata":' + b"[" * 100_000, "bad-json"),
    ],
)
def test_a_body_that_is_no_strict_json_is_a_bad_message_and_no_crash(body: bytes | None, code: str) -> None:
    whole = event("completed-typical")
    with pytest.raises(Refused) as refused:
        JobCompleted.from_event(Event(replace(whole.cloudevent, data=body), whole.record, whole.origin))
    assert refused.value.code == code


def deep() -> list[Any]:
    """Deeper than anything can be looked through, and than a parser lets pass."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def test_metadata_that_is_too_deep_to_be_looked_through_is_a_bad_message() -> None:
    with pytest.raises(Refused, match=r"^bad-json: the data is nested too deeply$"):
        _metadata(Members({"metadata": {"deep": deep()}}, "data"), b'"\\ud800"')


# ---------------------------------------------------------------- two names of one member
def test_names_of_both_generations() -> None:
    assert both_names("execution_time_ms") == ("executionTimeMs", "execution_time_ms")
    assert both_names("status") == ("status", "status")


def test_both_names_with_one_value_are_one_member() -> None:
    both = result(size_bytes=229)
    assert JobCompleted.from_event(changed(result=both, job_id=JOB_ID)).result.size_bytes == 229


@pytest.mark.parametrize("other", [230, 229.0, "229", None])
def test_both_names_with_two_values_are_refused(other: object) -> None:
    with pytest.raises(Refused, match=r"data\.result\.size_bytes: there twice, also as sizeBytes, with another value"):
        JobCompleted.from_event(changed(result=result(size_bytes=other)))


def test_two_values_that_are_too_deep_to_be_compared_are_refused() -> None:
    with pytest.raises(Refused, match=r"there twice"):
        Members({"jobId": deep(), "job_id": deep()}, "data").find("job_id")


# ---------------------------------------------------------------- in a handler
async def test_handlers_get_them_by_annotation_and_one_handler_both_generations() -> None:
    engine = Engine()
    seen: list[object] = []

    class Billing(InboxService):
        @handles(*JobCompleted.TYPES)
        async def credit(self, job: JobCompleted, event: Event, session: AsyncSession) -> None:
            seen.append((event.type, job.result.row_count))

    engine.inbox.add_service(Billing())

    @engine.inbox.handler(*JobFailed.TYPES)
    async def note(job: JobFailed, session: AsyncSession) -> None:
        seen.append(job.error)

    later = replace(make(sender=NEWER), headers={**make(sender=NEWER).headers, "ce-id": "2"})
    await engine.settle(make(), later, make(body_of("failed-snake-case")))
    assert sorted(map(str, seen)) == [
        "('studio.lerian.fetcher.job.completed', 2)",
        "('studio.lerian.job.completed', 2)",
        "lookup [redacted]: no such host",
    ]


def test_a_handler_needs_a_type_and_each_once() -> None:
    engine = Engine()
    with pytest.raises(ConfigurationError, match=r"needs the event type"):
        engine.inbox.handler()
    with pytest.raises(ConfigurationError, match=r"two handlers for type 'a'"):

        @engine.inbox.handler("a", "a")
        async def twice(job: JobFailed, session: AsyncSession) -> None: ...


class Own:
    """A payload of somebody's that makes itself."""

    @classmethod
    def __inbox_payload__(cls, event: Event) -> "Own":
        if event.type == "deep":
            raise RecursionError
        if event.type == "own":
            raise Refused("no", code="own")
        if event.type == "odd":
            raise KeyError("hunter2")
        return cls()


@pytest.mark.parametrize(
    ("kind", "code", "detail"),
    [
        ("deep", "invalid-payload", "data: nested too deeply"),
        ("own", "own", "no"),
        ("odd", "invalid-payload", "data: refused by Own (KeyError)"),
    ],
)
def test_a_payload_that_makes_itself_refuses_as_any_other(kind: str, code: str, detail: str) -> None:
    decode = decoder_of(Own, "handler x")
    given = event("completed-typical")
    assert is_payload_class(Own)
    assert isinstance(decode(given), Own)
    with pytest.raises(Refused) as refused:
        decode(Event(replace(given.cloudevent, type=kind), given.record, given.origin))
    assert (refused.value.code, refused.value.detail) == (code, detail)


def test_nothing_of_a_job_is_shown() -> None:
    job = JobCompleted.from_event(event("completed-typical"))
    assert f"{job} {job.result} {JobFailed.from_event(event('failed-typical'))}" == (
        "<JobCompleted> <JobResult> <JobFailed>"
    )
    with pytest.raises(AttributeError):
        job.execution_time_ms = 1  # type: ignore[misc]
