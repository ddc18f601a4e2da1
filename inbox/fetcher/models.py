"""Job events as values: what a handler gets that asks for `JobCompleted` or `JobFailed`.

    @inbox.handler(*JobCompleted.TYPES)
    async def credit(job: JobCompleted, session: AsyncSession) -> None: ...

Both generations of names are read (job event contract, sections 3 and 11). Members that are not named here are ignored,
so that the provider may add some. What is named here is strict: integers are exact, and an integer is no 1.0. What does
not fit is refused as `invalid-payload`, with the member's place and never its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Self
from uuid import UUID

from inbox.core.event import Event, strict_json
from inbox.errors import Undecodable
from inbox.fetcher.members import ABSENT, Members, unfit
from inbox.fetcher.moments import parse_moment, unix_nanoseconds

Status = Literal["completed", "failed"]
STATUSES: Final[tuple[Status, ...]] = ("completed", "failed")

#: What a `ce-type` begins with before `.job.` and the status: that of 2.0.x, and that of the later line.
FAMILIES: Final = ("studio.lerian", "studio.lerian.fetcher")

_JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def is_job_id(text: str) -> bool:
    """Whether it is a lower-case hyphenated UUID. One job has one spelling, or it would have several event ids."""
    return _JOB_ID.fullmatch(text) is not None


def event_id_of(job_id: str | UUID, status: Status) -> str:
    """The `ce-id` of a job's end: made of the job and its status alone, so every emission of it has the same one."""
    return f"fetcher.job.{status}.{job_id}"


def types_of(status: Status, families: tuple[str, ...] = FAMILIES) -> tuple[str, ...]:
    """The CloudEvents types that mean a job's end."""
    return tuple(f"{family}.job.{status}" for family in families)


@dataclass(frozen=True, slots=True)
class ResultIntegrity:
    """How the result is authenticated.

    Attributes:
        algorithm: `HMAC-SHA256`.
        signature: the same text as the result's `hmac`.
        digest: known to the provider's model, and not sent today.
    """

    algorithm: str
    signature: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ResultProtection:
    """How the stored result, and nothing else, is encrypted.

    Attributes:
        encrypted: whether it is.
        mode: `adapter-managed`: by the Worker's storage layer, which is not the store's own encryption.
        applied_by: `adapter`.
        key_version: not sent today.
    """

    encrypted: bool
    mode: str
    applied_by: str
    key_version: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class JobResult:
    """Where a completed job's result is, and how it can be checked.

    Attributes:
        path: of the stored object, without the deployment's own prefix, which no event tells.
        size_bytes: octets of the plaintext, before encryption.
        row_count: rows over all tables; 0 where the event leaves it out.
        format: `json`.
        hmac: of the plaintext, 64 lower-case hex digits; None where the Worker had no signer.
        integrity, protection: None where they are not sent, as by 1.x.
    """

    path: str
    size_bytes: int
    row_count: int = 0
    format: str = "json"
    hmac: str | None = None
    integrity: ResultIntegrity | None = None
    protection: ResultProtection | None = None

    def __repr__(self) -> str:
        return "<JobResult>"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _JobEnded:
    """What both ends of a job have in common.

    Attributes:
        job_id: of the job.
        metadata: what the requester sent with the job. Numbers went through double precision on the provider's side, so
            carry correlation ids as texts. It is the tenant's own data: keep it out of logs.
        tenant: whose job it was; single-tenant deployments send `single-tenant`. Signed, once a `FetcherVerifier` has
            accepted the event. None where the event names none.
        source: `ce-source`: which Worker says so. Not signed.
        raw: the body's octets as received: what the signature covers.
    """

    job_id: UUID
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tenant: str | None = None
    source: str = ""
    raw: bytes = b""

    STATUS: ClassVar[Status]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def event_id(self) -> str:
        """`ce-id`: the one thing that duplicates of this event have in common."""
        return event_id_of(self.job_id, self.STATUS)

    @property
    def product(self) -> str | None:
        """The requester's product, `metadata.source`; None where it is not there, or no text."""
        found = self.metadata.get("source")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class JobCompleted(_JobEnded):
    """A job that has ended well.

    Attributes:
        job_id, metadata, tenant, source, raw: as of every job's end.
        result: where it is.
        execution_time_ms: milliseconds; 0 where the event leaves it out.
        completed_at: by the Worker's clock, aware, with the offset that was written, cut to microseconds. It is a plain
            `datetime`, for that is what database drivers take.
        completed_nanosecond: what was cut off, 0 to 999. The two together are exact, and cannot contradict each other.
    """

    TYPES: ClassVar[tuple[str, ...]] = types_of("completed")
    STATUS: ClassVar[Status] = "completed"

    result: JobResult
    completed_at: datetime
    completed_nanosecond: int = 0
    execution_time_ms: int = 0

    @property
    def completed_at_ns(self) -> int:
        """Nanoseconds since 1970 in UTC, exact: for comparing, and for a BIGINT column."""
        return unix_nanoseconds(self.completed_at, self.completed_nanosecond)

    @classmethod
    def from_event(cls, event: Event) -> Self:
        """The job that a verified event tells of.

        Raises:
            Refused: `invalid-payload`: it tells of none that completed; `bad-json`: its data is no strict JSON.
        """
        body, common = _read(event, cls.STATUS)
        moment, nanosecond = _moment(body, "completed_at")
        return cls(
            **common,
            result=_result(body.nested("result")),
            execution_time_ms=body.integer("execution_time_ms", 0),
            completed_at=moment,
            completed_nanosecond=nanosecond,
        )

    __inbox_payload__ = from_event


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class JobFailed(_JobEnded):
    """A job that has failed. What it stored before that, if anything, stays behind unreferenced.

    Attributes:
        job_id, metadata, tenant, source, raw: as of every job's end.
        error: the provider's redacted text, `metadata.error.message`; None where there is none. Host names and names of
            users and databases can still be in it: for operators, not for end users.
    """

    TYPES: ClassVar[tuple[str, ...]] = types_of("failed")
    STATUS: ClassVar[Status] = "failed"

    error: str | None = None

    @classmethod
    def from_event(cls, event: Event) -> Self:
        """The job that a verified event tells of.

        Raises:
            Refused: `invalid-payload`: it tells of none that failed; `bad-json`: its data is no strict JSON.
        """
        _, common = _read(event, cls.STATUS)
        error = common["metadata"].get("error")
        message = error.get("message") if isinstance(error, dict) else None
        return cls(**common, error=message if isinstance(message, str) else None)

    __inbox_payload__ = from_event


