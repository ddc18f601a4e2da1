"""Genuine job events, signed: what a Fetcher worker sends when a job has ended."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inbox.core.cloudevents import Encoded, encode
from inbox.core.event import CloudEvent
from inbox.fetcher.models import JobCompleted, JobFailed, Status, event_id_of
from inbox.fetcher.signature import SIGNATURE, TENANT, TIMESTAMP, V1, VERSION, mac, sign

if TYPE_CHECKING:
    import random

__all__ = ["COMPLETED", "FAILED", "Job", "Sender", "Status", "json_body", "make_job", "sign"]

COMPLETED, FAILED = JobCompleted.TYPES[0], JobFailed.TYPES[0]

_ERRORS = (
    "engine extraction: dial tcp [redacted] connect: connection refused",
    "open [redacted] connection refused",
    "lookup [redacted] on [redacted]: no such host",
)


@dataclass(frozen=True)
class Job:
    """A job that has ended, and all that its event says."""

    id: str
    status: Status
    body: bytes

    @property
    def routing_key(self) -> str:
        return f"job.{self.status}"

    @property
    def event_id(self) -> str:
        """Made of the job and its end alone, so that every publish of it carries the same id."""
        return event_id_of(self.id, self.status)


@dataclass(frozen=True)
class Sender:
    """Who publishes: where to, for whom, signed with what, and under which family of event types."""

    exchange: str
    tenant: str
    key: bytes
    family: str = "studio.lerian"

    def encoded(self, job: Job, now: float) -> Encoded:
        """One publish of `job` at Unix time `now`: time, signature and request id are new each time."""
        timestamp = int(now)
        signature = sign(
            self.key,
            job.body,
            timestamp=timestamp,
            tenant=self.tenant,
            job_id=job.id,
            exchange=self.exchange,
            routing_key=job.routing_key,
        )
        encoded = encode(self._event_of(job, now), octets=True)
        headers: dict[str, Any] = {
            **encoded.headers,
            "ce-datacontenttype": bytearray(b"application/json"),
            TENANT: self.tenant,
            SIGNATURE: signature,
            TIMESTAMP: str(timestamp),
            VERSION: V1,
            "X-Request-Id": str(uuid.uuid4()),
            "x-retry-count": 0,
        }
        return Encoded(headers, encoded.content_type, encoded.body)

    def _event_of(self, job: Job, now: float) -> CloudEvent:
        return CloudEvent(
            id=job.event_id,
            source="//lerian.fetcher/worker",
            type=f"{self.family}.{job.routing_key}",
            time=datetime.fromtimestamp(now, UTC),
            subject=job.id,
            datacontenttype="application/json",
            extensions={
                "schemaversion": "1.0.0",
                "resourcetype": "job",
                "eventtype": job.status,
                "tenantid": self.tenant,
            },
            data=job.body,
        )


def json_body(value: object) -> bytes:
    """`value` as the worker writes JSON: compact, and `<`, `>`, `&` and two line separators escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def make_job(
    number: int, status: Status, key: bytes, draw: random.Random, requested: Mapping[str, object] | None = None
) -> Job:
    """A job that ended.

    Args:
        number: its place among others; ids sort by it.
        status: `completed` or `failed`.
        key: the external HMAC key, which authenticates a result as well.
        draw: decides everything that is drawn.
        requested: what the requester sent with the job beside its source and a correlation id: it comes back.
    """
    job_id = _uuid7(1_782_397_200_000 + number, draw)
    metadata: dict[str, object] = {**(requested or {}), "correlationId": f"c-{number}", "source": "plugin_crm"}
    if status == "failed":
        metadata["error"] = {"message": draw.choice(_ERRORS)}
    body: dict[str, Any] = {"jobId": job_id, "metadata": dict(sorted(metadata.items())), "status": status}
    if status == "completed":
        body |= _completion(job_id, key, draw)
    return Job(job_id, status, json_body(body))


def _completion(job_id: str, key: bytes, draw: random.Random) -> dict[str, Any]:
    """What a completed job says more. Zero values are left out, as the worker leaves them out.

    The result itself is stored nowhere: its size and its MAC are those of a stand-in.
    """
    rows = draw.choice([0, draw.randrange(1, 10), draw.randrange(1_000, 5_000)])
    authenticated = mac(key, f"{rows} rows".encode())
    result = {
        "path": f"external-data/{job_id}.json",
        "sizeBytes": 2 + 40 * rows,
        "rowCount": rows,
        "format": "json",
        "hmac": authenticated,
        "integrity": {"algorithm": "HMAC-SHA256", "signature": authenticated},
        "protection": {"encrypted": True, "mode": "adapter-managed", "appliedBy": "adapter"},
    }
    completion: dict[str, Any] = {
        "result": {name: value for name, value in result.items() if value != 0},
        "executionTimeMs": draw.randrange(1, 5_000),
        "completedAt": f"2026-06-25T14:{draw.randrange(60):02}:{draw.randrange(60):02}.{draw.randrange(1, 10)}-03:00",
    }
    return completion


def _uuid7(milliseconds: int, draw: random.Random) -> str:
    """A UUID of version 7 (RFC 9562, 5.7) whose random bits come from `draw`."""
    value = milliseconds << 80 | 7 << 76 | draw.getrandbits(12) << 64 | 2 << 62 | draw.getrandbits(62)
    return str(uuid.UUID(int=value))