# ------------------------------------------------------------------ reading
def _read(event: Event, status: Status) -> tuple[Members, dict[str, Any]]:
    """The body, and the fields that both ends have in common.

    Only `status` says how the job ended: a completed job may have `metadata.error` of the requester's own.
    """
    data = event.data or b""
    parsed = strict_json(data)
    if type(parsed) is not dict:
        raise unfit("data", "expected an object")
    body = Members(parsed, "data")
    if body.text("status") != status:
        raise unfit("data.status", f"expected {status}")
    job_id = body.text("job_id")
    if not is_job_id(job_id):
        raise unfit(body.path("job_id"), "expected a lower-case UUID with hyphens")
    tenant = event.extensions.get("tenantid")
    return body, {
        "job_id": UUID(job_id),
        "metadata": _metadata(body, data),
        "tenant": tenant if isinstance(tenant, str) else None,
        "source": event.source,
        "raw": data,
    }


def _metadata(body: Members, data: bytes) -> dict[str, Any]:
    """The requester's metadata, whole, unless there is half of a surrogate pair in it: that could be stored nowhere."""
    metadata = body.plain("metadata")
    if _SURROGATE.search(data) is not None:
        try:
            json.dumps(metadata, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise unfit("data.metadata", "holds half of a surrogate pair") from None
        except RecursionError:
            raise Undecodable("the data is nested too deeply", code="bad-json") from None
    return metadata


def _result(result: Members) -> JobResult:
    integrity, protection = result.optional_nested("integrity"), result.optional_nested("protection")
    return JobResult(
        path=result.text("path"),
        size_bytes=result.count("size_bytes"),
        row_count=result.count("row_count", 0),
        format=result.text("format"),
        hmac=result.optional_text("hmac"),
        integrity=None if integrity is None else _integrity(integrity),
        protection=None if protection is None else _protection(protection),
    )


def _integrity(integrity: Members) -> ResultIntegrity:
    return ResultIntegrity(integrity.text("algorithm"), integrity.text("signature"), integrity.optional_text("digest"))


def _protection(protection: Members) -> ResultProtection:
    has_version = protection.find("key_version") is not ABSENT
    return ResultProtection(
        protection.flag("encrypted"),
        protection.text("mode"),
        protection.text("applied_by"),
        protection.integer("key_version") if has_version else None,
    )


def _moment(body: Members, name: str) -> tuple[datetime, int]:
    try:
        return parse_moment(body.text(name))
    except ValueError:
        raise unfit(body.path(name), "expected an RFC 3339 date-time of at most nine digits") from None
